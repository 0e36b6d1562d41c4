//! A data directory of format 1 with queues of Service Bus, in every state that a message can have: a migration makes a
//! log of it in which all of it goes on.
//!
//! `tests/golden/bus-1` was written with [`history`] by the last version that wrote format 1. Never write it again.

use std::sync::Arc;

use bytes::Bytes;
use kew_broker::{MigrateError, Migrated, OldPartition, PartitionOptions, Reply};
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueOptions, DeferredRead, Disposition, ReceiveMode,
    SessionChoice,
};
use kew_engine::{Command, EntityName, Outcome, SequenceNumber, Service, Timestamp, Token};
use kew_log::{FaultyStorage, LogOptions, verify};

use crate::damaged::{Bench, Sizes};

pub(crate) fn options() -> PartitionOptions {
    let sizes = Sizes {
        segment_kib: 32,
        batch_kib: 16,
        turn_kib: 8,
        settlement_kib: 1,
    };
    let options = sizes.options();
    PartitionOptions {
        log: LogOptions {
            ballast_size_bytes: 0,
            ..options.log
        },
        ..options
    }
}

const ENTITIES: [&str; 6] = [
    "plain",
    "plain/$deadletterqueue",
    "sessions",
    "sessions/$deadletterqueue",
    "forwarding",
    "target",
];

fn named(name: &str) -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: name.into(),
    }
}

fn plain() -> BusQueueOptions {
    BusQueueOptions {
        lock_duration_ms: 300_000,
        max_delivery_count: 2,
        duplicate_window_ms: Some(600_000),
        dead_letters_expired: true,
        ..BusQueueOptions::default()
    }
}

fn change(text: &'static str) -> Option<Bytes> {
    Some(Bytes::from_static(text.as_bytes()))
}

/// Commands of one history.
struct Teller {
    bench: Bench,
    sent: u32,
}

/// What clients hold at the end of a history.
#[derive(Debug, Default)]
struct Held {
    /// Locks of messages: the queue, the lock, and the lock of the session.
    messages: Vec<(&'static str, Token)>,
    /// Locks of sessions.
    sessions: Vec<Token>,
    deferred: Vec<SequenceNumber>,
    scheduled: Vec<SequenceNumber>,
}

impl Teller {
    fn on(storage: FaultyStorage, now: Timestamp) -> Self {
        let mut bench = Bench::on(storage, options());
        bench.now = now;
        Self { bench, sent: 0 }
    }

    fn wait(&mut self, seconds: u64) {
        self.bench.now = self.bench.now.plus_seconds(seconds);
    }

    fn try_bus(&mut self, command: BusCommand) -> Reply {
        self.bench.ask(Command::Bus(command))
    }

