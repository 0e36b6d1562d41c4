//! Commands on bus queues and what comes of them; that a replay and a snapshot give the same state,
//! and that no message is ever in two places or in none.

mod operate;
mod overview;
mod rules;
mod transact;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::decide::Turn;
use crate::{
    BodyLocation, Command, DUE_BUDGET, EntityName, Event, Journal, Outcome, Refusal,
    SequenceNumber, Service, State, Timestamp, Token,
};

#[derive(Default)]
struct Log {
    bodies: Vec<Vec<u8>>,
    events: Vec<Vec<u8>>,
}

impl Log {
    /// What a batch would take, with a tag, a length and a checksum for each.
    fn size_bytes(&self) -> u64 {
        let bodies = self.bodies.iter().map(|body| body.len() + 10);
        let events = self.events.iter().map(|event| event.len() + 6);
        bodies.chain(events).sum::<usize>() as u64
    }
}

impl Journal for Log {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.bodies.push(body.to_vec());
        BodyLocation {
            record: self.bodies.len() as u64 - 1,
            offset: 0,
            length: u32::try_from(body.len()).unwrap(),
        }
    }

    fn record(&mut self, event: &Event) {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        self.events.push(bytes);
    }
}

/// A partition with a log in memory, and a clock that the test sets.
struct Partition {
    state: State,
    now: Timestamp,
    log: Log,
}

fn entity(name: &str) -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: name.into(),
    }
}

fn jobs() -> EntityName {
    entity("jobs")
}

fn dead() -> EntityName {
    entity("jobs/$deadletterqueue")
}

fn text(body: &str) -> BusMessage {
    BusMessage {
        body: Bytes::copy_from_slice(body.as_bytes()),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    }
}

fn of_session(body: &str, session: &str) -> BusMessage {
    BusMessage {
        session: Some(session.into()),
        ..text(body)
    }
}

impl Partition {
    fn new() -> Self {
        let mut partition = Self {
            state: State::new(),
            now: Timestamp::from_ms(1_000_000),
            log: Log::default(),
        };
        let initialize = Command::Initialize { secret: [42; 16] };
        let journal = &mut partition.log;
        let mut turn = Turn::new(&mut partition.state, partition.now, journal);
        turn.decide(initialize).result.unwrap();
        partition
    }

    fn with(options: BusQueueOptions) -> Self {
        let mut partition = Self::new();
        partition.create(&jobs(), options).unwrap();
        partition
    }

