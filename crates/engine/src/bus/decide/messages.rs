//! Sending, peeking, cancelling and deleting messages.

use super::super::message::{self, Message};
use super::super::role::Role;
use super::super::room::{AnswerRoom, LOOKED_AT_MAX, TakenRoom};
use super::super::{
    BatchDeleted, BusMessage, BusMessageState, BusOutcome, BusRefusal, EntityKind, ITEMS_MAX,
    PeekedBusMessage,
};
use super::effects::place;
use super::{Answer, Turn};
use crate::bus::Effect;
use crate::effect::{Arrival, Rest};
use crate::table::MESSAGE_OVERHEAD_BYTES;
use crate::vocabulary::{Hold, Incarnation, SequenceNumber, Timestamp};

impl Turn<'_> {
    /// Sends all messages or none. A duplicate is accepted and dropped.
    ///
    /// Source: Service Bus, *Message transfers, locks, and settlement*; *Duplicate detection*.
    pub(super) fn bus_send(&mut self, queue: Incarnation, messages: Vec<BusMessage>) -> Answer {
        Ok(BusOutcome::Sent(match self.kind_of(queue) {
            EntityKind::Topic => self.publish(queue, &messages)?,
            EntityKind::Queue | EntityKind::Subscription => {
                let size_bytes = self.size_bytes(self.first_of(queue));
                self.check_sendable(queue, &messages, size_bytes)?;
                self.send_checked(queue, messages)
            }
        }))
    }

    /// Sends messages that [`Turn::check_sendable`] has accepted.
    pub(super) fn send_checked(
        &mut self,
        queue: Incarnation,
        messages: Vec<BusMessage>,
    ) -> Vec<Option<SequenceNumber>> {
        let now = self.now();
        let mut numbers = Vec::with_capacity(messages.len());
        for message in messages {
            let options = &self.bus(queue).options;
            let lives_ms = message
                .time_to_live_ms
                .map_or(options.default_time_to_live_ms, |own| {
                    own.min(options.default_time_to_live_ms)
                });
            let Ok(id_hash) = self.id_hash(queue, message.message_id.as_deref()) else {
                self.0.tally_duplicate(queue);
                numbers.push(None);
                continue;
            };
            let scheduled_at = message.scheduled_at.filter(|at| !at.has_passed(now));
            let sequence_number = self.bus_backlog(queue).next();
            let body = self.store_body(&message.body);
            let body = match self.bus(queue).role {
                // Its copies are going to have it, too.
                Role::Topic => body.with(Hold::Lends),
                Role::Queue
                | Role::Subscription { .. }
                | Role::DeadLetters { .. }
                | Role::FailedTransfers { .. } => body,
            };
            let session = message.session.as_deref();
            let expires_at = scheduled_at.unwrap_or(now).plus_ms(lives_ms);
            let session = session.map(|id| self.session_named(queue, id));
            let rest = Rest {
                id_hash,
                ..Rest::default()
            };
            let record = message::sent(now, expires_at, scheduled_at, body);
            self.emit_bus_effect(Effect::Arrived {
                to: place(queue, sequence_number),
                message: Arrival::new(record, session, rest),
            });
            numbers.push(Some(sequence_number));
        }
        numbers
    }

    /// Returns the size of the queue with these messages, given its size without them, or why the queue does
    /// not accept them. In a topic each message counts once: what its copies add is checked no more, because an accepted
    /// message reaches all subscriptions.
    pub(super) fn check_sendable(
        &self,
        queue: Incarnation,
        messages: &[BusMessage],
        mut size_bytes: u64,
    ) -> Result<u64, BusRefusal> {
        let entity = self.bus(queue);
        let name = || entity.name.name.clone();
        self.check_takes_sends(queue)?;
        if !entity.options.status.allows_send() {
            return Err(BusRefusal::Disabled { queue: name() });
        }
        let limit_bytes = entity.options.message_size_bytes_max;
        for message in messages {
            let own_bytes = message.body.len() as u64;
            if own_bytes > limit_bytes {
                return Err(BusRefusal::MessageTooLarge {
                    size_bytes: own_bytes,
                    limit_bytes,
                });
            }
            if entity.requires_session() && message.session.is_none() {
                return Err(BusRefusal::SessionRequired);
            }
            let id_bytes = entity.remembered_size_bytes(message.message_id.as_deref());
            size_bytes = size_bytes.saturating_add(own_bytes + MESSAGE_OVERHEAD_BYTES + id_bytes);
        }
        let limit_bytes = entity.options.size_bytes_max;
        if size_bytes > limit_bytes {
            return Err(BusRefusal::QuotaExceeded {
                size_bytes,
                limit_bytes,
            });
        }
        Ok(size_bytes)
    }

    /// Source: Service Bus, *Message browsing*.
    pub(super) fn bus_peek(
        &mut self,
        queue: Incarnation,
        from: SequenceNumber,
        count: u32,
        session: Option<&str>,
    ) -> Answer {
        let backlog = self.bus_backlog(queue);
        let session = match session {
            None => None,
            Some(id) => match backlog.sessions.find(id) {
                Some((number, _)) => Some(number),
                None => return Ok(BusOutcome::Peeked(Vec::new())),
            },
        };
        let mut room = AnswerRoom::new(count);
        let messages = backlog
            .walk(session, from)
            .take(ITEMS_MAX.min(count as usize))
            .take_while(|message| room.takes(message))
            .map(peeked);
        Ok(BusOutcome::Peeked(messages.collect()))
    }

    /// Source: Service Bus, AMQP request/response, *Cancel scheduled message*.
    pub(super) fn cancel_scheduled(
        &mut self,
        queue: Incarnation,
        numbers: &[SequenceNumber],
    ) -> Answer {
        for number in numbers {
            let message = self.bus_backlog(queue).get(*number);
            if message.is_none_or(|message| message.state != BusMessageState::Scheduled) {
                return Err(not_found(*number));
            }
        }
        for number in numbers {
            self.remove(queue, *number);
        }
        Ok(BusOutcome::Cancelled)
    }

    /// Deletes ready messages. Locked messages and later messages stay. Looks at a bounded number of
    /// messages, and returns where to continue if it has not reached the end.
    ///
    /// Source: Service Bus, AMQP request/response, *Batch delete messages*.
    pub(super) fn delete_batch(
        &mut self,
        queue: Incarnation,
        from: SequenceNumber,
        before: Timestamp,
        count: u32,
        session: Option<&str>,
    ) -> Answer {
        self.check_receivable(queue)?;
        let backlog = self.bus_backlog(queue);
        let mut deleted = BatchDeleted::default();
        let session = match session {
            None => None,
            Some(id) => match backlog.sessions.find(id) {
                Some((number, _)) => Some(number),
                None => return Ok(BusOutcome::BatchDeleted(deleted)),
            },
        };
        let now = self.now();
        let count = ITEMS_MAX.min(count as usize);
        let mut gone: Vec<SequenceNumber> = Vec::new();
        let mut room = TakenRoom::new(count);
        // Later messages have higher numbers. Those of a run that came later are not even read.
        let walk = backlog.walk_seen(session, from);
        let walk = walk.take_while(|(number, _)| !backlog.came_from(*number, before));
        for (looked_at, (number, _)) in walk.enumerate() {
            let message = backlog.get(number);
            let Some(message) = message.filter(|message| message.enqueued_at < before) else {
                break;
            };
            if looked_at == LOOKED_AT_MAX || gone.len() == count {
                deleted.next = Some(number);
                break;
            }
            let is_there = !message.expires_at.has_passed(now);
            if message.state != BusMessageState::Ready || !is_there {
                continue;
            }
            if !room.takes(&message) {
                deleted.next = Some(number);
                break;
            }
            gone.push(number);
        }
        deleted.count = u32::try_from(gone.len()).unwrap_or(u32::MAX);
        for sequence_number in gone {
            self.remove(queue, sequence_number);
        }
        Ok(BusOutcome::BatchDeleted(deleted))
    }
}

pub(super) fn not_found(number: SequenceNumber) -> BusRefusal {
    BusRefusal::MessageNotFound {
        sequence_number: number.as_u64(),
    }
}

pub(super) fn peeked(message: Message<'_>) -> PeekedBusMessage {
    PeekedBusMessage {
        sequence_number: message.number(),
        first_sequence_number: message.first_number(),
        enqueued_at: message.enqueued_at,
        expires_at: message.expires_at,
        due_at: message.due_at,
        delivery_count: message.deliveries,
        state: message.state,
        cause: message.cause,
        dead_letter_source: message.source().cloned(),
        body: message.body,
        overlays: message.overlays().to_vec(),
    }
}
