//! The worlds that sequences begin in, and how their partition is driven.

use std::sync::Arc;

use kew_broker::{PartitionOptions, ResidentLimit};
use kew_engine::storage::StorageCommand;
use kew_engine::{Command, RunLength};
use kew_log::{FaultyStorage, LogOptions};

use super::bus;
use super::clients::Clients;
use super::host::{BEGINNING, Host};
use super::step::{Step, create_queue, queue_name, send, send_large};
use super::tape::Tape;
use crate::bus::rules::Numbered;
use crate::checker::Violation;
use crate::seam::files_of;
use crate::swarm::small_pages;

/// A world, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name in failures and replays.
    pub name: &'static str,
    pub(super) start: Start,
    pub(super) traffic: Traffic,
    pub(super) background: Background,
    /// Whether there is a bus queue too.
    pub(super) has_bus: bool,
    /// How many copies of messages a command makes at once, if that is not what is usual. Of the others, the messages wait
    /// in their topic.
    pub(super) copies_at_once: Option<u64>,
    /// Whether no message stays in memory that a page has. So memory makes snapshots due, and commands wait for them.
    pub(super) is_cold: bool,
}

/// The history before the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// A new log with one message.
    Fresh,
    /// Segments were used again several times: their old records look like new ones.
    Recycled,
    /// The same, and the active segment is full.
    Full,
    /// Processes were killed during commits: what they wrote is only in the page cache.
    Killed,
    /// Many segments have few bodies each. An idle partition moves those.
    Scattered,
}

/// What else is in progress during a client's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Nothing.
    OneByOne,
    /// Another client's message, in the same commit and in another batch.
    OneCommit,
    /// Another client's message, whose commit is in progress.
    Overlapped,
}

/// When slow jobs are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Background {
    /// Before anything else is asked.
    AtOnce,
    /// After the next commit.
    Later,
}

impl Setting {
    /// The world of Queue Storage whose segments were used again.
    pub(super) const RECYCLED: Self = Self::new(
        "recycled",
        Start::Recycled,
        Traffic::OneByOne,
        Background::AtOnce,
    );

    /// The world of Queue Storage without messages in memory.
    pub(super) const COLD: Self = Self::new(
        "cold",
        Start::Recycled,
        Traffic::Overlapped,
        Background::Later,
    )
    .cold();

    /// Every world that sequences run in.
    pub const ALL: [Self; 13] = {
        use Background::{AtOnce, Later};
        use Start::{Fresh, Full, Killed, Recycled};
        use Traffic::{OneByOne, OneCommit, Overlapped};
        [
            Self::new("fresh", Fresh, OneByOne, AtOnce),
            Self::new("fresh-one-commit", Fresh, OneCommit, Later),
            Self::new("fresh-overlapped", Fresh, Overlapped, AtOnce),
            Self::RECYCLED,
            Self::new("recycled-one-commit", Recycled, OneCommit, Later),
            Self::new("recycled-overlapped", Recycled, Overlapped, Later),
            Self::new("full", Full, OneByOne, Later),
            Self::new("full-one-commit", Full, OneCommit, AtOnce),
            Self::new("full-overlapped", Full, Overlapped, AtOnce),
            Self::new("killed", Killed, OneByOne, AtOnce),
            Self::new("killed-one-commit", Killed, OneCommit, AtOnce),
            Self::new("killed-overlapped", Killed, Overlapped, Later),
            Self::COLD,
        ]
    };

    /// The worlds with a bus queue.
    pub const WITH_BUS: [Self; 5] = {
        use Background::{AtOnce, Later};
        use Start::{Fresh, Killed};
        use Traffic::{OneByOne, OneCommit, Overlapped};
        [
            Self::new("bus-fresh", Fresh, OneByOne, AtOnce).with_bus(),
            Self::new("bus-fresh-overlapped", Fresh, Overlapped, Later).with_bus(),
            Self::new("bus-killed", Killed, OneByOne, Later).with_bus(),
            Self::new("bus-killed-one-commit", Killed, OneCommit, AtOnce).with_bus(),
            Self::new("bus-cold", Killed, Overlapped, Later)
                .with_bus()
                .cold(),
        ]
    };

