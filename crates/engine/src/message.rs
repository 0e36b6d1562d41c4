//! A message as the state holds it.

use kew_planted::{Bug, is_planted};

use crate::effect::{Effect, Lease, Place, Placed, Was};
use crate::{BodyLocation, LeaseGeneration, Timestamp};

/// How to interpret a message's body when it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoding {
    /// UTF-8 text, shown as it is.
    Text,
    /// Bytes, shown as Base64: the form that the 2008 dialect of Queue Storage puts.
    Raw,
}

/// A message without its body, and without its sequence number, which follows from its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) inserted_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// When it can be received: the end of the latest lease, or of the first delay.
    pub(crate) visible_at: Timestamp,
    pub(crate) body: BodyLocation,
    pub(crate) generation: LeaseGeneration,
    pub(crate) delivery_count: u32,
    pub(crate) encoding: BodyEncoding,
    pub(crate) placement: Placement,
}

impl Message {
    /// Its entry in the order by time, if it has one.
    pub(crate) fn due_at(&self) -> Option<Timestamp> {
        match self.placement {
            Placement::Fresh => None,
            Placement::Timed => Some(self.visible_at),
        }
    }

    /// The lease after one that a receiver gets until `due_at`: another generation, one more delivery.
    pub(crate) fn next_delivery(&self, due_at: Timestamp) -> Lease {
        Lease {
            generation: self.generation.next(),
            deliveries: self.delivery_count.saturating_add(1),
            due_at,
        }
    }

    /// The lease after one that its holder changes to end at `due_at`: another generation, no delivery.
    pub(crate) fn next_lease(&self, due_at: Timestamp) -> Lease {
        let generation = if is_planted(Bug::ReceiptNotRenewed) {
            self.generation
        } else {
            self.generation.next()
        };
        Lease {
            generation,
            deliveries: self.delivery_count,
            due_at,
        }
    }

    /// The effect that gives it a lease, and another body if there is one.
    pub(crate) fn leased(&self, at: Place, lease: Lease, body: Option<Placed>) -> Effect {
        let due_at = self.due_at().filter(|_| !is_planted(Bug::StaleWas));
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
            was: Was {
                due_at: self.due_at(),
                body: Some(self.body),
            },
        }
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        let early_ms = if is_planted(Bug::ExpiresEarly) {
            1000
        } else {
            0
        };
        self.expires_at.has_passed(now.plus_ms(early_ms))
    }
}

/// The order in which a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Never leased, never delayed: its sequence number is its order, and costs no index entry.
    Fresh,
    /// Leased or delayed at least once: ordered by the time it becomes visible.
    Timed,
}
