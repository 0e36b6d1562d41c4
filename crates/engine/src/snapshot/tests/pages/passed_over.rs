//! A start that passes over the pages of runs finds the same state, and goes on in the same way.

use proptest::prelude::*;

use super::*;
use crate::effect::NewBody;
use crate::state::{Hand, Pass};
use crate::table::{BodyEncoding, CountUnit, Placed, Resident};
use crate::vocabulary::{BodyMove, Hold};

/// More than all tests have.
const ROOM: u64 = 1 << 20;

impl Queue {
    /// A start that passes over pages takes the place of this process. Returns how many it has passed over.
    fn restart(&mut self, room_bytes: u64) -> usize {
        let (state, count) = self.store.restarted(room_bytes);
        assert_eq!(state, self.store.restored());
        assert_eq!(state.healed_runs(), 0);
        state.check_live_bytes();
        self.state = state;
        count
    }

    /// The hand goes round once. Returns of how many runs it has taken records.
    fn sweep(&mut self) -> u64 {
        let (state, mut hand) = (&mut self.state, Hand::default());
        let swept = state.evict(
            &mut hand,
            Pass::All,
            Timestamp::ZERO,
            u32::MAX,
            |_, _, _| true,
        );
        swept.runs
    }

    /// Gives messages another body, of another length.
    fn update(&mut self, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            let to = BodyLocation {
                record: 1 << 24 | number << 8,
                ..body(9)
            };
            self.replace(number, to, body(number));
        }
    }

    /// Gives a message another body.
    fn replace(&mut self, number: u64, body: BodyLocation, was: BodyLocation) {
        self.effects(std::iter::once(Effect::Leased {
            at: place(number),
            lease: Lease {
                generation: LeaseGeneration::new(7),
                deliveries: 3,
                standing: Standing {
                    state: MessageState::Locked { deferred: false },
                    until: Timestamp::from_ms(80_000 + number),
                },
            },
            body: Some(Box::new(NewBody::Other {
                body: Placed {
                    encoding: BodyEncoding::Raw,
                    location: body,
                },
                was,
            })),
            was: Was::default(),
        }));
    }

    /// Changes the properties of messages.
    fn overlay(&mut self, numbers: impl Iterator<Item = u64>) {
        self.effects(numbers.map(|number| Effect::Leased {
            at: place(number),
            lease: Lease {
                generation: LeaseGeneration::new(2),
                deliveries: 1,
                standing: Standing {
                    state: MessageState::Locked { deferred: true },
                    until: Timestamp::from_ms(90_000),
                },
            },
            body: Some(Box::new(NewBody::Change(body(number + 2_000_000)))),
            was: Was::default(),
        }));
    }

    fn move_bodies(&mut self, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            let (from, to) = (body(number), body(number + 1_000_000));
            self.move_body(number, BodyMove { from, to });
        }
    }

    fn move_body(&mut self, number: u64, body: BodyMove) {
        let live = &mut self.state.catalogue.live;
        let queue = self.state.storage.get_mut(&Incarnation::new(ENTITY));
        let backlog = &mut queue.unwrap().backlog;
        let number = SequenceNumber::new(number);
        assert!(backlog.move_message_body(number, body, live));
    }
}

/// A queue of three runs, with a page each.
fn paged() -> Queue {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..3000);
    queue.snapshot();
    queue
}

/// The messages of both states, record by record.
fn assert_same(mut one: Queue, other: &mut Queue) {
    assert_eq!(one.state, other.state);
    one.state.check_live_bytes();
    one.read(1..4000);
    other.read(1..4000);
    assert_eq!(one.state.resident().records, one.state.counts().1);
    assert_eq!(other.state.resident().records, other.state.counts().1);
    assert_eq!(one.state, other.state);
}

#[test]
fn plain_runs_come_up_cold() {
    let mut queue = paged();
    assert_eq!(queue.restart(ROOM), 3);
    assert_eq!(queue.resident(), (0, 3));
    assert_eq!(queue.snapshot(), [], "all have their pages");
    queue.read(1..3000);
    assert_eq!(queue.resident(), (2999, 0));
    assert_eq!(queue.snapshot(), []);
}

