//! An entity: a queue, with its name and its messages.

use crate::catalogue::Deadline;
use crate::storage::backlog::Backlog;
use crate::storage::{AccessPolicies, Metadata};
use crate::table::RunLength;
use crate::vocabulary::{EntityName, Hint, SequenceNumber, Timestamp};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entity {
    pub(crate) name: EntityName,
    pub(crate) metadata: Metadata,
    pub(crate) policies: AccessPolicies,
    pub(crate) created_at: Timestamp,
    pub(crate) backlog: Backlog,
    /// Its place among the deadlines of the catalogue.
    pub(crate) deadline: Hint<Deadline>,
    /// The bytes of messages that its account's usage counts for it.
    pub(crate) counted_bytes: u64,
}

impl Entity {
    pub(crate) fn new(
        name: EntityName,
        metadata: Metadata,
        created_at: Timestamp,
        length: RunLength,
    ) -> Self {
        Self {
            name,
            metadata,
            policies: AccessPolicies::default(),
            created_at,
            backlog: Backlog::starting_at(length, SequenceNumber::FIRST),
            deadline: Hint::default(),
            counted_bytes: 0,
        }
    }
}