    /// The worlds of messages with sessions that are set aside. Their logs have lost their beginning, or no start needs it:
    /// otherwise it would read everything from there.
    pub(super) const BUS_ASIDE: [Self; 3] = {
        use Background::AtOnce;
        use Start::{Killed, Recycled};
        use Traffic::OneByOne;
        [
            Self::new("bus-recycled", Recycled, OneByOne, AtOnce).with_bus(),
            Self::new("bus-recycled-cold", Recycled, OneByOne, AtOnce)
                .with_bus()
                .cold(),
            Self::new("bus-killed-cold", Killed, OneByOne, AtOnce)
                .with_bus()
                .cold(),
        ]
    };

    /// The worlds of bit rot with a topic.
    pub(super) const WITH_TOPICS: [Self; 6] = {
        use Background::AtOnce;
        use Start::{Fresh, Killed};
        use Traffic::OneByOne;
        [
            Self::new("topics-fresh", Fresh, OneByOne, AtOnce).with_bus(),
            Self::new("topics-killed", Killed, OneByOne, AtOnce).with_bus(),
            Self::new("topics-waiting", Fresh, OneByOne, AtOnce).with_copies_at_once(0),
            Self::new("topics-waiting-killed", Killed, OneByOne, AtOnce).with_copies_at_once(1),
            Self::new("topics-cold", Killed, OneByOne, AtOnce)
                .with_bus()
                .cold(),
            Self::new("topics-waiting-cold", Fresh, OneByOne, AtOnce)
                .with_copies_at_once(0)
                .cold(),
        ]
    };

    /// The worlds in which a partition moves bodies, as soon as it has time.
    pub const SCATTERED: [Self; 4] = {
        use Background::{AtOnce, Later};
        use Start::Scattered;
        use Traffic::{OneByOne, Overlapped};
        [
            Self::new("scattered", Scattered, OneByOne, AtOnce),
            Self::new("scattered-overlapped", Scattered, Overlapped, Later),
            Self::new("scattered-cold", Scattered, OneByOne, AtOnce).cold(),
            Self::new("scattered-bus", Scattered, OneByOne, AtOnce).with_bus(),
        ]
    };

    const fn new(
        name: &'static str,
        start: Start,
        traffic: Traffic,
        background: Background,
    ) -> Self {
        Self {
            name,
            start,
            traffic,
            background,
            has_bus: false,
            copies_at_once: None,
            is_cold: false,
        }
    }

    pub(super) const fn cold(self) -> Self {
        Self {
            is_cold: true,
            ..self
        }
    }

    const fn with_bus(self) -> Self {
        Self {
            has_bus: true,
            ..self
        }
    }

    const fn with_copies_at_once(self, count: u64) -> Self {
        Self {
            copies_at_once: Some(count),
            ..self.with_bus()
        }
    }

    /// Segments so small that a few messages fill one. Commands of bus queues reserve room for all
    /// due work before them, so they need larger ones.
    pub(super) fn options(self) -> PartitionOptions {
        let kib = |without: u64, with: u64| 1024 * if self.has_bus { with } else { without };
        let usual = PartitionOptions::default();
        PartitionOptions {
            log: LogOptions {
                segment_size_first_bytes: kib(20, 96),
                segment_size_max_bytes: kib(20, 96),
                batch_size_max_bytes: kib(8, 56),
                turn_space_min_bytes: kib(5, 16),
                settlement_reserve_bytes: kib(8, 16),
                ballast_size_bytes: 32 * 1024,
                // Most bodies are read from the disk.
                recent_bytes_max: 2 * 1024,
                pages: small_pages(),
                ..LogOptions::default()
            },
            snapshot_after_bytes: u64::MAX,
            snapshot_after_effects: u64::MAX,
            tick_budget: 4,
            run_length: RunLength::TINY,
            due_budget: 64,
            gather_steps: 1,
            // Planted bugs and faults concern the thread of the simulation.
            replays_beside: false,
            resident_limit: ResidentLimit::of(self.is_cold.then_some(0)),
            memory_slack_bytes: 0,
            far_ms: 0,
            scrub_bytes_per_second: 1,
            format: Arc::new(Numbered),
            copies_at_once: self.copies_at_once.unwrap_or(usual.copies_at_once),
            ..usual
        }
    }

    /// The same with all messages in memory.
    pub(super) fn whole(self) -> Self {
        Self {
            is_cold: false,
            ..self
        }
    }

    /// The same with one client, and nothing at the same time.
    pub(super) fn plain(self) -> Self {
        Self {
            traffic: Traffic::OneByOne,
            background: Background::AtOnce,
            ..self
        }
    }