/// Changes by a replay are patches, lie in the directory, and are found there by the next start: as if all of it had been
/// read.
#[test]
fn what_a_replay_changes_on_cold_runs_is_kept() {
    let changes: [fn(&mut Queue); 6] = [
        // Their effects say what the messages came with: none of those that another change is about.
        |it| it.lease((5..900).step_by(30).filter(|number| number % 97 != 3)),
        |it| {
            it.delete(
                (2..2000)
                    .step_by(7)
                    .filter(|it| it % 97 != 3 && it % 30 != 5 && it % 3 != 1),
            )
        },
        |it| it.update((100..3000).step_by(97)),
        |it| it.put(3000..3200),
        |it| it.move_bodies((2000..2100).filter(|number| number % 97 != 3)),
        |it| it.lease((40..1500).step_by(3).filter(|number| number % 97 != 3)),
    ];
    for first in 0..changes.len() {
        let (mut cold, mut hot) = (paged(), paged());
        for (nth, change) in changes.iter().cycle().skip(first).take(6).enumerate() {
            cold.restart(if nth % 2 == 0 { 0 } else { ROOM });
            hot.state = hot.store.restored();
            change(&mut cold);
            change(&mut hot);
            assert_eq!(cold.state, hot.state);
            cold.snapshot();
            hot.snapshot();
        }
        cold.restart(0);
        hot.state = hot.store.restored();
        assert!(cold.state.resident().cold_runs > 0);
        assert_same(cold, &mut hot);
    }
}

impl Queue {
    /// How many messages are in the order by time, and how many wait for a time that only their pages have; and when the
    /// first of all may be due.
    fn waiting(&self) -> (usize, u64, Option<u64>) {
        let backlog = &self.state.storage[&Incarnation::new(ENTITY)].backlog;
        let first = backlog.first_time();
        let counts = (backlog.timed().len(), backlog.table().far_count());
        (counts.0, counts.1, first.map(Timestamp::as_ms))
    }
}

/// What is locked waits for a time. Only its page says when, and the directory when the first one is due.
#[test]
fn pages_with_locks_are_passed_over() {
    let mut queue = paged();
    queue.lease(1100..1200);
    assert_eq!(queue.waiting(), (100, 0, Some(90_000)));
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY, RUN]);
    assert_eq!(queue.restart(ROOM), 3);
    assert_eq!(queue.resident(), (0, 3));
    assert_eq!(queue.waiting(), (0, 100, Some(90_000)));
    assert_eq!(queue.snapshot(), [], "what it tells is as it was");
    // Those that end, or are locked again, do not wait any more for what their page says.
    queue.lease(1100..1120);
    assert_eq!(queue.waiting(), (20, 80, Some(90_000)));
    queue.delete(1150..1160);
    assert_eq!(queue.waiting(), (20, 70, Some(90_000)));
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    assert_eq!(queue.restart(0), 3);
    assert_eq!(queue.waiting(), (20, 70, Some(90_000)));
    // They enter the order as they are read.
    queue.read(1120..1130);
    assert_eq!(queue.waiting(), (30, 60, Some(90_000)));
    queue.read(1..3000);
    assert_eq!(queue.waiting(), (90, 0, Some(90_000)));
    // Few locks lie in the directory.
    let mut queue = paged();
    queue.lease(1100..1120);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    assert_eq!(queue.restart(ROOM), 3);
    assert_eq!(queue.resident(), (20, 3));
    assert_eq!(queue.waiting(), (20, 0, Some(90_000)));
}

/// Messages leave the order by time with their records if they are due later than that.
#[test]
fn what_is_due_soon_stays_in_the_order() {
    let mut queue = paged();
    queue.update(1100..1200);
    queue.snapshot();
    for (far_from, far, first) in [(81_149, 50, 81_100), (82_000, 0, 81_100), (0, 100, 81_100)] {
        let far_from = Timestamp::from_ms(far_from);
        queue.state.evict_if(far_from, |_, _, _| true);
        let near = 100 - usize::try_from(far).unwrap();
        assert_eq!(queue.waiting(), (near, far, Some(first)));
        assert_eq!(queue.state, queue.store.restored());
        queue.read(1..3000);
        assert_eq!(queue.waiting(), (100, 0, Some(first)));
    }
}

