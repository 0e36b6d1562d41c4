//! The known facts about one message.

use bytes::Bytes;
use kew_engine::{Timestamp, Token};

use super::{Violation, promise};

/// Whether something is true, as far as the history shows.
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
    /// Its possible bodies: one, or more after an update of unknown outcome.
    pub(crate) bodies: Vec<Bytes>,
    pub(crate) gone: Certainty,
    pub(crate) inserted_at: Option<Timestamp>,
    pub(crate) expires_at_min: Timestamp,
    pub(crate) expires_at_max: Timestamp,
    /// The last receipt that a client learned: all earlier ones are stale.
    pub(crate) receipt: Option<Token>,
    /// Whether an operation of unknown outcome may have created a newer receipt, which no client
    /// knows.
    pub(crate) receipt_may_be_stale: bool,
    /// Certainly hidden before.
    pub(crate) visible_at_min: Timestamp,
    /// Certainly visible from then on.
    pub(crate) visible_at_max: Timestamp,
    pub(crate) deliveries_min: u32,
    pub(crate) deliveries_max: u32,
}

/// A message in an answer.
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
    /// Whether it certainly exists at `now`.
    pub(crate) fn is_certain(&self, now: Timestamp) -> bool {
        self.gone == Certainty::No && !self.expires_at_min.has_passed(now)
    }

    /// Whether it may exist at `now`.
    pub(crate) fn is_possible(&self, now: Timestamp) -> bool {
        self.gone != Certainty::Yes && !self.expires_at_max.has_passed(now)
    }

    /// Whether this receipt is certainly the latest.
    pub(crate) fn is_latest(&self, receipt: Token) -> bool {
        self.receipt == Some(receipt) && !self.receipt_may_be_stale
    }

    /// A delivery, or a look, at a message.
    pub(crate) fn show(&mut self, shown: Shown<'_>) -> Result<(), Violation> {
        promise::no_resurrection(self, &shown)?;
        promise::not_after_expiry(self, &shown)?;
        promise::same_id(self, &shown)?;
        promise::no_change(self, &shown)?;
        promise::lease_exclusivity(self, &shown)?;
        promise::delivery_count(self, &shown)?;
        self.id = Some(shown.id);
        if self.bodies.len() > 1 {
            self.bodies = vec![shown.body.clone()];
        }
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
    pub(crate) fn lease(&mut self, receipt: Token, visible_at: Timestamp) {
        self.receipt = Some(receipt);
        self.receipt_may_be_stale = false;
        self.visible_at_min = visible_at;
        self.visible_at_max = visible_at;
    }

    /// A lease that may exist: it hides the message until `visible_at` at the latest, and not
    /// before `from`.
    pub(crate) fn maybe_lease(&mut self, from: Timestamp, visible_at: Timestamp) {
        self.receipt_may_be_stale = true;
        self.visible_at_min = self.visible_at_min.min(from);
        self.visible_at_max = self.visible_at_max.max(visible_at);
    }

    pub(crate) fn maybe_gone(&mut self) {
        if self.gone == Certainty::No {
            self.gone = Certainty::Maybe;
        }
    }
}
