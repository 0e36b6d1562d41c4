use std::collections::BTreeMap;
use std::ops::Range;

use super::*;
use crate::bus::{
    BusCommand, BusFact, BusMessage, BusOutcome, BusQueueOptions, Disposition, ReceiveMode,
    SessionChoice,
};
use crate::command::Command;
use crate::event::{Event, Fact};
use crate::moves::{BodyToMove, MovedBody, Source};
use crate::outcome::{BodiesMoved, Outcome};
use crate::storage::{Metadata, StorageCommand, StorageFact};
use crate::table::{BodyEncoding, CountUnit, RunLength};
use crate::turn::{Journal, Turn};
use crate::vocabulary::{EntityName, Service, Timestamp, VisibilityTimeout};

const UNIT: u64 = 4096;

/// Bodies by place. Each batch is at another position.
#[derive(Default)]
struct Disk {
    position: u64,
    offset: u32,
    bodies: BTreeMap<BodyLocation, Vec<u8>>,
    events: Vec<Event>,
}

impl Journal for Disk {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        let at = BodyLocation::new(
            self.position,
            self.offset,
            u32::try_from(body.len()).unwrap(),
        );
        self.offset += at.length;
        self.bodies.insert(at, body.to_vec());
        at
    }

    fn record(&mut self, event: &Event) {
        self.events.push(event.clone());
    }
}

struct Partition {
    state: State,
    disk: Disk,
}

fn stored() -> EntityName {
    EntityName::storage_queue("acct", "jobs")
}

fn bus() -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: "jobs".into(),
    }
}

impl Partition {
    /// A partition with queues of both services, in which messages have changes and a session has a state.
    fn new() -> Self {
        let mut partition = Self {
            state: State::counting_in(CountUnit::at_most(UNIT)),
            disk: Disk::default(),
        };
        partition.ask(Command::Initialize {
            secret: [42; 16],
            run_length: RunLength::TINY,
        });
        partition.ask(Command::Storage(StorageCommand::CreateQueue {
            queue: stored(),
            metadata: Metadata::default(),
        }));
        partition.ask(Command::Bus(BusCommand::CreateQueue {
            queue: bus(),
            options: BusQueueOptions {
                requires_session: true,
                ..BusQueueOptions::default()
            },
        }));
        for number in 0..10 {
            partition.send(number);
        }
        partition.change_and_set_state();
        partition
    }

    fn ask(&mut self, command: Command) -> Outcome {
        self.disk.position += 1000;
        self.disk.offset = 10;
        let now = Timestamp::from_ms(1_000_000);
        let promise = crate::describe::tests::Promise::of(&command, &self.state, now);
        let (events, bodies) = (self.disk.events.len(), self.disk.bodies.len());
        let outcome = Turn::new(&mut self.state, now, &mut self.disk).decide(command);
        let encoded: Vec<_> = self.disk.events[events..].iter().map(encoded).collect();
        let stored = self
            .disk
            .bodies
            .values()
            .rev()
            .take(self.disk.bodies.len() - bodies);
        let size_bytes = encoded.iter().map(|event| event.len() + 6).sum::<usize>()
            + stored.map(|body| body.len() + 10).sum::<usize>();
        promise.check(&self.state, &encoded, size_bytes as u64);
        self.state.check_live_bytes();
        outcome.result.unwrap()
    }

    fn send(&mut self, number: u32) {
        self.ask(Command::Storage(StorageCommand::Send {
            queue: stored(),
            body: format!("storage {number}").into(),
            encoding: BodyEncoding::Text,
            time_to_live_seconds: None,
            visibility_timeout: VisibilityTimeout::from_seconds(0).unwrap(),
        }));
        self.ask(Command::Bus(BusCommand::Send {
            queue: bus(),
            messages: vec![BusMessage {
                body: format!("bus {number}").into(),
                message_id: None,
                session: Some("s".into()),
                time_to_live_ms: None,
                scheduled_at: None,
            }],
        }));
    }

