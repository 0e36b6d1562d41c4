//! Snapshots as pages: what is restored is the state, and what did not change keeps its page.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Parts, parts, restore_passing_over};
use crate::effect::{Bodies, Lease, Standing, Was};
use crate::event::{Event, Fact};
use crate::snapshot::pages::kind;
use crate::snapshot::{DecodedPage, PageBytes, RestoringPages, Snapshot, SnapshotPages};
use crate::state::State;
use crate::storage::{Effect, StorageFact};
use crate::table::{MessageState, Record, RunLength};
use crate::vocabulary::{
    BodyLocation, EntityName, Incarnation, LeaseGeneration, PageNumber, Place, SequenceNumber,
    Timestamp,
};

/// The pages that the newest manifest names, in order.
#[derive(Default)]
pub(super) struct Store {
    last: u64,
    written: u64,
    parts: Parts,
    pages: Vec<(PageNumber, PageBytes)>,
    /// Whether pages were lost, or are named again that the newest manifest does not name: then a directory may have
    /// changes that a new page of a run has too.
    has_lost: bool,
}

impl Store {
    /// Writes what has no page. Returns the pages in order, and which of them are new.
    fn write(&mut self, planned: &SnapshotPages) -> Vec<(PageNumber, PageBytes, bool)> {
        let known: BTreeMap<PageNumber, PageBytes> = self.pages.iter().cloned().collect();
        let all = (0..planned.page_count()).map(|index| {
            let kept = planned.page(index);
            if !planned.can_encode(index) {
                let page = kept.expect("a cold run has a page");
                return (page, known[&page].clone(), false);
            }
            let encoded = planned.encode(index).unwrap();
            self.has_lost |= kept.is_some_and(|page| !known.contains_key(&page));
            match kept.and_then(|page| Some((page, known.get(&page)?.clone()))) {
                Some((page, bytes)) => {
                    let may_differ = bytes.kind == kind::RUN || self.has_lost;
                    let is_same = bytes == encoded || may_differ;
                    assert!(
                        is_same,
                        "a piece that changed has no mark: {encoded:?}, and its page has {bytes:?}"
                    );
                    (page, bytes, false)
                }
                None => {
                    // The last snapshot was begun before the latest changes, and has another page of the run.
                    self.has_lost |= kept.is_some() && encoded.kind == kind::RUN;
                    self.last += 1;
                    (PageNumber::new(self.last), encoded, true)
                }
            }
        });
        all.collect()
    }

    /// Writes a snapshot, and notes it as durable, unless writing it failed.
    fn publish(&mut self, snapshot: Snapshot, has_failed: bool) -> Vec<u8> {
        let planned = snapshot.plan_pages();
        let all = self.write(&planned);
        let new = all.iter().filter(|(.., is_new)| *is_new);
        let new = new.map(|(_, bytes, _)| bytes.kind).collect();
        if !has_failed {
            for (index, (page, ..)) in all.iter().enumerate() {
                planned.keep(index, *page);
            }
            self.parts = planned.parts().to_vec();
            let pages = all.into_iter().map(|(page, bytes, _)| (page, bytes));
            self.pages = pages.collect();
        }
        new
    }

    fn restored(&self) -> State {
        self.restored_into(State::new())
    }

    /// The state as a start finds it with so much room for records, and how many pages it has passed over.
    fn restarted(&self, room_bytes: u64) -> (State, usize) {
        let mut state = State::new();
        for part in &self.parts {
            state.restore(part).unwrap();
        }
        let pages = self.pages.iter().map(|(page, bytes)| (*page, bytes));
        let count = restore_passing_over(&mut state, RestoringPages::within(room_bytes), pages);
        (state, count)
    }

    /// The state that it is, with this empty one.
    fn restored_into(&self, mut state: State) -> State {
        for part in &self.parts {
            state.restore(part).unwrap();
        }
        let mut restoring = RestoringPages::default();
        for (page, bytes) in &self.pages {
            let groups: Vec<&[u8]> = bytes.groups.iter().map(Vec::as_slice).collect();
            let restored = state.restore_page(&mut restoring, *page, bytes.kind, &groups);
            restored.unwrap();
        }
        state.finish_pages(restoring).unwrap();
        state
    }

