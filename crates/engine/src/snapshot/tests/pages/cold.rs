//! Snapshots of a state of which records are on pages alone.

use std::collections::BTreeSet;

use super::*;
use crate::bodies::{BodyCursor, BodyOwner, NeededBody};
use crate::moves::MovedBodies;
use crate::state::{Hand, Pass};
use crate::table::{Group, GroupRead, Missing, ReadOf, Resident, Slots, Taken};

impl Queue {
    pub(super) fn evict(&mut self) {
        self.state.evict_if(Timestamp::ZERO, |_, _, _| true);
    }

    /// Reads these messages, if they are not in memory.
    pub(super) fn read(&mut self, numbers: impl Iterator<Item = u64>) {
        let mut missing = Missing::default();
        for number in numbers {
            self.state.storage.ask(place(number), &mut missing);
        }
        for (group, wanted) in missing.groups {
            let read = self.group(group, wanted);
            assert_eq!(self.state.take_read(read), Taken::InMemory);
        }
    }

    /// A group, as a job reads it.
    pub(super) fn group(&self, group: Group, wanted: Slots) -> GroupRead {
        let to_read = self.state.to_read(group, wanted).unwrap();
        let mut pages = self.store.pages.iter();
        let (_, page) = pages.find(|(page, _)| *page == to_read.page()).unwrap();
        let groups: Vec<_> = to_read.groups().map(|group| &page.groups[group]).collect();
        to_read.decode(&groups).unwrap()
    }

    pub(super) fn resident(&self) -> (u64, u64) {
        let Resident {
            records, cold_runs, ..
        } = self.state.resident();
        (records, cold_runs)
    }

    /// Asserts that a start finds what this state has, record by record, and that the pages say what it is.
    pub(super) fn check_cold(&mut self) {
        self.state.check_live_bytes();
        let restored = self.store.restored();
        assert_eq!(restored.healed_runs(), 0);
        restored.check_live_bytes();
        assert_eq!(restored, self.state);
        self.read(1..5000);
        assert_eq!(restored, self.state);
        assert_eq!(self.state.resident().records, self.state.counts().1);
    }
}

#[test]
fn to_evict_and_to_read_changes_nothing_that_a_snapshot_writes() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..3000);
    queue.evict();
    assert_eq!(queue.resident(), (2999, 0), "no page has them");
    queue.snapshot();
    queue.evict();
    assert_eq!(queue.resident(), (0, 3));
    assert!(queue.state.may_be_cold());
    assert_eq!(queue.snapshot(), []);
    queue.read([1, 2, 600, 1500].into_iter());
    assert_eq!(queue.resident(), (4, 3), "and none of those beside them");
    assert_eq!(queue.snapshot(), []);
    queue.evict();
    assert_eq!(queue.resident(), (0, 3));
    queue.read(1..3000);
    assert_eq!(queue.resident(), (2999, 0));
    assert_eq!(queue.snapshot(), []);
    assert!(!queue.state.may_be_cold());
    queue.check_cold();
}

/// While a snapshot is gathered, too: what is read or evicted need not be gathered first.
#[test]
fn to_read_gathers_nothing() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..3000);
    queue.snapshot();
    queue.evict();
    queue.state.begin_snapshot();
    queue.state.take_copied();
    queue.read(1..3000);
    assert_eq!(queue.state.take_copied(), 0);
    let snapshot = queue.state.gather(u64::MAX).unwrap();
    assert_eq!(queue.store.publish(snapshot, false), []);
    queue.check_cold();
}

