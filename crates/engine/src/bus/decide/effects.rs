//! What decisions do to single messages. Each function emits effects that say what the message counts for.

use super::super::message::Message;
use super::super::role::Role;
use super::super::rules::TopicTally;
use super::super::{DeadLetterCause, Release};
use super::Turn;
use crate::bus::Effect;
use crate::effect::{Arrival, BusSession, Lease};
use crate::vocabulary::{BodyLocation, Incarnation, Place, SequenceNumber, Timestamp};

impl Turn<'_> {
    /// Removes a message. Nothing happens if there is none.
    pub(super) fn remove(&mut self, queue: Incarnation, number: SequenceNumber) {
        let at = place(queue, number);
        let message = self.bus_backlog(queue).get(number);
        let Some(effect) = message.map(|message| message.ended(at)) else {
            return;
        };
        self.emit_bus_effect(effect);
    }

    /// Changes a message's lease, and its properties if there is a change. Nothing happens if there is no
    /// message.
    pub(super) fn lease(
        &mut self,
        queue: Incarnation,
        number: SequenceNumber,
        overlay: Option<BodyLocation>,
        lease: impl FnOnce(&Message<'_>) -> Lease,
    ) {
        let at = place(queue, number);
        let message = self.bus_backlog(queue).get(number);
        let effect = message.map(|message| message.leased(at, lease(&message), overlay));
        if let Some(effect) = effect {
            self.emit_bus_effect(effect);
        }
    }

    /// Ends a message's lock in this way. The message stays in its queue.
    pub(super) fn release(
        &mut self,
        queue: Incarnation,
        number: SequenceNumber,
        release: Release,
        overlay: Option<BodyLocation>,
    ) {
        self.lease(queue, number, overlay, |message| message.released(release));
    }

    /// The session of that id in an entity: the one there is, or a new one.
    pub(super) fn session_named(&self, queue: Incarnation, id: &str) -> BusSession {
        self.bus_backlog(queue).sessions.named(id)
    }

    /// Makes a message a dead letter, or makes a dead letter that cannot be forwarded a failed transfer. In
    /// both cases it moves to the next incarnation.
    pub(super) fn bury(
        &mut self,
        queue: Incarnation,
        number: SequenceNumber,
        cause: DeadLetterCause,
        overlay: Option<BodyLocation>,
    ) {
        let to = queue.next();
        let Some(mut message) = self.arriving(queue, number, to) else {
            return;
        };
        if let Some(overlay) = overlay {
            message = message.with(|rest| rest.side.overlays.push(overlay));
        }
        let record = &mut message.record;
        if cause == DeadLetterCause::MaxDeliveryCountExceeded {
            record.deliveries = record.deliveries.saturating_add(1);
        }
        // A dead letter does not expire.
        record.expires_at = Timestamp::NEVER;
        record.cause = Some(cause);
        self.transfer(queue, number, to, message);
    }

    /// Forwards a message. It comes with the hash of its id, if the destination is going to remember that.
    pub(super) fn forward(
        &mut self,
        queue: Incarnation,
        number: SequenceNumber,
        to: Incarnation,
        id_hash: Option<u128>,
    ) {
        let Some(mut message) = self.arriving(queue, number, to) else {
            return;
        };
        if self.bus(to).role == Role::Topic {
            let in_topic = self.life_in_topic(to, self.now(), None);
            message.record.expires_at = message.record.expires_at.min(in_topic);
            let tally = TopicTally {
                published: 1,
                ..TopicTally::default()
            };
            self.0.tally_topic(to, &tally);
        }
        if id_hash.is_some() {
            message = message.with(|rest| rest.id_hash = id_hash);
        }
        message.record.hops = message.record.hops.saturating_add(1);
        message.record.deliveries = 0;
        if let Some(of) = self.bus(queue).role.dead_letters_of() {
            let source = self.queues().get(&of);
            let source = source.map(|source| (*source.name.name).into());
            message = message.with(|rest| rest.side.source = source.or(rest.side.source.take()));
        }
        self.transfer(queue, number, to, message);
    }

    /// The message as it comes, ready, to another entity.
    pub(super) fn arriving(
        &self,
        queue: Incarnation,
        number: SequenceNumber,
        to: Incarnation,
    ) -> Option<Arrival> {
        let backlog = self.bus_backlog(queue);
        let message = backlog.get(number)?;
        let session = backlog.sessions.get(message.session);
        let session = session.map(|session| self.session_named(to, &session.id));
        Some(message.arriving(self.now(), session))
    }

    /// Adds the message at the tail of an entity, and ends it where it was.
    pub(super) fn transfer(
        &mut self,
        queue: Incarnation,
        number: SequenceNumber,
        to: Incarnation,
        message: Arrival,
    ) {
        let at = place(queue, number);
        let to = place(to, self.bus_backlog(to).next());
        let ended = self.bus_backlog(queue).get(number).map(|it| it.ended(at));
        self.emit_bus_effect(Effect::Arrived { to, message });
        if let Some(ended) = ended {
            self.emit_bus_effect(ended);
        }
    }

    /// Ends a message's schedule: it is ready, with a new number, at the tail.
    pub(super) fn activate(&mut self, queue: Incarnation, scheduled: SequenceNumber) {
        let now = self.now();
        let number = self.bus_backlog(queue).next();
        let known = self.bus_backlog(queue).get(scheduled);
        let (Some(known), Some(message)) = (known, self.arriving(queue, scheduled, queue)) else {
            return;
        };
        let expires_at = match known.expires_at {
            Timestamp::NEVER => Timestamp::NEVER,
            expires_at => {
                let lives_ms = expires_at.as_ms().saturating_sub(known.due_at.as_ms());
                now.plus_ms(lives_ms)
            }
        };
        let mut message = message.with(|rest| rest.side.first_number = None);
        message.record.expires_at = expires_at;
        let ended = known.ended(place(queue, scheduled));
        // The new place comes first, or a session of this message alone would be forgotten.
        let to = place(queue, number);
        self.emit_bus_effect(Effect::Arrived { to, message });
        self.emit_bus_effect(ended);
    }
}

pub(super) fn place(entity: Incarnation, number: SequenceNumber) -> Place {
    Place { entity, number }
}
