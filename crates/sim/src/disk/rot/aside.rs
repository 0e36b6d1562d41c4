//! Both copies of pages with messages are damaged: messages whose records are lost are set aside, and all others are
//! served.
//!
//! - No start is refused.
//! - They are listed and counted, and stay so after a restart and a power cut, whichever snapshot a start reads.
//! - They are no more than what the damaged pages had.
//! - Nothing else is missing: the clients' checker excuses only them.
//! - They end with what their queue has.
//!
//! Worlds are of Queue Storage, or of Service Bus: what is special about these is in `of_bus`.

mod of_bus;

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;

use kew_broker::QuarantinedRun;
use kew_engine::storage::StorageCommand;
use kew_engine::{Command, PageNumber, Token};
use kew_log::{FaultyStorage, LogPosition, TablePage, read_table};

use super::Closed;
use crate::checker::Violation;
use crate::disk::bus;
use crate::disk::failure::{Failure, guard};
use crate::disk::host::{FirstAside, Host, SET_ASIDE};
use crate::disk::setting::{Setting, violation};
use crate::disk::step::{Step, queue_name};
use crate::disk::tape::Tape;
use crate::disk::workload::{Act, Workload, WorkloadKind};
use crate::random::Stream;

/// What was damaged, and the results.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsideCounts {
    /// Partitions that were closed cleanly.
    pub worlds: u64,
    /// Pages that were damaged in both copies.
    pub pages: u64,
    /// Partitions that have lost nothing: what is damaged in one copy is whole in the other one, or was not needed.
    pub whole: u64,
    /// Messages that were set aside.
    pub messages: u64,
    /// Starts with messages that were set aside before.
    pub starts: u64,
    /// Starts from the disk as it was right after messages were set aside.
    pub first_starts: u64,
    /// Starts of Service Bus that set messages aside before a client asked for anything.
    pub at_once: u64,
    /// Messages of Service Bus that were set aside while a receiver had them.
    pub locked: u64,
    /// Those that were scheduled.
    pub scheduled: u64,
    /// Those that were deferred.
    pub deferred: u64,
    /// Those that were dead letters.
    pub dead_letters: u64,
    /// Those that had a session.
    pub of_sessions: u64,
    /// Copies in subscriptions.
    pub copies: u64,
}

impl AsideCounts {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.pages += other.pages;
        self.whole += other.whole;
        self.messages += other.messages;
        self.starts += other.starts;
        self.first_starts += other.first_starts;
        self.at_once += other.at_once;
        self.locked += other.locked;
        self.scheduled += other.scheduled;
        self.deferred += other.deferred;
        self.dead_letters += other.dead_letters;
        self.of_sessions += other.of_sessions;
        self.copies += other.copies;
    }
}

/// The name of a world, for running only that.
pub fn aside_case(kind: WorkloadKind, world: u64) -> String {
    match kind {
        WorkloadKind::Storage => format!("aside/{world}"),
        WorkloadKind::WithBus => format!("aside/bus-{world}"),
        WorkloadKind::WithTopics => format!("aside/topics-{world}"),
    }
}

/// Damages pages of one world in `injections` ways, one after the other.
pub fn set_aside(
    seed: u64,
    kind: WorkloadKind,
    world: u64,
    injections: u64,
) -> Result<AsideCounts, Box<Failure>> {
    let case = aside_case(kind, world);
    guard(&case, seed, |place| {
        let mut random = Stream::new(seed, &case);
        let workload = Workload::draw(&mut random, kind);
        let workload = match kind {
            WorkloadKind::Storage => with_messages(workload),
            WorkloadKind::WithBus | WorkloadKind::WithTopics => {
                of_bus::with_messages(workload, &mut random)
            }
        };
        let mut closed = Closed::after(workload, kind, &mut random)?;
        if kind != WorkloadKind::Storage {
            closed.tell_stored()?;
        }
        let pages = closed.pages_with_messages()?;
        let mut counts = AsideCounts {
            worlds: 1,
            ..AsideCounts::default()
        };
        if pages.is_empty() {
            return Ok(counts);
        }
        for number in 0..injections {
            let disk = closed.disk.kill();
            let damaged: BTreeSet<usize> = (0..=random.index(2))
                .map(|_| random.index(pages.len()))
                .collect();
            place.clear();
            let _ = write!(place, "injection {number}, of {pages:?} {damaged:?}");
            let mut messages = HashSet::new();
            for page in damaged.iter().map(|it| &pages[*it]) {
                damage(&disk, &page.page, &mut random);
                messages.extend(&page.messages);
            }
            counts.pages += damaged.len() as u64;
            let trial = Trial {
                closed: &closed,
                messages,
            };
            trial.check(disk, &mut random, &mut counts)?;
        }
        Ok(counts)
    })
}