    fn bus(&mut self, command: BusCommand) -> BusOutcome {
        match self.try_bus(command).unwrap().outcome {
            Outcome::Bus(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, queue: &str, options: BusQueueOptions) {
        let queue = named(queue);
        self.bus(BusCommand::CreateQueue { queue, options });
    }

    /// The next message, with an id of its own.
    fn message(&mut self) -> BusMessage {
        self.sent += 1;
        BusMessage {
            body: format!("body {}", self.sent).into(),
            message_id: Some(format!("id {}", self.sent).into()),
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        }
    }

    fn send(&mut self, queue: &str, messages: Vec<BusMessage>) -> Vec<Option<SequenceNumber>> {
        let queue = named(queue);
        match self.bus(BusCommand::Send { queue, messages }) {
            BusOutcome::Sent(numbers) => numbers,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self, queue: &str, count: u32, session: Option<Token>) -> Vec<Token> {
        let received = self.bus(BusCommand::Receive {
            queue: named(queue),
            count,
            mode: ReceiveMode::PeekLock,
            session,
        });
        match received {
            BusOutcome::Received(messages) => messages.iter().map(|it| it.lock.unwrap()).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn settle(&mut self, queue: &str, lock: Token, how: Disposition) -> String {
        let settled = self.bus(BusCommand::Settle {
            queue: named(queue),
            settlements: vec![(lock, how)],
        });
        format!("{settled:?}")
    }

    fn accept(&mut self, session: &str) -> Token {
        let accepted = self.bus(BusCommand::AcceptSession {
            queue: named("sessions"),
            session: SessionChoice::Named(session.into()),
        });
        match accepted {
            BusOutcome::SessionAccepted(lock) => lock.lock,
            other => panic!("{other:?}"),
        }
    }

    fn set_state(&mut self, session: Token, state: &'static str) {
        self.bus(BusCommand::SetSessionState {
            queue: named("sessions"),
            session,
            state: change(state),
        });
    }

    /// One part of the history. Returns what is held after it.
    fn tell(&mut self, held: &mut Held) {
        let messages = (0..24).map(|number| BusMessage {
            time_to_live_ms: (number % 8 == 7).then_some(5_000),
            ..self.message()
        });
        let messages = messages.collect();
        self.send("plain", messages);
        let scheduled_at = Some(self.bench.now.plus_seconds(100));
        let scheduled = (0..3).map(|_| BusMessage {
            scheduled_at,
            ..self.message()
        });
        let scheduled = scheduled.collect();
        let numbers = self.send("plain", scheduled);
        held.scheduled.extend(numbers.into_iter().flatten());

        let locks = self.receive("plain", 8, None);
        self.settle("plain", locks[0], Disposition::Complete);
        let overlay = change("tried once");
        self.settle("plain", locks[1], Disposition::Abandon { overlay });
        // It is the first one now, and has been tried.
        let again = self.receive("plain", 1, None);
        let overlay = change("tried again");
        self.settle("plain", again[0], Disposition::Defer { overlay });
        let overlay = None;
        self.settle("plain", locks[2], Disposition::Defer { overlay });
        let overlay = change("why it failed");
        self.settle("plain", locks[3], Disposition::DeadLetter { overlay });
        held.messages
            .extend(locks[4..].iter().map(|lock| ("plain", *lock)));

        let ids = ["a", "b", "c"];
        for round in 0..4 {
            let messages = ids.map(|id| BusMessage {
                session: Some(id.into()),
                time_to_live_ms: (round == 3).then_some(5_000),
                ..self.message()
            });
            self.send("sessions", messages.into());
        }
        let b = self.accept("b");
        self.set_state(b, "the state of b");
        let of_b = self.receive("sessions", 2, Some(b));
        let overlay = change("of a session");
        self.settle("sessions", of_b[0], Disposition::Defer { overlay });
        self.bus(BusCommand::ReleaseSession {
            queue: named("sessions"),
            session: b,
        });

        let messages = vec![self.message(), self.message()];
        self.send("forwarding", messages);
        let moved = self.receive("target", 1, None);
        held.messages.push(("target", moved[0]));
    }
}

/// Every state, before a snapshot and after it.
fn history(teller: &mut Teller) -> Held {
    let mut held = Held::default();
    teller.create("plain", plain());
    teller.create(
        "target",
        BusQueueOptions {
            lock_duration_ms: 300_000,
            ..BusQueueOptions::default()
        },
    );
    teller.create(
        "forwarding",
        BusQueueOptions {
            forward_to: Some("target".into()),
            ..BusQueueOptions::default()
        },
    );
    teller.create(
        "sessions",
        BusQueueOptions {
            requires_session: true,
            lock_duration_ms: 300_000,
            ..BusQueueOptions::default()
        },
    );
    teller.tell(&mut held);
    let a = teller.accept("a");
    held.sessions.push(a);
    teller.set_state(a, "the first state of a");
    let of_a = teller.receive("sessions", 2, Some(a));
    held.messages
        .extend(of_a.iter().map(|lock| ("sessions", *lock)));
    teller.bench.snapshot();
    teller.wait(7);
    teller.tell(&mut held);
    teller.set_state(a, "the last state of a");
    teller.wait(7);
    // What has expired is a dead letter, or gone, before the next command.
    teller.send("target", Vec::new());
    teller.bench.mark();
    held.deferred = deferred(teller);
    held
}

/// The numbers of the deferred messages of a queue without sessions.
fn deferred(teller: &mut Teller) -> Vec<SequenceNumber> {
    let peeked = teller.bus(peek("plain"));
    let BusOutcome::Peeked(messages) = peeked else {
        panic!("{peeked:?}");
    };
    let is_deferred = |state: String| state.starts_with("Deferred");
    let messages = messages.iter();
    let deferred = messages.filter(|it| is_deferred(format!("{:?}", it.state)));
    deferred.map(|it| it.sequence_number).collect()
}

fn peek(queue: &str) -> BusCommand {
    BusCommand::Peek {
        queue: named(queue),
        from: SequenceNumber::default(),
        count: 250,
        session: None,
    }
}

/// All that clients can see of every message, with what it carries.
fn look(teller: &mut Teller, seen: &mut Vec<String>) {
    for queue in ENTITIES {
        let view = teller.bus(BusCommand::ReadQueue {
            queue: named(queue),
        });
        seen.push(format!("{view:?}"));
        let answered = teller.try_bus(peek(queue)).unwrap();
        let Outcome::Bus(BusOutcome::Peeked(messages)) = &answered.outcome else {
            panic!("{answered:?}");
        };
        let mut bodies = answered.bodies.read().into_iter().map(Result::unwrap);
        for message in messages {
            let bytes: Vec<_> = bodies.by_ref().take(1 + message.overlays.len()).collect();
            seen.push(format!(
                "{queue} {:?} {:?} {} {} {} {} {:?} {:?} {:?} {bytes:?}",
                message.sequence_number,
                message.first_sequence_number,
                message.enqueued_at,
                message.expires_at,
                message.due_at,
                message.delivery_count,
                message.state,
                message.cause,
                message.dead_letter_source,
            ));
        }
        assert_eq!(bodies.next(), None);
    }
}

/// What becomes of all that clients hold, and what they see before and after.
fn examine(teller: &mut Teller, held: &Held) -> Vec<String> {
    let mut seen = Vec::new();
    teller.wait(1);
    look(teller, &mut seen);
    // Ids of messages that are there, and of one that was completed long ago.
    let repeated = [1, 2, 5, 60, 1000].map(|number: u32| BusMessage {
        message_id: Some(format!("id {number}").into()),
        ..teller.message()
    });
    seen.push(format!("{:?}", teller.send("plain", repeated.into())));
    for session in &held.sessions {
        let (queue, session) = (named("sessions"), *session);
        let state = teller.try_bus(BusCommand::ReadSessionState {
            queue: queue.clone(),
            session,
        });
        let state = state.unwrap().bodies.read().remove(0).unwrap();
        let renewed = teller.bus(BusCommand::RenewSession { queue, session });
        let next = teller.receive("sessions", 1, Some(session));
        seen.push(format!("{state:?} {renewed:?} {next:?}"));
    }
    let ways = [
        Disposition::Complete,
        Disposition::Abandon {
            overlay: change("after"),
        },
        Disposition::DeadLetter { overlay: None },
    ];
    for ((queue, lock), how) in held.messages.iter().zip(ways.iter().cycle()) {
        let renewed = teller.try_bus(BusCommand::RenewLocks {
            queue: named(queue),
            locks: vec![*lock],
        });
        let renewed = renewed.map(|it| it.outcome);
        let settled = teller.settle(queue, *lock, how.clone());
        let again = teller.settle(queue, *lock, how.clone());
        seen.push(format!("{renewed:?} {settled} {again}"));
    }
    let cancelled = teller.bus(BusCommand::CancelScheduled {
        queue: named("plain"),
        numbers: held.scheduled.iter().take(1).copied().collect(),
    });
    seen.push(format!("{cancelled:?}"));
    let taken = teller.try_bus(BusCommand::ReceiveDeferred {
        read: DeferredRead {
            queue: named("plain"),
            numbers: held.deferred.clone(),
            mode: ReceiveMode::ReceiveAndDelete,
            session: None,
        },
    });
    let taken = taken.unwrap();
    let bodies = taken.bodies.read().into_iter().map(Result::unwrap);
    seen.push(format!("{:?}", bodies.collect::<Vec<_>>()));
    // Then schedules are due, and locks have ended.
    teller.wait(400);
    look(teller, &mut seen);
    seen.push(format!("{:?}", teller.bench.partition.state().counts()));
    let usage = teller.bench.partition.state().usage_of("ns");
    seen.push(format!("{usage:?}"));
    seen
}

macro_rules! golden {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_bytes!(concat!("../golden/bus-1/", $name)) as &[u8])),*]
    };
}

const FILES: [(&str, &[u8]); 7] = golden![
    "segment-00000000000000000001",
    "segment-00000000000000000002",
    "segment-00000000000000000003",
    "segment-00000000000000000004",
    "segment-00000000000000000005",
    "segment-00000000000000000006",
    "snapshot-00000000000000168296",
];

/// The files, with the snapshot or without it.
pub(crate) fn golden(is_whole_log: bool) -> FaultyStorage {
    let storage = FaultyStorage::new();
    for (name, content) in FILES {
        if !(is_whole_log && name.starts_with("snapshot")) {
            storage.put(name, content);
        }
    }
    storage
}

fn migrate(old: &FaultyStorage, new: &FaultyStorage) -> Result<Migrated, MigrateError> {
    OldPartition::read(old, &options())?.write_to(Arc::new(new.clone()), &options(), 11)
}

/// The numbers in the bodies that an examination sends differ from those of a history.
fn examined(storage: FaultyStorage, now: Timestamp, held: &Held) -> (Teller, Vec<String>) {
    let mut teller = Teller::on(storage, now);
    teller.sent = 1000;
    let seen = examine(&mut teller, held);
    (teller, seen)
}

/// Migrates the directory, with its snapshot or from its first event on.
fn check(is_whole_log: bool) {
    let mut told = Teller::on(FaultyStorage::new(), Timestamp::from_ms(1_000_000));
    let held = history(&mut told);
    let now = told.bench.now;
    told.sent = 1000;
    let expected = examine(&mut told, &held);
    for needed in [
        "Locked",
        "Deferred",
        "Scheduled",
        "Ready",
        "Settled([Settled])",
    ] {
        let found = expected.iter().any(|line| line.contains(needed));
        assert!(found, "no {needed} in {expected:#?}");
    }

    let old = golden(is_whole_log);
    let before = old.fingerprint();
    let new = FaultyStorage::new();
    let migrated = migrate(&old, &new).unwrap();
    assert_eq!(before, old.fingerprint(), "the old log is as it was");
    assert_eq!(migrated.damaged, 0);
    verify(&new).unwrap();
    // A second start finds the new log, and the same in it.
    drop(Teller::on(new.clone(), now));
    let (opened, seen) = examined(new.kill(), now, &held);
    assert_eq!(seen, expected);

    // And once more, with what this version wrote behind it.
    let now = told.bench.now;
    let (_, again) = examined(opened.bench.storage.kill(), now, &Held::default());
    let (_, expected) = examined(told.bench.storage.kill(), now, &Held::default());
    assert_eq!(again, expected);
}

#[test]
fn bus_queues_of_the_first_format_are_what_they_were() {
    check(false);
}

#[test]
fn every_event_of_bus_queues_means_what_it_meant() {
    check(true);
}

#[test]
fn a_migration_takes_no_more_space_than_it_asks_for() {
    for is_whole_log in [false, true] {
        let old = golden(is_whole_log);
        let full = FaultyStorage::new();
        full.set_capacity_bytes(Some(0));
        let Err(MigrateError::NoSpace { needed_bytes, .. }) = migrate(&old, &full) else {
            panic!("there is no space");
        };
        assert!(full.files().is_empty());
        full.set_capacity_bytes(Some(needed_bytes - 1));
        assert!(matches!(
            migrate(&old, &full),
            Err(MigrateError::NoSpace { .. })
        ));
        full.set_capacity_bytes(Some(needed_bytes));
        migrate(&old, &full).unwrap();
        assert!(full.used_bytes() * 6 > needed_bytes, "it asks for too much");
        // Both snapshots name the same pages.
        let files = full.files();
        let pages = files.iter().filter(|(name, _)| name.starts_with("pages-"));
        assert_eq!(pages.count(), 2, "one file and its copy");
    }
}

/// A first start that was killed before its first event.
#[test]
fn an_empty_log_of_the_first_format_becomes_an_empty_log() {
    let old = FaultyStorage::new();
    let new = FaultyStorage::new();
    assert_eq!(migrate(&old, &new).unwrap(), Migrated::default());
    let mut opened = Teller::on(new, Timestamp::from_ms(1_000_000));
    opened.create("plain", plain());
}
