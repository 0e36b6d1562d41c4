//! A message of a bus queue as the state holds it.

use std::sync::Arc;

use crate::{BodyLocation, LeaseGeneration, SequenceNumber, Timestamp};

/// What can be done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusMessageState {
    /// It can be received.
    Ready,
    /// A receiver holds it.
    Locked {
        /// Whether it goes back to being deferred.
        deferred: bool,
    },
    /// It becomes ready later.
    Scheduled,
    /// Only who knows its sequence number can receive it.
    Deferred,
}

/// Why the engine made a message a dead letter.
///
/// Source: Service Bus, *Moving messages to the dead-letter queue*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterCause {
    /// It was delivered too often.
    MaxDeliveryCountExceeded,
    /// Its time to live ended.
    Expired,
    /// It was forwarded too often.
    MaxTransferHopCountExceeded,
    /// It belongs to no session, and its queue wants one.
    SessionIdIsNull,
    /// Where it was to be forwarded is no queue that takes it.
    DestinationUnavailable,
    /// Its receiver said so, and why.
    ByReceiver,
}

/// A message: everything but its sequence number, which its place tells, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) enqueued_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// When the lock ends or the schedule falls due; [`Timestamp::NEVER`] in other states.
    pub(crate) due_at: Timestamp,
    /// Its number where it was sent first.
    pub(crate) first_sequence_number: SequenceNumber,
    pub(crate) body: BodyLocation,
    pub(crate) generation: LeaseGeneration,
    /// Deliveries that failed.
    pub(crate) delivery_count: u32,
    pub(crate) state: BusMessageState,
    pub(crate) cause: Option<DeadLetterCause>,
    /// How often it was forwarded.
    pub(crate) hops: u8,
    /// The entity's number for its session; 0 without one.
    pub(crate) session: u32,
    /// The name of the queue that made it a dead letter, if it was forwarded since.
    pub(crate) dead_letter_source: Option<Arc<str>>,
    /// Changes to its application properties, oldest first.
    pub(crate) overlays: Vec<BodyLocation>,
}

/// The most changes to a message's properties: what would add another one is refused.
pub(crate) const OVERLAYS_MAX: usize = 32;

/// The most bytes of all changes to a message's properties together: as much as its sender may give it
/// of them. What would add more is refused.
pub(crate) const OVERLAYS_SIZE_BYTES_MAX: u64 = 64 * 1024;

/// What a message takes beside its bytes, as its queue's size counts it.
pub(crate) const OVERHEAD_SIZE_BYTES: u64 = 128;

/// Where bytes lie, in a snapshot: a position below 2^49, an offset, a length.
const LOCATION_SIZE_BYTES_MAX: u64 = 15;

/// What a message takes in a snapshot at most beside its overlays: two numbers (2^35 messages), three times, generation and
/// delivery count (2^21 each), state, cause, hops, session, where its body lies, how many overlays it has.
const SNAPSHOT_SIZE_BYTES_MAX: u64 = 45 + LOCATION_SIZE_BYTES_MAX;

/// What the name of the queue that made it a dead letter takes beside its text: whose it is, and a length.
const SOURCE_SIZE_BYTES_MAX: u64 = 10;

impl Message {
    /// Where its bytes lie: what was sent, then the changes to its properties.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = BodyLocation> + '_ {
        std::iter::once(self.body).chain(self.overlays.iter().copied())
    }

    /// What it counts for in its queue's size.
    pub(crate) fn size_bytes(&self) -> u64 {
        OVERHEAD_SIZE_BYTES + u64::from(self.body.length) + self.overlays_size_bytes()
    }

    /// What it takes in a snapshot at most.
    pub(crate) fn snapshot_size_bytes_max(&self) -> u64 {
        let source = self.dead_letter_source.as_deref();
        SNAPSHOT_SIZE_BYTES_MAX
            + self.overlays.len() as u64 * LOCATION_SIZE_BYTES_MAX
            + source.map_or(0, |it| SOURCE_SIZE_BYTES_MAX + it.len() as u64)
    }

    pub(crate) fn overlays_size_bytes(&self) -> u64 {
        let overlays = self.overlays.iter();
        overlays.map(|overlay| u64::from(overlay.length)).sum()
    }
}
