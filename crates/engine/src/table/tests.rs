pub(crate) mod page_map;

use std::collections::BTreeMap;

use proptest::prelude::*;

use self::page_map::PageMap;
use super::*;
use crate::vocabulary::{Hold, Incarnation, LeaseGeneration};

fn number(number: u64) -> SequenceNumber {
    SequenceNumber::new(number)
}

fn location(length: u32) -> BodyLocation {
    BodyLocation::new(u64::from(length) * 3000, 0, length)
}

/// Some bodies are shared.
fn held(body: BodyLocation) -> BodyLocation {
    let holds = [Hold::Alone, Hold::Lends, Hold::Borrows];
    body.with(holds[body.length as usize % 3])
}

fn own_entity() -> Incarnation {
    Incarnation::new(1)
}

/// Ready ones expire, others do not.
fn expiry(record: &Record) -> Timestamp {
    match record.state {
        MessageState::Ready => record.expires_at,
        MessageState::Locked { .. } | MessageState::Scheduled | MessageState::Deferred => {
            Timestamp::NEVER
        }
    }
}

fn is_ready(record: &Record) -> bool {
    record.state == MessageState::Ready
}

/// What a table is, without runs and bits.
type Model = BTreeMap<u64, (Record, Side)>;

#[derive(Clone, Debug)]
enum Step {
    Push {
        ready: bool,
        length: u32,
    },
    /// A number that is not the next one: a replay from pieces of different age.
    Insert {
        number: u64,
    },
    Remove {
        nth: usize,
    },
    Change {
        nth: usize,
        ready: bool,
        expires: Option<u64>,
    },
    Overlay {
        nth: usize,
        length: u32,
    },
    RemoveRuns {
        from: u64,
        length: u64,
    },
    Expire {
        now: u64,
    },
    /// Takes records of two of three runs out of memory that have a page. Sometimes those that need one get it first.
    Evict {
        nth: u64,
    },
    /// Reads everything.
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    let nth = || 0_usize..100;
    prop_oneof![
        8 => (any::<bool>(), 0_u32..50).prop_map(|(ready, length)| Step::Push { ready, length }),
        1 => (0_u64..60).prop_map(|number| Step::Insert { number }),
        4 => nth().prop_map(|nth| Step::Remove { nth }),
        4 => (nth(), any::<bool>(), prop::option::of(1_u64..100))
            .prop_map(|(nth, ready, expires)| Step::Change { nth, ready, expires }),
        1 => (nth(), 1_u32..9).prop_map(|(nth, length)| Step::Overlay { nth, length }),
        1 => (0_u64..60, 0_u64..30).prop_map(|(from, length)| Step::RemoveRuns { from, length }),
        1 => (0_u64..100).prop_map(|now| Step::Expire { now }),
        2 => (0_u64..100).prop_map(|nth| Step::Evict { nth }),
        1 => Just(Step::Read),
    ]
}

/// A table beside its model.
struct Pair {
    table: Table,
    model: Model,
    live: Live,
    pages: PageMap,
    /// Whether all records are in memory.
    is_warm: bool,
    /// Places that were given out.
    places: u32,
}

impl Pair {
    fn of(table: Table) -> Self {
        Self {
            table,
            model: Model::new(),
            live: Live::new(CountUnit::at_most(4096)),
            pages: PageMap::default(),
            is_warm: true,
            places: 0,
        }
    }

    /// A place that nothing else has: what a message already has is not laid over it again.
    fn new_place(&mut self, length: u32) -> BodyLocation {
        self.places += 1;
        BodyLocation::new(u64::from(length) * 3000, self.places, length)
    }

    /// Reads everything that is not in memory.
    fn read(&mut self) {
        let entity = own_entity();
        let mut missing = Missing::default();
        for at in self.model.keys() {
            self.table.ask(entity, number(*at), &mut missing);
        }
        let (before, had_cold) = (missing.groups.len(), self.table.has_cold());
        for (group, wanted) in std::mem::take(&mut missing.groups) {
            let read = self.pages.read(&self.table.to_read(group, wanted).unwrap());
            let run_before = self.records_at();
            let taken = self.table.take_read(read, &mut Vec::new(), &mut self.live);
            assert_eq!(taken, Taken::InMemory);
            assert_eq!(self.records_at(), run_before);
        }
        for run in 0..60 {
            let outgrown = |table: &Table| table.run(run).is_some_and(Run::has_outgrown_page);
            if outgrown(&self.table) {
                self.table.leave_page(run, Pressure::Low, &mut self.live);
                assert!(!outgrown(&self.table));
            }
            for (number, _) in self.table.seen_of(run) {
                self.table.ask(entity, number, &mut missing);
            }
        }
        assert!(missing.is_empty() && (before == 0 || had_cold));
        self.is_warm = true;
    }

