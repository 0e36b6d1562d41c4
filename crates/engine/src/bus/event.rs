//! Facts about bus queues. `EVENTS.md` lists them, and `codec` defines their bytes.

pub(crate) mod codec;

use super::{BusQueueOptions, DeadLetterCause};
use crate::{BodyLocation, EntityName, Incarnation, SequenceNumber, Timestamp};

/// A fact about a bus queue or one of its sub-queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusFact {
    /// A queue was created, with its two sub-queues, whose incarnations are the next two.
    QueueCreated {
        /// Its incarnation.
        queue: Incarnation,
        /// Its name, in lower case.
        name: EntityName,
        /// Its settings.
        options: BusQueueOptions,
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
    /// A queue, its sub-queues and everything in them was deleted.
    QueueDeleted {
        /// The queue.
        queue: Incarnation,
    },
    /// A message came into a queue.
    Sent {
        /// The queue.
        queue: Incarnation,
        /// The message's order in it.
        sequence_number: SequenceNumber,
        /// When it expires.
        expires_at: Timestamp,
        /// When it becomes ready; [`Timestamp::ZERO`] if it is.
        scheduled_at: Timestamp,
        /// Its session.
        session: Option<Box<str>>,
        /// The hash of its id, where duplicates are detected.
        id_hash: Option<u128>,
        /// Its bytes.
        body: BodyLocation,
    },
    /// A message's schedule became due: it has a new number, at the tail.
    Activated {
        /// The queue.
        queue: Incarnation,
        /// Its number while it was scheduled.
        scheduled: SequenceNumber,
        /// Its number from now on.
        sequence_number: SequenceNumber,
        /// When it expires.
        expires_at: Timestamp,
    },
    /// A receiver has locked a message: a new lease generation.
    Locked {
        /// The queue.
        queue: Incarnation,
        /// The message.
        sequence_number: SequenceNumber,
        /// Until when the lock holds; [`Timestamp::NEVER`] if as long as its session's.
        until: Timestamp,
    },
    /// A lock was renewed for the whole lock duration.
    LockRenewed {
        /// The queue.
        queue: Incarnation,
        /// The message.
        sequence_number: SequenceNumber,
        /// Until when the lock holds.
        until: Timestamp,
    },
    /// A lock ended, and the message is back.
    Released {
        /// The queue.
        queue: Incarnation,
        /// The message.
        sequence_number: SequenceNumber,
        /// How the lock ended.
        release: Release,
        /// A change to its properties.
        overlay: Option<BodyLocation>,
    },
    /// A message was removed.
    Removed {
        /// The queue.
        queue: Incarnation,
        /// The message.
        sequence_number: SequenceNumber,
    },
    /// A message moved to another queue, in one step.
    Moved {
        /// The queue it left.
        queue: Incarnation,
        /// Its number there.
        sequence_number: SequenceNumber,
        /// The queue it is in now.
        to: Incarnation,
        /// Its number there.
        to_sequence_number: SequenceNumber,
        /// Why it is a dead letter. `None` if it was forwarded.
        cause: Option<DeadLetterCause>,
        /// A change to its properties.
        overlay: Option<BodyLocation>,
    },
    /// A receiver has locked a session: a new lease generation.
    SessionLocked {
        /// The queue.
        queue: Incarnation,
        /// The session's id.
        session: Box<str>,
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
    /// A session's lock ended, and with it the locks of its messages. Deliveries that failed have ended
    /// before, with facts of their own.
    SessionReleased {
        /// The queue.
        queue: Incarnation,
        /// The session's id.
        session: Box<str>,
    },
    /// A queue that deletes itself when idle was used, and no other fact shows it.
    Used {
        /// The queue.
        queue: Incarnation,
    },
    /// A message was resubmitted: in one step it is removed here and sent there as a new one.
    Resubmitted {
        /// The queue it left.
        queue: Incarnation,
        /// Its number there.
        sequence_number: SequenceNumber,
        /// The queue it is in now.
        to: Incarnation,
        /// Its number there.
        to_sequence_number: SequenceNumber,
        /// When it expires.
        expires_at: Timestamp,
        /// Its session.
        session: Option<Box<str>>,
        /// The hash of its id, where duplicates are detected.
        id_hash: Option<u128>,
        /// Its bytes.
        body: BodyLocation,
    },
    /// A session's state was replaced.
    SessionStateSet {
        /// The queue.
        queue: Incarnation,
        /// The session's id.
        session: Box<str>,
        /// The location of the new state, if there is one.
        state: Option<BodyLocation>,
    },
}

/// How a lock ended, for a message that stays in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The delivery failed: it counts.
    Failed,
    /// The receiver did not look at the message.
    Unseen,
    /// The receiver deferred it.
    Deferred,
}