    fn change_and_set_state(&mut self) {
        let accept = BusCommand::AcceptSession {
            queue: bus(),
            session: SessionChoice::Next,
        };
        let Outcome::Bus(BusOutcome::SessionAccepted(session)) = self.ask(Command::Bus(accept))
        else {
            panic!("the session is free");
        };
        let received = self.ask(Command::Bus(BusCommand::Receive {
            queue: bus(),
            count: 3,
            mode: ReceiveMode::PeekLock,
            session: Some(session.lock),
        }));
        let Outcome::Bus(BusOutcome::Received(messages)) = received else {
            panic!("messages are received");
        };
        let abandon = |number: usize| Disposition::Abandon {
            overlay: Some(format!("change {number}").into()),
        };
        let locks = messages.iter().enumerate();
        let settlements = locks.map(|(number, it)| (it.lock.unwrap(), abandon(number)));
        self.ask(Command::Bus(BusCommand::Settle {
            queue: bus(),
            settlements: settlements.collect(),
        }));
        self.ask(Command::Bus(BusCommand::SetSessionState {
            queue: bus(),
            session: session.lock,
            state: Some("the state".into()),
        }));
    }

    /// Messages in other states than ready.
    fn lease_and_schedule(&mut self) {
        self.ask(Command::Storage(StorageCommand::Receive {
            queue: stored(),
            count: 4,
            visibility_timeout: VisibilityTimeout::from_seconds(30).unwrap(),
        }));
        self.ask(Command::Bus(BusCommand::Send {
            queue: bus(),
            messages: vec![BusMessage {
                body: "later".into(),
                message_id: None,
                session: Some("other".into()),
                time_to_live_ms: Some(1 << 40),
                scheduled_at: Some(Timestamp::from_ms(5_000_000)),
            }],
        }));
    }

    /// What each message and session has, by its holder.
    fn contents(&self) -> Vec<(Holder, Vec<u8>)> {
        let found = self.state.bodies_in(
            &(0..u64::MAX),
            BodyCursor::default(),
            (u32::MAX, u64::MAX),
            &MovedBodies::default(),
        );
        assert_eq!(found.next, None);
        let bodies = found.bodies.into_iter();
        bodies
            .map(|found| {
                (
                    found.holder,
                    self.disk.bodies[&found.at.with(Hold::Alone)].clone(),
                )
            })
            .collect()
    }

    fn to_move(&self, found: &FoundBody, moved: &MovedBodies) -> BodyToMove {
        BodyToMove {
            holder: found.holder.clone(),
            from: found.at,
            source: match moved.get(found.at) {
                Some(moved) => Source::SameAs(moved),
                None => Source::Bytes(self.disk.bodies[&found.at.with(Hold::Alone)].clone().into()),
            },
            event_size_bytes: found.event_size_bytes,
        }
    }

    fn move_bodies(&mut self, bodies: Vec<BodyToMove>) -> BodiesMoved {
        match self.ask(Command::MoveBodies { bodies }) {
            Outcome::BodiesMoved(moved) => moved,
            other => panic!("{other:?}"),
        }
    }

    /// Moves what a search finds, and forgets the old places, as if their segment were gone.
    fn evacuate(&mut self, positions: Range<u64>, steps: u32, size_bytes: u64) -> usize {
        let positions = self.state.units_around(&positions);
        let (mut cursor, mut count) = (Some(BodyCursor::default()), 0);
        let mut moved = MovedBodies::default();
        while let Some(from) = cursor {
            let size = (steps, size_bytes);
            let found = self.state.bodies_in(&positions, from, size, &moved);
            assert_ne!(found.next, Some(from), "a search goes on");
            cursor = found.next;
            count += found.bodies.len();
            let bodies = found.bodies.iter();
            let bodies = bodies.map(|found| self.to_move(found, &moved)).collect();
            let BodiesMoved { first, gone, .. } = self.move_bodies(bodies);
            assert!(gone.is_empty());
            for (from, first) in first {
                moved.note(from, first);
            }
        }
        assert_eq!(self.state.live_bytes_in(positions.clone()), 0);
        self.disk
            .bodies
            .retain(|at, _| !positions.contains(&at.record));
        count
    }
}

fn encoded(event: &Event) -> Vec<u8> {
    let mut bytes = Vec::new();
    event.encode(&mut bytes);
    bytes
}

