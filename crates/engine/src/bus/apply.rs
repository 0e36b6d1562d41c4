//! How facts change bus queues. Total: a fact that no longer fits changes nothing.

use std::sync::Arc;

use kew_planted::{Bug, is_planted};

use super::message::Message;
use super::queue::{BusQueue, Role, sub_queue_names};
use super::{BusFact, BusMessageState, BusQueueOptions, DeadLetterCause, Release};
use crate::{
    BodyLocation, EntityName, Incarnation, LeaseGeneration, SequenceNumber, State, Timestamp,
};

impl State {
    pub(crate) fn apply_bus(&mut self, at: Timestamp, fact: BusFact) {
        let queue = fact.entity();
        let other = fact.other_entity();
        self.apply_bus_fact(at, fact);
        self.note_bus_deadline(queue);
        if let Some(other) = other {
            self.note_bus_deadline(other);
        }
    }

    fn apply_bus_fact(&mut self, at: Timestamp, fact: BusFact) {
        match fact {
            BusFact::QueueCreated {
                queue,
                name,
                options,
            } => self.create_bus_queue(queue, &name, &options, at),
            BusFact::QueueUpdated {
                queue,
                options,
                ids_from,
            } => self.update_bus_queue(queue, &options, ids_from, at),
            BusFact::QueueDeleted { queue } => self.delete_bus_queue(queue),
            BusFact::Moved {
                queue,
                sequence_number,
                to,
                to_sequence_number,
                cause,
                overlay,
            } => self.move_message(
                at,
                (queue, sequence_number),
                (to, to_sequence_number),
                cause,
                overlay,
            ),
            BusFact::Resubmitted {
                queue,
                sequence_number,
                to,
                to_sequence_number,
                ..
            } => {
                let is_there = self
                    .bus
                    .get(&queue)
                    .and_then(|it| it.backlog.get(sequence_number));
                if is_there.is_none() || !self.bus.contains_key(&to) {
                    return;
                }
                let delivery_count = is_there.map_or(0, |message| message.delivery_count);
                if let Some(from) = self.bus.get_mut(&queue) {
                    from.used_at = at;
                    if !is_planted(Bug::BusResubmittedTwice) {
                        from.backlog.remove(sequence_number);
                    }
                }
                if let Some(to_queue) = self.bus.get_mut(&to) {
                    to_queue.apply(at, fact.into_arrival());
                    if is_planted(Bug::BusResubmittedKeepsCount) {
                        to_queue.backlog.change(to_sequence_number, |message| {
                            message.delivery_count = delivery_count;
                        });
                    }
                }
            }
            BusFact::Sent { queue, .. }
            | BusFact::Activated { queue, .. }
            | BusFact::Locked { queue, .. }
            | BusFact::LockRenewed { queue, .. }
            | BusFact::Released { queue, .. }
            | BusFact::Removed { queue, .. }
            | BusFact::SessionLocked { queue, .. }
            | BusFact::SessionRenewed { queue, .. }
            | BusFact::SessionReleased { queue, .. }
            | BusFact::SessionStateSet { queue, .. }
            | BusFact::Used { queue } => {
                if let Some(queue) = self.bus.get_mut(&queue) {
                    queue.apply(at, fact);
                }
            }
        }
    }

    fn create_bus_queue(
        &mut self,
        queue: Incarnation,
        name: &EntityName,
        options: &BusQueueOptions,
        at: Timestamp,
    ) {
        let last = queue.next().next();
        if queue < self.next_incarnation || last.as_u64() >> Incarnation::BITS > 0 {
            return;
        }
        let [dead_letters, failed_transfers] = sub_queue_names(name);
        let (second, third) = (queue.next(), queue.next().next());
        self.next_incarnation = third.next();
        for (incarnation, name, role) in [
            (queue, name.clone(), Role::Queue),
            (second, dead_letters, Role::DeadLetters { of: queue }),
            (third, failed_transfers, Role::FailedTransfers { of: queue }),
        ] {
            // In a damaged history the deletion of an earlier queue of that name may be missing.
            if let Some(&earlier) = self.catalogue.get(&name) {
                self.remove_bus(earlier);
            }
            self.catalogue.insert(name.clone(), incarnation);
            let entity = BusQueue::new(name, role, options.clone(), at);
            self.bus.insert(incarnation, entity);
        }
    }

    fn update_bus_queue(
        &mut self,
        queue: Incarnation,
        options: &BusQueueOptions,
        ids_from: Timestamp,
        at: Timestamp,
    ) {
        for incarnation in queue.with_sub_queues() {
            if let Some(entity) = self.bus.get_mut(&incarnation) {
                entity.duplicates.keep_from(ids_from);
                entity.options = options.clone();
                entity.updated_at = at;
                entity.used_at = at;
            }
            self.note_bus_deadline(incarnation);
        }
    }