/// What a directory says of the first time follows those that leave memory, also of a run that was not read as a whole.
#[test]
fn a_start_knows_when_those_that_are_left_are_due() {
    let mut queue = paged();
    queue.update(1060..1120);
    queue.update(1160..1170);
    queue.snapshot();
    queue.restart(0);
    assert_eq!(queue.waiting(), (0, 70, Some(81_060)));
    queue.lease(1060..1100);
    assert_eq!(queue.waiting(), (40, 30, Some(81_060)), "a lower bound");
    queue.read(1100..1120);
    assert_eq!(queue.waiting(), (60, 10, Some(81_100)));
    queue.state.evict_if(Timestamp::ZERO, |_, _, _| true);
    queue.snapshot();
    queue.restart(0);
    assert_eq!(queue.waiting(), (40, 30, Some(81_100)));
}

/// Metrics count what is hidden. Of a group whose time has come, nobody knows better without its page.
#[test]
fn what_may_show_counts_as_shown() {
    let mut queue = paged();
    queue.update(1060..1160);
    queue.snapshot();
    queue.restart(0);
    let entity = Incarnation::new(ENTITY);
    // One group ends with 1151.
    for (now, hidden) in [(81_059, 100), (81_060, 8), (81_152, 0)] {
        let queue = queue.state.storage.get_mut(&entity).unwrap();
        assert!(queue.backlog.pass_shown(Timestamp::from_ms(now), &mut 1000));
        assert_eq!(queue.backlog.hidden_count(), hidden, "{now}");
    }
}

/// More changed than may lie beside the page of a run in memory. What is on the page must not be changed a second time.
#[test]
fn a_run_with_many_patches_is_read() {
    let mut queue = paged();
    queue.restart(ROOM);
    queue.update(1100..1300);
    queue.move_bodies(1500..1600);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    let written = queue.store.pages.clone();
    let mut hot = queue.store.restored();
    std::mem::swap(&mut queue.state, &mut hot);
    // Without a limit it is in memory, and needs another page.
    assert_eq!(queue.resident(), (2999, 0));
    assert_eq!(queue.snapshot(), [DIRECTORY, RUN]);
    assert_eq!(queue.store.restored(), queue.state);
    queue.store.pages = written;
    // Above it, what has changed stays.
    assert_eq!(queue.restart(0), 2);
    assert_eq!(queue.resident(), (300, 3));
    // Below it, too: so that this does not stay for ever.
    assert_eq!(queue.restart(ROOM), 2);
    assert_eq!(queue.resident(), (1024, 2));
    assert_eq!(queue.snapshot(), [DIRECTORY, RUN]);
    // Of the locks on that page its directory tells enough.
    assert_eq!(queue.restart(0), 3);
    assert_eq!(queue.resident(), (0, 3));
}

/// What arrives in the last run after a start lies beside its page until the start after that.
#[test]
fn what_arrives_in_a_cold_run_leaves_memory_after_the_next_start() {
    let mut queue = paged();
    queue.restart(ROOM);
    queue.put(3000..3072);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    queue.sweep();
    assert_eq!(queue.resident(), (72, 3));
    assert_eq!(queue.restart(ROOM), 2);
    assert_eq!(queue.snapshot(), [DIRECTORY, RUN]);
    assert_eq!(queue.sweep(), 1);
    assert_eq!(queue.resident(), (0, 3));
    assert_eq!(queue.snapshot(), []);
    assert_eq!(queue.restart(ROOM), 3);
}

/// Memory may have what the next snapshot makes a page of, if the last copy of it is lost.
#[test]
fn a_page_that_may_be_lost_stays_in_memory() {
    let mut queue = paged();
    queue.lease(1100..1200);
    queue.snapshot();
    let mut state = State::new();
    for part in &queue.store.parts {
        state.restore(part).unwrap();
    }
    let mut restoring = RestoringPages::within(0);
    for (page, bytes) in &queue.store.pages {
        let groups: Vec<&[u8]> = bytes.groups.iter().map(Vec::as_slice).collect();
        let decoded = DecodedPage::decode(bytes.kind, &groups).unwrap();
        if bytes.kind == RUN && state.counts().1 == 1023 {
            restoring.keep_next();
        }
        let restored = state.restore_decoded(&mut restoring, *page, decoded);
        restored.unwrap();
    }
    state.finish_pages(restoring).unwrap();
    let expected = Resident {
        cold_runs: 2,
        ..Resident::of_records(1024)
    };
    assert_eq!(state.resident(), expected);
}