#[test]
fn what_changed_beside_a_cold_page_lies_in_the_directory_however_much() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..2200);
    queue.snapshot();
    queue.evict();
    // More than 64 arrive, and as many get leases.
    queue.put(2200..2500);
    queue.read((1..200).chain(1024..1040));
    queue.lease((1..200).chain(1024..1040));
    queue.evict();
    assert_eq!(
        queue.resident(),
        (300 + 199 + 16, 3),
        "changes stay in memory"
    );
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    queue.check_cold();
    // All records are in memory. Two runs have more changes than one that is not cold, and keep their pages.
    assert_eq!(queue.resident(), (2499, 2));
    assert_eq!(queue.snapshot(), []);
    queue.evict();
    assert_eq!(queue.resident(), (300 + 199 + 16, 3));
    queue.check_cold();
}

/// It may be so while a snapshot is gathered: that one has the run as it was, with its page.
#[test]
fn a_run_leaves_its_page_while_a_snapshot_is_gathered() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..1000);
    queue.snapshot();
    queue.evict();
    queue.read(1..100);
    queue.lease(1..1000);
    queue.state.begin_snapshot();
    queue.read(100..1000);
    assert_eq!(queue.resident(), (999, 1), "a read changes no page");
    let state = &mut queue.state;
    state.evict(
        &mut Hand::default(),
        Pass::All,
        Timestamp::ZERO,
        u32::MAX,
        |_, _, _| true,
    );
    assert_eq!(queue.resident(), (999, 0));
    let snapshot = queue.state.gather(u64::MAX).unwrap();
    assert_eq!(queue.store.publish(snapshot, false), [HEADS, DIRECTORY]);
    queue.check_cold();
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY, RUN]);
    queue.check_cold();
}

/// What was read of a group takes no more room than the messages that are wanted.
#[test]
fn a_group_that_was_read_takes_no_room_for_others() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..1000);
    queue.snapshot();
    queue.evict();
    let mut missing = Missing::default();
    queue.state.storage.ask(place(500), &mut missing);
    queue.state.storage.ask(place(511), &mut missing);
    let (group, wanted) = missing.groups.pop_first().unwrap();
    assert_eq!(wanted, 1 << (500 % 128) | 1 << 127);
    let room = |wanted| match queue.group(group, wanted).of {
        ReadOf::Messages(messages) => (messages.len(), messages.capacity()),
        ReadOf::Ids(ids) => panic!("{ids:?}"),
    };
    assert_eq!(room(wanted), (2, 2));
    assert_eq!(room(Slots::MAX), (128, 128));
}

/// Its page is named as long as it is cold: nothing else has its records.
#[test]
fn a_cold_run_with_few_messages_keeps_its_page() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..2000);
    queue.snapshot();
    queue.evict();
    queue.delete(1..1000);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    assert_eq!(queue.resident(), (0, 2));
    queue.check_cold();
    // It is in memory again, and its directory still says that it has a page.
    assert_eq!(queue.resident(), (24 + 976, 0));
    assert_eq!(queue.snapshot(), []);
    queue.check_cold();
    // The next change takes it into the directory.
    queue.delete(1000..1001);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    let runs = queue.store.pages.iter().filter(|(_, it)| it.kind == RUN);
    assert_eq!(runs.count(), 1);
    queue.check_cold();
}

#[test]
fn a_run_that_was_replaced_is_not_mixed_with_an_older_page() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..1000);
    queue.snapshot();
    queue.evict();
    let older = queue.store.pages.clone();
    let mut missing = Missing::default();
    queue.state.storage.ask(place(5), &mut missing);
    let (group, wanted) = missing.groups.pop_first().unwrap();
    let of_older = queue.state.to_read(group, wanted).unwrap();
    let read = || {
        let (_, page) = older
            .iter()
            .find(|(page, _)| *page == of_older.page())
            .unwrap();
        let groups: Vec<_> = of_older.groups().map(|group| &page.groups[group]).collect();
        of_older.decode(&groups).unwrap()
    };
    queue.read(1..1000);
    assert_eq!(
        queue.state.take_read(read()),
        Taken::Replaced,
        "it is in memory"
    );
    queue.lease(1..200);
    queue.snapshot();
    queue.evict();
    assert_eq!(queue.resident(), (0, 1));
    assert_eq!(queue.state.take_read(read()), Taken::Replaced);
    assert_eq!(queue.resident(), (0, 1));
    queue.check_cold();
}