    fn delete_bus_queue(&mut self, queue: Incarnation) {
        for incarnation in queue.with_sub_queues() {
            if is_planted(Bug::BusDeadLettersLeft) && incarnation != queue {
                continue;
            }
            self.remove_bus(incarnation);
        }
    }

    fn move_message(
        &mut self,
        at: Timestamp,
        (queue, sequence_number): (Incarnation, SequenceNumber),
        (to, to_sequence_number): (Incarnation, SequenceNumber),
        cause: Option<DeadLetterCause>,
        overlay: Option<BodyLocation>,
    ) {
        if !self.bus.contains_key(&to) {
            return;
        }
        let Some(from) = self.bus.get_mut(&queue) else {
            return;
        };
        from.used_at = at;
        let session = from.backlog.get(sequence_number);
        let session = session.and_then(|message| from.backlog.sessions.get(message.session));
        let source_of = match from.role {
            Role::DeadLetters { of } => Some(of),
            Role::Queue | Role::FailedTransfers { .. } => None,
        };
        // Read before the message goes: its session may go with it.
        let session: Option<Box<str>> = session.map(|session| session.id.clone());
        let known = if is_planted(Bug::BusMovedTwice) {
            from.backlog.get(sequence_number).cloned()
        } else {
            from.backlog.remove(sequence_number)
        };
        let Some(mut message) = known else {
            return;
        };
        let source = source_of.and_then(|queue| self.bus.get(&queue));
        let source: Option<Arc<str>> = source.map(|queue| (*queue.name.name).into());
        let Some(entity) = self.bus.get_mut(&to) else {
            return;
        };
        entity.used_at = at;
        message.session = session.map_or(0, |id| entity.backlog.sessions.number(&id));
        message.state = BusMessageState::Ready;
        message.due_at = Timestamp::NEVER;
        message.enqueued_at = at;
        message
            .overlays
            .extend(overlay.filter(|_| !is_planted(Bug::BusChangeDropped)));
        if cause == Some(DeadLetterCause::MaxDeliveryCountExceeded) {
            message.delivery_count = message.delivery_count.saturating_add(1);
        }
        if cause.is_some() {
            // A dead letter does not expire.
            message.expires_at = Timestamp::NEVER;
            message.cause = cause;
        } else {
            if !is_planted(Bug::BusHopsNotCounted) {
                message.hops = message.hops.saturating_add(1);
            }
            message.delivery_count = 0;
            if source.is_some() {
                message.dead_letter_source = source;
            }
        }
        if is_planted(Bug::BusDeadLetterDoubled)
            && cause == Some(DeadLetterCause::MaxDeliveryCountExceeded)
        {
            let second = to_sequence_number.next();
            entity.backlog.push(to_sequence_number, message.clone());
            entity.backlog.push(second, message);
            return;
        }
        entity.backlog.push(to_sequence_number, message);
    }

    /// Keeps the ordered set of deadlines in step with a bus queue.
    pub(crate) fn note_bus_deadline(&mut self, incarnation: Incarnation) {
        let Some(entity) = self.bus.get_mut(&incarnation) else {
            return;
        };
        let deadline = entity.next_deadline();
        if deadline != entity.deadline {
            if let Some(old) = entity.deadline {
                self.deadlines.remove(&(old, incarnation));
            }
            if let Some(new) = deadline {
                self.deadlines.insert((new, incarnation));
            }
            entity.deadline = deadline;
        }
    }
}