    fn ask(&mut self, command: BusCommand) -> Result<BusOutcome, BusRefusal> {
        let room_bytes = command.size_bytes_max(DUE_BUDGET);
        let before = self.log.size_bytes();
        let mut turn = Turn::new(&mut self.state, self.now, &mut self.log);
        let result = turn.decide(Command::Bus(command)).result;
        let written_bytes = self.log.size_bytes() - before;
        assert!(
            written_bytes <= room_bytes,
            "{written_bytes} bytes were written where {room_bytes} were promised"
        );
        match result {
            Ok(Outcome::Bus(outcome)) => Ok(outcome),
            Err(Refusal::Bus(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    fn create(
        &mut self,
        queue: &EntityName,
        options: BusQueueOptions,
    ) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::CreateQueue {
            queue: queue.clone(),
            options,
        })
    }

    fn send(&mut self, message: BusMessage) -> Result<Option<u64>, BusRefusal> {
        let outcome = self.ask(BusCommand::Send {
            queue: jobs(),
            messages: vec![message],
        })?;
        let BusOutcome::Sent(numbers) = outcome else {
            panic!("{outcome:?}")
        };
        Ok(numbers[0].map(SequenceNumber::as_u64))
    }

    fn receive_from(
        &mut self,
        queue: &EntityName,
        session: Option<Token>,
    ) -> Vec<DeliveredMessage> {
        let outcome = self.ask(BusCommand::Receive {
            queue: queue.clone(),
            count: 10,
            mode: ReceiveMode::PeekLock,
            session,
        });
        match outcome {
            Ok(BusOutcome::Received(messages)) => messages,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self) -> Vec<DeliveredMessage> {
        self.receive_from(&jobs(), None)
    }

    fn settle(&mut self, lock: Token, disposition: Disposition) -> Verdict {
        self.settle_in(&jobs(), lock, disposition)
    }

    fn settle_in(&mut self, queue: &EntityName, lock: Token, disposition: Disposition) -> Verdict {
        let outcome = self.ask(BusCommand::Settle {
            queue: queue.clone(),
            settlements: vec![(lock, disposition)],
        });
        match outcome {
            Ok(BusOutcome::Settled(verdicts)) => verdicts[0],
            other => panic!("{other:?}"),
        }
    }

    fn counts(&mut self) -> BusQueueCounts {
        match self.ask(BusCommand::ReadQueue { queue: jobs() }) {
            Ok(BusOutcome::Queue(view)) => view.counts,
            other => panic!("{other:?}"),
        }
    }

    fn accept(&mut self, choice: SessionChoice) -> Result<SessionLock, BusRefusal> {
        match self.ask(BusCommand::AcceptSession {
            queue: jobs(),
            session: choice,
        })? {
            BusOutcome::SessionAccepted(lock) => Ok(lock),
            other => panic!("{other:?}"),
        }
    }

    fn body(&self, message: &DeliveredMessage) -> &str {
        let bytes = &self.log.bodies[usize::try_from(message.body.record).unwrap()];
        std::str::from_utf8(bytes).unwrap()
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
    }

    fn tick(&mut self) {
        while Turn::new(&mut self.state, self.now, &mut self.log)
            .tick(7)
            .more_is_due
        {}
    }

    fn replayed(&self) -> State {
        let mut state = State::new();
        for event in &self.log.events {
            state.apply(Event::decode(event).unwrap());
        }
        state
    }

    fn restored(&self) -> State {
        let mut parts = Vec::new();
        self.state.snapshot(|part| parts.push(part.to_vec()));
        let mut state = State::new();
        for part in &parts {
            state.restore(part).unwrap();
        }
        state
    }
}

fn locks(messages: &[DeliveredMessage]) -> Vec<Token> {
    messages
        .iter()
        .map(|message| message.lock.unwrap())
        .collect()
}

#[test]
fn a_message_is_locked_and_completed() {
    let mut p = Partition::with(BusQueueOptions::default());
    assert_eq!(p.send(text("a")), Ok(Some(1)));
    let received = p.receive();
    assert_eq!(p.body(&received[0]), "a");
    assert_eq!(received[0].delivery_count, 0);
    assert_eq!(received[0].locked_until, p.now.plus_ms(60_000));
    assert!(p.receive().is_empty());
    assert_eq!(p.counts().active, 1);
    let lock = locks(&received)[0];
    assert_eq!(p.settle(lock, Disposition::Complete), Verdict::Settled);
    assert_eq!(p.settle(lock, Disposition::Complete), Verdict::LockLost);
    assert_eq!(p.counts(), BusQueueCounts::default());
}

#[test]
fn an_abandoned_message_comes_back_to_its_place_and_is_counted() {
    let mut p = Partition::with(BusQueueOptions::default());
    for body in ["a", "b"] {
        p.send(text(body)).unwrap();
    }
    let received = p.receive();
    let [a, b] = locks(&received)[..] else {
        panic!()
    };
    assert_eq!(p.settle(b, Disposition::Release), Verdict::Settled);
    let overlay = Some(Bytes::from_static(b"changes"));
    assert_eq!(
        p.settle(a, Disposition::Abandon { overlay }),
        Verdict::Settled
    );
    let again = p.receive();
    assert_eq!(p.body(&again[0]), "a");
    assert_eq!((again[0].delivery_count, again[1].delivery_count), (1, 0));
    assert_eq!(again[0].overlays.len(), 1);
    assert_ne!(again[0].lock, received[0].lock);
}

#[test]
fn a_message_takes_so_many_changes_and_so_many_bytes_of_them() {
    let mut p = Partition::with(BusQueueOptions {
        max_delivery_count: 100,
        ..BusQueueOptions::default()
    });
    let abandon = |p: &mut Partition, size_bytes: usize| {
        let lock = locks(&p.receive())[0];
        let overlay = Some(Bytes::from(vec![0; size_bytes]));
        let verdict = p.settle(lock, Disposition::Abandon { overlay });
        if verdict != Verdict::Settled {
            // It can always be given back as it is.
            let overlay = None;
            assert_eq!(
                p.settle(lock, Disposition::Abandon { overlay }),
                Verdict::Settled
            );
        }
        verdict
    };
    for (sizes, verdict) in [
        (vec![64 << 10, 1], Verdict::TooManyChanges),
        (vec![(64 << 10) + 1], Verdict::TooManyChanges),
        (vec![32 << 10, 32 << 10], Verdict::Settled),
        (vec![1; 32], Verdict::Settled),
        (vec![1; 33], Verdict::TooManyChanges),
    ] {
        p.send(text("a")).unwrap();
        let last = sizes.iter().map(|size| abandon(&mut p, *size)).last();
        assert_eq!(last, Some(verdict), "{sizes:?}");
        let lock = locks(&p.receive())[0];
        assert_eq!(p.settle(lock, Disposition::Complete), Verdict::Settled);
    }
}

#[test]
fn a_lock_that_ends_is_a_failed_delivery() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.send(text("a")).unwrap();
    let lock = locks(&p.receive())[0];
    p.pass_ms(59_999);
    assert!(p.receive().is_empty());
    let renewed = p.ask(BusCommand::RenewLocks {
        queue: jobs(),
        locks: vec![lock],
    });
    let until = p.now.plus_ms(60_000);
    assert_eq!(renewed, Ok(BusOutcome::LocksRenewed(vec![until])));
    p.pass_ms(60_000);
    assert_eq!(p.settle(lock, Disposition::Complete), Verdict::LockLost);
    assert_eq!(p.receive()[0].delivery_count, 1);
}

#[test]
fn too_many_failures_make_a_dead_letter_that_stays() {
    let options = BusQueueOptions {
        max_delivery_count: 2,
        ..BusQueueOptions::default()
    };
    let mut p = Partition::with(options);
    p.send(text("a")).unwrap();
    let lock = locks(&p.receive())[0];
    p.settle(lock, Disposition::Abandon { overlay: None });
    p.receive();
    p.pass_ms(60_000);
    p.tick();
    let counts = p.counts();
    assert_eq!((counts.active, counts.dead_letters), (0, 1));
    let letters = p.receive_from(&dead(), None);
    let cause = Some(DeadLetterCause::MaxDeliveryCountExceeded);
    assert_eq!((letters[0].cause, letters[0].delivery_count), (cause, 2));
    let lock = locks(&letters)[0];
    let again = Disposition::DeadLetter { overlay: None };
    assert_eq!(p.settle_in(&dead(), lock, again), Verdict::NotAllowed);
    for _ in 0..5 {
        let lock = p
            .receive_from(&dead(), None)
            .first()
            .and_then(|m| m.lock)
            .unwrap_or(lock);
        assert_eq!(
            p.settle_in(&dead(), lock, Disposition::Abandon { overlay: None }),
            Verdict::Settled
        );
    }
    assert_eq!(p.counts().dead_letters, 1);
    let refused = p.ask(BusCommand::Send {
        queue: dead(),
        messages: vec![text("b")],
    });
    assert!(matches!(refused, Err(BusRefusal::NotSendable { .. })));
}

#[test]
fn deferred_messages_are_for_those_who_know_their_numbers() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.send(text("a")).unwrap();
    let received = p.receive();
    let number = received[0].sequence_number;
    p.settle(locks(&received)[0], Disposition::Defer { overlay: None });
    assert!(p.receive().is_empty());
    let read = |numbers: Vec<SequenceNumber>| BusCommand::ReceiveDeferred {
        read: DeferredRead {
            queue: jobs(),
            numbers,
            mode: ReceiveMode::PeekLock,
            session: None,
        },
    };
    let missing = p.ask(read(vec![number, SequenceNumber::new(9)]));
    assert_eq!(
        missing,
        Err(BusRefusal::MessageNotFound { sequence_number: 9 })
    );
    let Ok(BusOutcome::Received(messages)) = p.ask(read(vec![number])) else {
        panic!()
    };
    let abandon = Disposition::Abandon { overlay: None };
    assert_eq!(p.settle(locks(&messages)[0], abandon), Verdict::Settled);
    assert!(p.receive().is_empty());
    assert!(matches!(
        p.ask(read(vec![number])),
        Ok(BusOutcome::Received(_))
    ));
}

#[test]
fn a_scheduled_message_comes_with_a_new_number_when_it_is_due() {
    let mut p = Partition::with(BusQueueOptions::default());
    let scheduled = |p: &Partition, ms| BusMessage {
        scheduled_at: Some(p.now.plus_ms(ms)),
        time_to_live_ms: Some(5_000),
        ..text("later")
    };
    let first = scheduled(&p, 10_000);
    assert_eq!(p.send(first), Ok(Some(1)));
    let second = scheduled(&p, 20_000);
    assert_eq!(p.send(second), Ok(Some(2)));
    assert!(p.receive().is_empty());
    assert_eq!(p.counts().scheduled, 2);
    p.pass_ms(10_000);
    let received = p.receive();
    assert_eq!(received[0].sequence_number.as_u64(), 3);
    assert_eq!(received[0].expires_at, p.now.plus_ms(5_000));
    let cancel = |number| BusCommand::CancelScheduled {
        queue: jobs(),
        numbers: vec![SequenceNumber::new(number)],
    };
    assert_eq!(p.ask(cancel(2)), Ok(BusOutcome::Cancelled));
    assert!(p.ask(cancel(2)).is_err());
    assert!(p.ask(cancel(3)).is_err());
    assert_eq!(p.counts().scheduled, 0);
}

#[test]
fn what_expires_is_dropped_or_becomes_a_dead_letter() {
    for dead_letters_expired in [false, true] {
        let mut p = Partition::with(BusQueueOptions {
            dead_letters_expired,
            default_time_to_live_ms: 10_000,
            ..BusQueueOptions::default()
        });
        p.send(text("a")).unwrap();
        p.send(text("locked")).unwrap();
        // The lock of the second holds it beyond its time.
        let both = locks(&p.receive());
        p.settle(both[0], Disposition::Release);
        p.pass_ms(10_000);
        p.tick();
        p.pass_ms(60_000);
        p.tick();
        let counts = p.counts();
        assert_eq!(counts.active, 0);
        assert_eq!(
            counts.dead_letters,
            if dead_letters_expired { 2 } else { 0 }
        );
    }
}

#[test]
fn a_duplicate_is_accepted_and_dropped_within_the_window() {
    let mut p = Partition::with(BusQueueOptions {
        duplicate_window_ms: Some(20_000),
        ..BusQueueOptions::default()
    });
    let message = || BusMessage {
        message_id: Some("id".into()),
        ..text("a")
    };
    assert_eq!(p.send(message()), Ok(Some(1)));
    assert_eq!(p.send(message()), Ok(None));
    p.pass_ms(20_000);
    assert_eq!(p.send(message()), Ok(Some(2)));
}

#[test]
fn a_session_is_one_receivers_and_keeps_its_order() {
    let mut p = Partition::with(BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    });
    assert_eq!(p.send(text("a")), Err(BusRefusal::SessionRequired));
    for (body, session) in [("a1", "a"), ("b1", "b"), ("a2", "a")] {
        p.send(of_session(body, session)).unwrap();
    }
    let a = p.accept(SessionChoice::Next).unwrap();
    assert_eq!(&*a.session, "a");
    assert!(matches!(
        p.accept(SessionChoice::Named("a".into())),
        Err(BusRefusal::SessionCannotBeLocked { .. })
    ));
    let b = p.accept(SessionChoice::Next).unwrap();
    assert_eq!(&*b.session, "b");
    assert_eq!(
        p.accept(SessionChoice::Next),
        Err(BusRefusal::NoSessionAvailable)
    );
    let messages = p.receive_from(&jobs(), Some(a.lock));
    assert_eq!(
        messages.iter().map(|m| p.body(m)).collect::<Vec<_>>(),
        ["a1", "a2"]
    );
    p.settle(locks(&messages)[1], Disposition::Abandon { overlay: None });
    let set = BusCommand::SetSessionState {
        queue: jobs(),
        session: a.lock,
        state: Some(Bytes::from_static(b"state")),
    };
    p.ask(set).unwrap();
    p.ask(BusCommand::ReleaseSession {
        queue: jobs(),
        session: a.lock,
    })
    .unwrap();
    assert_eq!(
        p.settle(locks(&messages)[0], Disposition::Complete),
        Verdict::LockLost
    );
    let again = p.accept(SessionChoice::Named("a".into())).unwrap();
    let messages = p.receive_from(&jobs(), Some(again.lock));
    let seen: Vec<_> = messages
        .iter()
        .map(|m| (p.body(m), m.delivery_count))
        .collect();
    assert_eq!(seen, [("a1", 0), ("a2", 1)]);
    p.pass_ms(60_000);
    let lost = p.ask(BusCommand::RenewSession {
        queue: jobs(),
        session: again.lock,
    });
    assert_eq!(lost, Err(BusRefusal::SessionLockLost));
    let third = p.accept(SessionChoice::Named("a".into())).unwrap();
    let messages = p.receive_from(&jobs(), Some(third.lock));
    assert_eq!(messages[0].delivery_count, 1);
    let state = p.ask(BusCommand::ReadSessionState {
        queue: jobs(),
        session: third.lock,
    });
    assert!(matches!(state, Ok(BusOutcome::SessionState(Some(_)))));
    let list = p.ask(BusCommand::ListSessions {
        queue: jobs(),
        state_set_after: None,
        skip: 0,
        limit: 10,
    });
    assert_eq!(list, Ok(BusOutcome::Sessions(vec!["a".into(), "b".into()])));
}

