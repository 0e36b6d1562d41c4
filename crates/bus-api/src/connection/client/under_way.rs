//! What the broker has of a client's, without a task for each: sends, settlements, and receives of
//! what is there.
//!
//! What one turn has for the broker is handed over at its end, all at once. Answers of one commit
//! come together, so that dispositions and messages leave in one write.

use std::collections::VecDeque;

use kew_amqp::DeliveryId;
use kew_broker::{Answered, Rejection, Reply};
use kew_engine::Command;
use kew_engine::bus::BusCommand;
use tokio::time::Instant;

use super::Client;
use super::coordinator::Commit;
use super::receiver::FirstLook;
use super::settle::Settlements;
use crate::metrics::Sent;

/// What a command was for whose answer is still to come.
pub(super) enum Purpose {
    Send { delivery: DeliveryId, sent: Sent },
    Settle(Settlements),
    Receive(Box<FirstLook>),
    Commit(Box<Commit>),
}

/// A command whose answer is still to come.
pub(super) struct UnderWay {
    purpose: Purpose,
    began: Instant,
}

/// All commands whose answers are still to come, by keys that are given in turn: about in this order
/// they are answered.
#[derive(Default)]
pub(super) struct AllUnderWay {
    first_key: u64,
    commands: VecDeque<Option<UnderWay>>,
}

impl AllUnderWay {
    fn add(&mut self, command: UnderWay) -> u64 {
        let key = self.first_key + self.commands.len() as u64;
        self.commands.push_back(Some(command));
        key
    }

    fn remove(&mut self, key: u64) -> Option<UnderWay> {
        let index = usize::try_from(key.checked_sub(self.first_key)?).ok()?;
        let command = self.commands.get_mut(index)?.take();
        while let Some(None) = self.commands.front() {
            self.commands.pop_front();
            self.first_key += 1;
        }
        command
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.commands.shrink_to_fit();
    }
}

impl Client {
    /// Hands a command over at the end of the turn, behind those before it.
    pub(super) fn submit(&mut self, command: BusCommand, purpose: Purpose) {
        self.requests += 1;
        let began = Instant::now();
        let key = self.under_way.add(UnderWay { purpose, began });
        self.outbox.push((key, Command::Bus(command)));
    }

    /// Hands over what there is: at the end of a turn, and before anything else is submitted that
    /// came after it. Says whether some of it was refused at once.
    pub(super) fn flush_outbox(&mut self) -> bool {
        if self.outbox.is_empty() {
            return false;
        }
        let mut refused = Vec::new();
        let broker = &self.shared.broker;
        broker.submit_among(self.outbox.drain(..), &self.answers, |key, rejection| {
            refused.push((key, rejection));
        });
        let is_any_refused = !refused.is_empty();
        for (key, rejection) in refused {
            if let Some(under_way) = self.under_way.remove(key) {
                self.on_answer(under_way, Err(rejection));
            }
        }
        is_any_refused
    }

    /// Takes one answer.
    pub(super) fn take_answer(&mut self, key: u64, reply: Reply) {
        if let Some(under_way) = self.under_way.remove(key) {
            self.on_answer(under_way, reply);
        }
    }

    fn on_answer(&mut self, under_way: UnderWay, reply: Result<Answered, Rejection>) {
        self.requests = self.requests.saturating_sub(1);
        let took = under_way.began.elapsed();
        match under_way.purpose {
            Purpose::Send { delivery, sent } => {
                self.on_sent(delivery, sent, took, reply.map(drop));
            }
            Purpose::Settle(settlements) => match reply {
                Err(Rejection::Busy | Rejection::Full) => {
                    self.settle_patiently(settlements, under_way.began)
                }
                reply => self.on_settled(settlements, reply.map(|it| it.outcome), took),
            },
            Purpose::Receive(look) => self.on_first_look(*look, reply),
            Purpose::Commit(commit) => self.on_committed(*commit, reply, took),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::address::entity_named;

    fn command() -> UnderWay {
        UnderWay {
            purpose: Purpose::Settle(Settlements::new(entity_named("jobs").unwrap(), Vec::new())),
            began: Instant::now(),
        }
    }

    #[test]
    fn each_is_removed_once_in_any_order() {
        let mut all = AllUnderWay::default();
        let keys = [(); 4].map(|()| all.add(command()));
        assert_eq!(keys, [0, 1, 2, 3]);
        for key in [1, 0, 3, 2] {
            assert!(!all.is_empty());
            assert!(all.remove(key).is_some());
            assert!(all.remove(key).is_none());
        }
        assert!(all.is_empty());
        assert_eq!(all.add(command()), 4);
        assert!(all.remove(5).is_none());
        assert!(all.remove(4).is_some());
    }
}