#[test]
fn bodies_move_out_of_a_range_and_nothing_else_changes() {
    for (steps, size_bytes) in [(4, 1), (7, 150), (u32::MAX, u64::MAX)] {
        let mut partition = Partition::new();
        let before = partition.contents();
        assert_eq!(before.len(), 10 + 10 + 3 + 1);
        let count = partition.evacuate(5000..9000, steps, size_bytes);
        assert!((6..=12).contains(&count), "{count}");
        assert_eq!(partition.contents(), before);
        // The bodies go behind the range, as those of a log do.
        let end = partition.disk.position / UNIT * UNIT;
        let all = partition.evacuate(0..end, steps, size_bytes);
        assert!(all > count);
        assert_eq!(partition.contents(), before);
        let mut replayed = State::counting_in(CountUnit::at_most(UNIT));
        for event in &partition.disk.events {
            replayed.apply(Event::decode(&encoded(event)).unwrap());
        }
        assert!(replayed == partition.state);
        let mut restored = State::counting_in(CountUnit::at_most(UNIT));
        partition
            .state
            .snapshot(|part| restored.restore(part).unwrap());
        assert!(restored == partition.state);
    }
}

#[test]
fn what_has_changed_meanwhile_stays_as_it_is() {
    let mut partition = Partition::new();
    let found = partition.state.bodies_in(
        &(0..u64::MAX),
        BodyCursor::default(),
        (u32::MAX, u64::MAX),
        &MovedBodies::default(),
    );
    let none = MovedBodies::default();
    let bodies = found.bodies.iter();
    let bodies: Vec<_> = bodies
        .map(|found| partition.to_move(found, &none))
        .collect();
    let before = bodies.len();
    partition.ask(Command::Storage(StorageCommand::Clear { queue: stored() }));
    let moved = partition.move_bodies(bodies.clone());
    assert_eq!(moved.count, before - 10);
    let contents = partition.contents();
    // They are elsewhere now.
    let events = partition.disk.events.len();
    assert_eq!(partition.move_bodies(bodies), BodiesMoved::default());
    assert_eq!(partition.disk.events.len(), events, "nothing is logged");
    assert_eq!(partition.contents(), contents);
    // Events that are wrong about everything, as a damaged history may have them.
    for event in &partition.disk.events {
        if is_move(event) {
            partition.state.apply(event.clone());
        }
    }
    partition.state.check_live_bytes();
    assert_eq!(partition.contents(), contents);
}

fn is_move(event: &Event) -> bool {
    matches!(
        event.fact,
        Fact::Storage(StorageFact::BodiesMoved { .. }) | Fact::Bus(BusFact::BodiesMoved { .. })
    )
}

/// What is left of a history whose first part is gone: the queues, and what happened after that.
fn repaired(partition: &Partition, from: usize) -> State {
    let mut repaired = State::counting_in(CountUnit::at_most(UNIT));
    for (index, event) in partition.disk.events.iter().enumerate() {
        let is_kept = index >= from || event.entities().count() == 1 && !is_about_messages(event);
        if is_kept {
            repaired.apply_fitting(event.clone());
        }
    }
    repaired.check_live_bytes();
    repaired
}

fn is_about_messages(event: &Event) -> bool {
    matches!(
        event.fact,
        Fact::Storage(StorageFact::Messages { .. })
            | Fact::Bus(
                BusFact::Messages { .. }
                    | BusFact::SessionLocked { .. }
                    | BusFact::SessionStateSet { .. }
            )
    )
}

