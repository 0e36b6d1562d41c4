use std::collections::BTreeMap;
use std::ops::Range;

use super::*;
use crate::bus::{
    BusCommand, BusFact, BusMessage, BusOutcome, BusQueueOptions, Disposition, ReceiveMode,
    SessionChoice,
};
use crate::command::Command;
use crate::event::{Event, Fact};
use crate::moves::BodyToMove;
use crate::outcome::Outcome;
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
        let at = BodyLocation {
            record: self.position,
            offset: self.offset,
            length: u32::try_from(body.len()).unwrap(),
        };
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
        let found = self
            .state
            .bodies_in(&(0..u64::MAX), BodyCursor::default(), u32::MAX, u64::MAX);
        assert_eq!(found.next, None);
        let bodies = found.bodies.into_iter();
        bodies
            .map(|found| (found.holder, self.disk.bodies[&found.at].clone()))
            .collect()
    }

    fn to_move(&self, found: &FoundBody) -> BodyToMove {
        BodyToMove {
            holder: found.holder.clone(),
            from: found.at,
            body: self.disk.bodies[&found.at].clone().into(),
            event_size_bytes: found.event_size_bytes,
        }
    }

    /// Moves what a search finds, and forgets the old places, as if their segment were gone.
    fn evacuate(&mut self, positions: Range<u64>, steps: u32, size_bytes: u64) -> usize {
        let positions = self.state.units_around(&positions);
        let (mut cursor, mut count) = (Some(BodyCursor::default()), 0);
        while let Some(from) = cursor {
            let found = self.state.bodies_in(&positions, from, steps, size_bytes);
            assert_ne!(found.next, Some(from), "a search goes on");
            cursor = found.next;
            count += found.bodies.len();
            let bodies = found.bodies.iter().map(|found| self.to_move(found));
            let bodies = bodies.collect();
            self.ask(Command::MoveBodies { bodies });
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
    let found =
        partition
            .state
            .bodies_in(&(0..u64::MAX), BodyCursor::default(), u32::MAX, u64::MAX);
    let bodies = found.bodies.iter().map(|found| partition.to_move(found));
    let bodies: Vec<_> = bodies.collect();
    let before = bodies.len();
    partition.ask(Command::Storage(StorageCommand::Clear { queue: stored() }));
    let moved = partition.ask(Command::MoveBodies {
        bodies: bodies.clone(),
    });
    assert_eq!(moved, Outcome::BodiesMoved { count: before - 10 });
    let contents = partition.contents();
    // They are elsewhere now.
    let events = partition.disk.events.len();
    let moved = partition.ask(Command::MoveBodies { bodies });
    assert_eq!(moved, Outcome::BodiesMoved { count: 0 });
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
