//! What the broker has of a client's, without a task for each: sends, settlements, and receives of
//! what is there.
//!
//! What one turn has for the broker is handed over at its end, all at once. Answers of one commit
//! come together, so that dispositions and messages leave in one write.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kew_amqp::DeliveryId;
use kew_broker::{Answers, Broker, Rejection, Reply};
use kew_engine::bus::BusCommand;
use kew_engine::{Command, EntityName};
use tokio::time::Instant;

use super::settlements::{Settlement, Settlements};
use super::transactions::Transaction;
use crate::connection::client::links::receive::FirstLook;
use crate::metrics::Sent;

/// A transaction whose commit is under way. Its locks stay claimed until it is answered.
pub(crate) struct Commit {
    pub(crate) delivery: DeliveryId,
    pub(crate) transaction: Transaction,
}

/// What a command was for whose answer is still to come.
pub(crate) enum Purpose {
    Send { delivery: DeliveryId, sent: Sent },
    Settle(Settlements),
    Receive(Box<FirstLook>),
    Commit(Box<Commit>),
}

/// A command whose answer is still to come.
pub(crate) struct UnderWay {
    pub(crate) purpose: Purpose,
    pub(crate) began: Instant,
}

/// All commands whose answers are still to come, by keys that are given in turn: about in this order
/// they are answered.
#[derive(Default)]
struct AllUnderWay {
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

    fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    fn shrink_to_fit(&mut self) {
        self.commands.shrink_to_fit();
    }
}

/// What a client has for the broker, and what the broker has of it.
#[derive(Default)]
pub(crate) struct Orders {
    /// What was settled in this turn, by entity.
    settlements: BTreeMap<EntityName, Vec<Settlement>>,
    /// What this turn has for the broker.
    outbox: Vec<(u64, Command)>,
    under_way: AllUnderWay,
    /// Answers to what is under way come here.
    pub(crate) answers: Arc<Answers>,
    /// Kept for its room.
    came: Vec<(u64, Reply)>,
}

impl Orders {
    /// Has a command handed over at the end of the turn, behind those before it.
    pub(crate) fn add(&mut self, command: BusCommand, purpose: Purpose) {
        let began = Instant::now();
        let key = self.under_way.add(UnderWay { purpose, began });
        self.outbox.push((key, Command::Bus(command)));
    }

    /// Has a message settled at the end of the turn, with others of its queue.
    pub(crate) fn settle(&mut self, queue: EntityName, settlement: Settlement) {
        self.settlements.entry(queue).or_default().push(settlement);
    }

    /// What was settled in this turn.
    pub(crate) fn take_settlements(&mut self) -> BTreeMap<EntityName, Vec<Settlement>> {
        std::mem::take(&mut self.settlements)
    }

    /// Whether there is nothing to be handed over.
    pub(crate) fn is_outbox_empty(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Hands over what there is, and gives back what was refused at once.
    pub(crate) fn hand_over(&mut self, broker: &Broker) -> Vec<(u64, Rejection)> {
        let mut refused = Vec::new();
        broker.submit_among(self.outbox.drain(..), &self.answers, |key, rejection| {
            refused.push((key, rejection));
        });
        refused
    }

    /// The answers that have come.
    pub(crate) fn take_answers(&mut self) -> impl Iterator<Item = (u64, Reply)> {
        self.answers.take(&mut self.came);
        self.came.drain(..)
    }

    /// What was answered, if it is still waited for.
    pub(crate) fn remove(&mut self, key: u64) -> Option<UnderWay> {
        self.under_way.remove(key)
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Gives back memory that only a busy connection needs.
    pub(crate) fn shrink(&mut self) {
        self.outbox.shrink_to_fit();
        self.came.shrink_to_fit();
        self.under_way.shrink_to_fit();
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