    /// Checks a snapshot of the state that has these parts. Some cannot be written.
    pub(super) fn check(&mut self, snapshot: Snapshot, began: &Parts) {
        self.written += 1;
        let has_failed = self.written.is_multiple_of(3);
        self.publish(snapshot, has_failed);
        if has_failed {
            return;
        }
        let mut from_parts = State::new();
        for part in began {
            from_parts.restore(part).unwrap();
        }
        let mut restored = self.restored();
        assert_eq!(restored, from_parts);
        assert_eq!(restored.healed_runs(), 0);
        restored.check_live_bytes();
        assert_eq!(parts(&restored), parts(&from_parts));
        for room_bytes in [0, u64::MAX] {
            let (restarted, _) = self.restarted(room_bytes);
            assert_eq!(restarted, from_parts);
            assert_eq!(restarted.healed_runs(), 0);
            restarted.check_live_bytes();
            assert_eq!(restarted.size(false), from_parts.size(false));
        }
        // All keep their pages after a start.
        restored.begin_snapshot();
        let planned = restored.gather(u64::MAX).unwrap().plan_pages();
        let all = self.write(&planned);
        let new = all.iter().filter(|(.., is_new)| *is_new);
        assert_eq!(new.count(), 0);
    }
}

mod cold;
mod golden;
mod hand;
mod healed;
mod ids;
mod passed_over;
mod rewriting;
mod sizes;
mod units;

pub(super) use self::ids::{BUS_QUEUE, remember};

/// A partition with a storage queue, whose runs have 1,024 messages.
pub(super) struct Queue {
    pub(super) state: State,
    store: Store,
    now: u64,
}

impl Queue {
    pub(super) fn new() -> Self {
        let mut queue = Self {
            state: State::new(),
            store: Store::default(),
            now: 1000,
        };
        queue.apply(Fact::PartitionInitialized {
            secret: [1; 16],
            run_length: RunLength::DEFAULT,
        });
        queue
    }

    pub(super) fn apply(&mut self, fact: Fact) {
        self.now += 1;
        let at = Timestamp::from_ms(self.now);
        self.state.apply(Event { at, fact });
    }

    /// Writes a snapshot, and returns the kinds of pages that are new.
    pub(super) fn snapshot(&mut self) -> Vec<u8> {
        self.state.begin_snapshot();
        let snapshot = self.state.gather(u64::MAX).unwrap();
        self.store.publish(snapshot, false)
    }

    /// The parts and pages of the newest snapshot.
    pub(super) fn written(&self) -> (&Parts, &[(PageNumber, PageBytes)]) {
        (&self.store.parts, &self.store.pages)
    }

    /// Writes one that fails.
    fn fail_snapshot(&mut self) -> Vec<u8> {
        self.state.begin_snapshot();
        let snapshot = self.state.gather(u64::MAX).unwrap();
        self.store.publish(snapshot, true)
    }
}

pub(super) const ENTITY: u64 = 3;

/// The body of a message of that number.
fn body(number: u64) -> BodyLocation {
    BodyLocation::new(4096 + 136 * number, 40, 64)
}

impl Queue {
    pub(super) fn create(&mut self, entity: u64, name: &str) {
        self.apply(Fact::Storage(StorageFact::QueueCreated {
            queue: Incarnation::new(entity),
            name: EntityName::storage_queue("account", name),
            metadata: Default::default(),
        }));
    }

    fn effects(&mut self, effects: impl Iterator<Item = Effect>) {
        let effects: Vec<Effect> = effects.collect();
        let effects = effects.into();
        self.apply(Fact::Storage(StorageFact::Messages { effects }));
    }

    /// Messages of these numbers arrive.
    pub(super) fn put(&mut self, numbers: Range<u64>) {
        let at = Timestamp::from_ms(self.now + 1);
        self.effects(numbers.map(|number| Effect::Arrived {
            to: place(number),
            message: Record::ready(at, body(number)).into(),
        }));
    }

    pub(super) fn delete(&mut self, numbers: impl Iterator<Item = u64>) {
        self.effects(numbers.map(|number| Effect::Ended {
            at: place(number),
            was: Was::default(),
            bodies: Bodies {
                sent: body(number),
                overlays: Vec::new(),
            },
            source_length: None,
        }));
    }

    pub(super) fn lease(&mut self, numbers: impl Iterator<Item = u64>) {
        self.effects(numbers.map(|number| Effect::Leased {
            at: place(number),
            lease: Lease {
                generation: LeaseGeneration::new(1),
                deliveries: 1,
                standing: Standing {
                    state: MessageState::Locked { deferred: false },
                    until: Timestamp::from_ms(90_000),
                },
            },
            body: None,
            was: Was::default(),
        }));
    }

