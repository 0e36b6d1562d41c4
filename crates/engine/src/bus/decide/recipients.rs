//! Which subscriptions get a message, found without a look at those that get nothing of it: a topic may have 2,000.
//!
//! Some take every message ([`Queues::takers_from`](super::super::queues::Queues::takers_from)). All others get what the
//! rules find that look at the message.

use super::super::rules::Topic;
use super::Turn;
use crate::vocabulary::{Incarnation, SequenceNumber};

/// A subscription that may get a copy of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipient {
    pub(super) subscription: Incarnation,
    /// How many messages it had before.
    pub(super) backlog: u64,
}

impl Turn<'_> {
    /// The subscriptions that get a plain copy of what is sent now, whatever that is: the oldest first.
    pub(super) fn takers(&self, topic: Incarnation) -> Vec<Recipient> {
        let number = self.bus_backlog(topic).next();
        let all = self.takers_from(topic, Incarnation::default(), number);
        all.filter_map(|it| self.recipient(topic, it)).collect()
    }

    /// The subscriptions that get a plain copy of the message with this number, whatever it is: the oldest first, from one on.
    pub(super) fn takers_from(
        &self,
        topic: Incarnation,
        from: Incarnation,
        number: SequenceNumber,
    ) -> impl Iterator<Item = Incarnation> {
        let queues = self.queues();
        queues.takers_from(self.catalogue(), topic, from, number)
    }

    /// A subscription as a recipient of messages of its topic. In a damaged history, a rule may be of one that is not there.
    pub(super) fn recipient(
        &self,
        topic: Incarnation,
        subscription: Incarnation,
    ) -> Option<Recipient> {
        let entity = self.queues().get(&subscription)?;
        let backlog = entity.backlog.count();
        (entity.role.topic() == Some(topic)).then_some(Recipient {
            subscription,
            backlog,
        })
    }

    /// The rules of a topic, as far as they are not the `$Default` of a subscription's creation.
    pub(super) fn rules_of(&self, topic: Incarnation) -> Option<&Topic> {
        self.bus(topic).topic.as_ref()
    }
}
