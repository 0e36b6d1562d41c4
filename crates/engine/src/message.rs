//! A message as the state holds it.

use kew_planted::{Bug, is_planted};

use crate::{BodyLocation, LeaseGeneration, Timestamp};

/// How a message's body is to be understood when it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoding {
    /// UTF-8 text, shown as it is.
    Text,
    /// Bytes, shown as Base64: what the 2008 dialect of Queue Storage puts.
    Raw,
}

/// A message: everything but its body, and but its sequence number, which its place tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) inserted_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// From when on it can be received: the end of the latest lease, or of the first delay.
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

/// Which order a message waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Never leased, never delayed: its sequence number is its order, and costs no index entry.
    Fresh,
    /// Leased or delayed at least once: ordered by when it is visible.
    Timed,
}
