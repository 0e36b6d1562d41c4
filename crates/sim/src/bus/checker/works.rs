//! Atomic work with an unknown outcome: messages that were sent together, and transactions.
//!
//! The possible fates of its messages depend on whether it was done ([`super::message`]). As soon
//! as one message decides that, it is decided for all. If no fate is left for one then, the work
//! was torn.

use std::collections::{BTreeMap, BTreeSet};

use super::{ATOMIC, Checker};
use crate::checker::{Violation, violated};

/// All work whose outcome is open.
#[derive(Clone, Debug, Default)]
pub(super) struct Works {
    last: u64,
    open: BTreeMap<u64, Work>,
}

#[derive(Clone, Debug, Default)]
struct Work {
    messages: BTreeSet<u64>,
    /// Something in it cannot have been done.
    is_refuted: bool,
    /// If it is a transaction, over how many queues.
    queues: Option<usize>,
    /// Whether it sends to a topic, or via an entity.
    is_of_topics: bool,
}

/// The known facts about some work.
enum Outcome {
    Open,
    Known(bool),
    /// It will never be known.
    Lost,
}

impl Works {
    pub(super) fn begin(&mut self, queues: Option<usize>) -> u64 {
        self.last += 1;
        let work = Work {
            queues,
            ..Work::default()
        };
        self.open.insert(self.last, work);
        self.last
    }

    /// This message was part of it.
    pub(super) fn touch(&mut self, work: u64, message: u64) {
        if let Some(work) = self.open.get_mut(&work) {
            work.messages.insert(message);
        }
    }

    /// It sends to a topic, or via an entity.
    pub(super) fn note_topics(&mut self, work: u64) {
        if let Some(work) = self.open.get_mut(&work) {
            work.is_of_topics = true;
        }
    }

    /// It cannot have been done.
    pub(super) fn refute(&mut self, work: u64) {
        if let Some(work) = self.open.get_mut(&work) {
            work.is_refuted = true;
        }
    }
}

impl Checker {
    /// Decides all work about which enough is known.
    pub(super) fn conclude(&mut self) -> Result<(), Violation> {
        loop {
            let all = self.works.open.iter();
            let mut known = all.filter_map(|(id, work)| match self.outcome_of(*id, work) {
                Outcome::Open => None,
                Outcome::Known(is_done) => Some((*id, Some(is_done))),
                Outcome::Lost => Some((*id, None)),
            });
            let Some((id, outcome)) = known.next() else {
                return Ok(());
            };
            let work = self.works.open.remove(&id).unwrap_or_default();
            self.conclude_one(id, &work, outcome)?;
        }
    }

    fn outcome_of(&self, id: u64, work: &Work) -> Outcome {
        if work.is_refuted {
            return Outcome::Known(false);
        }
        let messages = work.messages.iter();
        let messages = messages.filter_map(|number| self.messages.get(number));
        if let Some(is_done) = messages.clone().find_map(|it| it.tells_of(id)) {
            return Outcome::Known(is_done);
        }
        let mut messages = messages;
        if messages.any(|message| message.may_tell()) {
            Outcome::Open
        } else {
            Outcome::Lost
        }
    }

