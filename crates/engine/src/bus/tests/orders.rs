//! What the orders of a queue promise: a receiver finds the next message at once, and what is due becomes done.

use proptest::prelude::*;

use super::random::{Client, step};
use super::*;

/// They take many runs, and many blocks of a session.
const MANY: usize = 100_000;

fn queue_with(requires_session: bool) -> Partition {
    Partition::with(BusQueueOptions {
        requires_session,
        lock_duration_ms: 300_000,
        ..BusQueueOptions::default()
    })
}

impl Partition {
    fn receive_all(&mut self, session: Option<Token>) -> Vec<Token> {
        let receive = BusCommand::Receive {
            queue: jobs(),
            count: u32::try_from(ITEMS_MAX).unwrap(),
            mode: ReceiveMode::PeekLock,
            session,
        };
        match self.ask(receive) {
            Ok(BusOutcome::Received(messages)) => locks(&messages),
            other => panic!("{other:?}"),
        }
    }

    /// Puts so many messages of one session, or of none, aside.
    fn defer_many(&mut self, session: Option<&str>) -> Option<Token> {
        let message = BusMessage {
            session: session.map(Into::into),
            ..text("")
        };
        let mut lock = None;
        for _ in 0..MANY / ITEMS_MAX {
            self.ask(BusCommand::Send {
                queue: jobs(),
                messages: vec![message.clone(); ITEMS_MAX],
            })
            .unwrap();
            if session.is_some() && lock.is_none() {
                lock = Some(self.accept(SessionChoice::Next).unwrap().lock);
            }
            let defer = Disposition::Defer { overlay: None };
            let locks = self.receive_all(lock).into_iter();
            self.ask(BusCommand::Settle {
                queue: jobs(),
                settlements: locks.map(|lock| (lock, defer.clone())).collect(),
            })
            .unwrap();
        }
        lock
    }

    /// How many runs, or blocks of the only session, a receiver looks into.
    fn visited_by_receiver(&self) -> usize {
        let queue = self.state.bus.values().find(|it| it.backlog.count() > 0);
        let backlog = &queue.unwrap().backlog;
        match backlog.sessions.iter().next() {
            Some((_, session)) => session.messages.visited_by_receiver(),
            None => backlog.table().visited_by_receiver(),
        }
    }

    fn find_many(&mut self, message: &BusMessage, lock: Option<Token>) {
        for _ in 0..1000 {
            let number = self.send(message.clone()).unwrap();
            assert_eq!(self.visited_by_receiver(), 1);
            let [received] = &self.receive_from(&jobs(), lock)[..] else {
                panic!("one message is ready");
            };
            assert_eq!(Some(received.sequence_number.as_u64()), number);
            let verdict = self.settle(received.lock.unwrap(), Disposition::Complete);
            assert_eq!(verdict, Verdict::Settled);
        }
        assert_eq!(self.counts().active, MANY as u64);
    }
}

#[test]
fn a_receiver_does_not_walk_over_deferred_messages() {
    let mut p = queue_with(false);
    p.defer_many(None);
    p.find_many(&text("next"), None);
}

#[test]
fn a_receiver_of_a_session_does_not_walk_over_deferred_messages() {
    let mut p = queue_with(true);
    let lock = p.defer_many(Some("s"));
    p.find_many(&of_session("next", "s"), lock);
}

/// Ready messages whose time to live has passed.
fn expired_count(p: &Partition) -> usize {
    let messages = p.state.bus.values().flat_map(|it| it.backlog.messages());
    let ready = messages.filter(|it| it.state == BusMessageState::Ready);
    ready.filter(|it| it.expires_at.has_passed(p.now)).count()
}

proptest! {
    /// The time that the next thing is due can be too early, as a hint. One look corrects it.
    #[test]
    fn due_work_comes_to_an_end_and_leaves_nothing_that_is_due(
        steps in prop::collection::vec(step(), 1..120),
        sessions: bool,
    ) {
        let mut p = Partition::with(BusQueueOptions {
            requires_session: sessions,
            duplicate_window_ms: Some(20_000),
            max_delivery_count: 3,
            ..BusQueueOptions::default()
        });
        let mut client = Client::default();
        for step in steps {
            client.step(&mut p, step, sessions);
        }
        let mut rounds = 0;
        loop {
            p.tick();
            prop_assert_eq!(expired_count(&p), 0);
            let Some(next) = p.state.next_deadline() else {
                break;
            };
            prop_assert!(next > p.now, "due for ever: {} at {}", next, p.now);
            rounds += 1;
            prop_assert!(rounds < 2000, "due again and again: {} at {}", next, p.now);
            p.now = next;
        }
        // Locks, schedules and times to live have ended: what is left can be received, or waits to be asked for.
        for queue in p.state.bus.values() {
            prop_assert_eq!(queue.backlog.timed().len(), 0);
            queue.backlog.check();
        }
        prop_assert_eq!(&p.replayed(), &p.state);
    }
}
