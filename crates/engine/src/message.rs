//! A message as the state holds it.

use kew_planted::{Bug, is_planted};

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
