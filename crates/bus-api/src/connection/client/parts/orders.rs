//! A client's commands at the broker, without a task for each: sends, settlements, and receives of
//! available messages.
//!
//! The commands of one turn are submitted at its end, all at once. Answers of one commit arrive
//! together, so that dispositions and messages are sent in one write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use kew_amqp::{DeliveryId, LinkId};
use kew_broker::{Answers, Broker, Rejection, Reply};
use kew_engine::bus::BusCommand;
use kew_engine::{Command, EntityName};
use tokio::time::Instant;

use super::settlements::{Settlement, Settlements};
use super::transactions::Transaction;
use crate::connection::client::links::receive::FirstLook;
use crate::metrics::Sent;

/// A transaction that is being committed. Its locks stay claimed until the answer arrives.
pub(crate) struct Commit {
    pub(crate) delivery: DeliveryId,
    pub(crate) transaction: Transaction,
}

/// The purpose of a command without an answer so far.
pub(crate) enum Purpose {
    Send { delivery: DeliveryId, sent: Sent },
    Settle(Settlements),
    Receive(Box<FirstLook>),
    Commit(Box<Commit>),
}

/// A command without an answer so far.
pub(crate) struct UnderWay {
    pub(crate) purpose: Purpose,
    pub(crate) began: Instant,
}

/// How many keys are kept in order, with those of answered commands among them.
const IN_ORDER_MAX: usize = 4096;

/// All commands without an answer, by consecutive keys: most are answered in about this order. Those that wait for long,
/// because something is read for them, are kept apart.
#[derive(Default)]
struct AllUnderWay {
    first_key: u64,
    commands: VecDeque<Option<UnderWay>>,
    late: BTreeMap<u64, UnderWay>,
}

impl AllUnderWay {
    fn add(&mut self, command: UnderWay) -> u64 {
        if self.commands.len() >= IN_ORDER_MAX
            && let Some(Some(late)) = self.commands.pop_front()
        {
            self.late.insert(self.first_key, late);
            self.first_key += 1;
            self.pass_answered();
        }
        let key = self.first_key + self.commands.len() as u64;
        self.commands.push_back(Some(command));
        key
    }

    fn get(&self, key: u64) -> Option<&UnderWay> {
        match key.checked_sub(self.first_key) {
            None => self.late.get(&key),
            Some(index) => self.commands.get(usize::try_from(index).ok()?)?.as_ref(),
        }
    }

    fn remove(&mut self, key: u64) -> Option<UnderWay> {
        let Some(index) = key.checked_sub(self.first_key) else {
            return self.late.remove(&key);
        };
        let index = usize::try_from(index).ok()?;
        let command = self.commands.get_mut(index)?.take();
        self.pass_answered();
        command
    }

    /// Forgets the keys of the oldest commands that were answered.
    fn pass_answered(&mut self) {
        while let Some(None) = self.commands.front() {
            self.commands.pop_front();
            self.first_key += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.late.is_empty()
    }

    fn shrink_to_fit(&mut self) {
        self.commands.shrink_to_fit();
    }
}

/// A client's commands for the broker, and its commands at the broker.
#[derive(Default)]
pub(crate) struct Orders {
    /// The settlements of this turn, by entity.
    settlements: BTreeMap<EntityName, Vec<Settlement>>,
    /// The commands of this turn.
    outbox: Vec<(u64, Command)>,
    under_way: AllUnderWay,
    /// Receives of links that are gone.
    given_up: BTreeSet<u64>,
    /// Answers to commands in progress arrive here.
    pub(crate) answers: Arc<Answers>,
    /// Kept for its room.
    came: Vec<(u64, Reply)>,
}

impl Orders {
    /// Queues a command for the end of the turn, behind those before it. Returns its key.
    pub(crate) fn add(&mut self, command: BusCommand, purpose: Purpose) -> u64 {
        let began = Instant::now();
        let key = self.under_way.add(UnderWay { purpose, began });
        self.outbox.push((key, Command::Bus(command)));
        key
    }

    /// Queues a settlement for the end of the turn, with others of its queue.
    pub(crate) fn settle(&mut self, queue: EntityName, settlement: Settlement) {
        self.settlements.entry(queue).or_default().push(settlement);
    }

    /// Takes the settlements of this turn.
    pub(crate) fn take_settlements(&mut self) -> BTreeMap<EntityName, Vec<Settlement>> {
        std::mem::take(&mut self.settlements)
    }

    /// Whether there are no commands to submit.
    pub(crate) fn is_outbox_empty(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Submits the commands of this turn, and returns those that were refused at once.
    pub(crate) fn hand_over(&mut self, broker: &Broker) -> Vec<(u64, Rejection)> {
        let mut refused = Vec::new();
        broker.submit_among(self.outbox.drain(..), &self.answers, |key, rejection| {
            refused.push((key, rejection));
        });
        refused
    }

    /// The answers that have arrived.
    pub(crate) fn take_answers(&mut self) -> impl Iterator<Item = (u64, Reply)> {
        self.answers.take(&mut self.came);
        self.came.drain(..)
    }

    /// Takes the command that was answered, if it is still known.
    pub(crate) fn remove(&mut self, key: u64) -> Option<UnderWay> {
        if !self.given_up.is_empty() && self.given_up.remove(&key) {
            self.answers.forget_given_up(key);
        }
        self.under_way.remove(key)
    }

    /// A link is gone: its first look deletes nothing if it still waits for the disk.
    pub(crate) fn give_up_look(&mut self, link: LinkId, key: u64) {
        let is_its_look = |it: &UnderWay| match &it.purpose {
            Purpose::Receive(look) => look.link == link,
            Purpose::Send { .. } | Purpose::Settle(_) | Purpose::Commit(_) => false,
        };
        if self.under_way.get(key).is_some_and(is_its_look) {
            self.answers.give_up(key);
            self.given_up.insert(key);
        }
    }

    /// Whether there are no commands in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Frees memory that only a busy connection needs.
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

    /// One that waits for the disk, and others that are answered meanwhile.
    #[test]
    fn one_that_waits_for_long_keeps_no_room_for_those_behind_it() {
        let mut all = AllUnderWay::default();
        let slow = [all.add(command()), all.add(command())];
        for _ in 0..10 * IN_ORDER_MAX {
            let key = all.add(command());
            assert!(all.remove(key).is_some());
        }
        assert!(all.commands.len() <= IN_ORDER_MAX);
        assert_eq!(all.late.len(), 2);
        for key in slow {
            assert!(all.get(key).is_some() && all.remove(key).is_some());
            assert!(all.get(key).is_none() && all.remove(key).is_none());
        }
        assert!(all.is_empty());
    }
}