#[test]
fn a_repair_finds_all_of_a_message_in_its_move() {
    let mut partition = Partition::new();
    partition.lease_and_schedule();
    let from = partition.disk.events.len();
    let end = (partition.disk.position / UNIT + 1) * UNIT;
    partition.disk.position = end;
    partition.evacuate(0..end, u32::MAX, u64::MAX);
    let repaired = repaired(&partition, from);
    // The moves say all of messages and states. Only the lock of a session, and ids, are not theirs.
    let all = |state: &State| {
        let stored = state.storage.iter().map(|(queue, entity)| {
            let messages: Vec<_> = entity.backlog.messages().collect();
            format!("{queue:?}: {messages:?}")
        });
        let bus = state.bus.iter().map(|(queue, entity)| {
            let messages: Vec<_> = entity.backlog.messages().collect();
            format!("{queue:?}: {messages:?}")
        });
        let states = state.session_states().map(|state| format!("{state:?}"));
        stored.chain(bus).chain(states).collect::<Vec<_>>()
    };
    assert_eq!(all(&repaired), all(&partition.state));
    assert_eq!(repaired.live_bytes(), partition.state.live_bytes());
    // Applied to a state that has other bodies, they replace them.
    let mut other = State::counting_in(CountUnit::at_most(UNIT));
    let before = partition.disk.events.iter().take(from);
    before.for_each(|event| other.apply(event.clone()));
    partition.ask(Command::Storage(StorageCommand::Clear { queue: stored() }));
    for event in partition.disk.events.iter().skip(from) {
        other.apply_fitting(event.clone());
    }
    other.check_live_bytes();
    assert!(other == partition.state);
}

fn of_topic(name: &str) -> EntityName {
    EntityName {
        name: format!("t{name}").into(),
        ..bus()
    }
}

const SUBSCRIPTIONS: [&str; 3] = ["/subscriptions/a", "/subscriptions/b", "/subscriptions/c"];

impl Partition {
    /// Publishes messages to three subscriptions.
    fn publish_shared(&mut self, bodies: &[&str]) {
        if self.state.catalogue.find(&of_topic("")).is_none() {
            self.ask(Command::Bus(BusCommand::CreateTopic {
                topic: of_topic(""),
                options: BusQueueOptions::default(),
            }));
            for subscription in SUBSCRIPTIONS {
                self.subscribe(of_topic(subscription));
            }
        }
        if bodies.is_empty() {
            return;
        }
        let message = |body: &&str| BusMessage {
            body: (*body).to_owned().into(),
            message_id: None,
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        };
        self.ask(Command::Bus(BusCommand::Send {
            queue: of_topic(""),
            messages: bodies.iter().map(message).collect(),
        }));
    }

    fn subscribe(&mut self, subscription: EntityName) {
        self.ask(Command::Bus(BusCommand::CreateSubscription {
            topic: of_topic(""),
            subscription,
            options: BusQueueOptions::default(),
            rule: None,
        }));
    }

    /// The holds of the topic's messages and of their copies, by entity.
    fn shared_holds(&self) -> Vec<Hold> {
        let topic = self.state.catalogue.find(&of_topic("")).unwrap();
        let entities = self.state.bus.iter().filter(|(of, _)| **of >= topic);
        let entries = entities.flat_map(|(_, entity)| entity.backlog.table().entries());
        entries.map(|entry| entry.record.body.hold()).collect()
    }

    /// Receives and deletes the first message of a subscription.
    fn take(&mut self, subscription: &str) -> BodyLocation {
        let received = self.ask(Command::Bus(BusCommand::Receive {
            queue: of_topic(subscription),
            count: 1,
            mode: ReceiveMode::ReceiveAndDelete,
            session: None,
        }));
        match received {
            Outcome::Bus(BusOutcome::Received(messages)) => messages[0].body,
            other => panic!("{other:?}"),
        }
    }

    fn stored_count(&self, body: &str) -> usize {
        let stored = self.disk.bodies.values();
        stored.filter(|it| ***it == *body.as_bytes()).count()
    }

    fn is_as_replayed_and_restored(&self) {
        let mut replayed = State::counting_in(CountUnit::at_most(UNIT));
        for event in &self.disk.events {
            replayed.apply(Event::decode(&encoded(event)).unwrap());
        }
        assert!(replayed == self.state);
        let mut restored = State::counting_in(CountUnit::at_most(UNIT));
        self.state.snapshot(|part| restored.restore(part).unwrap());
        assert!(restored == self.state);
    }
}

