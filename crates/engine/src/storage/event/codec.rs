//! The bytes of facts about storage queues, after the head of their event.

use super::StorageFact;
use super::effects::{effects, put_effects};
use super::moves::{moves, put_moves};
use crate::storage::metadata::{metadata, put_metadata};
use crate::storage::policy::{policies, put_policies};
use crate::vocabulary::Timestamp;
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::elements::{incarnation, name, put_name};

mod kind {
    pub(super) const QUEUE_CREATED: u8 = 2;
    pub(super) const QUEUE_DELETED: u8 = 3;
    pub(super) const QUEUE_METADATA_SET: u8 = 4;
    // 5 to 10 are events of earlier versions: `migrate` reads them.
    pub(super) const QUEUE_POLICIES_SET: u8 = 11;
    pub(super) const MESSAGES: u8 = 15;
    pub(super) const BODIES_MOVED: u8 = 17;
}

impl StorageFact {
    /// Whether an event of this kind is one of these.
    pub(crate) fn is_kind(kind: u8) -> bool {
        matches!(
            kind,
            kind::QUEUE_CREATED
                | kind::QUEUE_DELETED
                | kind::QUEUE_METADATA_SET
                | kind::QUEUE_POLICIES_SET
                | kind::MESSAGES
                | kind::BODIES_MOVED
        )
    }

    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::QueueCreated { .. } => kind::QUEUE_CREATED,
            Self::QueueDeleted { .. } => kind::QUEUE_DELETED,
            Self::QueueMetadataSet { .. } => kind::QUEUE_METADATA_SET,
            Self::QueuePoliciesSet { .. } => kind::QUEUE_POLICIES_SET,
            Self::Messages { .. } => kind::MESSAGES,
            Self::BodiesMoved { .. } => kind::BODIES_MOVED,
        }
    }

    /// Appends the bytes of a fact of an event at `at`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, at: Timestamp) {
        if let Some(queue) = self.queue() {
            put_varint(out, queue.as_u64());
        }
        match self {
            Self::QueueCreated { name, metadata, .. } => {
                put_name(out, name);
                put_metadata(out, metadata);
            }
            Self::QueueDeleted { .. } => {}
            Self::QueueMetadataSet { metadata, .. } => put_metadata(out, metadata),
            Self::QueuePoliciesSet { policies, .. } => put_policies(out, policies),
            Self::Messages { effects } => put_effects(out, at, effects),
            Self::BodiesMoved { moves } => put_moves(out, at, moves),
        }
    }

    /// Reads a fact of this kind, of an event at `at`.
    pub(crate) fn decode(kind: u8, r: &mut Reader<'_>, at: Timestamp) -> Result<Self, DecodeError> {
        Ok(match kind {
            kind::QUEUE_CREATED => Self::QueueCreated {
                queue: incarnation(r)?,
                name: name(r)?,
                metadata: metadata(r)?,
            },
            kind::QUEUE_DELETED => Self::QueueDeleted {
                queue: incarnation(r)?,
            },
            kind::QUEUE_METADATA_SET => Self::QueueMetadataSet {
                queue: incarnation(r)?,
                metadata: metadata(r)?,
            },
            kind::QUEUE_POLICIES_SET => Self::QueuePoliciesSet {
                queue: incarnation(r)?,
                policies: policies(r)?,
            },
            kind::MESSAGES => Self::Messages {
                effects: effects(r, at)?,
            },
            kind::BODIES_MOVED => Self::BodiesMoved {
                moves: moves(r, at)?,
            },
            _ => return Err(r.error("event kind that is not known")),
        })
    }
}
