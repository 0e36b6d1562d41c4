//! The effects of an event on single messages.
//!
//! An effect carries absolute results, and says what the old message counted for. So each one concerns one
//! message, or whole runs, and can be applied without reading what it changes: [`State::apply`](crate::State)
//! asks only whether the message exists.
//!
//! Messages of storage queues change through effects alone.

mod apply;
pub(crate) mod codec;

use std::ops::Deref;

use crate::table::{MESSAGE_OVERHEAD_BYTES, Placed};
use crate::vocabulary::{
    BodyLocation, Incarnation, LeaseGeneration, Place, SequenceNumber, Timestamp,
};

/// A message's lease from now on: all of its values, not their change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The generation of the latest receipt.
    pub generation: LeaseGeneration,
    /// How often the message was delivered.
    pub deliveries: u32,
    /// When it shows again.
    pub due_at: Timestamp,
}

/// What the old message counted for, as far as the effect changes that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Was {
    /// Its entry in the order by time: the end of its lease or delay. `None` if it was never leased nor
    /// delayed.
    pub due_at: Option<Timestamp>,
    /// The body that is no longer needed: at the end of the message, or when another one replaces it.
    pub body: Option<BodyLocation>,
}

impl Was {
    /// What the message counted for in its account's bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        MESSAGE_OVERHEAD_BYTES + self.body_size_bytes()
    }

    /// The bytes of the body that is no longer needed.
    pub(crate) fn body_size_bytes(&self) -> u64 {
        self.body.map_or(0, |body| u64::from(body.length))
    }
}

/// An effect on a message, or on whole runs of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A message came into a storage queue, at the time of the event. It has the first lease generation and no
    /// deliveries.
    Arrived {
        /// Its place.
        to: Place,
        /// When it expires.
        expires_at: Timestamp,
        /// When it can first be received, if that is later than the event.
        due_at: Option<Timestamp>,
        /// Its body.
        body: Placed,
    },
    /// A message was handed to a receiver, or its holder renewed or ended the lease.
    Leased {
        /// Its place.
        at: Place,
        /// The lease from now on.
        lease: Lease,
        /// The new body, if it was replaced.
        body: Option<Placed>,
        /// What the message counted for.
        was: Was,
    },
    /// A message is gone.
    Ended {
        /// Its place.
        at: Place,
        /// What the message counted for.
        was: Was,
    },
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

impl Effect {
    /// The entity that the effect changes.
    pub fn entity(&self) -> Incarnation {
        match self {
            Self::Arrived { to: at, .. } | Self::Leased { at, .. } | Self::Ended { at, .. } => {
                at.entity
            }
            Self::RangeEnded { entity, .. } => *entity,
        }
    }
}

/// The effects of one event, in order. Nearly always there is one, which takes no memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effects(Held);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    One(Effect),
    /// None, or more than one.
    Many(Vec<Effect>),
}

impl Deref for Effects {
    type Target = [Effect];

    fn deref(&self) -> &[Effect] {
        match &self.0 {
            Held::One(effect) => std::slice::from_ref(effect),
            Held::Many(effects) => effects,
        }
    }
}

impl Default for Effects {
    fn default() -> Self {
        Self(Held::Many(Vec::new()))
    }
}

impl From<Effect> for Effects {
    fn from(effect: Effect) -> Self {
        Self(Held::One(effect))
    }
}

impl From<Vec<Effect>> for Effects {
    fn from(effects: Vec<Effect>) -> Self {
        match effects[..] {
            [effect] => Self::from(effect),
            _ => Self(Held::Many(effects)),
        }
    }
}

impl FromIterator<Effect> for Effects {
    fn from_iter<I: IntoIterator<Item = Effect>>(effects: I) -> Self {
        let mut effects = effects.into_iter().fuse();
        let (first, second) = (effects.next(), effects.next());
        match (first, second) {
            (Some(first), None) => Self::from(first),
            (first, second) => {
                let all = first.into_iter().chain(second).chain(effects);
                Self(Held::Many(all.collect()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