impl BusQueue {
    /// Applies a fact that changes nothing but this queue.
    fn apply(&mut self, at: Timestamp, fact: BusFact) {
        self.used_at = at;
        match fact {
            BusFact::Sent {
                sequence_number,
                expires_at,
                scheduled_at,
                session,
                id_hash,
                body,
                ..
            } => {
                if let (Some(hash), Some(window_ms)) = (id_hash, self.options.duplicate_window_ms) {
                    self.duplicates.note(hash, window_ms, at);
                }
                self.push(
                    at,
                    sequence_number,
                    (expires_at, scheduled_at),
                    session,
                    body,
                );
            }
            BusFact::Activated {
                scheduled,
                sequence_number,
                expires_at,
                ..
            } => {
                let Some(message) = self.backlog.get(scheduled).cloned() else {
                    return;
                };
                // Fill the new place first, or a session of this message alone would be forgotten.
                let message = Message {
                    enqueued_at: at,
                    expires_at,
                    due_at: Timestamp::NEVER,
                    state: BusMessageState::Ready,
                    first_sequence_number: sequence_number,
                    ..message
                };
                self.backlog.push(sequence_number, message);
                self.backlog.remove(scheduled);
            }
            BusFact::Locked {
                sequence_number,
                until,
                ..
            } => self.backlog.change(sequence_number, |message| {
                message.generation = message.generation.next();
                message.due_at = until;
                message.state = BusMessageState::Locked {
                    deferred: message.state == BusMessageState::Deferred,
                };
            }),
            BusFact::LockRenewed {
                sequence_number,
                until,
                ..
            } => self
                .backlog
                .change(sequence_number, |message| message.due_at = until),
            BusFact::Released {
                sequence_number,
                release,
                overlay,
                ..
            } => self.backlog.change(sequence_number, |message| {
                message.release(release, overlay);
            }),
            BusFact::Removed {
                sequence_number, ..
            } => {
                self.backlog.remove(sequence_number);
                if is_planted(Bug::BusNumberReused) && sequence_number.next() == self.backlog.next()
                {
                    self.backlog.set_next(sequence_number);
                }
            }
            BusFact::SessionLocked { session, until, .. } => {
                let sessions = &mut self.backlog.sessions;
                let number = sessions.number(&session);
                sessions.change(number, |session| {
                    session.generation = session.generation.next();
                    session.locked_until = until;
                });
            }
            BusFact::SessionRenewed { session, until, .. } => self
                .backlog
                .sessions
                .change_named(&session, |session| session.locked_until = until),
            BusFact::SessionReleased { session, .. } => self.release_session(&session),
            BusFact::SessionStateSet { session, state, .. } => {
                let sessions = &mut self.backlog.sessions;
                let number = sessions.number(&session);
                sessions.change(number, |session| {
                    session.state = state;
                    session.state_set_at = at;
                });
            }
            // Every fact sets the time of use. This one changes nothing else.
            BusFact::Used { .. } => {}
            // These facts concern several entities: `State::apply_bus_fact` applies them.
            BusFact::QueueCreated { .. }
            | BusFact::QueueUpdated { .. }
            | BusFact::QueueDeleted { .. }
            | BusFact::Moved { .. }
            | BusFact::Resubmitted { .. } => {}
        }
    }

    fn release_session(&mut self, session: &str) {
        let sessions = &mut self.backlog.sessions;
        let Some((number, found)) = sessions.find(session) else {
            return;
        };
        let locked = found.locked.clone();
        sessions.change(number, |session| session.locked_until = Timestamp::ZERO);
        for sequence_number in locked {
            let release = if is_planted(Bug::BusReleaseCounts) {
                Release::Failed
            } else {
                Release::Unseen
            };
            self.backlog.change(sequence_number, |message| {
                message.release(release, None);
            });
        }
    }

    fn push(
        &mut self,
        at: Timestamp,
        sequence_number: SequenceNumber,
        (expires_at, scheduled_at): (Timestamp, Timestamp),
        session: Option<Box<str>>,
        body: BodyLocation,
    ) {
        let is_scheduled = scheduled_at != Timestamp::ZERO;
        let session = session.map_or(0, |id| self.backlog.sessions.number(&id));
        let message = Message {
            enqueued_at: at,
            expires_at,
            due_at: if is_scheduled {
                scheduled_at
            } else {
                Timestamp::NEVER
            },
            first_sequence_number: sequence_number,
            body,
            generation: LeaseGeneration::default(),
            delivery_count: 0,
            state: if is_scheduled {
                BusMessageState::Scheduled
            } else {
                BusMessageState::Ready
            },
            cause: None,
            hops: 0,
            session,
            dead_letter_source: None,
            overlays: Vec::new(),
        };
        self.backlog.push(sequence_number, message);
    }
}

impl Message {
    fn release(&mut self, release: Release, overlay: Option<BodyLocation>) {
        let was_deferred = self.state == BusMessageState::Locked { deferred: true }
            && !is_planted(Bug::BusDeferralForgotten);
        let is_deferred = release == Release::Deferred && !is_planted(Bug::BusDeferredDelivered);
        self.state = if was_deferred || is_deferred {
            BusMessageState::Deferred
        } else {
            BusMessageState::Ready
        };
        self.due_at = Timestamp::NEVER;
        if release == Release::Failed && !is_planted(Bug::BusFailureNotCounted) {
            self.delivery_count = self.delivery_count.saturating_add(1);
        }
        if is_planted(Bug::BusExpiryForgotten) {
            self.expires_at = Timestamp::NEVER;
        }
        self.overlays.extend(overlay);
    }
}