/// Whatever moves together, a body that several messages have is stored once, and one of them counts it.
#[test]
fn a_shared_body_moves_once() {
    for (steps, size_bytes) in [(4, 1), (7, 150), (u32::MAX, u64::MAX)] {
        let mut partition = Partition::new();
        partition.publish_shared(&["shared one", "shared two"]);
        // What counts the first body ends.
        assert_eq!(partition.take(SUBSCRIPTIONS[0]).hold(), Hold::Lends);
        let live_bytes = partition.state.live_bytes();
        let before = partition.contents();
        for _ in 0..2 {
            let end = partition.disk.position / UNIT * UNIT + UNIT;
            partition.disk.position = end;
            partition.evacuate(0..end, steps, size_bytes);
            assert_eq!(partition.contents(), before);
            for body in ["shared one", "shared two"] {
                assert_eq!(partition.stored_count(body), 1, "{steps} {body}");
            }
            // Another copy counts it now.
            let lent = "shared one".len() as u64;
            assert_eq!(partition.state.live_bytes(), live_bytes + lent);
        }
        let holds = [
            SUBSCRIPTIONS[0],
            SUBSCRIPTIONS[1],
            SUBSCRIPTIONS[1],
            SUBSCRIPTIONS[2],
        ];
        let holds = holds.map(|subscription| partition.take(subscription).hold());
        let [lends, borrows] = [Hold::Lends, Hold::Borrows];
        assert_eq!(holds, [lends, lends, borrows, borrows]);
        partition.is_as_replayed_and_restored();
    }
}

/// The message that moved first may have ended, or moved again, before the others move.
#[test]
fn a_place_is_named_only_while_its_holder_has_it() {
    for moves_again in [false, true] {
        let mut partition = Partition::new();
        partition.publish_shared(&["shared"]);
        let all = 0..u64::MAX;
        let find = |partition: &Partition| {
            let found = partition.state.bodies_in(
                &all,
                BodyCursor::default(),
                (u32::MAX, u64::MAX),
                &MovedBodies::default(),
            );
            let shared = found.bodies.into_iter();
            shared
                .filter(|it| it.at.hold() != Hold::Alone)
                .collect::<Vec<_>>()
        };
        let [a, b, c] = find(&partition).try_into().unwrap();
        let (none, mut moved) = (MovedBodies::default(), MovedBodies::default());
        let done = partition.move_bodies(vec![partition.to_move(&a, &none)]);
        assert_eq!((done.count, done.stored_bytes), (1, 6));
        let [(from, first)] = done.first[..] else {
            panic!("{done:?}");
        };
        assert!(from.is_same_place(a.at) && first.at.hold() == Hold::Lends);
        moved.note(from, first);
        // Named, it moves without its bytes.
        let done = partition.move_bodies(vec![partition.to_move(&b, &moved)]);
        let expected = BodiesMoved {
            count: 1,
            ..BodiesMoved::default()
        };
        assert_eq!(done, expected);
        if moves_again {
            let again = find(&partition);
            partition.move_bodies(vec![partition.to_move(&again[0], &none)]);
        } else {
            partition.take(SUBSCRIPTIONS[0]);
        }
        let events = partition.disk.events.len();
        let done = partition.move_bodies(vec![partition.to_move(&c, &moved)]);
        let expected = BodiesMoved {
            gone: vec![from],
            ..BodiesMoved::default()
        };
        assert_eq!(done, expected);
        assert_eq!(partition.disk.events.len(), events);
        moved.forget(from);
        let done = partition.move_bodies(vec![partition.to_move(&c, &moved)]);
        assert_eq!((done.count, done.stored_bytes, done.first.len()), (1, 6, 1));
        partition.is_as_replayed_and_restored();
    }
}

