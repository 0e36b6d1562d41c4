//! An entity: a queue, with what it is called and what is in it.

use crate::backlog::Backlog;
use crate::{EntityName, Metadata, SequenceNumber, Timestamp};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entity {
    pub(crate) name: EntityName,
    pub(crate) metadata: Metadata,
    pub(crate) created_at: Timestamp,
    pub(crate) backlog: Backlog,
    /// The deadline under which the state has this entity in its ordered set.
    pub(crate) deadline: Option<Timestamp>,
}

impl Entity {
    pub(crate) fn new(name: EntityName, metadata: Metadata, created_at: Timestamp) -> Self {
        Self {
            name,
            metadata,
            created_at,
            backlog: Backlog::starting_at(SequenceNumber::FIRST),
            deadline: None,
        }
    }
}
