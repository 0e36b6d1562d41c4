//! Releasing a session with more locked messages than one command releases.

use super::*;

const MANY: usize = 5000;

/// How the lock of the session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Release,
    Break,
    Time,
}

fn named() -> SessionChoice {
    SessionChoice::Named("s".into())
}

impl Partition {
    /// A session with many messages, which a receiver has locked.
    fn with_many_locked() -> (Self, Token) {
        let mut p = Self::with(BusQueueOptions {
            requires_session: true,
            ..BusQueueOptions::default()
        });
        let messages = vec![of_session("x", "s"); MANY];
        let queue = jobs();
        p.ask(BusCommand::Send { queue, messages }).unwrap();
        let lock = p.accept(named()).unwrap().lock;
        let received = p.ask(BusCommand::Receive {
            queue: jobs(),
            count: u32::try_from(MANY).unwrap(),
            mode: ReceiveMode::PeekLock,
            session: Some(lock),
        });
        assert!(matches!(received, Ok(BusOutcome::Received(all)) if all.len() == MANY));
        p.send(of_session("later", "s")).unwrap();
        (p, lock)
    }

    fn end(&mut self, lock: Token, end: End) {
        let queue = jobs();
        let outcome = match end {
            End::Release => self.ask(BusCommand::ReleaseSession {
                queue,
                session: lock,
            }),
            End::Break => self.ask(BusCommand::BreakLock {
                queue,
                target: BreakTarget::Session("s".into()),
            }),
            End::Time => {
                self.pass_ms(60_000);
                return;
            }
        };
        assert!(outcome.is_ok(), "{outcome:?}");
    }

    fn locked_count(&self) -> usize {
        let queue = self.state.catalogue.names[&jobs()];
        let sessions = &self.state.bus[&queue].backlog.sessions;
        sessions
            .find("s")
            .map_or(0, |(_, it)| it.messages.locked_count())
    }

    /// Until the session is free nobody gets it; then all its messages are there, in order.
    fn check_end(&mut self, lock: Token, deliveries: u32) {
        let gone = self.ask(BusCommand::RenewSession {
            queue: jobs(),
            session: lock,
        });
        assert_eq!(gone, Err(BusRefusal::SessionLockLost));
        for choice in [named(), SessionChoice::Next] {
            let accepted = self.accept(choice);
            assert!(
                accepted.is_err() || self.locked_count() == 0,
                "{accepted:?}"
            );
            if let Ok(lock) = accepted {
                self.ask(BusCommand::ReleaseSession {
                    queue: jobs(),
                    session: lock.lock,
                })
                .unwrap();
            }
        }
        while self.tick_once(500) {}
        let queue = self.state.catalogue.names[&jobs()];
        self.state.bus[&queue].backlog.check();
        let lock = self.accept(SessionChoice::Next).unwrap().lock;
        let received = self.ask(BusCommand::Receive {
            queue: jobs(),
            count: 5000,
            mode: ReceiveMode::PeekLock,
            session: Some(lock),
        });
        let Ok(BusOutcome::Received(messages)) = received else {
            panic!("{received:?}");
        };
        let expected = (1..).take(MANY).map(|number| (number, deliveries));
        let found = messages.iter();
        let found = found.map(|it| (it.sequence_number.as_u64(), it.delivery_count));
        assert!(found.eq(expected));
    }
}

fn check(end: End, deliveries: u32) {
    let (mut p, lock) = Partition::with_many_locked();
    let held = p.log.events.len();
    p.end(lock, end);
    let released = MANY - p.locked_count();
    let expected = if end == End::Time { 0 } else { 1024 };
    assert_eq!(released, expected);
    assert_eq!(
        p.restored(),
        p.state,
        "a snapshot keeps that it is released"
    );
    // The event that ends the lock must be there: before it, the holder still has all.
    let first = held + usize::from(end != End::Time);
    while p.tick_once(64) {}
    let until = p.log.events.len();
    assert_eq!(p.replayed(), p.state);
    assert!(until - first > 50);
    for cut in first..=until {
        let mut log = Log {
            bodies: p.log.bodies.clone(),
            events: p.log.events[..cut].to_vec(),
            ..Log::default()
        };
        let mut cut = Partition {
            state: State::new(),
            now: p.now,
            log: std::mem::take(&mut log),
            cold: None,
            copies_at_once: u64::MAX,
        };
        cut.state = cut.replayed();
        cut.check_end(lock, deliveries);
    }
}

#[test]
fn a_released_session_is_given_out_when_all_its_messages_are_back() {
    check(End::Release, 0);
}

#[test]
fn a_session_whose_lock_is_broken_is_given_out_when_all_its_messages_are_back() {
    check(End::Break, 0);
}

#[test]
fn a_session_whose_lock_ends_is_given_out_when_all_its_messages_are_back() {
    check(End::Time, 1);
}

/// On a full disk, commands carry out few due things, and release few messages.
#[test]
fn a_release_without_room_leaves_all_to_due_work() {
    let (mut p, lock) = Partition::with_many_locked();
    let release = BusCommand::ReleaseSession {
        queue: jobs(),
        session: lock,
    };
    let release = Command::Bus(release);
    let room_bytes = release.describe().room_size_bytes_max(&p.state, 0);
    let before = p.log.size_bytes();
    let result = p.decide(release, 0);
    assert_eq!(result, Ok(Outcome::Bus(BusOutcome::SessionReleased)));
    assert!(p.log.size_bytes() - before <= room_bytes);
    assert_eq!(p.locked_count(), MANY);
    p.check_end(lock, 0);
}
