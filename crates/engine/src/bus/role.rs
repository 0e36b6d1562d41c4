//! What a bus entity is, and what follows from that.
//!
//! Each question has one answer for each role. So a new role does not compile before all of them are answered for it.

use super::BusQueueOptions;
use crate::vocabulary::Incarnation;

/// The role of a bus entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A queue.
    Queue,
    /// A topic. What is sent to it arrives in its subscriptions, and nobody receives from it.
    Topic,
    /// A subscription. It is what a queue is, but its messages come from its topic.
    Subscription { of: Incarnation },
    /// It holds the dead letters of one of the above.
    DeadLetters { of: Incarnation },
    /// It holds the messages that one of the above could not forward.
    FailedTransfers { of: Incarnation },
}

/// What clients know an entity as. A sub-queue belongs to one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntityKind {
    /// A queue.
    #[default]
    Queue,
    /// A topic.
    Topic,
    /// A subscription of a topic.
    Subscription,
}

impl Role {
    /// Whether it is the first of its three entities, and not a sub-queue: it is what clients create, change and
    /// delete. Its messages may become dead letters, and it deletes itself when it is idle.
    pub(crate) fn is_first(self) -> bool {
        match self {
            Self::Queue | Self::Topic | Self::Subscription { .. } => true,
            Self::DeadLetters { .. } | Self::FailedTransfers { .. } => false,
        }
    }

    /// Whether clients send messages to it.
    pub(crate) fn accepts_sends(self) -> bool {
        match self {
            Self::Queue | Self::Topic => true,
            Self::Subscription { .. } | Self::DeadLetters { .. } | Self::FailedTransfers { .. } => {
                false
            }
        }
    }

    /// Whether entities forward messages to it.
    pub(crate) fn accepts_forwards(self) -> bool {
        match self {
            Self::Queue | Self::Topic => true,
            Self::Subscription { .. } | Self::DeadLetters { .. } | Self::FailedTransfers { .. } => {
                false
            }
        }
    }

    /// Whether messages can be received from it.
    pub(crate) fn is_received_from(self) -> bool {
        match self {
            Self::Topic => false,
            Self::Queue
            | Self::Subscription { .. }
            | Self::DeadLetters { .. }
            | Self::FailedTransfers { .. } => true,
        }
    }

    /// The settings that it keeps of these. Only topics and subscriptions have the flags of rules: neither the events nor
    /// the snapshots of others have room for them.
    pub(crate) fn options(self, options: &BusQueueOptions) -> BusQueueOptions {
        let options = options.clone();
        match self {
            Self::Topic | Self::Subscription { .. } => options,
            Self::Queue | Self::DeadLetters { .. } | Self::FailedTransfers { .. } => {
                BusQueueOptions {
                    filters_before_publishing: false,
                    dead_letters_filter_failures: false,
                    ..options
                }
            }
        }
    }

    /// What clients know it as, unless it is a sub-queue.
    pub(crate) fn kind(self) -> Option<EntityKind> {
        match self {
            Self::Queue => Some(EntityKind::Queue),
            Self::Topic => Some(EntityKind::Topic),
            Self::Subscription { .. } => Some(EntityKind::Subscription),
            Self::DeadLetters { .. } | Self::FailedTransfers { .. } => None,
        }
    }

    /// The first of the three entities that it belongs to. `itself` is its own incarnation.
    pub(crate) fn first_of(self, itself: Incarnation) -> Incarnation {
        match self {
            Self::Queue | Self::Topic | Self::Subscription { .. } => itself,
            Self::DeadLetters { of } | Self::FailedTransfers { of } => of,
        }
    }

    /// The queue, topic or subscription whose dead letters it holds.
    pub(crate) fn dead_letters_of(self) -> Option<Incarnation> {
        match self {
            Self::DeadLetters { of } => Some(of),
            Self::Queue
            | Self::Topic
            | Self::Subscription { .. }
            | Self::FailedTransfers { .. } => None,
        }
    }

    /// The topic that it is a subscription of.
    pub(crate) fn topic(self) -> Option<Incarnation> {
        match self {
            Self::Subscription { of } => Some(of),
            Self::Queue | Self::Topic | Self::DeadLetters { .. } | Self::FailedTransfers { .. } => {
                None
            }
        }
    }
}