#[test]
fn messages_are_forwarded_four_times() {
    let mut p = Partition::new();
    for index in (0..6).rev() {
        let forward_to = (index < 5).then(|| format!("q{}", index + 1).into());
        let options = BusQueueOptions {
            forward_to,
            ..BusQueueOptions::default()
        };
        p.create(&entity(&format!("q{index}")), options).unwrap();
    }
    let forwards = p.ask(BusCommand::Receive {
        queue: entity("q0"),
        count: 1,
        mode: ReceiveMode::PeekLock,
        session: None,
    });
    assert!(matches!(forwards, Err(BusRefusal::Forwards { .. })));
    p.ask(BusCommand::Send {
        queue: entity("q0"),
        messages: vec![text("a")],
    })
    .unwrap();
    p.tick();
    let letters = p.receive_from(&entity("q4/$deadletterqueue"), None);
    let cause = Some(DeadLetterCause::MaxTransferHopCountExceeded);
    assert_eq!(letters[0].cause, cause);
    assert!(
        p.state
            .next_deadline()
            .is_none_or(|at| !at.has_passed(p.now))
    );
}

#[test]
fn an_idle_queue_deletes_itself() {
    let mut p = Partition::with(BusQueueOptions {
        auto_delete_on_idle_ms: 300_000,
        ..BusQueueOptions::default()
    });
    p.pass_ms(299_999);
    p.send(text("a")).unwrap();
    p.pass_ms(299_999);
    p.tick();
    assert_eq!(p.counts().active, 1);
    p.pass_ms(1);
    p.tick();
    let gone = p.ask(BusCommand::ReadQueue { queue: jobs() });
    assert!(matches!(gone, Err(BusRefusal::QueueNotFound { .. })));
}

