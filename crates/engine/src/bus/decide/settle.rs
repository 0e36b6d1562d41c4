//! Commands of a lock's holder.

use bytes::Bytes;
use kew_planted::{Bug, is_planted};

use super::super::room::{REASON_SIZE_BYTES_MAX, TakenRoom};
use super::super::{
    BusMessageState, BusOutcome, BusRefusal, DeadLetterCause, Disposition, Release, Verdict,
};
use super::messages::peeked;
use super::{Answer, Turn};
use crate::vocabulary::token::TokenKind;
use crate::vocabulary::{BodyLocation, Incarnation, SequenceNumber, Timestamp, Token};

impl Turn<'_> {
    /// Source: Service Bus, *Message transfers, locks, and settlement*.
    pub(super) fn bus_settle(
        &mut self,
        queue: Incarnation,
        settlements: Vec<(Token, Disposition)>,
    ) -> Answer {
        let completed = settlements.iter();
        let completed = completed.filter(|(_, it)| matches!(it, Disposition::Complete));
        let mut room = TakenRoom::new(completed.count());
        let verdicts = settlements
            .into_iter()
            .map(|(lock, disposition)| match self.held_message(queue, lock) {
                Ok(number) if self.has_room(&mut room, queue, number, &disposition) => {
                    self.settle_one(queue, number, disposition)
                }
                Ok(_) => Verdict::QuotaExceeded,
                Err(verdict) => verdict,
            })
            .collect();
        Ok(BusOutcome::Settled(verdicts))
    }

    /// Whether a command of many settlements has room for the end of one more message. It has, unless many of
    /// them have many changes to their properties. They can be completed a few at a time.
    fn has_room(
        &self,
        room: &mut TakenRoom,
        queue: Incarnation,
        number: SequenceNumber,
        disposition: &Disposition,
    ) -> bool {
        let message = self.bus_backlog(queue).get(number);
        match disposition {
            Disposition::Complete => message.is_none_or(|message| room.takes(&message)),
            Disposition::Abandon { .. }
            | Disposition::Defer { .. }
            | Disposition::DeadLetter { .. }
            | Disposition::Release => true,
        }
    }

    pub(super) fn settle_one(
        &mut self,
        queue: Incarnation,
        sequence_number: SequenceNumber,
        disposition: Disposition,
    ) -> Verdict {
        let held_bytes = self.size_to_change(queue, disposition.overlay_size_bytes());
        let refused = self.refuse_settlement(queue, sequence_number, &disposition, held_bytes);
        if let Some(verdict) = refused {
            return verdict;
        }
        self.settle_checked(queue, sequence_number, disposition);
        Verdict::Settled
    }

    /// Settles a message that [`Turn::refuse_settlement`] has accepted.
    pub(super) fn settle_checked(
        &mut self,
        queue: Incarnation,
        sequence_number: SequenceNumber,
        disposition: Disposition,
    ) {
        match disposition {
            Disposition::Complete => self.remove(queue, sequence_number),
            Disposition::Abandon { overlay } => {
                let overlay = self.store_overlay(overlay);
                self.fail_delivery(queue, sequence_number, overlay);
            }
            Disposition::Defer { overlay } => {
                let overlay = self.store_overlay(overlay);
                self.release(queue, sequence_number, Release::Deferred, overlay);
            }
            Disposition::DeadLetter { overlay } => {
                let overlay = self.store_overlay(overlay);
                self.bury(queue, sequence_number, DeadLetterCause::ByReceiver, overlay);
            }
            Disposition::Release => self.release(queue, sequence_number, Release::Unseen, None),
        }
    }

    /// Returns why a message cannot be settled in this way, if it cannot. A settlement that does not change
    /// properties, or says why the message is a dead letter, is accepted even if the queue is full. `held_bytes` is the size
    /// of the queue at that time.
    pub(super) fn refuse_settlement(
        &self,
        queue: Incarnation,
        sequence_number: SequenceNumber,
        disposition: &Disposition,
        held_bytes: u64,
    ) -> Option<Verdict> {
        let entity = self.bus(queue);
        let overlay = match disposition {
            Disposition::DeadLetter { .. } if !entity.role.is_first() => {
                return Some(Verdict::NotAllowed);
            }
            Disposition::Abandon { overlay }
            | Disposition::Defer { overlay }
            | Disposition::DeadLetter { overlay } => overlay.as_ref(),
            Disposition::Complete | Disposition::Release => None,
        };
        let overlay = overlay?;
        let message = entity.backlog.get(sequence_number);
        if !message.is_some_and(|message| message.takes_overlay(overlay)) {
            return Some(Verdict::TooManyChanges);
        }
        let size_bytes = held_bytes.saturating_add(overlay.len() as u64);
        let limit_bytes = self
            .bus(self.charged(queue))
            .options
            .changed_size_bytes_max();
        let is_reason = matches!(disposition, Disposition::DeadLetter { .. })
            && overlay.len() <= REASON_SIZE_BYTES_MAX;
        let is_full = !overlay.is_empty() && !is_reason && size_bytes > limit_bytes;
        is_full.then_some(Verdict::QuotaExceeded)
    }

    /// The size of a queue, as far as it decides whether there is room for changes of so many bytes.
    fn size_to_change(&mut self, queue: Incarnation, more_bytes: u64) -> u64 {
        if more_bytes == 0 {
            return 0;
        }
        let charged = self.charged(queue);
        let limit_bytes = self.bus(charged).options.changed_size_bytes_max();
        let room_at = limit_bytes.saturating_sub(more_bytes);
        self.size_bytes_above(charged, room_at).0
    }

    fn store_overlay(&mut self, overlay: Option<Bytes>) -> Option<BodyLocation> {
        overlay.map(|overlay| self.store_body(&overlay))
    }

    /// Source: Service Bus, AMQP request/response, *Message renew-lock*.
    pub(super) fn renew_locks(&mut self, queue: Incarnation, locks: &[Token]) -> Answer {
        let mut numbers = Vec::with_capacity(locks.len());
        for lock in locks {
            numbers.push(self.locked_message(queue, *lock)?);
        }
        let until = self.now().plus_ms(self.bus(queue).options.lock_duration_ms);
        let mut renewed = Vec::with_capacity(numbers.len());
        for sequence_number in numbers {
            if let Some(end) = self.session_end(queue, sequence_number) {
                // The lock lasts as long as the session's, which is renewed by itself.
                renewed.push(end);
                continue;
            }
            self.lease(queue, sequence_number, None, |message| {
                message.renewed(until)
            });
            renewed.push(until);
        }
        Ok(BusOutcome::LocksRenewed(renewed))
    }

    pub(super) fn read_locked(&mut self, queue: Incarnation, lock: Token) -> Answer {
        let number = self.locked_message(queue, lock)?;
        let message = self.bus_backlog(queue).get(number);
        let shown = message.map(peeked);
        Ok(BusOutcome::Peeked(shown.into_iter().collect()))
    }

    fn locked_message(
        &self,
        queue: Incarnation,
        lock: Token,
    ) -> Result<SequenceNumber, BusRefusal> {
        self.held_message(queue, lock)
            .map_err(|verdict| match verdict {
                Verdict::SessionLockLost => BusRefusal::SessionLockLost,
                Verdict::Settled
                | Verdict::LockLost
                | Verdict::NotAllowed
                | Verdict::TooManyChanges
                | Verdict::QuotaExceeded => BusRefusal::LockLost,
            })
    }

    /// When the lock of the message's session ends, if the message is locked through its session.
    pub(super) fn session_end(
        &self,
        queue: Incarnation,
        number: SequenceNumber,
    ) -> Option<Timestamp> {
        let entity = self.bus(queue);
        let session = entity.locking_session(&entity.backlog.get(number)?)?;
        let session = entity.backlog.sessions.get(session);
        Some(session.map_or(Timestamp::ZERO, |session| session.locked_until))
    }

    /// The message of a valid lock.
    pub(super) fn held_message(
        &self,
        queue: Incarnation,
        lock: Token,
    ) -> Result<SequenceNumber, Verdict> {
        let place = self
            .cipher()
            .open(TokenKind::BusLock, lock)
            .filter(|place| place.incarnation == queue)
            .ok_or(Verdict::LockLost)?;
        let number = place.sequence_number;
        self.bus_backlog(queue)
            .get(number)
            .filter(|message| {
                matches!(message.state, BusMessageState::Locked { .. })
                    || is_planted(Bug::BusFreedLockSettles)
            })
            .filter(|message| {
                message.generation == place.generation || is_planted(Bug::BusLostLockRenewed)
            })
            .filter(|message| !message.due_at.has_passed(self.now()))
            .ok_or(Verdict::LockLost)?;
        match self.session_end(queue, number) {
            Some(end) if end.has_passed(self.now()) => Err(Verdict::SessionLockLost),
            _ => Ok(number),
        }
    }
}
