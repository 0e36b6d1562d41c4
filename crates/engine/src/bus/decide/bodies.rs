//! Bodies that a decision needs: those of messages that it hands out and removes.
//!
//! A message is removed only once its bytes were read and are whole, wherever they were before. So a decision asks for
//! them as for records, and what happens to be in memory changes nothing.

use std::collections::BTreeSet;

use super::super::message::Message;
use super::super::{BusCommand, BusQueue, ReceiveMode};
use super::Turn;
use crate::catalogue::description::Receives;
use crate::table::Missing;
use crate::vocabulary::{BodyLocation, BodyRead, EntityName, Incarnation, SequenceNumber};

/// How many messages behind those that a receiver takes are read ahead, at most: a receiver that takes one message at a
/// time does not wait for a read each time.
const AHEAD_COUNT: usize = 1024;

/// How many damaged messages of a sub-queue a receiver passes over, at most.
pub(super) const PASSED_OVER_MAX: usize = 64;

/// Bodies behind those that a command hands out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// In the order of their messages.
    pub bodies: Vec<BodyLocation>,
    /// How many messages were looked at to find them.
    pub looks: u64,
}

/// The messages that a decision hands out and removes.
#[derive(Debug, Default)]
pub(crate) struct HandOut {
    /// In the order in which they are handed out.
    chosen: Vec<SequenceNumber>,
    /// Whether all of their bodies were read.
    is_read: bool,
    /// The first of them that was not removed yet.
    next: usize,
    /// Bodies that were read, and are not what was written.
    damaged: BTreeSet<BodyLocation>,
    /// The first message that was passed over because it is damaged.
    passed_over: Option<SequenceNumber>,
}

impl HandOut {
    pub(crate) fn note_damaged(&mut self, body: BodyLocation) {
        self.damaged.insert(body);
    }

    /// Begins again for the next command.
    pub(crate) fn clear(&mut self) {
        self.chosen.clear();
        self.damaged.clear();
        (self.is_read, self.next, self.passed_over) = (false, 0, None);
    }

    pub(super) fn chosen(&self) -> Vec<SequenceNumber> {
        self.chosen.clone()
    }

    pub(super) fn is_damaged(&self, body: BodyLocation) -> bool {
        self.damaged.contains(&body)
    }

    pub(super) fn is_any_damaged(&self) -> bool {
        !self.damaged.is_empty()
    }

    pub(super) fn passed_over(&self) -> Option<SequenceNumber> {
        self.passed_over
    }

    /// Whether the bodies of a message were read. Messages are asked for in their order, each once.
    pub(super) fn may_remove(&mut self, number: SequenceNumber) -> bool {
        let left = self.chosen.get(self.next..).unwrap_or_default();
        let place = left.iter().position(|it| *it == number);
        self.next += place.map_or(0, |place| place + 1);
        self.is_read && place.is_some()
    }
}

