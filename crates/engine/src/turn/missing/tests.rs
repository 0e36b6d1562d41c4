//! Cold equals hot. The tests of both services give each command, and each tick, to two more states: one with nothing
//! in memory, which reads what is missing and tries again, and one that only applies the events and never reads. All
//! three must come to the same. Both are restarted from time to time, and pass over the pages that they need not read.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::*;
use crate::bus::{self, BusFact};
use crate::event::{Event, Fact};
use crate::queues::Queue;
use crate::state::State;
use crate::storage::{self, StorageFact};
use crate::table::tests::page_map::{PageMap, records_at};
use crate::turn::{DUE_BUDGET, Decision, Journal, Ticked};
use crate::vocabulary::{BodyLocation, BodyRead, Timestamp};

/// Lists all variants of an enum, and names that of a value. A new one does not compile before it is in the list.
macro_rules! variants {
    ($all:ident, $name_of:ident, $of:ident: $($variant:ident)*) => {
        const $all: &[&str] = &[$(stringify!($variant)),*];

        fn $name_of(value: &$of) -> &'static str {
            match value {
                $($of::$variant { .. } => stringify!($variant),)*
            }
        }
    };
}
pub(crate) use variants;

/// More tries than any command of the tests takes.
const TRIES_MAX: usize = 100;

/// Larger states are taken out of memory from time to time, smaller ones before each command.
const LARGE: u64 = 256;

/// States up to this size are compared after each command, others from time to time.
const SMALL: u64 = 64;

#[derive(Default)]
struct Log {
    bodies: Vec<Vec<u8>>,
    events: Vec<Event>,
    /// What a batch would take, with a tag, a length and a checksum for each.
    size_bytes: u64,
    /// The bodies that were read for the command.
    read: BTreeSet<BodyLocation>,
    damaged: BTreeSet<BodyLocation>,
    /// Whether each body is read when it is asked for, as by a tick.
    reads_all: bool,
    /// How many bodies there were before the batch of a tick: the others cannot be read in it.
    written: Option<usize>,
}

impl Journal for Log {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.bodies.push(body.to_vec());
        self.size_bytes += body.len() as u64 + 10;
        BodyLocation::new(
            self.bodies.len() as u64 - 1,
            0,
            u32::try_from(body.len()).unwrap(),
        )
    }

    fn record(&mut self, event: &Event) {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        self.size_bytes += bytes.len() as u64 + 6;
        self.events.push(event.clone());
    }

    fn body(&mut self, body: BodyLocation) -> BodyRead {
        match self.reads_all || self.read.contains(&body) {
            false => BodyRead::Missing,
            true if self.damaged.contains(&body) => BodyRead::Damaged,
            true => BodyRead::Whole,
        }
    }

    fn bytes(&mut self, body: BodyLocation) -> Option<Bytes> {
        let written = self.written.unwrap_or(self.bodies.len());
        let bytes = self.bodies[..written].get(usize::try_from(body.record).ok()?)?;
        Some(Bytes::copy_from_slice(bytes))
    }
}

/// The other two states.
pub(crate) struct Cold {
    deciding: State,
    log: Log,
    applying: State,
    /// The pages of both.
    pages: PageMap,
    /// How many commands and ticks there were.
    steps: u64,
    /// How many copies a command makes at once.
    pub(crate) copies_at_once: u64,
    /// How many blocks of ids ticks have read.
    pub(crate) ids_read_by_ticks: u64,
}

impl Cold {
    pub(crate) fn new() -> Self {
        Self {
            deciding: State::new(),
            log: Log::default(),
            applying: State::new(),
            pages: PageMap::default(),
            steps: 0,
            copies_at_once: u64::MAX,
            ids_read_by_ticks: 0,
        }
    }

    /// Decides a command with nothing in memory, and compares.
    pub(crate) fn decide(
        &mut self,
        now: Timestamp,
        command: Command,
        due_budget: u32,
        expected: &Decision,
        events: &[Vec<u8>],
        hot: &State,
    ) {
        self.seal();
        self.log.read.clear();
        let mut tries = Tries::default();
        let mut tried = 0;
        let (room_bytes, decision) = loop {
            let room_bytes = command
                .describe()
                .room_size_bytes_max(&self.deciding, due_budget);
            self.log.size_bytes = 0;
            let turn = Turn::new(&mut self.deciding, now, &mut self.log);
            let mut turn = turn
                .with_due_budget(due_budget)
                .with_copies_at_once(self.copies_at_once)
                .with_format(&bus::tests::Lines);
            let missing = turn.prepare(&command, &mut tries);
            if missing.is_empty() {
                break (room_bytes, turn.decide(command));
            }
            self.check_written(room_bytes);
            self.pages.read_missing(&mut self.deciding, &missing);
            // What was asked for before, and is not any more, is not kept.
            self.log.read = missing.bodies;
            tried += 1;
            assert!(tried < TRIES_MAX, "{command:?} was tried {tried} times");
        };
        self.check_written(room_bytes);
        assert_eq!(&decision, expected);
        if tried == 0 {
            let written = self.log.events.iter().map(|event| {
                let mut bytes = Vec::new();
                event.encode(&mut bytes);
                bytes
            });
            assert_eq!(written.collect::<Vec<_>>(), events);
        }
        self.compare(events, hot);
    }

    /// The turn of a try has as much room as the command said.
    fn check_written(&self, room_bytes: u64) {
        let written_bytes = self.log.size_bytes;
        assert!(
            written_bytes <= room_bytes,
            "{written_bytes} bytes were written where {room_bytes} were promised"
        );
    }

