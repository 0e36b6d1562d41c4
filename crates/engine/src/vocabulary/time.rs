//! Points in time and spans, as the engine uses them.

use std::fmt;

use thiserror::Error;

/// Milliseconds since 1970-01-01 00:00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The start of 1970, before anything happened.
    pub const ZERO: Self = Self(0);

    /// Later than any moment: the expiry of a message that never expires.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `ms` milliseconds after the start of 1970.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the start of 1970.
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// The moment `ms` milliseconds later; [`Timestamp::NEVER`] if that is out of range.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// The moment `seconds` later; [`Timestamp::NEVER`] if that is out of range.
    #[must_use]
    pub const fn plus_seconds(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// The time, unless it is [`Timestamp::NEVER`].
    pub(crate) fn unless_never(self) -> Option<Self> {
        (self != Self::NEVER).then_some(self)
    }

    /// Whether a deadline at `self` has passed at `now`: at the deadline itself it has.
    pub const fn has_passed(self, now: Self) -> bool {
        self.0 <= now.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER {
            f.write_str("never")
        } else {
            write!(f, "{} ms", self.0)
        }
    }
}

/// How long a message stays hidden from other receivers: 0 s to 7 days, in whole seconds.
///
/// The narrower ranges of single operations and of older protocol versions are the front end's
/// to check; this is what the engine accepts from any of them.
///
/// Source: Queue Storage REST, *Put Message*, *Get Messages*, *Update Message*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VisibilityTimeout(u32);

/// The visibility timeout asked for is longer than 7 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "visibility timeout {seconds} s is above the maximum of {} s",
    VisibilityTimeout::SECONDS_MAX
)]
pub struct VisibilityTimeoutTooLong {
    /// The value given.
    pub seconds: u32,
}

impl VisibilityTimeout {
    /// The longest visibility timeout: 7 days.
    pub const SECONDS_MAX: u32 = 604_800;

    /// No hiding at all: the message is visible at once.
    pub const ZERO: Self = Self(0);

    /// A visibility timeout of `seconds`, at most [`Self::SECONDS_MAX`].
    pub const fn from_seconds(seconds: u32) -> Result<Self, VisibilityTimeoutTooLong> {
        if seconds > Self::SECONDS_MAX {
            Err(VisibilityTimeoutTooLong { seconds })
        } else {
            Ok(Self(seconds))
        }
    }

    /// The length in seconds.
    pub const fn as_seconds(self) -> u32 {
        self.0
    }

    /// When a message hidden at `now` shows again.
    pub(crate) const fn after(self, now: Timestamp) -> Timestamp {
        now.plus_seconds(self.0 as u64)
    }
}
