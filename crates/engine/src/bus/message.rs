//! A message of a bus queue as the state holds it.

use std::sync::Arc;

use crate::{BodyLocation, LeaseGeneration, SequenceNumber, Timestamp};

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusMessageState {
    /// It can be received.
    Ready,
    /// A receiver holds it.
    Locked {
        /// Whether it is deferred again when the lock ends.
        deferred: bool,
    },
    /// It becomes ready later.
    Scheduled,
    /// It can be received by its sequence number only.
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
    /// It belongs to no session, and its queue requires one.
    SessionIdIsNull,
    /// The queue it should be forwarded to does not exist or does not accept it.
    DestinationUnavailable,
    /// Its receiver dead-lettered it, with a reason.
    ByReceiver,
}

/// A message without its sequence number, which follows from its place, and without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) enqueued_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// When the lock ends or the message becomes ready; [`Timestamp::NEVER`] in other states.
    pub(crate) due_at: Timestamp,
    /// Its number in the queue it was first sent to.
    pub(crate) first_sequence_number: SequenceNumber,
    pub(crate) body: BodyLocation,
    pub(crate) generation: LeaseGeneration,
    /// The number of failed deliveries.
    pub(crate) delivery_count: u32,
    pub(crate) state: BusMessageState,
    pub(crate) cause: Option<DeadLetterCause>,
    /// How often the message was forwarded.
    pub(crate) hops: u8,
    /// The entity's number for its session. 0 without one.
    pub(crate) session: u32,
    /// The name of the queue that made it a dead letter, if it was forwarded since.
    pub(crate) dead_letter_source: Option<Arc<str>>,
    /// Changes to its application properties, oldest first.
    pub(crate) overlays: Vec<BodyLocation>,
}

/// The most changes to a message's properties. A settlement that would add one more is refused.
pub(crate) const OVERLAYS_MAX: usize = 32;

/// The most bytes of all changes to a message's properties together: as much as the sender may give it. A
/// settlement that would add more is refused.
pub(crate) const OVERLAYS_SIZE_BYTES_MAX: u64 = 64 * 1024;

/// What a message counts for in its queue's size, besides its bytes.
pub(crate) const OVERHEAD_SIZE_BYTES: u64 = 128;

/// The most bytes of a location in a snapshot: a position below 2^49, an offset, a length.
const LOCATION_SIZE_BYTES_MAX: u64 = 15;

/// The most bytes of a message in a snapshot, without its overlays: two numbers (2^35 messages), three
/// times, generation and delivery count (2^21 each), state, cause, hops, session, the location of its body,
/// and the number of overlays.
const SNAPSHOT_SIZE_BYTES_MAX: u64 = 45 + LOCATION_SIZE_BYTES_MAX;

/// The most bytes that go with the name of the queue that dead-lettered the message: its number, and a
/// length.
const SOURCE_SIZE_BYTES_MAX: u64 = 10;

impl Message {
    /// The locations of its bytes: the sent body, then the changes to its properties.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = BodyLocation> + '_ {
        std::iter::once(self.body).chain(self.overlays.iter().copied())
    }

    /// What the message counts for in its queue's size.
    pub(crate) fn size_bytes(&self) -> u64 {
        OVERHEAD_SIZE_BYTES + u64::from(self.body.length) + self.overlays_size_bytes()
    }

    /// An upper bound of what the message takes in a snapshot.
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