    fn insert(&mut self, at: u64, ready: bool, length: u32) {
        let state = if ready {
            MessageState::Ready
        } else {
            MessageState::Scheduled
        };
        let record = Record {
            state,
            generation: LeaseGeneration::new(length),
            ..Record::ready(Timestamp::from_ms(at), held(location(length)))
        };
        let side = Side {
            first_number: length.is_multiple_of(7).then(|| number(length.into())),
            ..Side::default()
        };
        self.table.use_number(number(at));
        let is_new = (self.table).insert(number(at), record, side.clone(), ready, &mut self.live);
        assert_eq!(is_new, !self.model.contains_key(&at));
        self.model.entry(at).or_insert((record, side));
    }

    fn nth(&self, nth: usize) -> Option<u64> {
        self.model.keys().nth(nth).copied()
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Push { ready, length } => self.insert(self.table.next().as_u64(), ready, length),
            Step::Insert { number } => self.insert(number, true, 3),
            Step::Remove { nth } => self.remove(nth),
            Step::Change {
                nth,
                ready,
                expires,
            } => self.change(nth, ready, expires),
            Step::Overlay { nth, length } => {
                if let Some(at) = self.nth(nth) {
                    let overlay = self.new_place(length);
                    let change = |side: &mut Side| side.overlays.push(overlay);
                    self.table.add_overlay(number(at), overlay, &mut self.live);
                    self.table.resize(number(at), length.into(), 0);
                    (self.table).recount(number(at), overlay, None, &mut self.live);
                    change(&mut self.model.get_mut(&at).unwrap().1);
                }
            }
            Step::RemoveRuns { from, length } => self.remove_runs(from, from + length),
            Step::Evict { nth } => self.evict(nth),
            Step::Read => self.read(),
            Step::Expire { now } => {
                self.read();
                let now = Timestamp::from_ms(now);
                while let Some(run) = self.table.run_to_expire(now) {
                    self.table.raise_expiry(run, |record| match expiry(record) {
                        at if at.has_passed(now) => Timestamp::NEVER,
                        at => at,
                    });
                }
                // What has expired is gone in truth.
                let is_expired = |(record, _): &(Record, Side)| expiry(record).has_passed(now);
                let gone = self.model.iter().filter(|(_, it)| is_expired(it));
                let gone: Vec<u64> = gone.map(|(at, _)| *at).collect();
                gone.into_iter().for_each(|at| self.remove_at(at));
            }
        }
    }

    fn records_at(&self) -> Vec<RecordsAt> {
        self.table.runs().map(Run::records_at).collect()
    }

    fn evict(&mut self, mut nth: u64) {
        if nth.is_multiple_of(2) {
            let head = PageHead {
                entity: own_entity(),
                length: self.table.length(),
                unit: self.live.unit(),
            };
            self.pages.write_table(head, &self.table);
        }
        let before = self.records_at();
        let evictable: Vec<u64> = self.table.evictable().map(|(run, ..)| run).collect();
        for run in evictable {
            nth += 1;
            if !nth.is_multiple_of(3) {
                let far_from = Timestamp::from_ms(50 * (nth % 4));
                let left = self.table.evict(run, far_from, &mut self.live);
                assert!(left.is_some());
            }
        }
        assert_eq!(self.records_at(), before);
        self.is_warm = false;
    }

    fn remove(&mut self, nth: usize) {
        match self.nth(nth) {
            Some(at) => self.remove_at(at),
            None => assert!(!(self.table).remove(number(1_000_000), (1, 0), [], &mut self.live)),
        }
    }

    fn remove_at(&mut self, at: u64) {
        let (record, side) = &self.model[&at];
        let sizes = (
            size_bytes(record.body, &side.overlays),
            record.body.borrowed_bytes(),
        );
        let bodies: Vec<_> = [record.body]
            .into_iter()
            .chain(side.overlays.iter().copied())
            .collect();
        for is_there in [true, false] {
            let (table, live) = (&mut self.table, &mut self.live);
            let is_gone = table.remove(number(at), sizes, bodies.iter().copied(), live);
            assert_eq!(is_gone, is_there);
        }
        self.model.remove(&at);
    }

    fn change(&mut self, nth: usize, ready: bool, expires: Option<u64>) {
        let Some(at) = self.nth(nth) else { return };
        let leased = Leased {
            generation: LeaseGeneration::new(7),
            deliveries: 1,
            state: match ready {
                true => MessageState::Ready,
                false => MessageState::Deferred,
            },
            until: expires.map_or(Timestamp::NEVER, Timestamp::from_ms),
            body: None,
        };
        let live = &mut self.live;
        assert!(self.table.lease(number(at), ready, &leased, live));
        let (record, _) = self.model.get_mut(&at).unwrap();
        record.lease(&leased);
        self.table.lower_expiry(number(at), expiry(record));
    }

    fn remove_runs(&mut self, from: u64, until: u64) {
        let length = self.table.length();
        let mut runs: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for at in self.model.keys() {
            runs.entry(length.run_of(*at)).or_default().push(*at);
        }
        let covered = |run: &Vec<u64>| run.iter().all(|at| (from..until).contains(at));
        let whole: Vec<u64> = runs
            .values()
            .filter(|it| covered(it))
            .flatten()
            .copied()
            .collect();
        // Between the first and the last message of a run, a range may have none of its own.
        let is_apart = |run: &Vec<u64>| run[0] >= until || run[run.len() - 1] < from;
        let all_ready = |run: &Vec<u64>| run.iter().all(|at| is_ready(&self.model[at].0));
        let mut runs = runs.values();
        let ends_by_counts =
            from == until || runs.all(|it| is_apart(it) || covered(it) && all_ready(it));
        let named = self.model.keys().filter(|at| (from..until).contains(*at));
        let covers_all = named.count() == self.model.len();
        let (from, until) = (number(from), number(until));
        assert_eq!(self.table.is_whole_and_ready(from, until), ends_by_counts);
        assert_eq!(self.table.is_within(from, until), covers_all);
        self.table.remove_runs(from, until, &mut self.live);
        whole.iter().for_each(|at| {
            self.model.remove(at);
        });
    }

    fn check(&self) {
        self.table.check(is_ready, expiry);
        self.table.check_spreads(&self.live);
        let mut found = Model::new();
        for run in self.table.runs() {
            let run = self.pages.warmed(own_entity(), run);
            run.count_again(&mut self.live.apart());
            found.extend(run.entries().map(|entry| {
                let side = entry.whole_side();
                (entry.number.as_u64(), (*entry.record, side))
            }));
        }
        assert_eq!(found, self.model);
        if self.is_warm {
            self.check_orders();
        }
        let numbers = || {
            let seen = self.table.seen_from(SequenceNumber::default());
            seen.map(|(number, _)| number)
        };
        let ends = [numbers().next(), numbers().last()];
        let expected = [self.model.keys().next(), self.model.keys().next_back()];
        assert_eq!(ends, expected.map(|it| it.map(|at| number(*at))));
    }

    /// Only records in memory may be read.
    fn check_orders(&self) {
        let ready = self
            .table
            .ready(Timestamp::ZERO)
            .map(|entry| entry.number.as_u64());
        let expected = self
            .model
            .iter()
            .filter(|(_, (record, _))| is_ready(record));
        assert!(ready.eq(expected.map(|(at, _)| *at)));
        for from in [0, 1, 4, 5, 17, 1023, 1024] {
            let found = self.table.entries_from(number(from));
            let found = found.map(|entry| entry.number.as_u64());
            assert!(found.eq(self.model.range(from..).map(|(at, _)| *at)));
        }
    }
}

