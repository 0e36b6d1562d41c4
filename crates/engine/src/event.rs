//! Events. They are kept in the log forever; `EVENTS.md` lists their bytes, and `codec` writes and reads them.
//!
//! An event carries everything that `apply` needs, so that a replay decides nothing. A new need is a new
//! event or a new version of one, never a new meaning of an old one. [`State::read_event`](crate::State)
//! turns events that earlier versions wrote into those listed here.

pub(crate) mod codec;

use std::sync::Arc;

use bytes::Bytes;

use crate::bus::{Arrival, BusEffect, BusFact};
use crate::{
    AccessPolicies, AccountRecord, Effect, Effects, EntityName, Incarnation, Metadata, Service,
    Timestamp,
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
    /// Messages of storage queues came, were leased, or ended.
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
    /// Messages of bus queues came, were locked or released, moved, or ended; sessions were released.
    BusMessages {
        /// What happened to each of them, in order.
        effects: Vec<BusEffect>,
    },
    /// Something else happened to a bus queue.
    Bus(BusFact),
}

/// What an event is about.
enum Subject<'a> {
    /// The partition, an account or a service.
    Partition,
    Queue(Incarnation),
    Messages(&'a Effects),
    BusMessages(&'a [BusEffect]),
    Bus(&'a BusFact),
}

impl Event {
    /// The entities that the event changes. One can come more than once.
    pub fn entities(&self) -> impl Iterator<Item = Incarnation> + '_ {
        let (own, stored, bus) = match self.subject() {
            Subject::Partition => (None, &[][..], &[][..]),
            Subject::Queue(queue) => (Some(queue), &[][..], &[][..]),
            Subject::Messages(effects) => (None, &effects[..], &[][..]),
            Subject::BusMessages(effects) => (None, &[][..], effects),
            Subject::Bus(fact) => (Some(fact.entity()), &[][..], &[][..]),
        };
        let stored = stored.iter().map(Effect::entity);
        let bus = bus.iter().map(BusEffect::entity);
        own.into_iter().chain(stored).chain(bus)
    }

    /// How many effects the event has: each concerns one message, or is about something else.
    pub fn effect_count(&self) -> usize {
        match self.subject() {
            Subject::Messages(effects) => effects.len(),
            Subject::BusMessages(effects) => effects.len(),
            Subject::Partition | Subject::Queue(_) | Subject::Bus(_) => 1,
        }
    }

    /// The event's news for receivers of bus queues.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival> + '_ {
        let effects = match self.subject() {
            Subject::BusMessages(effects) => effects,
            Subject::Partition | Subject::Queue(_) | Subject::Messages(_) | Subject::Bus(_) => &[],
        };
        effects.iter().filter_map(Arrival::of)
    }

    /// The bus queue whose settings the event changes or which it deletes, together with its sub-queues.
    pub fn changed_bus_queue(&self) -> Option<Incarnation> {
        match self.subject() {
            Subject::Bus(fact) => fact.changed_queue(),
            Subject::Partition
            | Subject::Queue(_)
            | Subject::Messages(_)
            | Subject::BusMessages(_) => None,
        }
    }

    fn subject(&self) -> Subject<'_> {
        match &self.fact {
            Fact::PartitionInitialized { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. } => Subject::Partition,
            Fact::QueueCreated { queue, .. }
            | Fact::QueueDeleted { queue }
            | Fact::QueueMetadataSet { queue, .. }
            | Fact::QueuePoliciesSet { queue, .. } => Subject::Queue(*queue),
            Fact::Messages { effects } => Subject::Messages(effects),
            Fact::BusMessages { effects } => Subject::BusMessages(effects),
            Fact::Bus(fact) => Subject::Bus(fact),
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
            Fact::Messages { .. } | Fact::BusMessages { .. } | Fact::QueuePoliciesSet { .. } => {
                false
            }
            Fact::Bus(fact) => fact.shows_in_catalogue(),
        }
    }
}

#[cfg(test)]
mod tests;
