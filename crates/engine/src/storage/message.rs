//! A message of a storage queue as the state holds it.

use std::ops::Deref;

use super::backlog::Stored;
use crate::effect::{Lease, NewBody, Standing};
use crate::queues::Profile;
use crate::storage::Effect;
use crate::table::{Entry, MessageState, Placed, Record};
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
    ) -> Record {
        Record {
            expires_at,
            due_at: due_at.unwrap_or(now),
            generation: LeaseGeneration::FIRST,
            state: state(due_at.is_some()),
            encoding: body.encoding,
            ..Record::ready(now, body.location)
        }
    }

    /// The lease after one that a receiver gets until `due_at`: another generation, one more delivery.
    pub(crate) fn next_delivery(&self, due_at: Timestamp) -> Lease {
        Lease {
            deliveries: self.deliveries.saturating_add(1),
            ..self.next_lease(due_at)
        }
    }

    /// The lease after one that its holder changes to end at `due_at`: another generation, no delivery.
    pub(crate) fn next_lease(&self, due_at: Timestamp) -> Lease {
        Lease {
            generation: self.generation.next(),
            deliveries: self.deliveries,
            standing: until(due_at),
        }
    }

    /// The effect that gives it a lease, and another body if there is one.
    pub(crate) fn leased(&self, at: Place, lease: Lease, body: Option<Placed>) -> Effect {
        let was = self.body;
        let body = body.map(|body| Box::new(NewBody::Other { body, was }));
        Stored::leased(&self.0, at, lease, body)
    }

    /// The effect that removes it.
    pub(crate) fn ended(&self, at: Place) -> Effect {
        let entry = Entry {
            number: at.number,
            record: &self.0,
            first_number: None,
            side: None,
        };
        Stored::ended(at.entity, &entry)
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.has_passed(now)
    }
}

/// The standing of a message that is leased or delayed until `due_at`.
pub(crate) fn until(due_at: Timestamp) -> Standing {
    Standing {
        state: TIMED,
        until: due_at,
    }
}

/// The state of a message that waits by time, or of one that does not.
pub(crate) fn state(is_timed: bool) -> MessageState {
    if is_timed { TIMED } else { MessageState::Ready }
}

/// When a message shows that waits by time. `None` if it waits by its number.
pub(crate) fn timed_at(record: &Record) -> Option<Timestamp> {
    match record.state {
        MessageState::Ready => None,
        MessageState::Locked { .. } | MessageState::Scheduled | MessageState::Deferred => {
            Some(record.due_at)
        }
    }
}
