//! A message of a bus queue as the state holds it.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use super::BusMessageState;
use super::backlog::Kept;
use super::room::NAME_SIZE_BYTES_MAX;
use crate::bus::Effect;
use crate::effect::{Arrival, BusSession, Lease, NewBody, Rest, Standing};
use crate::queues::Profile;
use crate::table::{Entry, Record, Side};
use crate::vocabulary::{BodyLocation, Place, SequenceNumber, Timestamp};

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

/// A message in the table. Its record counts failed deliveries; `due_at` is when the lock ends or the message
/// becomes ready, and [`Timestamp::NEVER`] in other states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a>(Entry<'a>);

impl Deref for Message<'_> {
    type Target = Record;

    fn deref(&self) -> &Record {
        self.0.record
    }
}

impl<'a> From<Entry<'a>> for Message<'a> {
    fn from(entry: Entry<'a>) -> Self {
        Self(entry)
    }
}

/// The most changes to a message's properties. A settlement that would add one more is refused.
pub(crate) const OVERLAYS_MAX: usize = 32;

/// The most bytes of all changes to a message's properties together: as much as the sender may give it. A
/// settlement that would add more is refused.
const OVERLAYS_SIZE_BYTES_MAX: u64 = 64 * 1024;

/// Whether a message with these changes has room for one more.
pub(crate) fn takes_overlay(overlays: &[BodyLocation], overlay: &Bytes) -> bool {
    let size_bytes = overlays.iter().map(|it| u64::from(it.length)).sum::<u64>();
    overlays.len() < OVERLAYS_MAX && size_bytes + overlay.len() as u64 <= OVERLAYS_SIZE_BYTES_MAX
}

/// The most bytes of a location in a snapshot: a position below 2^49, an offset, a length.
pub(crate) const LOCATION_SIZE_BYTES_MAX: u64 = 15;

/// The most bytes of a message in a snapshot, without its overlays: two numbers (2^35 messages), three
/// times, generation and delivery count (2^21 each), state, cause, hops, session, the location of its body
/// with one byte more for its hold, and the number of overlays.
const SNAPSHOT_SIZE_BYTES_MAX: u64 = 46 + LOCATION_SIZE_BYTES_MAX;

/// The most bytes that go with the name of the queue that dead-lettered the message: its number, and a
/// length.
pub(crate) const SOURCE_SIZE_BYTES_MAX: u64 = 10;

impl<'a> Message<'a> {
    pub(crate) fn number(&self) -> SequenceNumber {
        self.0.number
    }