    /// A partition with this world's history.
    pub(super) fn prepare(self, entropy: u64) -> Result<Host, Violation> {
        let past = self.plain();
        let tape = Tape::new(FaultyStorage::new());
        let clients = Clients::new(self.copies_at_once);
        let mut host = Host::open(tape, past, clients, BEGINNING, entropy)
            .map_err(|not| violation("an empty disk", &not.error))?;
        host.ask(create_queue())?;
        host.play(Step::Send)?;
        if self.has_bus {
            for create in bus::create_queues() {
                host.ask(create)?;
            }
            // A client has a lock, and knows a dead letter.
            for step in [
                Step::BusSend,
                Step::BusSend,
                Step::BusReceive,
                Step::BusDeadLetter,
                Step::BusPeek,
            ] {
                host.play(step)?;
            }
        }
        match self.start {
            Start::Fresh => {}
            Start::Recycled => cycle(&mut host)?,
            Start::Scattered => scatter(&mut host)?,
            Start::Full => {
                cycle(&mut host)?;
                fill(&mut host)?;
            }
            Start::Killed => {
                host = kill(host, past, entropy)?;
                host.play(Step::Send)?;
                host = kill(host, past, entropy + 1)?;
            }
        }
        host.set(self);
        Ok(host)
    }
}

/// So many that their space is too much for their bodies, and some stay while others are emptied.
const SCATTERED_SEGMENTS: u64 = 6;

pub(super) fn violation(what: &str, error: &dyn std::error::Error) -> Violation {
    Violation {
        promise: "recovery",
        seen: format!("{what}: {error} ({error:?})"),
    }
}

/// Sends, deletes and writes snapshots until segments are reused. Some messages stay.
fn cycle(host: &mut Host) -> Result<(), Violation> {
    let mut rounds = 0;
    while host.tape().reused() < 3 {
        for _ in 0..3 {
            // Segments are larger if there is a bus queue.
            match host.setting().has_bus {
                true => host.ask(send_large(&host.clients))?,
                false => host.play(Step::Send)?,
            }
            host.play(Step::Delete)?;
        }
        host.play(Step::Snapshot)?;
        rounds += 1;
        assert!(rounds < 100, "no segment is used again");
    }
    host.play(Step::Send)?;
    host.play(Step::Receive)
}

/// Fills segments, and keeps one message of each. With bus queues it is in turns a message and one that has two copies.
fn scatter(host: &mut Host) -> Result<(), Violation> {
    let segments = |host: &Host| files_of(host.partition().log()).segments().count();
    for round in 0..SCATTERED_SEGMENTS {
        host.play(match (host.setting().has_bus, round % 2) {
            (false, _) => Step::Send,
            (true, 0) => Step::BusSend,
            (true, _) => Step::BusPublish,
        })?;
        let before = segments(host);
        let mut messages = 0;
        while segments(host) == before {
            host.play(Step::Send)?;
            host.play(Step::Delete)?;
            messages += 1;
            assert!(messages < 1000, "no segment gets full");
        }
    }
    // The second one lies behind the first: what comes before both is not needed for a start.
    for step in [Step::Snapshot, Step::Send, Step::Snapshot, Step::Send] {
        host.play(step)?;
    }
    Ok(())
}

/// Sends until the next turn must begin a new segment.
fn fill(host: &mut Host) -> Result<(), Violation> {
    let least = host.setting().options().log.turn_space_min_bytes;
    for step in [Step::Send, Step::Delete].into_iter().cycle() {
        if files_of(host.partition().log()).space().active_room_bytes < least {
            break;
        }
        host.play(step)?;
    }
    Ok(())
}

/// Kills the process between the write of a commit and its sync, and starts the next one.
fn kill(mut host: Host, setting: Setting, entropy: u64) -> Result<Host, Violation> {
    host.tape().disk().crash_after(1);
    host.ask(send(&host.clients, "cut short", None, 0))?;
    let disk = host.tape().disk().kill();
    let clients = host.known()?;
    let now = host.now();
    let mut host = Host::open(Tape::new(disk), setting, clients, now, entropy + 77)
        .map_err(|not| violation("after a kill", &not.error))?;
    host.ask(Command::Storage(StorageCommand::Peek {
        queue: queue_name(),
        count: 32,
    }))?;
    Ok(host)
}
