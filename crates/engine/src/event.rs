//! Events. They are kept in the log forever; `EVENTS.md` lists their bytes, and `codec` writes and reads them.
//!
//! An event carries everything that `apply` needs, so that a replay decides nothing. A new need is a new
//! event or a new version of one, never a new meaning of an old one. [`State::read_event`](crate::State)
//! turns events that earlier versions wrote into those listed here.

pub(crate) mod codec;

use std::sync::Arc;

use bytes::Bytes;

use crate::bus::{Arrival, BusFact};
use crate::catalogue::AccountRecord;
use crate::storage::StorageFact;
use crate::table::{RunLength, Slots};
use crate::vocabulary::{Incarnation, SequenceNumber, Service, Timestamp};

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
        /// How many sequence numbers share a run, in every entity.
        run_length: RunLength,
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
    /// Messages of an entity were set aside, because their records are lost.
    Quarantined {
        /// The entity, of either service.
        entity: Incarnation,
        /// The number that the lowest bit stands for.
        first: SequenceNumber,
        /// A bit for each message.
        messages: Slots,
    },
    /// A run of an entity has ended in which nothing was left but messages that were set aside.
    RunLost {
        /// The entity, of either service.
        entity: Incarnation,
        /// A number of the run.
        number: SequenceNumber,
    },
    /// A fact about storage queues.
    Storage(StorageFact),
    /// A fact about bus queues.
    Bus(BusFact),
}

impl From<StorageFact> for Fact {
    fn from(fact: StorageFact) -> Self {
        Self::Storage(fact)
    }
}

impl From<BusFact> for Fact {
    fn from(fact: BusFact) -> Self {
        Self::Bus(fact)
    }
}

impl Event {
    /// The entities that the event changes. One can come more than once.
    pub fn entities(&self) -> impl Iterator<Item = Incarnation> + '_ {
        let (stored, bus, either) = match &self.fact {
            Fact::Storage(fact) => (Some(fact), None, None),
            Fact::Bus(fact) => (None, Some(fact), None),
            Fact::Quarantined { entity, .. } | Fact::RunLost { entity, .. } => {
                (None, None, Some(*entity))
            }
            Fact::PartitionInitialized { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. } => (None, None, None),
        };
        let stored = stored.into_iter().flat_map(StorageFact::entities);
        let bus = bus.into_iter().flat_map(BusFact::entities);
        either.into_iter().chain(stored).chain(bus)
    }

    /// How many effects the event has: each concerns one message, or is about something else.
    pub fn effect_count(&self) -> usize {
        match &self.fact {
            Fact::Storage(StorageFact::Messages { effects }) => effects.len(),
            Fact::Bus(BusFact::Messages { effects }) => effects.len(),
            Fact::Storage(StorageFact::BodiesMoved { moves }) => moves.len(),
            Fact::Bus(BusFact::BodiesMoved { moves }) => moves.len(),
            Fact::PartitionInitialized { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. }
            | Fact::RunLost { .. }
            | Fact::Storage(_)
            | Fact::Bus(_) => 1,
            Fact::Quarantined { messages, .. } => messages.count_ones() as usize,
        }
    }

    /// How many bytes more the event would take at most if it wrote each copy of a message in full. A snapshot does.
    pub fn left_out_size_bytes(&self) -> u64 {
        self.bus_fact().map_or(0, BusFact::left_out_size_bytes)
    }

    /// The event's news for receivers of bus queues.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival> + '_ {
        let fact = self.bus_fact();
        let effects = fact.into_iter().flat_map(BusFact::effects);
        effects.filter_map(Arrival::of)
    }

    /// The bus queue whose settings the event changes or which it deletes, together with its sub-queues.
    pub fn changed_bus_queue(&self) -> Option<Incarnation> {
        self.bus_fact()?.changed_queue()
    }

    fn bus_fact(&self) -> Option<&BusFact> {
        match &self.fact {
            Fact::Bus(fact) => Some(fact),
            Fact::PartitionInitialized { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. }
            | Fact::Quarantined { .. }
            | Fact::RunLost { .. }
            | Fact::Storage(_) => None,
        }
    }

    /// Whether a listing of entities, the absence of one, an account or the properties of a service
    /// show the event.
    pub fn shows_in_catalogue(&self) -> bool {
        match &self.fact {
            Fact::PartitionInitialized { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. } => true,
            Fact::Quarantined { .. } | Fact::RunLost { .. } => false,
            Fact::Storage(fact) => fact.shows_in_catalogue(),
            Fact::Bus(fact) => fact.shows_in_catalogue(),
        }
    }

    /// Whether an entity forwards messages from now on, or passes on its dead letters.
    pub fn sets_forwards(&self) -> bool {
        matches!(&self.fact, Fact::Bus(fact) if fact.sets_forwards())
    }
}

#[cfg(test)]
mod tests;
