//! An entity: a queue, with its name and its messages.

use crate::backlog::Backlog;
use crate::hint::Hint;
use crate::{AccessPolicies, EntityName, Metadata, SequenceNumber, Timestamp};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entity {
    pub(crate) name: EntityName,
    pub(crate) metadata: Metadata,
    pub(crate) policies: AccessPolicies,
    pub(crate) created_at: Timestamp,
    pub(crate) backlog: Backlog,
    /// The deadline under which the state has this entity in its ordered set.
    pub(crate) deadline: Hint<Option<Timestamp>>,
    /// The bytes of messages that its account's usage counts for it.
    pub(crate) counted_bytes: u64,
}

impl Entity {
    pub(crate) fn new(name: EntityName, metadata: Metadata, created_at: Timestamp) -> Self {
        Self {
            name,
            metadata,
            policies: AccessPolicies::default(),
            created_at,
            backlog: Backlog::starting_at(SequenceNumber::FIRST),
            deadline: Hint::default(),
            counted_bytes: 0,
        }
    }
}