    fn check(&self) {
        let restored = self.store.restored();
        assert_eq!(restored, self.state);
        restored.check_live_bytes();
    }
}

fn place(number: u64) -> Place {
    Place {
        entity: Incarnation::new(ENTITY),
        number: SequenceNumber::new(number),
    }
}

const HEADS: u8 = kind::HEADS;
const DIRECTORY: u8 = kind::DIRECTORY;
const RUN: u8 = kind::RUN;

#[test]
fn what_is_written_follows_what_changed() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.create(200, "other");
    queue.put(1..200_000);
    let all = queue.snapshot();
    let count = |of: u8, kinds: &[u8]| kinds.iter().filter(|kind| **kind == of).count();
    assert_eq!(
        (count(HEADS, &all), count(DIRECTORY, &all), count(RUN, &all)),
        (2, 4, 196)
    );
    queue.check();
    assert_eq!(queue.snapshot(), []);
    // Deletes and leases here and there rewrite directories alone.
    queue.delete((1..200_000).step_by(100));
    queue.lease((2..200_000).step_by(1000));
    assert_eq!(
        queue.snapshot(),
        [HEADS, DIRECTORY, DIRECTORY, DIRECTORY, DIRECTORY]
    );
    queue.check();
    // New messages touch the end.
    queue.put(200_000..200_100);
    let new = queue.snapshot();
    assert_eq!(new, [HEADS, DIRECTORY, RUN]);
    queue.check();
    // A run with more than 64 changes is written again.
    queue.lease((10_001..10_200).filter(|it| it % 100 != 1 && it % 1000 != 2));
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY, RUN]);
    queue.check();
    // A run with few messages needs no page.
    queue.delete((30_720..31_744).filter(|it| it % 100 != 1 && it % 1000 != 2 && it % 32 != 0));
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    queue.check();
    assert_eq!(
        count(
            RUN,
            &queue
                .store
                .pages
                .iter()
                .map(|(_, it)| it.kind)
                .collect::<Vec<_>>()
        ),
        195
    );
}

#[test]
fn a_snapshot_that_was_not_written_marks_nothing() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..3000);
    let failed = queue.fail_snapshot();
    assert_eq!(queue.fail_snapshot(), failed);
    assert_eq!(queue.snapshot(), failed);
    assert_eq!(queue.fail_snapshot(), []);
    queue.check();
}

#[test]
fn what_changes_while_a_snapshot_is_written_is_written_by_the_next_one() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..3000);
    queue.state.begin_snapshot();
    let snapshot = queue.state.gather(u64::MAX).unwrap();
    queue.lease(5..7);
    queue.put(3000..3001);
    queue.store.publish(snapshot, false);
    assert_ne!(queue.store.restored(), queue.state);
    // The runs that changed were copied before their pages were known.
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY, RUN, RUN]);
    queue.check();
    // Changes after a start are noted too.
    queue.state = queue.store.restored();
    queue.lease(7..9);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    queue.check();
}

#[test]
fn a_page_that_the_log_does_not_know_is_written_again() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..2000);
    queue.snapshot();
    queue.lease(5..7);
    queue.store.pages.clear();
    queue.store.has_lost = true;
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY, RUN, RUN]);
    queue.check();
    assert_eq!(queue.snapshot(), []);
}

#[test]
fn pages_in_another_order_or_without_some_are_refused() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..3000);
    queue.snapshot();
    let pages = queue.store.pages.clone();
    let restore = |order: &[usize]| {
        let mut state = State::new();
        for part in &queue.store.parts {
            state.restore(part).unwrap();
        }
        let mut restoring = RestoringPages::default();
        for index in order {
            let (page, bytes) = &pages[*index];
            let groups: Vec<&[u8]> = bytes.groups.iter().map(Vec::as_slice).collect();
            state.restore_page(&mut restoring, *page, bytes.kind, &groups)?;
        }
        state.finish_pages(restoring)
    };
    assert_eq!(pages.len(), 5);
    assert!(restore(&[0, 1, 2, 3, 4]).is_ok());
    for wrong in [
        &[1, 0][..],
        &[0, 2],
        &[0, 1, 3],
        &[0, 1, 2, 2],
        &[0, 1, 2, 4],
        &[0, 1, 2, 3],
        &[0, 1, 2, 3, 4, 4],
        &[0, 1, 2, 3, 4, 1, 2, 3, 4],
    ] {
        assert!(restore(wrong).is_err(), "{wrong:?}");
    }
}
