//! The effects of an event on single messages and sessions of bus queues.
//!
//! As in storage queues, an effect carries absolute results, and says what the old message counted for. So it
//! can be applied without reading what it changes: [`State::apply`](crate::State) asks only whether the message
//! exists. What moves a message has two effects, of which the first adds it in one place and the second ends
//! it in the other. Both are in one event, because a message must not be in two places or in none.

mod apply;
pub(crate) mod codec;

use std::sync::Arc;

use super::{BusMessageState, DeadLetterCause};
use crate::vocabulary::{
    BodyLocation, Incarnation, LeaseGeneration, Place, SequenceNumber, Timestamp,
};

/// A message's state, and until when it lasts if nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The state.
    pub state: BusMessageState,
    /// When the lock ends, the schedule is due or the time to live of a ready message is over;
    /// [`Timestamp::NEVER`] if nothing of that will be.
    pub until: Timestamp,
}

impl Standing {
    /// A message that can be received until it expires.
    pub(crate) fn ready(expires_at: Timestamp) -> Self {
        Self {
            state: BusMessageState::Ready,
            until: expires_at,
        }
    }
}

impl Default for Standing {
    fn default() -> Self {
        Self::ready(Timestamp::NEVER)
    }
}

/// A message's lease from now on: all of its values, not their change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusLease {
    /// The generation of the latest lock.
    pub generation: LeaseGeneration,
    /// How many deliveries have failed.
    pub deliveries: u32,
    /// The state. A ready message expires when that ends.
    pub standing: Standing,
}

/// What the old message counted for in the orders of its entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusWas {
    /// Its state, and its entry in the order by time.
    pub standing: Standing,
    /// The number of its session. 0 without one.
    pub session: u32,
}

/// The bytes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusBodies {
    /// The message as it was sent.
    pub sent: BodyLocation,
    /// Changes to its application properties, oldest first.
    pub overlays: Vec<BodyLocation>,
}

/// The session of a message that comes into an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusSession {
    /// The entity's number for it, above 0.
    pub number: u32,
    /// Its id.
    pub id: Box<str>,
}

/// A message as it comes into an entity, without what follows from the place and the event's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusArrival {
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it becomes ready, if it is not.
    pub scheduled_at: Option<Timestamp>,
    /// Its number in the queue that it was first sent to, if that is another one.
    pub first_number: Option<SequenceNumber>,
    /// Its bytes.
    pub bodies: BusBodies,
    /// The generation of its latest lock, in any entity.
    pub generation: LeaseGeneration,
    /// How many deliveries have failed.
    pub deliveries: u32,
    /// Why it is a dead letter, or was one.
    pub cause: Option<DeadLetterCause>,
    /// How often it was forwarded.
    pub hops: u8,
    /// Its session.
    pub session: Option<BusSession>,
    /// The name of the queue that made it a dead letter, if it was forwarded since.
    pub source: Option<Arc<str>>,
    /// The hash of its id, where duplicates are detected.
    pub id_hash: Option<u128>,
}

impl BusArrival {
    /// A message that a sender brings.
    pub(crate) fn sent(expires_at: Timestamp, body: BodyLocation) -> Self {
        Self {
            expires_at,
            scheduled_at: None,
            first_number: None,
            bodies: BusBodies {
                sent: body,
                overlays: Vec::new(),
            },
            generation: LeaseGeneration::default(),
            deliveries: 0,
            cause: None,
            hops: 0,
            session: None,
            source: None,
            id_hash: None,
        }
    }
}

/// An effect on a message or a session of a bus queue or sub-queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusEffect {
    /// A message came into an entity, at the time of the event.
    Arrived {
        /// Its place.
        to: Place,
        /// The message.
        message: Box<BusArrival>,
    },
    /// A message was locked, or its lock was renewed or ended.
    Leased {
        /// Its place.
        at: Place,
        /// The lease from now on.
        lease: BusLease,
        /// One more change to its properties.
        overlay: Option<BodyLocation>,
        /// What the message counted for.
        was: BusWas,
    },
    /// A message is gone.
    Ended {
        /// Its place.
        at: Place,
        /// What the message counted for.
        was: BusWas,
        /// The bodies that are no longer needed here.
        bodies: BusBodies,
        /// The length of the name that came with it as its source, if one did.
        source_length: Option<u32>,
    },
    /// The lock of a session has ended. Its messages are about to be released, and no delivery of them counts
    /// as failed. Until that is done, nobody can lock the session.
    SessionReleasing {
        /// The entity.
        queue: Incarnation,
        /// The session's id.
        session: Box<str>,
    },
    /// A session can be locked again. None of its messages is locked.
    SessionFreed {
        /// The entity.
        queue: Incarnation,
        /// The session's id.
        session: Box<str>,
    },
}

impl BusEffect {
    /// The entity that the effect changes.
    pub fn entity(&self) -> Incarnation {
        match self {
            Self::Arrived { to: at, .. } | Self::Leased { at, .. } | Self::Ended { at, .. } => {
                at.entity
            }
            Self::SessionReleasing { queue, .. } | Self::SessionFreed { queue, .. } => *queue,
        }
    }
}

#[cfg(test)]
mod tests;
