//! Facts about bus queues, their sessions and their messages. `EVENTS.md` lists them, and `codec` defines their
//! bytes. Messages change through [effects](crate::effect) alone.

pub(crate) mod codec;
pub(in crate::bus) mod effects;
mod moves;

use kew_filter::RuleId;

use super::{AddedRule, BusQueueOptions};
use crate::bus::{Effect, Effects, Moved};
use crate::effect::BusSession;
use crate::vocabulary::{
    BodyLocation, EntityName, Incarnation, LeaseGeneration, SequenceNumber, Timestamp,
};

/// A fact about bus queues and their sub-queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusFact {
    /// Messages came, were locked or released, moved, or ended; sessions were released.
    Messages {
        /// What happened to each of them, in order.
        effects: Effects,
    },
    /// A queue was created, with its two sub-queues, whose incarnations are the next two.
    QueueCreated {
        /// Its incarnation.
        queue: Incarnation,
        /// Its name, in lower case.
        name: EntityName,
        /// Its settings.
        options: BusQueueOptions,
    },
    /// A topic was created, with its two sub-queues, whose incarnations are the next two.
    TopicCreated {
        /// Its incarnation.
        topic: Incarnation,
        /// Its name, in lower case.
        name: EntityName,
        /// Its settings.
        options: BusQueueOptions,
    },
    /// A subscription was created, with its two sub-queues, whose incarnations are the next two. Its rule is
    /// `$Default`, which matches all messages.
    SubscriptionCreated {
        /// Its incarnation.
        subscription: Incarnation,
        /// Its name, in lower case: with that of its topic.
        name: EntityName,
        /// Its settings.
        options: BusQueueOptions,
        /// Its topic.
        of: Incarnation,
    },
    /// A queue has new settings.
    QueueUpdated {
        /// The queue.
        queue: Incarnation,
        /// All of its settings.
        options: BusQueueOptions,
        /// Ids of messages that were sent before this time do not count as duplicates any more.
        ids_from: Timestamp,
    },
    /// A topic or subscription has new settings.
    EntityUpdated {
        /// The topic or subscription.
        entity: Incarnation,
        /// All of its settings.
        options: BusQueueOptions,
        /// As in [`QueueUpdated`](Self::QueueUpdated).
        ids_from: Timestamp,
    },
    /// Rules of a subscription were retired and added.
    RulesChanged {
        /// The topic, which has the rules.
        topic: Incarnation,
        /// The subscription.
        subscription: Incarnation,
        /// The topic's number from which on the change counts.
        from: SequenceNumber,
        /// The rules that do not hold any more: 0 is the rule `$Default` of the subscription's creation.
        retired: Vec<RuleId>,
        /// The rules that hold now.
        added: Vec<AddedRule>,
    },
    /// A queue, topic or subscription, its sub-queues and everything in them was deleted. A topic takes the
    /// subscriptions with it that are still there.
    QueueDeleted {
        /// The queue, topic or subscription.
        queue: Incarnation,
    },
    /// A receiver has locked a session. A new session begins if there was none.
    SessionLocked {
        /// The queue.
        queue: Incarnation,
        /// The session.
        session: BusSession,
        /// The lease generation from now on.
        generation: LeaseGeneration,
        /// Until when the lock holds.
        until: Timestamp,
    },
    /// A session's lock was renewed for the whole lock duration.
    SessionRenewed {
        /// The queue.
        queue: Incarnation,
        /// The session's id.
        session: Box<str>,
        /// Until when the lock holds.
        until: Timestamp,
    },
    /// A queue that deletes itself when idle was used, and no other fact shows it.
    Used {
        /// The queue.
        queue: Incarnation,
    },
    /// A session's state was replaced.
    SessionStateSet {
        /// The queue.
        queue: Incarnation,
        /// The session.
        session: BusSession,
        /// The location of the state that is no longer needed, if there was one.
        was: Option<BodyLocation>,
        /// The location of the new state, if there is one.
        state: Option<BodyLocation>,
    },
    /// Bodies are in other places of the log.
    BodiesMoved {
        /// The bodies, with their messages and sessions.
        moves: Vec<Moved>,
    },
}

