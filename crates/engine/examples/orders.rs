//! Measures what messages take in memory, and how long operations take: `orders memory STATE [MESSAGES]`, or
//! `orders time [BACKLOG [CASE]]`. It is the engine alone: no log and no network.
//!
//! `memory` fills a queue with messages in a state and prints the bytes that the process has grown by, for each
//! message. `time` prints the least time of each operation beside a backlog, with both services. To compare two
//! versions, run their binaries in turn and take the least of each.

#![expect(clippy::print_stdout, reason = "it exists for its output")]

mod orders {
    pub(crate) mod bus;
    pub(crate) mod partition;
    pub(crate) mod storage;
    pub(crate) mod time;
}

use std::str::FromStr;

use kew_engine::Timestamp;
use kew_engine::bus::{BusQueueOptions, ReceiveMode};

use self::orders::partition::{Failure, Partition};
use self::orders::{bus, storage, time};

/// The allocator of the product.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many messages come in one command.
const AT_ONCE: usize = 1000;

/// What the messages of a queue are when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In Queue Storage.
    Storage,
    /// Likewise, and received.
    StorageLeased,
    /// In Service Bus, as all that follow.
    Ready,
    /// With a time to live.
    Lasting,
    Scheduled,
    Locked,
    Deferred,
    /// All of one session.
    Session,
    /// Ten of each session.
    Sessions,
    /// With an id to detect duplicates.
    Ids,
}

const STATES: [(&str, State); 10] = [
    ("storage", State::Storage),
    ("storage-leased", State::StorageLeased),
    ("ready", State::Ready),
    ("ttl", State::Lasting),
    ("scheduled", State::Scheduled),
    ("locked", State::Locked),
    ("deferred", State::Deferred),
    ("session", State::Session),
    ("sessions", State::Sessions),
    ("ids", State::Ids),
];

impl FromStr for State {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let found = STATES.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, state)| state).ok_or_else(|| {
            let names = STATES.map(|(name, _)| name).join(", ");
            format!("{text:?} is no state; there are {names}").into()
        })
    }
}

/// The resident memory of this process, in bytes.
fn resident_bytes() -> Result<usize, Failure> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let resident = pages.split(' ').nth(1).ok_or("no resident pages")?;
    Ok(resident.parse::<usize>()? * 4096)
}

/// Fills a queue with messages in a state.
fn fill(p: &mut Partition, state: State, count: usize) -> Result<(), Failure> {
    if let State::Storage | State::StorageLeased = state {
        storage::create(p)?;
        for _ in 0..count {
            storage::send(p)?;
        }
        if state == State::StorageLeased {
            for _ in 0..count.div_ceil(32) {
                storage::receive(p, 32)?;
                p.pass();
            }
        }
        return Ok(());
    }
    let day_ms = 86_400_000;
    let options = BusQueueOptions {
        size_bytes_max: 1 << 50,
        requires_session: matches!(state, State::Session | State::Sessions),
        duplicate_window_ms: (state == State::Ids).then_some(day_ms),
        ..BusQueueOptions::default()
    };
    bus::create(p, options)?;
    let sessions = if state == State::Sessions {
        count / 10
    } else {
        1
    };
    for first in (0..count).step_by(AT_ONCE) {
        let numbers = first..count.min(first + AT_ONCE);
        let messages = numbers.map(|number| {
            let mut message = bus::message();
            match state {
                State::Lasting => message.time_to_live_ms = Some(day_ms),
                // Not in the order of their times.
                State::Scheduled => {
                    let later_ms = day_ms + (number as u64 * 611_953) % day_ms;
                    message.scheduled_at = Some(p.now().plus_ms(later_ms));
                }
                State::Session | State::Sessions => {
                    let session = number % sessions.max(1);
                    message.session = Some(format!("session-{session}").into());
                }
                State::Ids => message.message_id = Some(format!("message {number}").into()),
                State::Storage
                | State::StorageLeased
                | State::Ready
                | State::Locked
                | State::Deferred => {}
            }
            message
        });
        let messages = messages.collect();
        bus::send(p, messages)?;
        p.pass();
    }
    if let State::Locked | State::Deferred = state {
        for _ in 0..count.div_ceil(AT_ONCE) {
            let locks = bus::receive(p, AT_ONCE, ReceiveMode::PeekLock, None)?;
            if state == State::Deferred {
                bus::settle(
                    p,
                    locks,
                    &kew_engine::bus::Disposition::Defer { overlay: None },
                )?;
            }
            p.pass();
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next();
    match what.as_deref() {
        Some("memory") => {
            let name = arguments.next().unwrap_or_default();
            let state = name.parse()?;
            let count = arguments.next().map_or(Ok(1_000_000), |it| it.parse())?;
            let mut p = Partition::new(Timestamp::from_ms(1_000_000), false)?;
            let before = resident_bytes()?;
            fill(&mut p, state, count)?;
            p.trim();
            let grown = resident_bytes()?.saturating_sub(before);
            assert_eq!(p.message_count(), count as u64);
            let each = grown as f64 / count.max(1) as f64;
            println!(
                "{name}: {each:.1} bytes a message, {:.1} MB",
                grown as f64 / 1e6
            );
        }
        Some("time") => {
            let backlog = arguments.next().map_or(Ok(1000), |it| it.parse())?;
            time::run(backlog, &arguments.next().unwrap_or_default())?;
        }
        _ => return Err("expected: memory STATE [MESSAGES], or time [BACKLOG [CASE]]".into()),
    }
    Ok(())
}
