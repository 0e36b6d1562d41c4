//! Events. They are kept in the log forever; `EVENTS.md` lists their bytes, and `codec` writes and reads them.
//!
//! An event carries everything that `apply` needs, so that a replay decides nothing. A new need is a new
//! event or a new version of one, never a new meaning of an old one.

pub(crate) mod codec;

use std::sync::Arc;

use bytes::Bytes;

use crate::bus::{Arrival, BusFact};
use crate::{
    AccessPolicies, AccountRecord, BodyEncoding, BodyLocation, EntityName, Incarnation, Metadata,
    SequenceNumber, Service, Timestamp,
};

/// A fact about a partition, with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The runner's time when it was decided.
    pub at: Timestamp,
    /// The fact.
    pub fact: Fact,
}

/// A fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The partition got the secret that its tokens are made with.
    PartitionInitialized {
        /// 128 random bits.
        secret: [u8; 16],
    },
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
    /// A message was put at the tail of a queue.
    MessageSent {
        /// The queue.
        queue: Incarnation,
        /// The message's order in it.
        sequence_number: SequenceNumber,
        /// When it expires.
        expires_at: Timestamp,
        /// When it can first be received.
        visible_at: Timestamp,
        /// How its body is to be understood.
        encoding: BodyEncoding,
        /// Where its body is.
        body: BodyLocation,
    },
    /// A message was handed to a receiver: one more delivery, and a new lease generation.
    MessageReceived {
        /// The queue.
        queue: Incarnation,
        /// The message.
        sequence_number: SequenceNumber,
        /// When it shows again.
        visible_at: Timestamp,
    },
    /// A message's lease was renewed or ended by its holder: a new lease generation, no delivery.
    MessageUpdated {
        /// The queue.
        queue: Incarnation,
        /// The message.
        sequence_number: SequenceNumber,
        /// When it shows again.
        visible_at: Timestamp,
        /// The new body, if it was replaced.
        body: Option<(BodyEncoding, BodyLocation)>,
    },
    /// A message was deleted by its holder.
    MessageDeleted {
        /// The queue.
        queue: Incarnation,
        /// The message.
        sequence_number: SequenceNumber,
    },
    /// Every message below a sequence number was deleted.
    QueueCleared {
        /// The queue.
        queue: Incarnation,
        /// The first message that was not deleted.
        before: SequenceNumber,
    },
    /// The messages of one run that had expired at the event's time were removed.
    RunExpired {
        /// The queue.
        queue: Incarnation,
        /// The run: the sequence numbers of its messages, divided by the length of a run.
        run: u64,
    },
    /// A queue's access policies were replaced.
    QueuePoliciesSet {
        /// The queue.
        queue: Incarnation,
        /// All of the new policies.
        policies: AccessPolicies,
    },
    /// The properties of a service of an account were replaced.
    ServicePropertiesSet {
        /// The service.
        service: Service,
        /// The account.
        account: Arc<str>,
        /// All of the new properties, as the front end writes them.
        properties: Bytes,
    },
    /// An account was added, or replaced.
    AccountPut {
        /// The whole account from now on.
        account: AccountRecord,
    },
    /// An account was removed, with all its queues and the properties of its services.
    AccountRemoved {
        /// The account.
        account: Arc<str>,
    },
    /// Something happened to a bus queue.
    Bus(BusFact),
}

impl Event {
    /// The entity that the event is about, if it is about one and no other.
    pub fn entity(&self) -> Option<Incarnation> {
        match &self.fact {
            Fact::PartitionInitialized { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. } => None,
            Fact::QueueCreated { queue, .. }
            | Fact::QueueDeleted { queue }
            | Fact::QueueMetadataSet { queue, .. }
            | Fact::MessageSent { queue, .. }
            | Fact::MessageReceived { queue, .. }
            | Fact::MessageUpdated { queue, .. }
            | Fact::MessageDeleted { queue, .. }
            | Fact::QueueCleared { queue, .. }
            | Fact::RunExpired { queue, .. }
            | Fact::QueuePoliciesSet { queue, .. } => Some(*queue),
            Fact::Bus(fact) => Some(fact.entity()),
        }
    }

    /// The second entity that the event changes, if there is one.
    pub fn other_entity(&self) -> Option<Incarnation> {
        self.bus_fact().and_then(BusFact::other_entity)
    }

    /// The event's news for receivers of a bus queue, if any.
    pub fn arrival(&self) -> Option<Arrival> {
        self.bus_fact().and_then(Arrival::of)
    }

    /// The bus queue whose settings the event changes or which it deletes, together with its sub-queues.
    pub fn changed_bus_queue(&self) -> Option<Incarnation> {
        self.bus_fact().and_then(BusFact::changed_queue)
    }

    /// The fact about a bus queue, if the event has one.
    fn bus_fact(&self) -> Option<&BusFact> {
        match &self.fact {
            Fact::Bus(fact) => Some(fact),
            Fact::PartitionInitialized { .. }
            | Fact::QueueCreated { .. }
            | Fact::QueueDeleted { .. }
            | Fact::QueueMetadataSet { .. }
            | Fact::MessageSent { .. }
            | Fact::MessageReceived { .. }
            | Fact::MessageUpdated { .. }
            | Fact::MessageDeleted { .. }
            | Fact::QueueCleared { .. }
            | Fact::RunExpired { .. }
            | Fact::QueuePoliciesSet { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. } => None,
        }
    }

    /// Whether a listing of entities, the absence of one, an account or the properties of a service
    /// show the event.
    pub fn shows_in_catalogue(&self) -> bool {
        match &self.fact {
            Fact::PartitionInitialized { .. }
            | Fact::QueueCreated { .. }
            | Fact::QueueDeleted { .. }
            | Fact::QueueMetadataSet { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. } => true,
            Fact::MessageSent { .. }
            | Fact::MessageReceived { .. }
            | Fact::MessageUpdated { .. }
            | Fact::MessageDeleted { .. }
            | Fact::QueueCleared { .. }
            | Fact::RunExpired { .. }
            | Fact::QueuePoliciesSet { .. } => false,
            Fact::Bus(fact) => fact.shows_in_catalogue(),
        }
    }
}

#[cfg(test)]
mod tests;