#[test]
fn options_outside_their_ranges_are_named() {
    let mut p = Partition::new();
    for (options, text) in [
        (
            BusQueueOptions {
                lock_duration_ms: 4_999,
                ..BusQueueOptions::default()
            },
            "LockDuration is 4999 ms, and must be 5 s to 5 min",
        ),
        (
            BusQueueOptions {
                size_bytes_max: 0,
                ..BusQueueOptions::default()
            },
            "MaxSizeInMegabytes is 0 bytes, and must be 1 byte to 1 PiB",
        ),
        (
            BusQueueOptions {
                max_delivery_count: 0,
                ..BusQueueOptions::default()
            },
            "MaxDeliveryCount is 0, and must be 1 to 2147483647",
        ),
        (
            BusQueueOptions {
                duplicate_window_ms: Some(1),
                ..BusQueueOptions::default()
            },
            "DuplicateDetectionHistoryTimeWindow is 1 ms, and must be 20 s to 7 days",
        ),
        (
            BusQueueOptions {
                auto_delete_on_idle_ms: 1,
                ..BusQueueOptions::default()
            },
            "AutoDeleteOnIdle is 1 ms, and must be at least 5 min",
        ),
    ] {
        match p.create(&jobs(), options) {
            Err(BusRefusal::InvalidOption(invalid)) => assert_eq!(invalid.to_string(), text),
            other => panic!("{text}: {other:?}"),
        }
    }
    let nowhere = BusQueueOptions {
        forward_to: Some("nowhere".into()),
        ..BusQueueOptions::default()
    };
    assert!(matches!(
        p.create(&jobs(), nowhere),
        Err(BusRefusal::DestinationNotFound { .. })
    ));
}