/// A message that has a part of its copies moves with them. It lends in the new place, and so does the next copy, because
/// the message ends with the last one.
#[test]
fn a_message_that_waits_moves_with_its_copies() {
    const COPIES: usize = 150;
    let mut partition = Partition::new();
    partition.publish_shared(&[]);
    let more = |number| of_topic(&format!("/subscriptions/{number}"));
    for number in SUBSCRIPTIONS.len()..COPIES {
        partition.subscribe(more(number));
    }
    partition.publish_shared(&["shared"]);
    let before = partition.shared_holds();
    assert_eq!(before, [Hold::Lends]);
    let tick = |partition: &mut Partition, budget| {
        let now = Timestamp::from_ms(1_000_000);
        partition.disk.position += 1000;
        let mut turn = Turn::new(&mut partition.state, now, &mut partition.disk);
        turn.tick(budget).more_is_due
    };
    // The topic's own comes first.
    assert!(tick(&mut partition, 16));
    let mut holds = vec![Hold::Borrows; 65];
    (holds[0], holds[1]) = (Hold::Lends, Hold::Lends);
    assert_eq!(partition.shared_holds(), holds);

    let end = partition.disk.position / UNIT * UNIT + UNIT;
    partition.disk.position = end;
    partition.evacuate(0..end, u32::MAX, u64::MAX);
    assert_eq!(partition.stored_count("shared"), 1);
    holds[1] = Hold::Borrows;
    assert_eq!(partition.shared_holds(), holds);
    partition.is_as_replayed_and_restored();

    while tick(&mut partition, 16) {}
    let mut holds = vec![Hold::Borrows; COPIES];
    holds[64] = Hold::Lends;
    assert_eq!(partition.shared_holds(), holds);
    assert_eq!(partition.stored_count("shared"), 1);
    partition.state.check_live_bytes();
    partition.is_as_replayed_and_restored();
}

/// Beyond a number of bodies, the rest is found by the next search.
#[test]
fn a_search_notes_a_bounded_number_of_shared_bodies() {
    let mut partition = Partition::new();
    partition.publish_shared(&["one", "two"]);
    let mut moved = MovedBodies::default();
    let first = MovedBody {
        holder: Place {
            entity: Incarnation::new(1),
            number: SequenceNumber::FIRST,
        },
        at: BodyLocation::default(),
    };
    for other in 0..MovedBodies::COUNT_MAX as u64 - 1 {
        moved.note(BodyLocation::new(1 << 40 | other, 9, 1), first);
    }
    let shared = |moved: &MovedBodies| {
        let (all, from) = (0..1 << 40, BodyCursor::default());
        let found = partition
            .state
            .bodies_in(&all, from, (u32::MAX, u64::MAX), moved);
        let found = found.bodies.iter().map(|it| it.at.with(Hold::Alone));
        found.filter(|at| at.length == 3).collect::<Vec<_>>()
    };
    let some = shared(&moved);
    assert_eq!(some.len(), 3, "three copies of one");
    moved.note(some[0], first);
    assert_eq!(shared(&moved), some);
    assert_eq!(shared(&MovedBodies::default()).len(), 6);
}

/// In parts of any size, and also if the range begins and ends within a unit.
#[test]
fn a_search_finds_all_that_needs_bytes_in_a_range() {
    let mut partition = Partition::new();
    partition.lease_and_schedule();
    let live = partition.contents();
    let places = partition.disk.bodies.keys();
    let end = places.map(|at| at.record).max().unwrap();
    for positions in [0..u64::MAX, 3001..end - 1500, 5000..5001, end..end] {
        let mut before = None;
        for steps in [4, 5, 7, 100, u32::MAX] {
            let (mut needed, mut from) = (Vec::new(), BodyCursor::default());
            let (records, unread) = ([positions.clone()], BTreeSet::new());
            loop {
                let found = partition
                    .state
                    .bodies_within(&records, &unread, from, steps);
                assert!(found.missing.is_empty());
                needed.extend(found.bodies);
                let Some(next) = found.next else {
                    break;
                };
                assert_ne!(next, from, "it goes on");
                from = next;
            }
            assert!(needed.iter().all(|it| partition.state.needs(it)));
            let bodies = needed
                .iter()
                .map(|it| partition.disk.bodies[&it.body].clone());
            let within = partition.disk.bodies.iter();
            let within = within.filter(|(at, _)| positions.contains(&at.record));
            let expected = within.filter(|(_, body)| live.iter().any(|(_, it)| it == *body));
            let mut bodies: Vec<_> = bodies.collect();
            let mut expected: Vec<_> = expected.map(|(_, body)| body.clone()).collect();
            bodies.sort();
            expected.sort();
            assert_eq!(bodies, expected);
            let before = before.get_or_insert_with(|| needed.clone());
            assert_eq!(*before, needed, "{steps} steps");
        }
    }
}
