//! A message of a bus queue as the state holds it.

use std::sync::Arc;

use kew_planted::{Bug, is_planted};

use super::effect::{BusArrival, BusBodies, BusEffect, BusLease, BusSession, BusWas, Standing};
use crate::{BodyLocation, LeaseGeneration, Place, SequenceNumber, Timestamp};

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

/// How a lock ended, for a message that stays in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// The delivery failed: it counts.
    Failed,
    /// The receiver did not look at the message.
    Unseen,
    /// The receiver deferred it.
    Deferred,
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
pub(crate) const LOCATION_SIZE_BYTES_MAX: u64 = 15;

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
        snapshot_size_bytes_max(self.overlays.len(), self.source_length())
    }

    pub(crate) fn overlays_size_bytes(&self) -> u64 {
        overlays_size_bytes(&self.overlays)
    }

    fn source_length(&self) -> Option<u32> {
        let source = self.dead_letter_source.as_deref()?;
        Some(u32::try_from(source.len()).unwrap_or(u32::MAX))
    }

    /// Its state, and until when it lasts.
    pub(crate) fn standing(&self) -> Standing {
        let until = match self.state {
            BusMessageState::Ready => self.expires_at,
            BusMessageState::Locked { .. } | BusMessageState::Scheduled => self.due_at,
            BusMessageState::Deferred => Timestamp::NEVER,
        };
        Standing {
            state: self.state,
            until,
        }
    }

    /// What it counts for in the orders of its entity.
    pub(crate) fn was(&self) -> BusWas {
        BusWas {
            standing: self.standing(),
            session: self.session,
        }
    }

    /// The lease under a lock that ends at `until`.
    pub(crate) fn locked(&self, until: Timestamp) -> BusLease {
        let deferred = self.state == BusMessageState::Deferred;
        BusLease {
            generation: self.generation.next(),
            deliveries: self.delivery_count,
            standing: Standing {
                state: BusMessageState::Locked { deferred },
                until,
            },
        }
    }

    /// The lease with another end of the lock.
    pub(crate) fn renewed(&self, until: Timestamp) -> BusLease {
        BusLease {
            generation: self.generation,
            deliveries: self.delivery_count,
            standing: Standing {
                state: self.state,
                until,
            },
        }
    }

    /// The lease after the lock has ended in this way.
    pub(crate) fn released(&self, release: Release) -> BusLease {
        let was_deferred = self.state == BusMessageState::Locked { deferred: true }
            && !is_planted(Bug::BusDeferralForgotten);
        let is_deferred = release == Release::Deferred && !is_planted(Bug::BusDeferredDelivered);
        let has_failed = release == Release::Failed && !is_planted(Bug::BusFailureNotCounted);
        let standing = if was_deferred || is_deferred {
            Standing {
                state: BusMessageState::Deferred,
                until: Timestamp::NEVER,
            }
        } else if is_planted(Bug::BusExpiryForgotten) {
            Standing::default()
        } else {
            Standing::ready(self.expires_at)
        };
        BusLease {
            generation: self.generation,
            deliveries: self.delivery_count.saturating_add(has_failed.into()),
            standing,
        }
    }

    /// The effect that gives it a lease, and one more change to its properties if there is one.
    pub(crate) fn leased(
        &self,
        at: Place,
        lease: BusLease,
        overlay: Option<BodyLocation>,
    ) -> BusEffect {
        BusEffect::Leased {
            at,
            lease,
            overlay,
            was: self.was(),
        }
    }

    /// The effect that removes it.
    pub(crate) fn ended(&self, at: Place) -> BusEffect {
        BusEffect::Ended {
            at,
            was: self.was(),
            bodies: BusBodies {
                sent: self.body,
                overlays: self.overlays.clone(),
            },
            source_length: self.source_length(),
        }
    }

    /// The message as it comes, ready, to another place, where its session has that number.
    pub(crate) fn arriving(&self, session: Option<BusSession>) -> BusArrival {
        BusArrival {
            expires_at: self.expires_at,
            scheduled_at: None,
            first_number: Some(self.first_sequence_number),
            bodies: BusBodies {
                sent: self.body,
                overlays: self.overlays.clone(),
            },
            generation: self.generation,
            deliveries: self.delivery_count,
            cause: self.cause,
            hops: self.hops,
            session,
            source: self.dead_letter_source.clone(),
            id_hash: None,
        }
    }
}

impl BusBodies {
    /// What a message with these bodies counts for in its queue's size.
    pub(crate) fn size_bytes(&self) -> u64 {
        OVERHEAD_SIZE_BYTES + u64::from(self.sent.length) + overlays_size_bytes(&self.overlays)
    }
}

fn overlays_size_bytes(overlays: &[BodyLocation]) -> u64 {
    let overlays = overlays.iter();
    overlays.map(|overlay| u64::from(overlay.length)).sum()
}

/// An upper bound of what a message takes in a snapshot.
pub(crate) fn snapshot_size_bytes_max(overlays: usize, source_length: Option<u32>) -> u64 {
    SNAPSHOT_SIZE_BYTES_MAX
        + overlays as u64 * LOCATION_SIZE_BYTES_MAX
        + source_length.map_or(0, |length| SOURCE_SIZE_BYTES_MAX + u64::from(length))
}
