//! Positions in the log, and epochs: only the newest epoch may append.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A logical byte address in the log: it only grows, and there are gaps between segments.
///
/// A position stays the same as long as its record or body exists, even if recovery copies the record into
/// another file.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct LogPosition(u64);

impl LogPosition {
    /// The position with this address.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The address as a number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The position `bytes` further on.
    ///
    /// # Panics
    ///
    /// If the address space of 2^64 bytes is used up.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an open. Every open begins a new epoch, and an older one may not append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The epoch as a number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The location of a body in the log: a logical place, known before the append.
///
/// Only the log maps it to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyLocation {
    /// Position of the record that holds the body.
    pub record: LogPosition,
    /// Where in that record's payload the body begins, in bytes.
    pub offset: u32,
    /// Its length in bytes.
    pub length: u32,
}