impl Turn<'_> {
    /// Asks for the bodies that a decision needs. The records that it needs are in memory.
    pub(super) fn ask_for_bodies(&mut self, command: &BusCommand, missing: &mut Missing) {
        // Each round passes over one more message.
        for _ in 0..=2 * PASSED_OVER_MAX {
            let Some((queue, chosen)) = self.to_hand_out(command) else {
                return;
            };
            let damaged_before = self.0.hand_out().damaged.len();
            let is_read = chosen.iter().all(|number| self.is_read(queue, *number));
            if !is_read {
                self.ask_for_all(queue, &chosen, missing);
            }
            let hand_out = self.0.hand_out_mut();
            hand_out.chosen = chosen;
            hand_out.is_read = is_read;
            let is_more_damaged = hand_out.damaged.len() > damaged_before;
            if !is_read || !is_more_damaged || self.buries(queue) {
                return;
            }
            self.note_passed_over(queue);
        }
    }

    /// Whether the bodies of a message were read, or one of them is damaged: then nobody needs the others.
    fn is_read(&mut self, queue: Incarnation, number: SequenceNumber) -> bool {
        let mut is_any_missing = false;
        self.with_bodies(queue, number, |turn, body| {
            is_any_missing |= turn.0.read_body(body) == BodyRead::Missing;
        });
        !is_any_missing || self.is_damaged_at(queue, number)
    }

    /// Asks for all bodies that the decision needs, those in memory too: they are kept until then. So each round finds
    /// again what those before it have found.
    fn ask_for_all(
        &mut self,
        queue: Incarnation,
        chosen: &[SequenceNumber],
        missing: &mut Missing,
    ) {
        for number in chosen {
            if !self.is_damaged_at(queue, *number) {
                self.with_bodies(queue, *number, |_, body| {
                    missing.bodies.insert(body);
                });
            }
        }
        missing.bodies.extend(&self.0.hand_out().damaged);
    }

    fn note_passed_over(&mut self, queue: Incarnation) {
        let hand_out = self.0.hand_out();
        if hand_out.passed_over.is_none() {
            let mut chosen = hand_out.chosen.iter().copied();
            let first = chosen.find(|number| self.is_damaged_at(queue, *number));
            self.0.hand_out_mut().passed_over = first;
        }
    }

    /// The messages that the decision is going to hand out and remove.
    fn to_hand_out(&self, command: &BusCommand) -> Option<(Incarnation, Vec<SequenceNumber>)> {
        let find = |turn: &Self, name: &EntityName| {
            let found = turn.catalogue().find(name);
            found.filter(|queue| turn.queues().contains_key(queue))
        };
        match command {
            BusCommand::Receive {
                queue,
                count,
                mode: mode @ ReceiveMode::ReceiveAndDelete,
                session,
            } => {
                let queue = find(self, queue)?;
                self.check_receivable(queue).ok()?;
                let session = self.session_of_receiver(queue, *session).ok()?;
                // A message that turns out to be damaged may take more room, so that fewer are handed out.
                Some((queue, self.choose_ready(queue, *count, *mode, session)))
            }
            BusCommand::ReceiveDeferred { read } if read.mode == ReceiveMode::ReceiveAndDelete => {
                let queue = find(self, &read.queue)?;
                Some((queue, self.choose_deferred(queue, read).ok()?))
            }
            BusCommand::TakeMessage {
                queue,
                number,
                mode: ReceiveMode::ReceiveAndDelete,
            } => Some((find(self, queue)?, vec![*number])),
            // They hand nothing out, or leave it in its queue.
            BusCommand::Receive { .. }
            | BusCommand::ReceiveDeferred { .. }
            | BusCommand::TakeMessage { .. }
            | BusCommand::CreateQueue { .. }
            | BusCommand::CreateTopic { .. }
            | BusCommand::ListTopics { .. }
            | BusCommand::ListSubscriptions { .. }
            | BusCommand::AddRule { .. }
            | BusCommand::SetRule { .. }
            | BusCommand::RemoveRule { .. }
            | BusCommand::ReadRule { .. }
            | BusCommand::ListRules { .. }
            | BusCommand::CreateSubscription { .. }
            | BusCommand::UpdateQueue { .. }
            | BusCommand::DeleteQueue { .. }
            | BusCommand::ReadQueue { .. }
            | BusCommand::ListQueues { .. }
            | BusCommand::Send { .. }
            | BusCommand::Deposit { .. }
            | BusCommand::SendVia { .. }
            | BusCommand::Settle { .. }
            | BusCommand::RenewLocks { .. }
            | BusCommand::Peek { .. }
            | BusCommand::ReadLocked { .. }
            | BusCommand::CancelScheduled { .. }
            | BusCommand::DeleteBatch { .. }
            | BusCommand::Purge { .. }
            | BusCommand::ClearSessionStates { .. }
            | BusCommand::DeleteMessage { .. }
            | BusCommand::BreakLock { .. }
            | BusCommand::Resubmit { .. }
            | BusCommand::Transact { .. }
            | BusCommand::AcceptSession { .. }
            | BusCommand::RenewSession { .. }
            | BusCommand::ReleaseSession { .. }
            | BusCommand::ReadSessionState { .. }
            | BusCommand::SetSessionState { .. }
            | BusCommand::ListSessions { .. } => None,
        }
    }

    fn with_bodies(
        &mut self,
        queue: Incarnation,
        number: SequenceNumber,
        mut work: impl FnMut(&mut Self, BodyLocation),
    ) {
        let Some(message) = self.bus_backlog(queue).get(number) else {
            return;
        };
        let (sent, changes) = (message.body, message.overlays());
        // Few messages have changes.
        let changes = match changes {
            [] => Vec::new(),
            changes => changes.to_vec(),
        };
        work(self, sent);
        for change in changes {
            work(self, change);
        }
    }

    /// Bodies of the next messages that a receiver is likely to take, as far as their records are in memory. The
    /// command was prepared.
    pub(crate) fn bodies_behind(&self, command: &BusCommand, size_bytes_max: u64) -> Behind {
        let mut behind = Behind::default();
        let (queue, session) = match command.describe().receives {
            Some(Receives::Messages { queue, session }) => (queue, session),
            Some(Receives::Session { .. }) | None => return behind,
        };
        let queue = self.catalogue().find(queue);
        let Some(queue) = queue.filter(|queue| self.queues().contains_key(queue)) else {
            return behind;
        };
        let Ok(session) = self.session_of_receiver(queue, session) else {
            return behind;
        };
        let taken = self.0.hand_out().chosen.last().copied();
        let BusQueue { backlog, .. } = self.bus(queue);
        let mut size_bytes = 0;
        let mut count = 0;
        for (number, entry) in backlog.ready_seen(session, self.now()) {
            behind.looks += 1;
            if Some(number) <= taken {
                continue;
            }
            let Some(message) = entry.map(Message::from) else {
                break;
            };
            size_bytes += message.size_bytes();
            count += 1;
            if size_bytes > size_bytes_max || count > AHEAD_COUNT {
                break;
            }
            behind.bodies.extend(message.bodies());
        }
        behind
    }

    /// Whether bytes of a message were read and are not what was written.
    pub(super) fn is_damaged(&self, message: &Message<'_>) -> bool {
        let hand_out = self.0.hand_out();
        message.bodies().any(|body| hand_out.is_damaged(body))
    }

    pub(super) fn is_damaged_at(&self, queue: Incarnation, number: SequenceNumber) -> bool {
        let message = self.bus_backlog(queue).get(number);
        message.is_some_and(|message| self.is_damaged(&message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_read_may_be_removed_and_each_once() {
        let numbers = [1, 2, 3, 4].map(SequenceNumber::new);
        let mut hand_out = HandOut {
            chosen: numbers[..3].to_vec(),
            ..HandOut::default()
        };
        assert!(!hand_out.may_remove(numbers[0]), "it was not read");
        (hand_out.is_read, hand_out.next) = (true, 0);
        assert!(hand_out.may_remove(numbers[0]));
        assert!(!hand_out.may_remove(numbers[0]), "it was removed");
        assert!(!hand_out.may_remove(numbers[3]), "it was not chosen");
        // One that is damaged is left out.
        assert!(hand_out.may_remove(numbers[2]));
        assert!(!hand_out.may_remove(numbers[1]));
        hand_out.clear();
        assert!(!hand_out.may_remove(numbers[2]));
    }
}
