//! Receiving messages: from the head, or deferred ones by number.

use std::collections::BTreeSet;

use super::super::message::Message;
use super::super::room::{AnswerRoom, TakenRoom};
use super::super::{
    BusMessageState, BusOutcome, BusRefusal, DeferredRead, DeliveredMessage, ITEMS_MAX, ReceiveMode,
};
use super::messages::not_found;
use super::{Answer, Turn};
use crate::vocabulary::{Incarnation, SequenceNumber, Timestamp, Token};

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
        let backlog = self.bus_backlog(queue);
        let mut room = AnswerRoom::new(count);
        let mut taken_room = match mode {
            ReceiveMode::PeekLock => None,
            ReceiveMode::ReceiveAndDelete | ReceiveMode::DeleteOnceRead => {
                Some(TakenRoom::new(ITEMS_MAX.min(count as usize)))
            }
        };
        let mut takes = |number: &SequenceNumber| {
            let message = backlog.get(*number);
            message.is_some_and(|message| {
                let taken_room = taken_room.as_mut();
                taken_room.is_none_or(|it| it.takes(&message)) && room.takes(&message)
            })
        };
        let ready = backlog.ready(session, self.now());
        // The one after the last is not looked at.
        let ready = ready.take(ITEMS_MAX.min(count as usize));
        let taken: Vec<SequenceNumber> = ready.take_while(|number| takes(number)).collect();
        let delivered = taken
            .into_iter()
            .map(|number| self.deliver(queue, number, mode))
            .collect();
        Ok(BusOutcome::Received(delivered))
    }

    /// Source: Service Bus, *Message deferral*.
    pub(super) fn receive_deferred(&mut self, queue: Incarnation, read: &DeferredRead) -> Answer {
        self.check_receivable(queue)?;
        let session = self.session_of_receiver(queue, read.session)?;
        // Each message once, even if it was named several times.
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
                self.expire(queue, *number);
                return Err(not_found(*number));
            }
            fitting += u64::from(room.takes(&message));
        }
        if fitting < numbers.len() as u64 {
            return Err(BusRefusal::TooMany {
                count: numbers.len() as u64,
                limit: fitting,
            });
        }
        let mode = self.mode_for_all(queue, &numbers, read.mode);
        let delivered = numbers
            .iter()
            .map(|number| self.deliver(queue, *number, mode))
            .collect();
        Ok(BusOutcome::Received(delivered))
    }

    /// The mode for messages that are received all or none.
    fn mode_for_all(
        &mut self,
        queue: Incarnation,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
    ) -> ReceiveMode {
        match mode {
            ReceiveMode::PeekLock | ReceiveMode::ReceiveAndDelete => mode,
            ReceiveMode::DeleteOnceRead => {
                let backlog = self.bus_backlog(queue);
                let messages = numbers.iter().filter_map(|number| backlog.get(*number));
                let bodies: Vec<_> = messages.flat_map(Message::bodies).collect();
                match self.pin(&bodies) {
                    true => ReceiveMode::ReceiveAndDelete,
                    false => ReceiveMode::PeekLock,
                }
            }
        }
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
        let bodies: Vec<_> = message.bodies().collect();
        let is_gone = match mode {
            ReceiveMode::ReceiveAndDelete => true,
            ReceiveMode::DeleteOnceRead => self.pin(&bodies),
            ReceiveMode::PeekLock => false,
        };
        if is_gone {
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