proptest! {
    #[test]
    fn it_behaves_as_the_plain_model(
        tiny in any::<bool>(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let length = if tiny { RunLength::TINY } else { RunLength::DEFAULT };
        let table = Table::new(length, SequenceNumber::FIRST);
        let mut pair = Pair::of(table);
        for step in steps {
            pair.carry_out(step);
            pair.check();
        }
    }

    /// Parts of a snapshot end after any message, and a number may come twice in what is damaged.
    #[test]
    fn a_table_is_restored_from_parts_that_end_anywhere(
        steps in prop::collection::vec(step(), 1..300),
        part_length in 1_usize..40,
        repeated in prop::option::of(0_usize..100),
    ) {
        let mut pair = Pair::of(Table::new(RunLength::TINY, SequenceNumber::FIRST));
        steps.into_iter().for_each(|step| pair.carry_out(step));
        let mut messages: Vec<_> = pair.model.into_iter().collect();
        let mut restored = Table::new(RunLength::TINY, pair.table.next());
        let mut live = pair.live.apart();
        let mut are_new = true;
        let again = repeated.and_then(|nth| messages.get(nth).cloned());
        messages.extend(again.clone());
        for part in messages.chunks(part_length) {
            let mut restoring = Restoring::default();
            for (at, (record, side)) in part {
                let message = (number(*at), *record, side.clone());
                let (is_ready, expiry) = (is_ready(record), expiry(record));
                are_new &= restored.restore(&mut restoring, message, is_ready, expiry, &mut live);
            }
            are_new &= restored.add_restored(&mut restoring, &mut live);
        }
        prop_assert_eq!(are_new, again.is_none());
        prop_assert_eq!(&restored, &pair.table);
        restored.check(is_ready, expiry);
        restored.check_spreads(&live);
        prop_assert_eq!(&live, &pair.live);
    }

    /// What lies in the slots between, and how they came to be, is no part of a table.
    #[test]
    fn tables_with_the_same_messages_are_equal(
        mut numbers in Just((1..2000_u64).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let kept = numbers.split_off(1500);
        let table_of = |numbers: &mut dyn Iterator<Item = &u64>| {
            let table = Table::new(RunLength::DEFAULT, number(10_000));
            let mut pair = Pair::of(table);
            numbers.for_each(|at| pair.insert(*at, at.is_multiple_of(3), 5));
            pair
        };
        let mut first = table_of(&mut numbers.iter().chain(&kept));
        numbers.iter().for_each(|at| first.remove_at(*at));
        first.check();
        let mut second = table_of(&mut kept.iter().rev());
        second.check();
        prop_assert_eq!(&first.table, &second.table);
        second.change(0, false, None);
        prop_assert!(first.table != second.table);
    }
}

/// A queue that is short takes little, however many messages went through it.
#[test]
fn a_run_gives_back_the_room_that_is_not_needed() {
    let table = Table::new(RunLength::DEFAULT, SequenceNumber::FIRST);
    let mut pair = Pair::of(table);
    for at in 1..=1000 {
        pair.insert(at, true, 1);
        if at > 3 {
            pair.remove_at(at - 3);
        }
        let room = pair.table.run(0).unwrap().room();
        assert!(room <= 12, "{room} records at {at}");
    }
    pair.check();
    assert_eq!(
        pair.table.entries().next().map(|entry| entry.number),
        Some(number(998))
    );
}

/// Messages that stay behind keep their own memory, and not that of the messages between them.
#[test]
fn a_run_with_few_messages_is_small_wherever_they_are() {
    for every in [3, 20, 300, 1022] {
        let table = Table::new(RunLength::DEFAULT, SequenceNumber::FIRST);
        let mut pair = Pair::of(table);
        (1..=1023).for_each(|at| pair.insert(at, true, 1));
        let full = pair.table.run(0).unwrap().room();
        assert!(full <= 1024, "{full} records for 1,023");
        let gone = (1..=1023).filter(|at| at % every != 1);
        gone.for_each(|at| pair.remove_at(at));
        let room = pair.table.run(0).unwrap().room() as u64;
        let left = pair.table.count();
        assert!(room <= 4 * left, "{room} records for {left}");
        pair.check();
    }
}

/// The last block of a run has fewer slots than the others.
#[test]
fn a_full_run_has_room_for_its_messages_alone() {
    for length in [RunLength::TINY, RunLength::UNTOLD, RunLength::DEFAULT] {
        let mut pair = Pair::of(Table::new(length, SequenceNumber::FIRST));
        let numbers = length.as_u64()..2 * length.as_u64();
        numbers.for_each(|at| pair.insert(at, true, 1));
        assert_eq!(pair.table.run(1).unwrap().room() as u64, length.as_u64());
    }
}

#[test]
fn messages_that_expired_are_left_out_of_the_order_run_by_run() {
    let mut table = Table::new(RunLength::TINY, SequenceNumber::FIRST);
    let mut live = Live::new(CountUnit::DEFAULT);
    let soon = Timestamp::from_ms(10);
    for at in 1..=8 {
        let record = Record {
            expires_at: if at == 5 { Timestamp::NEVER } else { soon },
            ..Record::ready(Timestamp::ZERO, location(1))
        };
        table.insert(number(at), record, Side::default(), true, &mut live);
        table.lower_expiry(number(at), record.expires_at);
    }
    let ready = |table: &Table, now: u64| -> Vec<u64> {
        let entries = table.ready(Timestamp::from_ms(now));
        entries.map(|entry| entry.number.as_u64()).collect()
    };
    assert_eq!(ready(&table, 9), [1, 2, 3, 4, 5, 6, 7, 8]);
    // Runs are 0 to 3, 4 to 7, and 8. The second one has a message that does not expire.
    assert_eq!(ready(&table, 10), [4, 5, 6, 7]);
    assert_eq!(table.next_expiry(), Some(soon));
    assert_eq!(table.run_to_expire(Timestamp::from_ms(9)), None);
    assert_eq!(table.run_to_expire(soon), Some(0));
}
