//! What only storage queues have of effects.

use crate::effect::{self, Own};
use crate::queues;
use crate::vocabulary::{Incarnation, SequenceNumber};

/// An effect on a storage queue.
pub type Effect = effect::Effect<OwnEffect>;

/// Effects on storage queues, in order.
pub type Effects = effect::Effects<OwnEffect>;

/// A body of a storage queue that has moved.
pub type Moved = queues::Moved<OwnHolder>;

/// An effect that only storage queues have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnEffect {
    /// All messages of a range of numbers are gone. The range covers whole runs: a run that reaches beyond it
    /// stays as it is. It has leased or delayed messages only if it covers all of the entity.
    RangeEnded {
        /// The entity.
        entity: Incarnation,
        /// The first number.
        from: SequenceNumber,
        /// The number after the last one. Numbers below it are used.
        until: SequenceNumber,
    },
}

impl Own for OwnEffect {
    fn entity(&self) -> Incarnation {
        match self {
            Self::RangeEnded { entity, .. } => *entity,
        }
    }
}

/// What has a body besides messages: nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnHolder {}

impl Own for OwnHolder {
    fn entity(&self) -> Incarnation {
        match *self {}
    }
}