impl BusFact {
    /// The entity that the fact is about. For a message that moves, it is the queue that the message leaves.
    pub(crate) fn entity(&self) -> Incarnation {
        match self {
            Self::QueueCreated { queue, .. }
            | Self::QueueUpdated { queue, .. }
            | Self::QueueDeleted { queue }
            | Self::Used { queue }
            | Self::Sent { queue, .. }
            | Self::Activated { queue, .. }
            | Self::Locked { queue, .. }
            | Self::LockRenewed { queue, .. }
            | Self::Released { queue, .. }
            | Self::Removed { queue, .. }
            | Self::Moved { queue, .. }
            | Self::Resubmitted { queue, .. }
            | Self::SessionLocked { queue, .. }
            | Self::SessionRenewed { queue, .. }
            | Self::SessionReleased { queue, .. }
            | Self::SessionStateSet { queue, .. } => *queue,
        }
    }

    /// A resubmission as its destination sees it: a message was sent there. Other facts are returned
    /// unchanged.
    pub fn into_arrival(self) -> Self {
        let Self::Resubmitted {
            queue: _,
            sequence_number: _,
            to,
            to_sequence_number,
            expires_at,
            session,
            id_hash,
            body,
        } = self
        else {
            return self;
        };
        Self::Sent {
            queue: to,
            sequence_number: to_sequence_number,
            expires_at,
            scheduled_at: Timestamp::ZERO,
            session,
            id_hash,
            body,
        }
    }

    /// The other entity that the fact changes, if there is one.
    pub(crate) fn other_entity(&self) -> Option<Incarnation> {
        match self {
            Self::Moved { to, .. } | Self::Resubmitted { to, .. } => Some(*to),
            Self::QueueCreated { .. }
            | Self::QueueUpdated { .. }
            | Self::QueueDeleted { .. }
            | Self::Sent { .. }
            | Self::Activated { .. }
            | Self::Locked { .. }
            | Self::LockRenewed { .. }
            | Self::Released { .. }
            | Self::Removed { .. }
            | Self::SessionLocked { .. }
            | Self::SessionRenewed { .. }
            | Self::SessionReleased { .. }
            | Self::SessionStateSet { .. }
            | Self::Used { .. } => None,
        }
    }

    /// The queue, if the fact changes its settings or deletes it. Its sub-queues change with it.
    pub(crate) fn changed_queue(&self) -> Option<Incarnation> {
        match self {
            Self::QueueUpdated { queue, .. } | Self::QueueDeleted { queue } => Some(*queue),
            // No client uses a queue before it exists.
            Self::QueueCreated { .. }
            | Self::Sent { .. }
            | Self::Activated { .. }
            | Self::Locked { .. }
            | Self::LockRenewed { .. }
            | Self::Released { .. }
            | Self::Removed { .. }
            | Self::Moved { .. }
            | Self::Resubmitted { .. }
            | Self::SessionLocked { .. }
            | Self::SessionRenewed { .. }
            | Self::SessionReleased { .. }
            | Self::SessionStateSet { .. }
            | Self::Used { .. } => None,
        }
    }

    /// Whether a listing of entities shows the fact.
    pub(crate) fn shows_in_catalogue(&self) -> bool {
        match self {
            Self::QueueCreated { .. } | Self::QueueUpdated { .. } | Self::QueueDeleted { .. } => {
                true
            }
            Self::Sent { .. }
            | Self::Activated { .. }
            | Self::Locked { .. }
            | Self::LockRenewed { .. }
            | Self::Released { .. }
            | Self::Removed { .. }
            | Self::Moved { .. }
            | Self::Resubmitted { .. }
            | Self::SessionLocked { .. }
            | Self::SessionRenewed { .. }
            | Self::SessionReleased { .. }
            | Self::SessionStateSet { .. }
            | Self::Used { .. } => false,
        }
    }
}
