//! Which events of a bus queue wake which receivers.

use bytes::Bytes;
use kew_broker::Wake;
use kew_engine::bus::{
    Awaited, BreakTarget, BusCommand, BusMessage, BusOutcome, BusQueueOptions, ReceiveMode,
    SessionChoice, SessionLock,
};
use kew_engine::{Command, EntityName, Incarnation, Outcome, SequenceNumber, Service};

use crate::partition::Driver;

/// A partition with a queue, with or without sessions.
struct Bench {
    driver: Driver,
    queue: Incarnation,
}

fn steps() -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: "steps".into(),
    }
}

fn of(session: &str) -> Awaited {
    Awaited::OfSession(session.into())
}

impl Bench {
    fn with(requires_session: bool) -> Self {
        let mut driver = Driver::new();
        let options = BusQueueOptions {
            requires_session,
            ..BusQueueOptions::default()
        };
        let create = BusCommand::CreateQueue {
            queue: steps(),
            options,
        };
        driver.ask(Command::Bus(create)).unwrap();
        let read = BusCommand::ReadQueue { queue: steps() };
        let queue = match driver.ask(Command::Bus(read)).unwrap().outcome {
            Outcome::Bus(BusOutcome::Queue(view)) => view.incarnation,
            other => panic!("{other:?}"),
        };
        driver.partition.take_wakes().count();
        Self { driver, queue }
    }

    /// Submits a command, and returns the receivers that it woke.
    fn ask(&mut self, command: BusCommand) -> (Option<BusOutcome>, Vec<Awaited>) {
        let outcome = match self.driver.ask(Command::Bus(command)) {
            Ok(answered) => match answered.outcome {
                Outcome::Bus(outcome) => Some(outcome),
                other => panic!("{other:?}"),
            },
            Err(_) => None,
        };
        (outcome, self.woken())
    }

    fn woken(&mut self) -> Vec<Awaited> {
        let queue = self.queue;
        let wakes = self.driver.partition.take_wakes();
        let awaited = wakes.map(|wake| match wake {
            Wake::One(entity, awaited) if entity == queue => awaited,
            other => panic!("{other:?}"),
        });
        awaited.collect()
    }

    fn send(&mut self, sessions: &[Option<&str>], time_to_live_ms: Option<u64>) -> Vec<Awaited> {
        let message = |session: &Option<&str>| BusMessage {
            body: Bytes::from_static(b"body"),
            message_id: None,
            session: session.map(Into::into),
            time_to_live_ms,
            scheduled_at: None,
        };
        self.ask(BusCommand::Send {
            queue: steps(),
            messages: sessions.iter().map(message).collect(),
        })
        .1
    }