    fn conclude_one(
        &mut self,
        id: u64,
        work: &Work,
        outcome: Option<bool>,
    ) -> Result<(), Violation> {
        for number in &work.messages {
            let Some(message) = self.messages.get_mut(number) else {
                continue;
            };
            let before = message.clone();
            match outcome {
                Some(is_done) => message.decide(id, is_done),
                None => message.forget(id),
            }
            if message.is_impossible() {
                return violated!(
                    ATOMIC,
                    "work {id}, {work:?}, done: {outcome:?}; message {number}, {before:?}"
                );
            }
            if message.is_over() {
                self.end(*number);
            }
        }
        match (work.queues, outcome) {
            (Some(queues), Some(true)) => {
                self.note("a transaction without an answer was done");
                if work.is_of_topics {
                    self.note("a transaction with a topic or via without an answer was done");
                }
                if queues >= 3 {
                    self.note("a transaction over three queues without an answer was done");
                }
            }
            (Some(_), Some(false)) => self.note("a transaction without an answer was not done"),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kew_engine::bus::{BusMessage, Disposition, TransactionPart, TransactionWork};
    use kew_engine::{Timestamp, Token};

    use super::*;
    use crate::bus::checker::life::{Entity, Fate, Life, Lock, Part, Span, Stage};
    use crate::bus::checker::{NO_LOSS, ONE_PLACE};
    use crate::bus::named;
    use crate::bus::workload::plain_options;

    const HERE: usize = 0;
    const THERE: usize = 3;
    const HELD: u64 = 7;
    const LOCK: Token = Token::from_bytes([9; 16]);

    fn at(queue: usize) -> Entity {
        let part = Part::Queue;
        Entity { queue, part }
    }

    fn message(number: u64) -> BusMessage {
        BusMessage {
            body: number.to_be_bytes().to_vec().into(),
            message_id: None,
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        }
    }

    fn part(queue: usize, work: TransactionWork) -> TransactionPart {
        TransactionPart {
            queue: named(queue, Part::Queue),
            incarnation: None,
            work,
        }
    }

    fn sends(queue: usize, number: u64) -> TransactionPart {
        part(queue, TransactionWork::Send(vec![message(number)]))
    }

    /// Two queues, a message with a lock, and a transaction over both queues without an answer: it
    /// completes the message and sends two.
    fn unanswered() -> Checker {
        let mut checker = Checker::default();
        let now = Span::at(Timestamp::ZERO);
        for queue in [HERE, THERE] {
            let options = plain_options(queue);
            checker.queues.get(queue).begin(options, Timestamp::ZERO);
        }
        let mut held = checker.attempt(at(HERE), &message(HELD), now);
        held.follow(|fate| {
            let lock = Lock {
                token: Some(LOCK),
                until: Span::at(Timestamp::from_ms(1000)),
                was_deferred: false,
            };
            let locked = fate.life().map(|life| Life {
                stage: Stage::Locked(lock),
                ..life.clone()
            });
            locked.into_iter().map(Fate::Here).collect()
        });
        checker.messages.insert(HELD, held);
        checker.note_lock(LOCK, HELD);
        let settle = TransactionWork::Settle(LOCK, Disposition::Complete);
        let parts = [sends(HERE, 1), part(HERE, settle), sends(THERE, 2)];
        checker.perhaps_transacted(&parts, now);
        checker.conclude().unwrap();
        checker
    }

    fn is_shown(checker: &mut Checker, number: u64) {
        let shown = |life: &Life| Some(vec![Fate::Here(life.clone())]);
        checker.narrow(number, ONE_PLACE, &"shown", shown).unwrap();
    }

    fn is_empty(checker: &mut Checker, queue: usize) -> Result<(), Violation> {
        checker.not_shown(NO_LOSS, &queue, &BTreeSet::new(), |life| {
            life.entity == at(queue)
        })
    }

    #[test]
    fn one_observed_message_decides_for_all() {
        let mut checker = unanswered();
        assert!(checker.messages[&2].may(|life| life.entity == at(THERE)));
        is_shown(&mut checker, 2);
        checker.conclude().unwrap();
        assert!(checker.messages[&1].must(|life| life.entity == at(HERE)));
        assert!(checker.over.contains(&HELD), "it was completed");

        let mut checker = unanswered();
        is_empty(&mut checker, THERE).unwrap();
        checker.conclude().unwrap();
        assert!(checker.over.contains(&1), "it was never sent");
        assert!(checker.messages[&HELD].must(|life| life.is_locked_by(LOCK)));
    }

    #[test]
    fn half_a_transaction_is_noticed() {
        let mut checker = unanswered();
        is_shown(&mut checker, 1);
        is_empty(&mut checker, THERE).unwrap();
        assert_eq!(checker.conclude().unwrap_err().promise, ATOMIC);

        // The lock still holds, and something was sent.
        let mut checker = unanswered();
        is_shown(&mut checker, HELD);
        is_shown(&mut checker, 1);
        assert_eq!(checker.conclude().unwrap_err().promise, ATOMIC);
    }

    #[test]
    fn unknowable_outcomes_are_forgotten() {
        let mut checker = unanswered();
        let queues = [HERE, THERE];
        for queue in queues {
            checker.gone_for_good(queue).unwrap();
        }
        checker.conclude().unwrap();
        assert!(checker.works.open.is_empty());
        assert!(checker.messages.is_empty());
    }
}