#[test]
fn a_page_without_a_message_that_is_there_is_damaged() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..1000);
    queue.snapshot();
    queue.evict();
    let mut missing = Missing::default();
    queue.state.storage.ask(place(5), &mut missing);
    let (group, wanted) = missing.groups.pop_first().unwrap();
    let to_read = queue.state.to_read(group, wanted).unwrap();
    let pages = queue.store.pages.iter();
    let run = pages.map(|(_, it)| it).find(|it| it.kind == RUN).unwrap();
    // The records of another group are read in place of these.
    let read = to_read.decode(&[&run.groups[0], &run.groups[2]]).unwrap();
    assert_eq!(queue.state.take_read(read), Taken::Damaged);
    let of_nothing = to_read.decode(&[&vec![1], &run.groups[1]]);
    assert!(of_nothing.is_err());
    assert!(to_read.decode(&run.groups[..1]).is_err());
    queue.read(1..1000);
    queue.check_cold();
}

#[test]
fn a_search_for_bodies_stops_at_records_that_are_not_in_memory() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..3000);
    queue.snapshot();
    queue.evict();
    queue.read(1..128);
    let mut cursor = Some(BodyCursor::default());
    let (mut found, mut stops) = (0, 0);
    while let Some(from) = cursor {
        let part = queue.state.bodies_in(
            &(0..1 << 40),
            from,
            (100_000, u64::MAX),
            &MovedBodies::default(),
        );
        found += part.bodies.len();
        cursor = part.next;
        if !part.missing.is_empty() {
            assert!(part.missing.groups.len() <= 8, "of one run");
            let first = match stops {
                0 => 128,
                nth => 1024 * nth,
            };
            stops += 1;
            queue.read(first..1024 * stops);
            assert_eq!(found as u64, first - 1);
        }
    }
    assert_eq!((found, stops), (2999, 3));
}

/// Of these, what is in memory is found, whether it comes before or behind.
#[test]
fn a_report_passes_over_messages_that_cannot_be_read() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..3000);
    queue.snapshot();
    queue.evict();
    queue.read([1, 7, 100, 1500, 2999].into_iter());
    let records = 0..1 << 40;
    let mut unread = BTreeSet::new();
    let (mut found, mut stops) = (Vec::new(), 0);
    let mut cursor = Some(BodyCursor::default());
    while let Some(from) = cursor {
        let part = queue
            .state
            .bodies_within(std::slice::from_ref(&records), &unread, from, 10_000);
        found.extend(part.bodies);
        cursor = part.next;
        if !part.missing.is_empty() {
            stops += 1;
            assert!(cursor.is_some());
            unread.extend(part.missing.groups.keys());
        }
    }
    let numbers = found.iter().map(|it| match it.of {
        BodyOwner::Message(number) => number.as_u64(),
        BodyOwner::Session(_) => panic!("there are no sessions"),
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 7, 100, 1500, 2999]);
    assert_eq!(stops, 3, "at each run once");
    assert!(found.iter().all(|needed| queue.state.needs(needed)));
    // Another queue of that name does not need it.
    let of_another = |needed: &NeededBody| NeededBody {
        entity: needed.entity.next(),
        ..needed.clone()
    };
    assert!(!found.iter().any(|it| queue.state.needs(&of_another(it))));
    // Nor does a message whose record is not in memory, if its run has nothing there.
    let elsewhere = |needed: &NeededBody| NeededBody {
        of: BodyOwner::Message(SequenceNumber::new(2)),
        body: BodyLocation::new(1 << 39, 0, 1),
        ..needed.clone()
    };
    assert!(!found.iter().any(|it| queue.state.needs(&elsewhere(it))));
}