    fn accept(&mut self, session: SessionChoice) -> (SessionLock, Vec<Awaited>) {
        let queue = steps();
        match self.ask(BusCommand::AcceptSession { queue, session }) {
            (Some(BusOutcome::SessionAccepted(lock)), woken) => (lock, woken),
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self, session: Option<&SessionLock>, count: u32) -> (usize, Vec<Awaited>) {
        let receive = BusCommand::Receive {
            queue: steps(),
            count,
            mode: ReceiveMode::PeekLock,
            session: session.map(|it| it.lock),
        };
        match self.ask(receive) {
            (Some(BusOutcome::Received(messages)), woken) => (messages.len(), woken),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_session_message_wakes_its_holder_or_a_receiver_of_any_session() {
    let mut bench = Bench::with(true);
    let (holder, _) = bench.accept(SessionChoice::Named("held".into()));
    assert_eq!(bench.send(&[Some("held")], None), [of("held")]);
    assert_eq!(bench.send(&[Some("free")], None), [Awaited::Session]);
    let both = bench.send(&[Some("free"), Some("held")], None);
    assert_eq!(both, [Awaited::Session, of("held")]);
    // The messages of the session still belong to its holder.
    assert_eq!(bench.receive(Some(&holder), 1), (1, vec![]));
    assert_eq!(bench.receive(Some(&holder), 10), (1, vec![]));
    assert_eq!(bench.receive(Some(&holder), 10), (0, vec![]));
}

#[test]
fn accepting_one_of_two_sessions_wakes_the_next_receiver() {
    let mut bench = Bench::with(true);
    bench.send(&[Some("a"), Some("b"), Some("c")], None);
    let (_, woken) = bench.accept(SessionChoice::Next);
    assert_eq!(woken, [Awaited::Session]);
    let (_, woken) = bench.accept(SessionChoice::Named("c".into()));
    assert_eq!(woken, []);
    let (_, woken) = bench.accept(SessionChoice::Next);
    assert_eq!(woken, []);
    let next = BusCommand::AcceptSession {
        queue: steps(),
        session: SessionChoice::Next,
    };
    assert_eq!(bench.ask(next), (None, vec![]));
}

#[test]
fn the_end_of_a_lock_wakes_its_holder_and_a_receiver_of_any_session() {
    let mut bench = Bench::with(true);
    let queue = steps;
    bench.send(&[Some("full")], None);
    let (full, _) = bench.accept(SessionChoice::Next);
    bench.receive(Some(&full), 1);
    let (empty, _) = bench.accept(SessionChoice::Named("empty".into()));
    let release = |lock: &SessionLock| BusCommand::ReleaseSession {
        queue: queue(),
        session: lock.lock,
    };
    assert_eq!(bench.ask(release(&empty)).1, [of("empty")]);
    assert_eq!(bench.ask(release(&full)).1, [Awaited::Session, of("full")]);
    // The same if an operator breaks the lock, or it expires.
    bench.accept(SessionChoice::Next);
    let broken = bench.ask(BusCommand::BreakLock {
        queue: queue(),
        target: BreakTarget::Session("full".into()),
    });
    assert_eq!(broken.1, [Awaited::Session, of("full")]);
    bench.accept(SessionChoice::Next);
    bench.driver.now = bench.driver.now.plus_seconds(3600);
    let read = BusCommand::ReadQueue { queue: queue() };
    assert_eq!(bench.ask(read).1, [Awaited::Session, of("full")]);
}

#[test]
fn a_receive_passes_its_wake_up_on_only_if_it_leaves_messages() {
    let mut bench = Bench::with(false);
    // Sessions have no meaning in this queue.
    let woken = bench.send(&[None, Some("s")], None);
    assert_eq!(woken, [Awaited::Message, Awaited::Message]);
    assert_eq!(bench.receive(None, 1), (1, vec![Awaited::Message]));
    assert_eq!(bench.receive(None, 1), (1, vec![]));
    assert_eq!(bench.receive(None, 1), (0, vec![]));
}

#[test]
fn a_message_removed_in_its_own_turn_wakes_no_receiver() {
    let mut bench = Bench::with(false);
    bench.send(&[None], None);
    let (count, _) = bench.receive(None, 1);
    assert_eq!(count, 1);
    let delete = BusCommand::DeleteMessage {
        queue: steps(),
        number: SequenceNumber::named(1),
        with_locked: true,
    };
    assert_eq!(bench.ask(delete).1, []);
    // It was sent, and expired before any receiver was woken.
    bench.send(&[None], Some(1));
    bench.driver.now = bench.driver.now.plus_seconds(1);
    assert_eq!(bench.receive(None, 1), (0, vec![]));
}

/// Expired messages are removed a few at a time. Receivers skip them, and do not wake each other
/// for them.
#[test]
fn expired_messages_wake_no_receiver() {
    let mut bench = Bench::with(false);
    for _ in 0..200 {
        bench.send(&[None; 8], Some(1000));
    }
    bench.driver.now = bench.driver.now.plus_seconds(2);
    let mut nothing = 0;
    while bench
        .driver
        .partition
        .state()
        .may_have_expired(bench.queue, bench.driver.now)
    {
        let (count, woken) = bench.receive(None, 1);
        assert_eq!(count, 0);
        let is_done = !bench
            .driver
            .partition
            .state()
            .may_have_expired(bench.queue, bench.driver.now);
        assert_eq!(woken.len(), usize::from(is_done && nothing > 0));
        nothing += 1;
    }
    assert!(nothing > 1, "one turn has removed all");
    assert_eq!(bench.receive(None, 1), (0, vec![]));
}

/// A receiver that has passed over expired messages is woken once, by the turn that has removed them. The last step
/// of that may write no event.
#[test]
fn turns_without_commands_uncover_what_was_hidden() {
    let mut bench = Bench::with(false);
    for _ in 0..200 {
        bench.send(&[None; 8], Some(1000));
    }
    bench.driver.now = bench.driver.now.plus_seconds(2);
    assert_eq!(bench.receive(None, 1), (0, vec![]));
    let mut turns = 0;
    loop {
        bench.driver.rest();
        turns += 1;
        let state = bench.driver.partition.state();
        let is_done = !state.may_have_expired(bench.queue, bench.driver.now);
        let expected = if is_done {
            vec![Awaited::Message]
        } else {
            vec![]
        };
        assert_eq!(bench.woken(), expected);
        if is_done {
            break;
        }
    }
    assert!(turns > 1);
    bench.driver.rest();
    assert_eq!(bench.woken(), []);
}
