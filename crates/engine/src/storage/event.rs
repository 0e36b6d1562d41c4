//! Facts about storage queues. `EVENTS.md` lists them, and `codec` defines their bytes.

pub(crate) mod codec;
mod effects;
mod moves;

use super::{AccessPolicies, Metadata};
use crate::storage::{Effect, Effects, Moved};
use crate::vocabulary::{EntityName, Incarnation};

/// A fact about storage queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageFact {
    /// A queue was created.
    QueueCreated {
        /// Its incarnation.
        queue: Incarnation,
        /// Its name.
        name: EntityName,
        /// Its metadata.
        metadata: Metadata,
    },
    /// A queue and everything in it was deleted.
    QueueDeleted {
        /// The queue.
        queue: Incarnation,
    },
    /// A queue's metadata was replaced.
    QueueMetadataSet {
        /// The queue.
        queue: Incarnation,
        /// All of the new metadata.
        metadata: Metadata,
    },
    /// Messages came, were leased, or ended.
    Messages {
        /// What happened to each of them. No two effects concern the same message.
        effects: Effects,
    },
    /// A queue's access policies were replaced.
    QueuePoliciesSet {
        /// The queue.
        queue: Incarnation,
        /// All of the new policies.
        policies: AccessPolicies,
    },
    /// Bodies are in other places of the log.
    BodiesMoved {
        /// The bodies, with their messages.
        moves: Vec<Moved>,
    },
}

impl StorageFact {
    /// The queues that the fact changes. One can come more than once.
    pub(crate) fn entities(&self) -> impl Iterator<Item = Incarnation> + '_ {
        let effects = self.effects().iter().map(Effect::entity);
        let moves = self.moves().iter().map(Moved::entity);
        self.queue().into_iter().chain(effects).chain(moves)
    }

    /// The queue, if the fact is not about messages.
    fn queue(&self) -> Option<Incarnation> {
        match self {
            Self::QueueCreated { queue, .. }
            | Self::QueueDeleted { queue }
            | Self::QueueMetadataSet { queue, .. }
            | Self::QueuePoliciesSet { queue, .. } => Some(*queue),
            Self::Messages { .. } | Self::BodiesMoved { .. } => None,
        }
    }

    /// What happened to messages.
    pub fn effects(&self) -> &[Effect] {
        match self {
            Self::Messages { effects } => effects,
            Self::QueueCreated { .. }
            | Self::QueueDeleted { .. }
            | Self::QueueMetadataSet { .. }
            | Self::QueuePoliciesSet { .. }
            | Self::BodiesMoved { .. } => &[],
        }
    }

    /// The bodies that moved.
    pub fn moves(&self) -> &[Moved] {
        match self {
            Self::BodiesMoved { moves } => moves,
            Self::QueueCreated { .. }
            | Self::QueueDeleted { .. }
            | Self::QueueMetadataSet { .. }
            | Self::Messages { .. }
            | Self::QueuePoliciesSet { .. } => &[],
        }
    }

    /// Whether a listing of entities shows the fact.
    pub(crate) fn shows_in_catalogue(&self) -> bool {
        match self {
            Self::QueueCreated { .. }
            | Self::QueueDeleted { .. }
            | Self::QueueMetadataSet { .. } => true,
            Self::Messages { .. } | Self::QueuePoliciesSet { .. } | Self::BodiesMoved { .. } => {
                false
            }
        }
    }
}
