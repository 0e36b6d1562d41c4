//! Messages that are sent to a topic: each becomes a copy in each subscription.
//!
//! All copies of a message have one body. The topic keeps nothing of it but its number and its id.

use std::sync::Arc;

use super::super::{BusMessage, BusRefusal, COPIES_MAX, DeadLetterCause, EntityKind, message};
use super::Turn;
use super::effects::place;
use crate::effect::{Arrival, Effect, Rest};
use crate::table::{Record, Side};
use crate::vocabulary::{BodyLocation, Incarnation, SequenceNumber, Timestamp};

/// What a copy counts for in the steps of a turn: it takes 0.4 to 1 µs.
pub(crate) const COPY_STEPS: u64 = 32;

impl Turn<'_> {
    /// How many copies of each message that is sent to an entity there will be. `None` if the entity keeps the
    /// message itself.
    pub(super) fn copies_of_each(&self, entity: Incarnation) -> Option<u64> {
        match self.kind_of(entity) {
            EntityKind::Topic => Some(self.catalogue().subscriptions_of(entity).count() as u64),
            EntityKind::Queue | EntityKind::Subscription => None,
        }
    }

    /// Copies messages that [`Turn::check_sendable`] has accepted, and returns their numbers in the topic. A duplicate
    /// is dropped, and has none.
    pub(super) fn publish(
        &mut self,
        topic: Incarnation,
        messages: &[BusMessage],
    ) -> Vec<Option<SequenceNumber>> {
        let subscriptions: Vec<_> = self.catalogue().subscriptions_of(topic).collect();
        let mut numbers = Vec::with_capacity(messages.len());
        for message in messages {
            let number = self.pass(topic, message);
            if let Some(number) = number
                && !subscriptions.is_empty()
            {
                let body = self.store_body(&message.body);
                let rest = Arc::new(of_all_copies(message, number));
                for subscription in &subscriptions {
                    self.copy(topic, *subscription, message, (body, &rest));
                }
            }
            numbers.push(number);
        }
        let copies = (messages.len() * subscriptions.len()) as u64;
        self.0.note_steps(copies * COPY_STEPS);
        numbers
    }

    /// Source: Service Bus, *Message expiration*; *Overview of dead-letter queues* (`Session id is null.`).
    fn copy(
        &mut self,
        topic: Incarnation,
        subscription: Incarnation,
        message: &BusMessage,
        (body, rest): (BodyLocation, &Arc<Rest>),
    ) {
        let now = self.now();
        let entity = self.bus(subscription);
        let session = message.session.as_deref();
        let cause = (entity.requires_session() && session.is_none())
            .then_some(DeadLetterCause::SessionIdIsNull);
        let lives = [self.bus(topic), entity].map(|it| it.options.default_time_to_live_ms);
        let lives_ms = lives.into_iter().chain(message.time_to_live_ms).min();
        let (to, expires_at) = match cause {
            // A dead letter does not expire.
            Some(_) => (subscription.next(), Timestamp::NEVER),
            None => (subscription, now.plus_ms(lives_ms.unwrap_or(u64::MAX))),
        };
        let backlog = self.bus_backlog(to);
        let record = Record {
            session: session.map_or(0, |id| backlog.sessions.number_for(id)),
            cause,
            ..message::sent(now, expires_at, None, body)
        };
        let message = Arrival {
            record,
            rest: Some(Arc::clone(rest)),
        };
        let to = place(to, backlog.next());
        self.emit_bus_effect(Effect::Arrived { to, message });
    }
}

/// What all copies of a message have that took this number of its topic.
fn of_all_copies(message: &BusMessage, number: SequenceNumber) -> Rest {
    Rest {
        side: Side {
            first_number: Some(number),
            ..Side::default()
        },
        session: message.session.clone(),
        id_hash: None,
    }
}

/// Refuses more copies than one command may make.
pub(super) fn check_copies(
    messages: &[BusMessage],
    of_each: Option<u64>,
) -> Result<(), BusRefusal> {
    let (count, limit) = (messages.len() as u64, COPIES_MAX as u64);
    let copies = count.saturating_mul(of_each.unwrap_or_default());
    if copies > limit {
        return Err(BusRefusal::TooManyCopies { copies, limit });
    }
    Ok(())
}