/// What a random client does next.
#[derive(Clone, Debug)]
enum Step {
    Send {
        session: u8,
        ttl_ms: Option<u64>,
        delay_ms: Option<u64>,
        id: u8,
    },
    Receive {
        delete: bool,
    },
    Settle {
        which: usize,
        how: u8,
    },
    Accept(u8),
    Leave,
    Defer(usize),
    ReadDeferred(usize),
    Operate {
        number: u64,
        how: u8,
    },
    Pass(u64),
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..3, proptest::option::of(1_000u64..90_000), proptest::option::of(0u64..90_000), 0u8..20)
            .prop_map(|(session, ttl_ms, delay_ms, id)| Step::Send { session, ttl_ms, delay_ms, id }),
        4 => any::<bool>().prop_map(|delete| Step::Receive { delete }),
        4 => (any::<usize>(), 0u8..4).prop_map(|(which, how)| Step::Settle { which, how }),
        1 => (0u8..4).prop_map(Step::Accept),
        1 => Just(Step::Leave),
        1 => any::<usize>().prop_map(Step::Defer),
        1 => any::<usize>().prop_map(Step::ReadDeferred),
        2 => (0u64..12, 0u8..9).prop_map(|(number, how)| Step::Operate { number, how }),
        2 => (0u64..70_000).prop_map(Step::Pass),
        1 => Just(Step::Tick),
    ]
}