/// A run that was read as a whole loses both copies of its page. The page is made again with what the directory says of it,
/// and the directory stays as it is.
#[test]
fn a_patch_that_its_page_has_already_changes_nothing() {
    let mut queue = paged();
    queue.restart(ROOM);
    queue.overlay(1100..1110);
    queue.move_bodies(1105..1115);
    queue.lease(1120..1130);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    queue.read(1..3000);
    assert_eq!(queue.resident(), (2999, 0));
    let mut nth = 0;
    queue.store.pages.retain(|(_, bytes)| {
        nth += u64::from(bytes.kind == RUN);
        bytes.kind != RUN || nth != 2
    });
    queue.store.has_lost = true;
    assert_eq!(queue.snapshot(), [RUN]);
    assert_eq!(queue.store.restored(), queue.state);
    queue.restart(0);
    let expected = queue.store.restored();
    queue.read(1..3000);
    assert_eq!(queue.state, expected);
}

/// What was read leaves memory again, however many messages have patches.
#[test]
fn copies_beside_patches_leave_memory() {
    let mut queue = paged();
    queue.restart(ROOM);
    queue.lease(1..512);
    queue.read(520..600);
    assert_eq!(queue.resident(), (80, 3));
    assert_eq!(queue.sweep(), 1);
    assert_eq!(queue.resident(), (0, 3));
    assert_eq!(queue.sweep(), 0);
}

/// Live bytes are counted in another unit than the directory's: each body counts anew.
#[test]
fn another_unit_of_live_bytes_needs_the_pages() {
    let queue = paged();
    let decoded = |bytes: &PageBytes| {
        let groups: Vec<&[u8]> = bytes.groups.iter().map(Vec::as_slice).collect();
        DecodedPage::decode(bytes.kind, &groups).unwrap()
    };
    let mut pages = queue.store.pages.iter().map(|(_, bytes)| bytes);
    let directory = decoded(pages.find(|it| it.kind == DIRECTORY).unwrap());
    for (unit, passes) in [
        (CountUnit::DEFAULT, true),
        (CountUnit::at_most(4096), false),
    ] {
        let found: Vec<bool> = directory.pages_to_pass_over(unit).collect();
        assert_eq!(found, [passes; 3]);
    }
    let first = pages.find(|it| it.kind == RUN).unwrap();
    assert_eq!(
        decoded(first)
            .pages_to_pass_over(CountUnit::DEFAULT)
            .count(),
        0
    );
}

/// A directory of version 1 says too little. It is written anew.
#[test]
fn pages_behind_a_directory_of_version_1_are_read() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(900..1000);
    queue.put(1024..1030);
    queue.snapshot();
    queue.lease(930..932);
    queue.delete(940..942);
    queue.snapshot();
    let expected = queue.store.restored();
    let mut pages = queue.store.pages.iter_mut();
    let (_, directory) = pages.find(|(_, it)| it.kind == DIRECTORY).unwrap();
    directory.groups = vec![golden::bytes_of(golden::DIRECTORY_V1)];
    let (restarted, count) = queue.store.restarted(ROOM);
    assert_eq!((count, &restarted), (0, &expected));
    assert_eq!(restarted.healed_runs(), 0);
    queue.state = restarted;
    assert_eq!(queue.snapshot(), [DIRECTORY]);
    assert_eq!(queue.restart(ROOM), 1);
    assert_eq!(queue.state, expected);
}

/// Only what a directory allows is passed over.
#[test]
fn a_page_that_is_needed_cannot_be_passed_over() {
    let mut queue = paged();
    queue.overlay(1..100);
    queue.snapshot();
    let mut state = State::new();
    for part in &queue.store.parts {
        state.restore(part).unwrap();
    }
    let mut restoring = RestoringPages::default();
    for (page, bytes) in &queue.store.pages {
        if bytes.kind == RUN {
            assert!(state.restore_passed_over(&mut restoring, *page).is_err());
            return;
        }
        let groups: Vec<&[u8]> = bytes.groups.iter().map(Vec::as_slice).collect();
        let restored = state.restore_page(&mut restoring, *page, bytes.kind, &groups);
        restored.unwrap();
    }
    panic!("there is a page of a run");
}

/// What is done to messages of which some have bodies that others count.
#[derive(Clone, Copy, Debug)]
enum Change {
    Arrives(Hold),
    Ends,
    /// It gets another body.
    Updated(Hold),
    /// Its body lies elsewhere from now on, and is held in another way.
    Moved(Hold),
    Snapshot,
    /// A start that passes over pages.
    Restart(u64),
}