    pub(crate) fn record(&self) -> &'a Record {
        self.0.record
    }

    /// Its number in the queue it was first sent to.
    pub(crate) fn first_number(&self) -> SequenceNumber {
        self.0.first_number().unwrap_or(self.0.number)
    }

    /// The name of the queue that made it a dead letter, if it was forwarded since.
    pub(crate) fn source(&self) -> Option<&'a Arc<str>> {
        self.0.side?.source.as_ref()
    }

    /// Changes to its application properties, oldest first.
    pub(crate) fn overlays(&self) -> &'a [BodyLocation] {
        self.0.overlays()
    }

    /// The locations of its bytes: the sent body, then the changes to its properties.
    pub(crate) fn bodies(self) -> impl Iterator<Item = BodyLocation> + 'a {
        self.0.bodies()
    }

    /// What it takes along to other places, beside its record.
    pub(crate) fn side(&self) -> Side {
        Side {
            first_number: Some(self.first_number()),
            source: self.source().cloned(),
            overlays: self.overlays().to_vec(),
        }
    }

    /// What the message counts for in its queue's size.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    /// An upper bound of what the message takes in a snapshot.
    pub(crate) fn snapshot_size_bytes_max(&self) -> u64 {
        snapshot_size_bytes_max(self.overlays().len(), self.0.source_length())
    }

    /// Its state, and until when it lasts.
    pub(crate) fn standing(&self) -> Standing {
        standing(self.0.record)
    }

    /// The lease under a lock that ends at `until`.
    pub(crate) fn locked(&self, until: Timestamp) -> Lease {
        let deferred = self.state == BusMessageState::Deferred;
        Lease {
            generation: self.generation.next(),
            deliveries: self.deliveries,
            standing: Standing {
                state: BusMessageState::Locked { deferred },
                until,
            },
        }
    }

    /// The lease with another end of the lock.
    pub(crate) fn renewed(&self, until: Timestamp) -> Lease {
        Lease {
            generation: self.generation,
            deliveries: self.deliveries,
            standing: Standing {
                state: self.state,
                until,
            },
        }
    }

    /// The lease after the lock has ended in this way.
    pub(crate) fn released(&self, release: Release) -> Lease {
        let was_deferred = self.state == BusMessageState::Locked { deferred: true };
        let has_failed = release == Release::Failed;
        let standing = if was_deferred || release == Release::Deferred {
            Standing {
                state: BusMessageState::Deferred,
                until: Timestamp::NEVER,
            }
        } else {
            Standing::ready(self.expires_at)
        };
        Lease {
            generation: self.generation,
            deliveries: self.deliveries.saturating_add(has_failed.into()),
            standing,
        }
    }

    /// The effect that gives it a lease, and one more change to its properties if there is one.
    pub(crate) fn leased(&self, at: Place, lease: Lease, overlay: Option<BodyLocation>) -> Effect {
        Kept::leased(
            self.0.record,
            at,
            lease,
            overlay.map(|overlay| Box::new(NewBody::Change(overlay))),
        )
    }

    /// The effect that removes it.
    pub(crate) fn ended(&self, at: Place) -> Effect {
        Kept::ended(at.entity, &self.0)
    }

    /// The message as it comes, ready, to another place, where its session has that number.
    pub(crate) fn arriving(&self, now: Timestamp, session: Option<BusSession>) -> Arrival {
        let mut record = Record {
            enqueued_at: now,
            ..*self.0.record
        };
        record.stand(BusMessageState::Ready, self.expires_at);
        let rest = Rest {
            side: self.side(),
            ..Rest::default()
        };
        Arrival::new(record, session, rest)
    }
}

/// A message that a sender brings.
pub(crate) fn sent(
    now: Timestamp,
    expires_at: Timestamp,
    scheduled_at: Option<Timestamp>,
    body: BodyLocation,
) -> Record {
    let state = match scheduled_at {
        Some(_) => BusMessageState::Scheduled,
        None => BusMessageState::Ready,
    };
    Record {
        expires_at,
        due_at: scheduled_at.unwrap_or(Timestamp::NEVER),
        state,
        ..Record::ready(now, body)
    }
}

/// A message's state, and until when it lasts.
pub(crate) fn standing(record: &Record) -> Standing {
    let until = match record.state {
        BusMessageState::Ready => record.expires_at,
        BusMessageState::Locked { .. } | BusMessageState::Scheduled => record.due_at,
        BusMessageState::Deferred => Timestamp::NEVER,
    };
    Standing {
        state: record.state,
        until,
    }
}

/// When a message expires if nothing else happens first. Only ready messages expire.
pub(crate) fn expiry(record: &Record) -> Timestamp {
    match record.state {
        BusMessageState::Ready => record.expires_at,
        BusMessageState::Locked { .. } | BusMessageState::Scheduled | BusMessageState::Deferred => {
            Timestamp::NEVER
        }
    }
}

/// An upper bound of what any message takes in a snapshot.
pub(crate) const ANY_SIZE_BYTES_MAX: u64 = SNAPSHOT_SIZE_BYTES_MAX
    + OVERLAYS_MAX as u64 * LOCATION_SIZE_BYTES_MAX
    + SOURCE_SIZE_BYTES_MAX
    + NAME_SIZE_BYTES_MAX as u64;

/// An upper bound of what a message takes in a snapshot.
pub(crate) fn snapshot_size_bytes_max(overlays: usize, source_length: Option<u32>) -> u64 {
    SNAPSHOT_SIZE_BYTES_MAX
        + overlays as u64 * LOCATION_SIZE_BYTES_MAX
        + source_length.map_or(0, |length| SOURCE_SIZE_BYTES_MAX + u64::from(length))
}
