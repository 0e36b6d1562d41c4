//! Receiving messages: from the head, or deferred ones by number.

use std::collections::BTreeSet;

use super::super::room::{AnswerRoom, TakenRoom};
use super::super::{
    BusMessageState, BusOutcome, BusRefusal, DeferredRead, DeliveredMessage, ITEMS_MAX, ReceiveMode,
};
use super::bodies::PASSED_OVER_MAX;
use super::messages::not_found;
use super::{Answer, Turn};
use crate::vocabulary::{Incarnation, SequenceNumber, Timestamp, Token};

/// Why deferred messages cannot be received.
pub(super) enum NotChosen {
    /// This one has expired.
    Expired(SequenceNumber),
    Refused(BusRefusal),
}

impl From<BusRefusal> for NotChosen {
    fn from(refusal: BusRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Turn<'_> {
    /// Source: Service Bus, *Message transfers, locks, and settlement*.
    pub(super) fn bus_receive(
        &mut self,
        queue: Incarnation,
        count: u32,
        mode: ReceiveMode,
        session: Option<Token>,
    ) -> Answer {
        self.check_receivable(queue)?;
        let session = self.session_of_receiver(queue, session)?;
        match mode {
            ReceiveMode::PeekLock => {
                let chosen = self.choose_ready(queue, count, mode, session).into_iter();
                let delivered = chosen.map(|number| self.deliver(queue, number, mode));
                Ok(BusOutcome::Received(delivered.collect()))
            }
            ReceiveMode::ReceiveAndDelete => self.receive_and_delete(queue, count, session),
        }
    }

    fn receive_and_delete(&mut self, queue: Incarnation, count: u32, session: u32) -> Answer {
        let mode = ReceiveMode::ReceiveAndDelete;
        let is_any_damaged = self.0.hand_out().is_any_damaged();
        let chosen = match is_any_damaged && self.buries(queue) {
            // These take more room, so that fewer are handed out.
            true => self.choose_ready(queue, count, mode, session),
            false => self.0.hand_out().chosen(),
        };
        let mut damaged = self.0.hand_out().passed_over();
        let mut delivered = Vec::with_capacity(chosen.len());
        for number in chosen {
            if is_any_damaged && self.is_damaged_at(queue, number) {
                damaged = damaged.or(Some(number));
                // As if its receiver had failed: in the end it is a dead letter, and not in the way any more.
                if self.buries(queue) {
                    self.fail_delivery(queue, number, None);
                }
            } else {
                delivered.push(self.deliver(queue, number, mode));
            }
        }
        match damaged {
            Some(number) if delivered.is_empty() => Err(is_damaged(number)),
            Some(_) | None => Ok(BusOutcome::Received(delivered)),
        }
    }

    /// The messages that a receiver gets, in order: as many as it asks for and there is room for.
    pub(super) fn choose_ready(
        &self,
        queue: Incarnation,
        count: u32,
        mode: ReceiveMode,
        session: u32,
    ) -> Vec<SequenceNumber> {
        let backlog = self.bus_backlog(queue);
        let mut room = AnswerRoom::new(count);
        let count = ITEMS_MAX.min(count as usize);
        let mut taken_room = match mode {
            ReceiveMode::PeekLock => None,
            ReceiveMode::ReceiveAndDelete => Some(TakenRoom::of_receiver(count)),
        };
        let passes_over =
            taken_room.is_some() && self.0.hand_out().is_any_damaged() && !self.buries(queue);
        let mut passed_over = 0;
        let mut takes = |number: &SequenceNumber| {
            let message = backlog.get(*number);
            message.is_some_and(|message| {
                let fits = match &mut taken_room {
                    Some(room) if self.is_damaged(&message) => {
                        room.has(self.failed_size_bytes_max(queue, &message))
                    }
                    Some(room) => room.takes(&message),
                    None => true,
                };
                fits && room.takes(&message)
            })
        };
        let ready = backlog.ready(session, self.now());
        let ready = ready.filter(|number| {
            let is_passed_over =
                passes_over && passed_over < PASSED_OVER_MAX && self.is_damaged_at(queue, *number);
            passed_over += usize::from(is_passed_over);
            !is_passed_over
        });
        // The one after the last is not looked at.
        ready.take(count).take_while(|it| takes(it)).collect()
    }

    /// Source: Service Bus, *Message deferral*.
    pub(super) fn receive_deferred(&mut self, queue: Incarnation, read: &DeferredRead) -> Answer {
        let numbers = self.choose_deferred(queue, read).map_err(|why| match why {
            NotChosen::Expired(number) => {
                self.expire(queue, number);
                not_found(number)
            }
            NotChosen::Refused(refusal) => refusal,
        })?;
        // All or none.
        if read.mode == ReceiveMode::ReceiveAndDelete
            && self.0.hand_out().is_any_damaged()
            && let Some(number) = numbers.iter().find(|it| self.is_damaged_at(queue, **it))
        {
            return Err(is_damaged(*number));
        }
        let delivered = numbers
            .iter()
            .map(|number| self.deliver(queue, *number, read.mode))
            .collect();
        Ok(BusOutcome::Received(delivered))
    }

    /// The deferred messages that a receiver named, each once, even if it was named several times.
    pub(super) fn choose_deferred(
        &self,
        queue: Incarnation,
        read: &DeferredRead,
    ) -> Result<Vec<SequenceNumber>, NotChosen> {
        self.check_receivable(queue)?;
        let session = self.session_of_receiver(queue, read.session)?;
        let mut named = BTreeSet::new();
        let mut numbers = read.numbers.clone();
        numbers.retain(|number| named.insert(*number));
        let mut room = AnswerRoom::new(u32::MAX);
        let mut fitting = 0;
        for number in &numbers {
            let message = self
                .bus_backlog(queue)
                .get(*number)
                .filter(|message| message.state == BusMessageState::Deferred)
                .filter(|message| session == 0 || message.session == session)
                .ok_or(not_found(*number))?;
            if message.expires_at.has_passed(self.now()) {
                return Err(NotChosen::Expired(*number));
            }
            fitting += u64::from(room.takes(&message));
        }
        if fitting < numbers.len() as u64 {
            return Err(NotChosen::Refused(BusRefusal::TooMany {
                count: numbers.len() as u64,
                limit: fitting,
            }));
        }
        Ok(numbers)
    }

    /// Locks or removes a message that exists.
    pub(super) fn deliver(
        &mut self,
        queue: Incarnation,
        sequence_number: SequenceNumber,
        mode: ReceiveMode,
    ) -> DeliveredMessage {
        let entity = self.bus(queue);
        let message = entity
            .backlog
            .get(sequence_number)
            .expect("the message was there when this turn chose it, and nothing removed it since");
        let mut delivered = DeliveredMessage {
            sequence_number,
            first_sequence_number: message.first_number(),
            lock: None,
            locked_until: Timestamp::NEVER,
            enqueued_at: message.enqueued_at,
            expires_at: message.expires_at,
            delivery_count: message.deliveries,
            state: message.state,
            cause: message.cause,
            dead_letter_source: message.source().cloned(),
            body: message.body,
            overlays: message.overlays().to_vec(),
        };
        let generation = message.generation.next();
        let lock_duration_ms = entity.options.lock_duration_ms;
        if mode == ReceiveMode::ReceiveAndDelete {
            let mut bodies = std::iter::once(&delivered.body).chain(&delivered.overlays);
            let hand_out = self.0.hand_out_mut();
            assert!(
                hand_out.may_remove(sequence_number) && bodies.all(|it| !hand_out.is_damaged(*it)),
                "{sequence_number:?} is removed, and its bytes were not read"
            );
            self.remove(queue, sequence_number);
            return delivered;
        }
        // The message's lock ends with the session's.
        let session_end = self.session_end(queue, sequence_number);
        let until = match session_end {
            Some(_) => Timestamp::NEVER,
            None => self.now().plus_ms(lock_duration_ms),
        };
        self.lease(queue, sequence_number, None, |message| {
            message.locked(until)
        });
        delivered.lock = Some(self.lock_token(queue, sequence_number, generation));
        delivered.locked_until = session_end.unwrap_or(until);
        delivered
    }

    /// The number of the session that a receiver has locked. 0 if the queue has no sessions.
    pub(super) fn session_of_receiver(
        &self,
        queue: Incarnation,
        session: Option<Token>,
    ) -> Result<u32, BusRefusal> {
        match (self.bus(queue).requires_session(), session) {
            (true, Some(lock)) => self.held_session(queue, lock),
            (true, None) => Err(BusRefusal::SessionRequired),
            (false, Some(_)) => Err(BusRefusal::SessionsNotSupported),
            (false, None) => Ok(0),
        }
    }
}

pub(super) fn is_damaged(number: SequenceNumber) -> BusRefusal {
    BusRefusal::MessageDamaged {
        sequence_number: number.as_u64(),
    }
}
