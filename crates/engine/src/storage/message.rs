//! A message of a storage queue as the state holds it.

use std::ops::Deref;

use kew_planted::{Bug, is_planted};

use crate::storage::{Effect, Lease, Was};
use crate::table::{MessageState, Placed, Record};
use crate::vocabulary::{LeaseGeneration, Place, Timestamp};

/// The state of a message that was leased or delayed at least once: it waits by the time at which it shows,
/// also when that has passed. Other messages are ready, and wait by their numbers.
const TIMED: MessageState = MessageState::Locked { deferred: false };

/// A message of a storage queue. It counts deliveries, and `due_at` is when it can be received: the end of the
/// latest lease, or of the first delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message(pub(crate) Record);

impl Deref for Message {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.0
    }
}

impl Message {
    /// A message as it arrives, that can first be received at `due_at` if it is delayed.
    pub(crate) fn arrived(
        now: Timestamp,
        expires_at: Timestamp,
        due_at: Option<Timestamp>,
        body: Placed,
    ) -> Self {
        Self(Record {
            expires_at,
            due_at: due_at.unwrap_or(now),
            generation: LeaseGeneration::FIRST,
            state: state(due_at.is_some()),
            encoding: body.encoding,
            ..Record::ready(now, body.location)
        })
    }

    /// Whether it waits by time.
    pub(crate) fn is_timed(&self) -> bool {
        match self.state {
            MessageState::Ready => false,
            MessageState::Locked { .. } | MessageState::Scheduled | MessageState::Deferred => true,
        }
    }

    /// Its entry in the order by time, if it has one.
    pub(crate) fn timed_at(&self) -> Option<Timestamp> {
        self.is_timed().then_some(self.due_at)
    }

    /// The lease after one that a receiver gets until `due_at`: another generation, one more delivery.
    pub(crate) fn next_delivery(&self, due_at: Timestamp) -> Lease {
        Lease {
            generation: self.generation.next(),
            deliveries: self.deliveries.saturating_add(1),
            due_at,
        }
    }

    /// The lease after one that its holder changes to end at `due_at`: another generation, no delivery.
    pub(crate) fn next_lease(&self, due_at: Timestamp) -> Lease {
        Lease {
            generation: self.generation.next(),
            deliveries: self.deliveries,
            due_at,
        }
    }

    /// The effect that gives it a lease, and another body if there is one.
    pub(crate) fn leased(&self, at: Place, lease: Lease, body: Option<Placed>) -> Effect {
        let due_at = self.timed_at();
        let replaced = body.map(|_| self.body);
        Effect::Leased {
            at,
            lease,
            body,
            was: Was {
                due_at,
                body: replaced,
            },
        }
    }

    /// The effect that removes it.
    pub(crate) fn ended(&self, at: Place) -> Effect {
        Effect::Ended {
            at,
            was: self.was(),
        }
    }

    /// What it counts for until it ends.
    pub(crate) fn was(&self) -> Was {
        Was {
            due_at: self.timed_at(),
            body: Some(self.body),
        }
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.has_passed(now)
            || is_planted(Bug::ExpiresEarly) && self.expires_at.has_passed(now.plus_ms(1000))
    }
}

/// The state of a message that waits by time, or of one that does not.
pub(crate) fn state(is_timed: bool) -> MessageState {
    if is_timed { TIMED } else { MessageState::Ready }
}

/// Puts a lease, and another body if there is one, into the record.
pub(crate) fn lease(record: &mut Record, lease: &Lease, body: Option<Placed>) {
    record.generation = lease.generation;
    record.deliveries = lease.deliveries;
    record.due_at = lease.due_at;
    record.state = TIMED;
    if let Some(body) = body {
        record.encoding = body.encoding;
        record.body = body.location;
    }
}