fn change() -> impl Strategy<Value = Change> {
    let hold = || {
        prop_oneof![
            1 => Just(Hold::Alone),
            1 => Just(Hold::Lends),
            2 => Just(Hold::Borrows)
        ]
    };
    prop_oneof![
        4 => hold().prop_map(Change::Arrives),
        4 => Just(Change::Ends),
        3 => hold().prop_map(Change::Updated),
        3 => hold().prop_map(Change::Moved),
        2 => Just(Change::Snapshot),
        2 => (0_u64..2).prop_map(|room| Change::Restart(room * ROOM)),
    ]
}

/// Messages of a queue, and the body of each.
struct Held {
    queue: Queue,
    bodies: BTreeMap<u64, BodyLocation>,
    /// How many bodies there were.
    count: u64,
}

impl Held {
    fn new() -> Self {
        let mut held = Self {
            queue: Queue::new(),
            bodies: BTreeMap::new(),
            count: 0,
        };
        held.queue.create(ENTITY, "queue");
        let holds = [Hold::Alone, Hold::Borrows, Hold::Borrows, Hold::Lends];
        for (number, hold) in (1..1500).zip(holds.into_iter().cycle()) {
            held.arrive(number, hold);
        }
        held.queue.snapshot();
        held
    }

    fn next_body(&mut self, hold: Hold) -> BodyLocation {
        self.count += 1;
        let length = 10 + u32::try_from(self.count % 90).unwrap();
        BodyLocation::new(128 * self.count, 4, length).with(hold)
    }

    fn arrive(&mut self, number: u64, hold: Hold) {
        let body = self.next_body(hold);
        if self.bodies.contains_key(&number) {
            return;
        }
        self.bodies.insert(number, body);
        let message = Record::ready(Timestamp::from_ms(self.queue.now), body).into();
        let to = place(number);
        (self.queue).effects(std::iter::once(Effect::Arrived { to, message }));
    }

    fn change(&mut self, change: Change, at: u64) {
        let found = self.bodies.range(at..).next();
        let found = found.map(|(number, was)| (*number, *was));
        match (change, found) {
            (Change::Snapshot, _) => {
                self.queue.snapshot();
            }
            (Change::Restart(room_bytes), _) => {
                self.queue.snapshot();
                self.queue.restart(room_bytes);
            }
            (Change::Arrives(hold), _) => self.arrive(at + 1400, hold),
            (Change::Ends, Some((number, sent))) => {
                self.bodies.remove(&number);
                self.queue.effects(std::iter::once(Effect::Ended {
                    at: place(number),
                    was: Was::default(),
                    bodies: Bodies {
                        sent,
                        overlays: Vec::new(),
                    },
                    source_length: None,
                }));
            }
            (Change::Updated(hold), Some((number, was))) => {
                let body = self.next_body(hold);
                self.bodies.insert(number, body);
                self.queue.replace(number, body, was);
            }
            (Change::Moved(hold), Some((number, from))) => {
                let to = BodyLocation {
                    length: from.length,
                    ..self.next_body(hold)
                };
                self.bodies.insert(number, to);
                self.queue.move_body(number, BodyMove { from, to });
            }
            (Change::Ends | Change::Updated(_) | Change::Moved(_), None) => {}
        }
    }

    /// What of it other messages count.
    fn borrowed_bytes(&self) -> u64 {
        let borrowed = self.bodies.values();
        let borrowed = borrowed.filter(|body| body.hold() == Hold::Borrows);
        borrowed.map(|body| u64::from(body.length)).sum()
    }
}

fn borrowed_bytes(state: &State) -> u64 {
    let queue = &state.storage[&Incarnation::new(ENTITY)];
    queue.backlog.table().borrowed_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A state from directories alone is that from all pages, also in what other messages count.
    #[test]
    fn what_is_borrowed_is_known_without_pages(
        changes in prop::collection::vec((change(), 0_u64..1600), 1..120),
    ) {
        let mut held = Held::new();
        held.queue.restart(ROOM);
        prop_assert_eq!(held.queue.resident(), (0, 2));
        for (change, at) in changes {
            held.change(change, at);
            prop_assert_eq!(borrowed_bytes(&held.queue.state), held.borrowed_bytes());
        }
        held.queue.snapshot();
        let all = held.queue.store.restored();
        prop_assert_eq!(borrowed_bytes(&all), held.borrowed_bytes());
        let (alone, _) = held.queue.store.restarted(0);
        prop_assert_eq!(borrowed_bytes(&alone), held.borrowed_bytes());
        prop_assert_eq!(alone, all);
    }
}
