//! Commands for operators, beyond what the service offers its clients: purge, take and delete by number, and break locks.
//! [`resubmit`](super::resubmit) sends messages again.
//!
//! They work on disabled and forwarding queues too, because they are the means to repair such a queue.

use kew_planted::{Bug, is_planted};

use super::super::message::Message;
use super::super::room::{LOOKED_AT_MAX, TakenRoom};
use super::super::{
    BreakTarget, BusMessageState, BusOutcome, BusRefusal, ClearedStates, ITEMS_MAX, Purge, Purged,
    ReceiveMode, Release,
};
use super::messages::not_found;
use super::receive::is_damaged;
use super::{Answer, Turn};
use crate::vocabulary::{Incarnation, SequenceNumber, Timestamp};

impl Turn<'_> {
    /// Carries out a part of a purge: the messages from a number on, as many as one command may.
    pub(super) fn purge(&mut self, queue: Incarnation, purge: &Purge) -> Answer {
        let backlog = self.bus_backlog(queue);
        let until = purge.until.unwrap_or(backlog.next());
        let count = ITEMS_MAX.min(purge.count as usize);
        let mut gone = Vec::new();
        let mut room = TakenRoom::new(count);
        let mut purged = Purged {
            until,
            ..Purged::default()
        };
        // Later messages have higher numbers. Those of a run that came later are not even read.
        let came_later = |number| purge.before.is_some_and(|it| backlog.came_from(number, it));
        let walk = backlog.walk_seen(None, purge.from);
        let walk = walk.take_while(|(number, _)| *number < until && !came_later(*number));
        for (looked_at, (number, _)) in walk.enumerate() {
            let is_before = |message: &Message<'_>| {
                purge
                    .before
                    .is_none_or(|before| message.enqueued_at < before)
            };
            let Some(message) = backlog.get(number).filter(is_before) else {
                break;
            };
            if looked_at == LOOKED_AT_MAX || gone.len() == count {
                purged.next = Some(number);
                break;
            }
            if matches!(message.state, BusMessageState::Locked { .. }) && !purge.with_locked {
                purged.locked_count += 1;
                continue;
            }
            if !room.takes(&message) {
                purged.next = Some(number);
                break;
            }
            gone.push(number);
        }
        purged.count = u32::try_from(gone.len()).unwrap_or(u32::MAX);
        if !purge.is_dry_run {
            for sequence_number in gone {
                self.remove(queue, sequence_number);
            }
            if purge.before.is_none() {
                let left = count - purged.count as usize;
                let end = purged.next.unwrap_or(until);
                let next = self.end_lost_between(queue, (purge.from, end), left);
                purged.next = next.or(purged.next);
            }
        }
        Ok(BusOutcome::Purged(purged))
    }

    /// Ends runs of which nothing is left but messages that were set aside: when these came is not known. A run ends as a
    /// whole once a part of a purge has come to its end, so that of a run in which two parts meet ends with the second.
    /// Returns where to continue if there are more than `count`.
    fn end_lost_between(
        &mut self,
        queue: Incarnation,
        (from, end): (SequenceNumber, SequenceNumber),
        count: usize,
    ) -> Option<SequenceNumber> {
        let table = self.bus_backlog(queue).table();
        let runs = table.runs_from(from);
        let runs = runs.take_while(|run| run.range().1 <= end);
        let lost = runs.filter(|run| run.is_lost());
        let lost = lost.map(|run| (run.index(), run.range().0.max(from)));
        let lost: Vec<(u64, SequenceNumber)> = lost.take(count + 1).collect();
        for (run, _) in lost.iter().take(count) {
            self.0.end_lost(queue, *run);
        }
        lost.get(count).map(|(_, number)| *number)
    }

    /// Clears the states of sessions without messages, from an id on, as many as one command may.
    pub(super) fn clear_session_states(
        &mut self,
        queue: Incarnation,
        from: &str,
        count: u32,
        is_dry_run: bool,
    ) -> Answer {
        let count = ITEMS_MAX.min(count as usize);
        let mut cleared = ClearedStates::default();
        let mut ids = Vec::new();
        let sessions = self.bus_backlog(queue).sessions.in_order_from(from);
        for (looked_at, session) in sessions.enumerate() {
            if looked_at == LOOKED_AT_MAX || ids.len() == count {
                cleared.next = Some(session.id());
                break;
            }
            let is_in_use = !session.messages.is_empty() && !is_planted(Bug::BusStateInUseCleared);
            if session.state.is_some() && !is_in_use {
                ids.push(session.id());
            }
        }
        cleared.count = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        if !is_dry_run {
            for session in ids {
                self.replace_session_state(queue, &session, None);
            }
        }
        Ok(BusOutcome::SessionStatesCleared(cleared))
    }

    /// Takes one message by its number, in any state but locked. A scheduled message cannot be locked,
    /// because it would not be scheduled any more when the lock ends. A message of a session cannot be
    /// locked, because its lock is the session's. Both can be taken for good.
    pub(super) fn take_message(
        &mut self,
        queue: Incarnation,
        number: SequenceNumber,
        mode: ReceiveMode,
    ) -> Answer {
        let entity = self.bus(queue);
        let message = entity.backlog.get(number).ok_or(not_found(number))?;
        if matches!(message.state, BusMessageState::Locked { .. }) {
            return Err(locked(&message));
        }
        if mode != ReceiveMode::ReceiveAndDelete {
            // A topic's message waits for its copies: behind a lock, those of later ones would come first.
            if !entity.role.is_received_from() {
                return Err(BusRefusal::NotReceivable {
                    queue: entity.name.name.clone(),
                });
            }
            if message.state == BusMessageState::Scheduled {
                return Err(BusRefusal::MessageScheduled {
                    sequence_number: number.as_u64(),
                });
            }
            if entity.locking_session(&message).is_some() {
                return Err(BusRefusal::SessionRequired);
            }
        }
        if mode == ReceiveMode::ReceiveAndDelete && self.is_damaged(&message) {
            return Err(is_damaged(number));
        }
        let delivered = self.deliver(queue, number, mode);
        Ok(BusOutcome::Received(vec![delivered]))
    }

    pub(super) fn delete_message(
        &mut self,
        queue: Incarnation,
        number: SequenceNumber,
        with_locked: bool,
    ) -> Answer {
        let message = self.bus_backlog(queue).get(number);
        let message = message.ok_or(not_found(number))?;
        if matches!(message.state, BusMessageState::Locked { .. }) && !with_locked {
            return Err(locked(&message));
        }
        self.remove(queue, number);
        Ok(BusOutcome::MessageDeleted)
    }

    /// Ends a lock against its holder's will. Its messages are ready at once, and no delivery counts as
    /// failed.
    pub(super) fn break_lock(&mut self, queue: Incarnation, target: BreakTarget) -> Answer {
        match target {
            BreakTarget::Message(number) => {
                let entity = self.bus(queue);
                let message = entity.backlog.get(number).ok_or(not_found(number))?;
                if !matches!(message.state, BusMessageState::Locked { .. }) {
                    return Err(BusRefusal::NotLocked);
                }
                self.release(queue, number, Release::Unseen, None);
            }
            BreakTarget::Session(session) => {
                let found = self.bus_backlog(queue).sessions.find(&session);
                let locked = found.filter(|(_, it)| it.locked_until != Timestamp::ZERO);
                let (number, _) = locked.ok_or(BusRefusal::NotLocked)?;
                self.free_session(queue, number);
            }
        }
        Ok(BusOutcome::LockBroken)
    }
}

fn locked(message: &Message<'_>) -> BusRefusal {
    BusRefusal::MessageLocked {
        sequence_number: message.number().as_u64(),
        until: message.due_at,
    }
}
