//! What is known of one message.

use bytes::Bytes;
use kew_engine::{Timestamp, Token};

use super::{Violation, violated};

/// Whether something is so, as far as the history tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certainty {
    No,
    Maybe,
    Yes,
}

/// A message that a client tried to send.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) id: Option<Token>,
    /// What its body may be: one, or more after an update of unknown outcome.
    pub(crate) bodies: Vec<Bytes>,
    pub(crate) gone: Certainty,
    pub(crate) inserted_at: Option<Timestamp>,
    pub(crate) expires_at_min: Timestamp,
    pub(crate) expires_at_max: Timestamp,
    /// The latest receipt, if nothing of unknown outcome can have made another.
    pub(crate) receipt: Option<Token>,
    /// Receipts that cannot be the latest any more.
    pub(crate) stale: Vec<Token>,
    /// Certainly hidden before.
    pub(crate) visible_at_min: Timestamp,
    /// Certainly visible from then on.
    pub(crate) visible_at_max: Timestamp,
    pub(crate) deliveries_min: u32,
    pub(crate) deliveries_max: u32,
}

/// A message as an answer shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    pub(crate) id: Token,
    pub(crate) inserted_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// Deliveries before this one.
    pub(crate) deliveries_before: u32,
    pub(crate) body: &'a Bytes,
    pub(crate) at: Timestamp,
}

impl Message {
    /// Whether it is certainly there at `now`.
    pub(crate) fn is_certain(&self, now: Timestamp) -> bool {
        self.gone == Certainty::No && !self.expires_at_min.has_passed(now)
    }

    /// Whether it can be there at `now`.
    pub(crate) fn is_possible(&self, now: Timestamp) -> bool {
        self.gone != Certainty::Yes && !self.expires_at_max.has_passed(now)
    }

    /// A delivery, or a look, at a message.
    pub(crate) fn show(&mut self, shown: Shown<'_>) -> Result<(), Violation> {
        if self.gone == Certainty::Yes {
            return violated!("no resurrection", "{shown:?} was deleted: {self:?}");
        }
        if self.expires_at_max.has_passed(shown.at) {
            return violated!("time", "{shown:?} shown after its expiry: {self:?}");
        }
        if self.id.is_some_and(|id| id != shown.id) {
            return violated!("unique ids", "{shown:?} has another id than {self:?}");
        }
        if !self.bodies.contains(shown.body) {
            return violated!("no change", "{shown:?} has another body than {self:?}");
        }
        if self.inserted_at.is_some_and(|at| at != shown.inserted_at)
            || shown.expires_at < self.expires_at_min
            || shown.expires_at > self.expires_at_max
        {
            return violated!("no change", "{shown:?} has other times than {self:?}");
        }
        if !self.visible_at_min.has_passed(shown.at) {
            return violated!(
                "lease exclusivity",
                "{shown:?} shown while hidden: {self:?}"
            );
        }
        if !(self.deliveries_min..=self.deliveries_max).contains(&shown.deliveries_before) {
            return violated!(
                "delivery count",
                "{shown:?} was delivered otherwise: {self:?}"
            );
        }
        self.id = Some(shown.id);
        self.bodies = vec![shown.body.clone()];
        self.gone = Certainty::No;
        self.inserted_at = Some(shown.inserted_at);
        self.expires_at_min = shown.expires_at;
        self.expires_at_max = shown.expires_at;
        self.deliveries_min = shown.deliveries_before;
        self.deliveries_max = shown.deliveries_before;
        self.visible_at_min = Timestamp::ZERO;
        self.visible_at_max = self.visible_at_max.min(shown.at);
        Ok(())
    }

    /// A new lease: one receipt, and one time at which it shows again.
    pub(crate) fn lease(&mut self, receipt: Token, visible_at: Timestamp) -> Result<(), Violation> {
        if self.stale.contains(&receipt) || self.receipt == Some(receipt) {
            return violated!(
                "unique ids",
                "receipt {receipt:?} was used before: {self:?}"
            );
        }
        self.stale.extend(self.receipt.replace(receipt));
        self.visible_at_min = visible_at;
        self.visible_at_max = visible_at;
        Ok(())
    }

    /// A lease that may have come about, which hides the message until `visible_at` at the latest,
    /// and not before `from`.
    pub(crate) fn maybe_lease(&mut self, from: Timestamp, visible_at: Timestamp) {
        // The old receipt may still be the latest: it is neither that for sure nor stale.
        self.receipt = None;
        self.visible_at_min = self.visible_at_min.min(from);
        self.visible_at_max = self.visible_at_max.max(visible_at);
    }

    /// A settlement with `receipt` was carried out at some time in `from..=until`.
    pub(crate) fn settle(&mut self, receipt: Token, from: Timestamp) -> Result<(), Violation> {
        if self.gone == Certainty::Yes || self.expires_at_max.has_passed(from) {
            return violated!(
                "no resurrection",
                "settled a message that is gone: {self:?}"
            );
        }
        if self.stale.contains(&receipt) || self.receipt.is_some_and(|latest| latest != receipt) {
            return violated!("stale receipts refused", "{receipt:?} settled {self:?}");
        }
        self.gone = Certainty::No;
        Ok(())
    }

    /// Whether a settlement with `receipt` that ended by `until` had to succeed.
    pub(crate) fn must_settle(&self, receipt: Token, until: Timestamp) -> bool {
        self.is_certain(until) && self.receipt == Some(receipt)
    }

    pub(crate) fn maybe_gone(&mut self) {
        if self.gone == Certainty::No {
            self.gone = Certainty::Maybe;
        }
    }
}
