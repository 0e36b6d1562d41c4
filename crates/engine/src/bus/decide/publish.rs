//! Messages that are sent to a topic: each becomes a copy in each subscription.
//!
//! All copies of a message have one body. The topic keeps nothing of it.

use super::super::{BusMessage, BusRefusal, COPIES_MAX, DeadLetterCause, EntityKind, message};
use super::Turn;
use super::effects::place;
use crate::effect::{Arrival, Effect, Rest};
use crate::vocabulary::{BodyLocation, Incarnation, SequenceNumber, Timestamp};

impl Turn<'_> {
    /// How many copies of each message that is sent to an entity there will be. `None` if the entity keeps the
    /// message itself.
    pub(super) fn copies_of_each(&self, entity: Incarnation) -> Option<u64> {
        match self.kind_of(entity) {
            EntityKind::Topic => Some(self.catalogue().subscriptions_of(entity).count() as u64),
            EntityKind::Queue | EntityKind::Subscription => None,
        }
    }

    /// Copies messages that [`Turn::check_sendable`] has accepted. They have no numbers in the topic.
    pub(super) fn publish(
        &mut self,
        topic: Incarnation,
        messages: &[BusMessage],
    ) -> Vec<Option<SequenceNumber>> {
        let subscriptions = self.catalogue().subscriptions_of(topic);
        // One whose rule was removed gets nothing.
        let has_rule = |it: &Incarnation| self.bus(*it).rule.is_some();
        let subscriptions: Vec<_> = subscriptions.filter(has_rule).collect();
        if !subscriptions.is_empty() {
            for message in messages {
                let body = self.store_body(&message.body);
                for subscription in &subscriptions {
                    self.copy(topic, *subscription, message, body);
                }
            }
        }
        self.0
            .note_steps((messages.len() * subscriptions.len()) as u64);
        vec![None; messages.len()]
    }

    /// Source: Service Bus, *Message expiration*; *Overview of dead-letter queues* (`Session id is null.`).
    fn copy(
        &mut self,
        topic: Incarnation,
        subscription: Incarnation,
        message: &BusMessage,
        body: BodyLocation,
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
        let rest = Rest {
            session: session.map(|id| self.session_named(to, id)),
            ..Rest::default()
        };
        let mut record = message::sent(now, expires_at, None, body);
        record.cause = cause;
        let to = place(to, self.bus_backlog(to).next());
        self.emit_bus_effect(Effect::Arrived {
            to,
            message: Arrival::new(record, rest),
        });
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