/// The same in a world without messages in memory, with more messages and a snapshot that has them.
fn with_messages(workload: Workload) -> Workload {
    let mut acts = workload.acts;
    acts.push(Act::Play(Step::CreateQueue));
    acts.extend([Act::Play(Step::Send); 10]);
    acts.push(Act::Play(Step::Receive));
    acts.push(Act::Play(Step::Snapshot));
    Workload {
        setting: Setting::COLD,
        acts,
        ..workload
    }
}

/// Changes bits of both copies of a page: in the same places, or in others.
fn damage(disk: &FaultyStorage, page: &TablePage, random: &mut Stream) {
    let place = page.place;
    let range = |random: &mut Stream| {
        let begin = random.below(place.size_bytes.into());
        let count = if random.happens(500) { 1 } else { 200 };
        let end = (begin + count).min(place.size_bytes.into());
        u64::from(place.offset) + begin..u64::from(place.offset) + end
    };
    let first = range(random);
    let second = match random.happens(800) {
        true => first.clone(),
        false => range(random),
    };
    for (copy, range) in [first, second].into_iter().enumerate() {
        let file = 2 * u64::from(place.pair) + copy as u64;
        let mask = 1 << random.below(8);
        range.for_each(|at| disk.flip(&format!("pages-{file:020}"), at, mask));
    }
}

/// A page, and the ids of the messages that it has.
#[derive(Debug)]
struct Page {
    page: TablePage,
    messages: Vec<Token>,
}

impl Closed {
    /// The pages that the newest snapshot has of messages.
    fn pages_with_messages(&self) -> Result<Vec<Page>, Violation> {
        let tape = Tape::new(self.disk.kill());
        let setting = self.setting.cold();
        let host = Host::open(tape, setting, self.clients.clone(), self.now, 1);
        let host = host.map_err(|not| violation("before it is damaged", &not.error))?;
        let state = host.partition().state();
        let names = self.contents.keys();
        let snapshots = names.filter_map(|name| name.strip_prefix("snapshot-")?.parse().ok());
        let Some(newest) = snapshots.max() else {
            return Ok(Vec::new());
        };
        let table = read_table(&self.disk, LogPosition::new(newest));
        let pages = table.map_or_else(|_| Vec::new(), |it| it.table.pages().to_vec());
        let pages = pages.into_iter().map(|page| {
            let number = PageNumber::new(page.number.as_u64());
            let messages = state.messages_on(number);
            let messages = messages.filter_map(|(queue, number)| state.id_of(queue, number));
            let messages = messages.collect();
            Page { page, messages }
        });
        Ok(pages.filter(|page| !page.messages.is_empty()).collect())
    }
}

struct Trial<'a> {
    closed: &'a Closed,
    /// Those of the damaged pages.
    messages: HashSet<Token>,
}

