//! Due things of a bus queue: locks and schedules end, messages expire or are forwarded, idle queues are
//! deleted.

use super::super::message::Message;
use super::super::queue::Role;
use super::super::{BusFact, BusMessageState, DeadLetterCause, Release};
use crate::decide::Turn;
use crate::{BodyLocation, EntityName, Incarnation, SequenceNumber, Timestamp};

/// How often a message is forwarded. The next time it becomes a dead letter.
///
/// Source: Service Bus, *Moving messages to the dead-letter queue* (four hops).
const HOPS_MAX: u8 = 4;

impl Turn<'_> {
    /// Turns at most `budget` due things of an entity into facts. Returns whether more may be due.
    pub(crate) fn do_due(&mut self, queue: Incarnation, budget: u32) -> bool {
        for _ in 0..budget {
            if !self.do_next_due(queue) {
                return false;
            }
        }
        true
    }

    /// Carries out one due thing. Returns whether there was one.
    fn do_next_due(&mut self, queue: Incarnation) -> bool {
        let now = self.now();
        let Some(entity) = self.state().bus.get(&queue) else {
            return false;
        };
        let backlog = &entity.backlog;
        if let Some(session) = backlog.sessions.ended_lock(now) {
            self.free_one(queue, session);
            return true;
        }
        if let Some((number, message)) = backlog.due(now) {
            match message.state {
                BusMessageState::Scheduled => self.activate(queue, number),
                // Only locked and scheduled messages can be due.
                BusMessageState::Locked { .. }
                | BusMessageState::Ready
                | BusMessageState::Deferred => self.fail_delivery(queue, number, None),
            }
            return true;
        }
        if let Some(number) = backlog.expired(now) {
            self.expire(queue, number);
            return true;
        }
        if self.forward_one(queue) {
            return true;
        }
        if entity_is_idle(
            self.state().bus.get(&queue).and_then(|e| e.idle_deadline()),
            now,
        ) {
            self.emit_bus(BusFact::QueueDeleted { queue });
            return true;
        }
        false
    }

    /// Takes one step towards freeing a session whose lock has ended. Each step fails one of its deliveries;
    /// the last one frees the session.
    fn free_one(&mut self, queue: Incarnation, session: u32) {
        let sessions = &self.bus_backlog(queue).sessions;
        let locked = sessions
            .get(session)
            .and_then(|it| it.locked.first().copied());
        match locked {
            Some(number) => self.fail_delivery(queue, number, None),
            None => {
                let session = self.session_id(queue, session);
                self.emit_bus(BusFact::SessionReleased { queue, session });
            }
        }
    }

    /// Fails a delivery: the message is ready again, or a dead letter if it failed too often.
    pub(super) fn fail_delivery(
        &mut self,
        queue: Incarnation,
        sequence_number: SequenceNumber,
        overlay: Option<BodyLocation>,
    ) {
        let entity = self.bus(queue);
        let max = entity.options.max_delivery_count;
        let message = entity.backlog.get(sequence_number);
        let is_last =
            message.is_some_and(|message| message.delivery_count.saturating_add(1) >= max);
        if is_last && entity.role == Role::Queue {
            let cause = DeadLetterCause::MaxDeliveryCountExceeded;
            self.bury(queue, sequence_number, cause, overlay);
        } else {
            self.emit_bus(BusFact::Released {
                queue,
                sequence_number,
                release: Release::Failed,
                overlay,
            });
        }
    }

    /// Makes a message a dead letter, or makes a dead letter that cannot be forwarded a failed transfer. In
    /// both cases it moves to the next incarnation.
    pub(super) fn bury(
        &mut self,
        queue: Incarnation,
        sequence_number: SequenceNumber,
        cause: DeadLetterCause,
        overlay: Option<BodyLocation>,
    ) {
        let to = queue.next();
        let to_sequence_number = self.bus_backlog(to).next();
        self.emit_bus(BusFact::Moved {
            queue,
            sequence_number,
            to,
            to_sequence_number,
            cause: Some(cause),
            overlay,
        });
    }

    /// Ends a message's time to live.
    pub(super) fn expire(&mut self, queue: Incarnation, sequence_number: SequenceNumber) {
        let entity = self.bus(queue);
        if entity.options.dead_letters_expired && entity.role == Role::Queue {
            self.bury(queue, sequence_number, DeadLetterCause::Expired, None);
        } else {
            self.emit_bus(BusFact::Removed {
                queue,
                sequence_number,
            });
        }
    }

    fn activate(&mut self, queue: Incarnation, scheduled: SequenceNumber) {
        let backlog = self.bus_backlog(queue);
        let sequence_number = backlog.next();
        let now = self.now();
        let expires_at = backlog.get(scheduled).map_or(Timestamp::NEVER, |message| {
            if message.expires_at == Timestamp::NEVER {
                return Timestamp::NEVER;
            }
            let lives_ms = message
                .expires_at
                .as_ms()
                .saturating_sub(message.due_at.as_ms());
            now.plus_ms(lives_ms)
        });
        self.emit_bus(BusFact::Activated {
            queue,
            scheduled,
            sequence_number,
            expires_at,
        });
    }

    /// Forwards the first ready message of an entity that forwards.
    fn forward_one(&mut self, queue: Incarnation) -> bool {
        let now = self.now();
        let entity = self.bus(queue);
        let Some(destination) = entity.destination() else {
            return false;
        };
        let Some(sequence_number) = entity.backlog.next_to_forward(now) else {
            return false;
        };
        let destination = EntityName {
            name: destination.into(),
            ..entity.name.clone()
        };
        let Some(message) = entity.backlog.get(sequence_number) else {
            return false;
        };
        let destination = if message.hops < HOPS_MAX {
            self.room_at(&destination, queue, message)
        } else {
            Err(DeadLetterCause::MaxTransferHopCountExceeded)
        };
        let cause = match destination {
            Ok(to) => {
                let to_sequence_number = self.bus_backlog(to).next();
                self.emit_bus(BusFact::Moved {
                    queue,
                    sequence_number,
                    to,
                    to_sequence_number,
                    cause: None,
                    overlay: None,
                });
                return true;
            }
            Err(cause) => cause,
        };
        self.bury(queue, sequence_number, cause, None);
        true
    }

    /// The destination, or the reason why it does not accept the message.
    fn room_at(
        &self,
        destination: &EntityName,
        from: Incarnation,
        message: &Message,
    ) -> Result<Incarnation, DeadLetterCause> {
        let to = self.state().catalogue.get(destination).copied();
        let entity = to.and_then(|to| self.state().bus.get(&to));
        let (Some(to), Some(entity)) = (to, entity) else {
            return Err(DeadLetterCause::DestinationUnavailable);
        };
        // A message that is forwarded to its own queue frees the room it takes.
        let fits = self.first_of(from) == to
            || self.size_bytes(to).saturating_add(message.size_bytes())
                <= entity.options.size_bytes_max;
        if entity.role != Role::Queue || !entity.options.status.allows_send() || !fits {
            return Err(DeadLetterCause::DestinationUnavailable);
        }
        if entity.requires_session() && message.session == 0 {
            return Err(DeadLetterCause::SessionIdIsNull);
        }
        Ok(to)
    }
}

fn entity_is_idle(deadline: Option<Timestamp>, now: Timestamp) -> bool {
    deadline.is_some_and(|deadline| deadline.has_passed(now))
}