struct Client {
    held: Vec<Token>,
    seen: Vec<SequenceNumber>,
    session: Option<Token>,
}

impl Client {
    fn step(&mut self, p: &mut Partition, step: Step, sessions: bool) {
        match step {
            Step::Send {
                session,
                ttl_ms,
                delay_ms,
                id,
            } => {
                let message = BusMessage {
                    session: sessions.then(|| format!("s{session}").into()),
                    time_to_live_ms: ttl_ms,
                    scheduled_at: delay_ms.map(|ms| p.now.plus_ms(ms)),
                    message_id: Some(format!("{id}").into()),
                    ..text("x")
                };
                p.send(message).unwrap();
            }
            Step::Receive { delete } => {
                let mode = if delete {
                    ReceiveMode::ReceiveAndDelete
                } else {
                    ReceiveMode::PeekLock
                };
                let session = self.session.filter(|_| sessions);
                let command = BusCommand::Receive {
                    queue: jobs(),
                    count: 2,
                    mode,
                    session,
                };
                if let Ok(BusOutcome::Received(messages)) = p.ask(command) {
                    self.seen
                        .extend(messages.iter().map(|message| message.sequence_number));
                    self.held
                        .extend(messages.iter().filter_map(|message| message.lock));
                }
            }
            Step::Settle { which, how } if !self.held.is_empty() => {
                let lock = self.held.swap_remove(which % self.held.len());
                p.settle(
                    lock,
                    match how {
                        0 => Disposition::Complete,
                        1 => Disposition::Abandon {
                            overlay: Some(Bytes::from_static(b"o")),
                        },
                        2 => Disposition::DeadLetter { overlay: None },
                        _ => Disposition::Release,
                    },
                );
            }
            Step::Accept(which) => {
                let choice = match which {
                    3 => SessionChoice::Next,
                    which => SessionChoice::Named(format!("s{which}").into()),
                };
                self.session = p.accept(choice).ok().map(|lock| lock.lock).or(self.session);
            }
            Step::Leave => {
                if let Some(session) = self.session.take() {
                    let _ = p.ask(BusCommand::ReleaseSession {
                        queue: jobs(),
                        session,
                    });
                }
            }
            Step::Defer(which) if !self.held.is_empty() => {
                let lock = self.held.swap_remove(which % self.held.len());
                p.settle(lock, Disposition::Defer { overlay: None });
            }
            Step::ReadDeferred(which) if !self.seen.is_empty() => {
                let read = DeferredRead {
                    queue: jobs(),
                    numbers: vec![self.seen[which % self.seen.len()]],
                    mode: ReceiveMode::PeekLock,
                    session: self.session.filter(|_| sessions),
                };
                if let Ok(BusOutcome::Received(messages)) =
                    p.ask(BusCommand::ReceiveDeferred { read })
                {
                    self.held
                        .extend(messages.iter().filter_map(|message| message.lock));
                }
            }
            Step::Operate { number, how } => operate::random(p, number, how),
            Step::Pass(ms) => p.pass_ms(ms),
            Step::Tick => p.tick(),
            Step::Settle { .. } | Step::Defer(_) | Step::ReadDeferred(_) => {}
        }
    }
}

proptest! {
    #[test]
    fn a_replay_and_a_snapshot_give_the_same_state(
        steps in proptest::collection::vec(step(), 1..120),
        sessions: bool,
        duplicates: bool,
        dead_letters_expired: bool,
    ) {
        let mut p = Partition::with(BusQueueOptions {
            requires_session: sessions,
            duplicate_window_ms: duplicates.then_some(20_000),
            max_delivery_count: 3,
            dead_letters_expired,
            ..BusQueueOptions::default()
        });
        let mut client = Client { held: Vec::new(), seen: Vec::new(), session: None };
        for step in steps {
            client.step(&mut p, step, sessions);
            for queue in p.state.bus.values() {
                queue.backlog.check();
            }
            overview::check(&mut p.state, p.now);
        }
        prop_assert_eq!(&p.replayed(), &p.state);
        prop_assert_eq!(&p.restored(), &p.state);
    }
}