    /// Damages a body.
    pub(crate) fn damage(&mut self, body: BodyLocation) {
        self.log.damaged.insert(body);
    }

    pub(crate) fn tick(
        &mut self,
        now: Timestamp,
        budget: u32,
        expected: &Ticked,
        events: &[Vec<u8>],
        hot: &State,
    ) {
        self.seal();
        self.log.reads_all = true;
        self.log.written = Some(self.log.bodies.len());
        let turn = Turn::new(&mut self.deciding, now, &mut self.log);
        let mut turn = turn.with_format(&bus::tests::Lines);
        let (pages, ids_read) = (&self.pages, &mut self.ids_read_by_ticks);
        let ticked = turn.tick_reading(budget, &mut |state, missing| {
            assert!(!missing.is_empty());
            let groups = missing.groups.keys();
            *ids_read += groups.filter(|it| !it.is_of_messages()).count() as u64;
            pages.read_missing(state, missing);
            true
        });
        self.log.reads_all = false;
        self.log.written = None;
        assert_eq!(&ticked, expected);
        self.compare(events, hot);
    }

    /// Changes both states without an event.
    pub(crate) fn change(&mut self, change: impl Fn(&mut State)) {
        change(&mut self.deciding);
        change(&mut self.applying);
    }

    /// Reads what a tick would look at for nothing, which takes budget that the other states have: a restart knows the
    /// times of messages by pages that may be older, so it may take a message for due that is due later.
    fn read_old_times(&mut self, before: &State) {
        for (entity, before) in before.bus.iter() {
            while let Some(queue) = self.deciding.bus.get(entity)
                && let Some(deadline) = queue.next_deadline()
                && before.next_deadline() != Some(deadline)
            {
                let mut missing = Missing::default();
                if !queue
                    .backlog
                    .ask_if_far_is_due(*entity, deadline, &mut missing)
                {
                    break;
                }
                self.pages.read_missing(&mut self.deciding, &missing);
            }
        }
    }

    /// Takes everything out of memory that a page has. Every second time, runs that changed get new pages first.
    fn seal(&mut self) {
        self.steps += 1;
        let (_, count) = self.deciding.counts();
        if count > LARGE && !self.steps.is_multiple_of(64) {
            return;
        }
        if !self.steps.is_multiple_of(2) {
            self.pages.write(&self.deciding);
        }
        // A comparison with rules takes the ticks that it takes only if it does not begin again.
        if self.steps.is_multiple_of(5) && !self.deciding.is_comparing() {
            let restarted = self.pages.restarted(&mut self.deciding, 0);
            let before = std::mem::replace(&mut self.deciding, restarted);
            // The other state goes on. After a restart, due work comes in another order, and takes other looks.
            self.deciding.take_over_hints(&before);
            self.read_old_times(&before);
        }
        self.evict();
    }

    /// Takes everything out of memory, in states of any size.
    pub(crate) fn leave_memory(&mut self) {
        self.pages.write(&self.deciding);
        self.evict();
    }

    fn evict(&mut self) {
        let before = records_at(&self.deciding);
        self.deciding.evict_if(Timestamp::ZERO, |_, _, _| true);
        assert_eq!(records_at(&self.deciding), before);
    }

    fn compare(&mut self, events: &[Vec<u8>], hot: &State) {
        let events = events.iter().map(|event| Event::decode(event).unwrap());
        let events: Vec<Event> = events.collect();
        assert_eq!(flat(&self.log.events), flat(&events));
        let (_, count) = hot.counts();
        let is_looked_at = count <= SMALL || self.steps.is_multiple_of(128);
        self.log.events.clear();
        let mut nth = self.steps;
        for event in events {
            if is_looked_at {
                if nth.is_multiple_of(3) {
                    // Some of what is read stays in memory.
                    self.applying = self.pages.restarted(&mut self.applying, 200);
                }
                if nth.is_multiple_of(2) {
                    self.pages.write(&self.applying);
                }
                self.applying.evict_if(Timestamp::ZERO, |_, _, _| {
                    nth += 1;
                    !nth.is_multiple_of(3)
                });
            }
            self.applying.apply(event);
        }
        if is_looked_at {
            self.pages.assert_equal(&self.deciding, hot);
            self.pages.assert_equal(&self.applying, hot);
            self.deciding.check_live_bytes();
            self.applying.check_live_bytes();
        }
    }
}

/// The same with an event for each effect: those of one command are in one if nothing was missing, and in several
/// otherwise.
fn flat(events: &[Event]) -> Vec<(Timestamp, Fact)> {
    let mut flat = Vec::new();
    for Event { at, fact } in events {
        match fact {
            Fact::Bus(BusFact::Messages { effects }) => {
                let each = effects.iter().cloned().map(bus::Effects::from);
                let each = each.map(|effects| Fact::Bus(BusFact::Messages { effects }));
                flat.extend(each.map(|fact| (*at, fact)));
            }
            Fact::Storage(StorageFact::Messages { effects }) => {
                let each = effects.iter().cloned().map(storage::Effects::from);
                let each = each.map(|effects| Fact::Storage(StorageFact::Messages { effects }));
                flat.extend(each.map(|fact| (*at, fact)));
            }
            fact => flat.push((*at, fact.clone())),
        }
    }
    flat
}

/// The budget of commands that tests give without another one.
pub(crate) const USUAL: u32 = DUE_BUDGET;
