//! An entity: a queue, with its name and its messages.

use crate::catalogue::{Catalogue, Deadline};
use crate::queues::{Flow, Queue};
use crate::storage::backlog::{Backlog, Stored};
use crate::storage::{AccessPolicies, Effect, Metadata, OwnEffect};
use crate::table::RunLength;
use crate::vocabulary::{EntityName, Hint, Incarnation, SequenceNumber, Timestamp};

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
    /// What came and was deleted, for metrics.
    pub(crate) flow: Hint<Flow>,
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
            backlog: Backlog::of(Stored, length, SequenceNumber::FIRST),
            deadline: Hint::default(),
            counted_bytes: 0,
            flow: Hint::default(),
        }
    }
}

impl Queue for Entity {
    type Profile = Stored;

    fn name(&self) -> &EntityName {
        &self.name
    }

    fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    fn backlog_mut(&mut self) -> &mut Backlog {
        &mut self.backlog
    }

    fn deadline(&mut self) -> &mut Hint<Deadline> {
        &mut self.deadline
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.backlog.next_expiry()
    }

    /// A whole range ends when a queue is cleared or its messages have expired: nobody has handled them.
    fn tally(&mut self, _: Timestamp, effect: &Effect) {
        match effect {
            Effect::Arrived { .. } => self.flow.arrived += 1,
            Effect::Ended { .. } => self.flow.completed += 1,
            Effect::Leased { .. } | Effect::Own(OwnEffect::RangeEnded { .. }) => {}
        }
    }

    fn join(&mut self, catalogue: &mut Catalogue, _: Incarnation) {
        self.counted_bytes = 0;
        catalogue.count_queue(&self.name.account);
    }

    fn depart(&self, catalogue: &mut Catalogue, _: Incarnation) {
        catalogue.uncount_queue(&self.name.account, self.counted_bytes);
    }

    fn count(&mut self, catalogue: &mut Catalogue, _: Incarnation) {
        let size_bytes = self.backlog.size_bytes();
        catalogue.count_bytes(&self.name.account, self.counted_bytes, size_bytes);
        self.counted_bytes = size_bytes;
    }
}