impl Trial<'_> {
    fn check(
        &self,
        disk: FaultyStorage,
        random: &mut Stream,
        counts: &mut AsideCounts,
    ) -> Result<(), Violation> {
        let Closed {
            setting,
            clients,
            now,
            ..
        } = self.closed;
        let tape = Tape::new(disk);
        let host = Host::open(tape, *setting, clients.clone(), *now, random.next());
        let mut host = host.map_err(|not| violation("after damage to pages", &not.error))?;
        host.allow_damage();
        if self.is_of_bus() {
            host = self.begin(host, random, counts)?;
        }
        if random.happens(300) {
            host.scrub()?;
        }
        for _ in 0..=random.index(2) {
            self.serve(&mut host, counts)?;
            for _ in 0..random.index(3) {
                host.play(Step::Snapshot)?;
                host.play(Step::Send)?;
                if self.is_of_bus() {
                    host.play(Step::BusSendToSession)?;
                    host.play(Step::BusSend)?;
                }
            }
            host = self.start_again(host, random)?;
            counts.starts += u64::from(host.partition().quarantined_count() > 0);
        }
        let count = self.serve(&mut host, counts)?;
        counts.messages += count;
        counts.whole += u64::from(count == 0);
        counts.note_kinds(&host.clients);
        self.end(host, random)
    }

    /// They end with what their queue has. Those of Service Bus end by an event of their own.
    fn end(&self, mut host: Host, random: &mut Stream) -> Result<(), Violation> {
        host.ask(Command::Storage(StorageCommand::Clear {
            queue: queue_name(),
        }))?;
        if !self.is_of_bus() {
            return check_ended(&host);
        }
        of_bus::purge(&mut host)?;
        check_ended(&host)?;
        check_ended(&self.start_again(host, random)?)
    }

    fn is_of_bus(&self) -> bool {
        self.closed.kind != WorkloadKind::Storage
    }

    /// A start has set aside what it had to read, before a client asks for anything. Mostly clients go on then, snapshots
    /// follow, and another start, while everything else is there.
    fn begin(
        &self,
        mut host: Host,
        random: &mut Stream,
        counts: &mut AsideCounts,
    ) -> Result<Host, Violation> {
        if random.happens(300) {
            // Locks have ended and schedules are due.
            host.pass_time(bus::REST_MS);
        }
        host.ask_all(Vec::new())?;
        counts.at_once += u64::from(host.partition().quarantined_count() > 0);
        of_bus::use_some(&mut host, random)?;
        if random.happens(300) {
            return Ok(host);
        }
        if random.happens(500) {
            of_bus::look(&mut host)?;
        }
        let host = self.start_again(host, random)?;
        counts.starts += u64::from(host.partition().quarantined_count() > 0);
        Ok(host)
    }

    /// All others are served. Returns how many are set aside.
    fn serve(&self, host: &mut Host, counts: &mut AsideCounts) -> Result<u64, Violation> {
        if self.is_of_bus() {
            of_bus::look(host)?;
        }
        host.drain()?;
        host.use_once()?;
        self.check_first(host, counts)?;
        let partition = host.partition();
        partition.state().check_live_bytes();
        partition.check_cold_pages();
        let aside = host.set_aside();
        if let Some(other) = aside.iter().find(|it| !self.messages.contains(*it)) {
            return Err(not_kept(format!("{other:?} is on no damaged page")));
        }
        host.check_set_aside()
    }

    /// A process that began right after messages were set aside would know the same of them.
    fn check_first(&self, host: &mut Host, counts: &mut AsideCounts) -> Result<(), Violation> {
        let Some(FirstAside { disk, runs }) = host.take_first_aside() else {
            return Ok(());
        };
        let (setting, clients) = (self.closed.setting, host.known()?);
        let next = Host::open(Tape::new(disk), setting, clients, host.now(), 1);
        let next =
            next.map_err(|not| violation("right after messages were set aside", &not.error))?;
        counts.first_starts += 1;
        compare(&runs, &next.partition().quarantined_runs())
    }

    /// The next process knows the same of them.
    fn start_again(&self, mut host: Host, random: &mut Stream) -> Result<Host, Violation> {
        let before = host.partition().quarantined_runs();
        let entropy = random.next();
        let host = if random.happens(500) {
            host.end(random.happens(500))?;
            host.restart(entropy)
        } else {
            let disk = host
                .tape()
                .disk()
                .crash(&mut |below| random.below_u32(below));
            let (clients, now) = (host.known()?, host.now());
            Host::open(Tape::new(disk), self.closed.setting, clients, now, entropy)
        };
        let mut host = host.map_err(|not| violation("with messages set aside", &not.error))?;
        host.allow_damage();
        compare(&before, &host.partition().quarantined_runs())?;
        Ok(host)
    }
}

/// What is set aside stays so.
fn compare(before: &[QuarantinedRun], after: &[QuarantinedRun]) -> Result<(), Violation> {
    match before == after {
        true => Ok(()),
        false => Err(not_kept(format!("{after:?} after a start, not {before:?}"))),
    }
}

fn check_ended(host: &Host) -> Result<(), Violation> {
    match host.check_set_aside()? {
        0 => Ok(()),
        left => Err(not_kept(format!(
            "{left} are left of a queue that is empty"
        ))),
    }
}

fn not_kept(seen: String) -> Violation {
    Violation {
        promise: SET_ASIDE,
        seen,
    }
}
