//! Which subscriptions get a message, found without a look at those that get nothing of it: a topic may have 2,000.
//!
//! Some take every message ([`takers`](super::super::takers)). All others get what the
//! rules find that look at the message.

use super::super::rules::Topic;
use super::super::takers::LookedAt;
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
    /// The subscriptions that get a plain copy of what is sent now, whatever that is: the oldest first. The number is how
    /// many steps it took to find them.
    pub(super) fn takers(&self, topic: Incarnation) -> (Vec<Recipient>, u64) {
        let number = self.bus_backlog(topic).next();
        let (mut takers, mut steps) = (Vec::new(), 0);
        for subscription in self.may_take_all_from(topic, Incarnation::default()) {
            let looked_at = self.look_at(topic, subscription, number);
            steps += looked_at.rules;
            if looked_at.takes_all {
                takers.extend(self.recipient(topic, subscription));
            }
        }
        (takers, steps)
    }

    /// The subscriptions that may take every message: the oldest first, from one on.
    pub(super) fn may_take_all_from(
        &self,
        topic: Incarnation,
        from: Incarnation,
    ) -> impl Iterator<Item = Incarnation> {
        let queues = self.queues();
        queues.may_take_all_from(self.catalogue(), topic, from)
    }

    /// Looks whether a subscription gets a plain copy of the message with this number, whatever it is.
    pub(super) fn look_at(
        &self,
        topic: Incarnation,
        subscription: Incarnation,
        number: SequenceNumber,
    ) -> LookedAt {
        let queues = self.queues();
        queues.look_at(self.catalogue(), (topic, subscription), number)
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
