//! What only bus queues have of effects: those on sessions and topics, and bodies that are not of a message as it was
//! sent.

use crate::effect::{self, BusSession, NextCopy, Own};
use crate::queues;
use crate::vocabulary::{Incarnation, Place, Timestamp};

/// An effect on a bus queue.
pub type Effect = effect::Effect<OwnEffect>;

/// Effects on bus queues, in order.
pub type Effects = effect::Effects<OwnEffect>;

/// A body of a bus queue that has moved.
pub type Moved = queues::Moved<OwnHolder>;

/// What has such a body.
pub type MovedOf = queues::MovedOf<OwnHolder>;

/// Every message takes some, and each is moved a few times.
const _: () = assert!(size_of::<Effect>() <= 96);

/// An effect that only bus queues have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnEffect {
    /// The lock of a session has ended. Its messages are about to be released, and no delivery of them counts
    /// as failed. Until that is done, nobody can lock the session.
    SessionReleasing {
        /// The entity.
        queue: Incarnation,
        /// The session's id.
        session: Box<str>,
    },
    /// A session can be locked again. None of its messages is locked.
    SessionFreed {
        /// The entity.
        queue: Incarnation,
        /// The session's id.
        session: Box<str>,
    },
    /// A message took a number of a topic, which does not keep the message: its copies are elsewhere.
    Passed {
        /// The topic, and the number.
        topic: Place,
        /// The hash of the message's id, where duplicates are detected.
        id_hash: Option<u128>,
    },
    /// The first ready message of a topic has its copies up to this one.
    FannedOut {
        /// The message.
        topic: Place,
        /// The first copy that is not made yet.
        next: NextCopy,
        /// Whether one of its copies counts its body, in the place where the topic has it.
        lent: bool,
    },
}

impl Own for OwnEffect {
    fn entity(&self) -> Incarnation {
        match self {
            Self::SessionReleasing { queue, .. } | Self::SessionFreed { queue, .. } => *queue,
            Self::Passed { topic, .. } | Self::FannedOut { topic, .. } => topic.entity,
        }
    }
}

impl Effect {
    /// The hash of the id of a message that is new to the entity, where duplicates are detected.
    pub(super) fn id_hash(&self) -> Option<u128> {
        match self {
            Self::Arrived { message, .. } => message.id_hash(),
            Self::Own(OwnEffect::Passed { id_hash, .. }) => *id_hash,
            Self::Leased { .. }
            | Self::Ended { .. }
            | Self::Own(
                OwnEffect::SessionReleasing { .. }
                | OwnEffect::SessionFreed { .. }
                | OwnEffect::FannedOut { .. },
            ) => None,
        }
    }
}

/// What has a body besides messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnHolder {
    /// A message, whose properties were changed.
    Change {
        /// Its place.
        at: Place,
    },
    /// A session, which has a state.
    State {
        /// The queue.
        queue: Incarnation,
        /// The session.
        session: BusSession,
        /// When the state was set.
        set_at: Timestamp,
    },
}

impl Own for OwnHolder {
    fn entity(&self) -> Incarnation {
        match self {
            Self::Change { at } => at.entity,
            Self::State { queue, .. } => *queue,
        }
    }
}