impl BusFact {
    /// The entities that the fact changes. One can come more than once.
    pub(crate) fn entities(&self) -> impl Iterator<Item = Incarnation> + '_ {
        let whole = self.entity().into_iter().chain(self.other_entity());
        let effects = self.effects().iter().map(Effect::entity);
        let moves = self.moves().iter().map(Moved::entity);
        whole.chain(effects).chain(moves)
    }

    /// The entity, if the fact is not about messages.
    fn entity(&self) -> Option<Incarnation> {
        match self {
            Self::QueueCreated { queue, .. }
            | Self::QueueUpdated { queue, .. }
            | Self::QueueDeleted { queue }
            | Self::Used { queue }
            | Self::SessionLocked { queue, .. }
            | Self::SessionRenewed { queue, .. }
            | Self::SessionStateSet { queue, .. } => Some(*queue),
            Self::TopicCreated { topic, .. } | Self::RulesChanged { topic, .. } => Some(*topic),
            Self::SubscriptionCreated { subscription, .. } => Some(*subscription),
            Self::EntityUpdated { entity, .. } => Some(*entity),
            Self::Messages { .. } | Self::BodiesMoved { .. } => None,
        }
    }

    /// Another entity that the fact changes.
    fn other_entity(&self) -> Option<Incarnation> {
        match self {
            Self::RulesChanged { subscription, .. } => Some(*subscription),
            Self::Messages { .. }
            | Self::QueueCreated { .. }
            | Self::TopicCreated { .. }
            | Self::SubscriptionCreated { .. }
            | Self::QueueUpdated { .. }
            | Self::EntityUpdated { .. }
            | Self::QueueDeleted { .. }
            | Self::SessionLocked { .. }
            | Self::SessionRenewed { .. }
            | Self::SessionStateSet { .. }
            | Self::BodiesMoved { .. }
            | Self::Used { .. } => None,
        }
    }

    /// The settings that an entity has from now on.
    fn options(&self) -> Option<&BusQueueOptions> {
        match self {
            Self::QueueCreated { options, .. }
            | Self::TopicCreated { options, .. }
            | Self::SubscriptionCreated { options, .. }
            | Self::QueueUpdated { options, .. }
            | Self::EntityUpdated { options, .. } => Some(options),
            Self::Messages { .. }
            | Self::RulesChanged { .. }
            | Self::QueueDeleted { .. }
            | Self::SessionLocked { .. }
            | Self::SessionRenewed { .. }
            | Self::SessionStateSet { .. }
            | Self::BodiesMoved { .. }
            | Self::Used { .. } => None,
        }
    }

    /// See [`Event::sets_forwards`](crate::Event::sets_forwards).
    pub(crate) fn sets_forwards(&self) -> bool {
        self.options().is_some_and(BusQueueOptions::forwards)
    }

    /// What happened to messages.
    pub fn effects(&self) -> &[Effect] {
        match self {
            Self::Messages { effects } => effects,
            Self::QueueCreated { .. }
            | Self::TopicCreated { .. }
            | Self::SubscriptionCreated { .. }
            | Self::QueueUpdated { .. }
            | Self::EntityUpdated { .. }
            | Self::RulesChanged { .. }
            | Self::QueueDeleted { .. }
            | Self::SessionLocked { .. }
            | Self::SessionRenewed { .. }
            | Self::SessionStateSet { .. }
            | Self::BodiesMoved { .. }
            | Self::Used { .. } => &[],
        }
    }

    /// See [`Event::left_out_size_bytes`](crate::Event::left_out_size_bytes).
    pub(crate) fn left_out_size_bytes(&self) -> u64 {
        effects::left_out_size_bytes(self.effects())
    }

    /// The bodies that moved.
    pub fn moves(&self) -> &[Moved] {
        match self {
            Self::BodiesMoved { moves } => moves,
            Self::Messages { .. }
            | Self::QueueCreated { .. }
            | Self::TopicCreated { .. }
            | Self::SubscriptionCreated { .. }
            | Self::QueueUpdated { .. }
            | Self::EntityUpdated { .. }
            | Self::RulesChanged { .. }
            | Self::QueueDeleted { .. }
            | Self::SessionLocked { .. }
            | Self::SessionRenewed { .. }
            | Self::SessionStateSet { .. }
            | Self::Used { .. } => &[],
        }
    }

    /// The first of three entities that the fact creates, if it does.
    pub(crate) fn created(&self) -> Option<Incarnation> {
        match self {
            Self::QueueCreated { queue, .. } => Some(*queue),
            Self::TopicCreated { topic, .. } => Some(*topic),
            Self::SubscriptionCreated { subscription, .. } => Some(*subscription),
            Self::Messages { .. }
            | Self::QueueUpdated { .. }
            | Self::EntityUpdated { .. }
            | Self::RulesChanged { .. }
            | Self::QueueDeleted { .. }
            | Self::SessionLocked { .. }
            | Self::SessionRenewed { .. }
            | Self::SessionStateSet { .. }
            | Self::BodiesMoved { .. }
            | Self::Used { .. } => None,
        }
    }

    /// The queue, if the fact changes its settings or deletes it. Its sub-queues change with it.
    pub(crate) fn changed_queue(&self) -> Option<Incarnation> {
        match self {
            Self::QueueUpdated { queue, .. } | Self::QueueDeleted { queue } => Some(*queue),
            Self::EntityUpdated { entity, .. } => Some(*entity),
            // No client uses a queue before it exists.
            Self::QueueCreated { .. }
            | Self::TopicCreated { .. }
            | Self::SubscriptionCreated { .. }
            | Self::RulesChanged { .. }
            | Self::Messages { .. }
            | Self::SessionLocked { .. }
            | Self::SessionRenewed { .. }
            | Self::SessionStateSet { .. }
            | Self::BodiesMoved { .. }
            | Self::Used { .. } => None,
        }
    }

    /// Whether a listing of entities shows the fact.
    pub(crate) fn shows_in_catalogue(&self) -> bool {
        match self {
            Self::QueueCreated { .. }
            | Self::TopicCreated { .. }
            | Self::SubscriptionCreated { .. }
            | Self::QueueUpdated { .. }
            | Self::EntityUpdated { .. }
            | Self::QueueDeleted { .. } => true,
            Self::Messages { .. }
            | Self::RulesChanged { .. }
            | Self::SessionLocked { .. }
            | Self::SessionRenewed { .. }
            | Self::SessionStateSet { .. }
            | Self::BodiesMoved { .. }
            | Self::Used { .. } => false,
        }
    }
}
