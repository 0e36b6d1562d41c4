//! Positions in the log, and epochs: only the newest epoch may append.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A logical byte address in the log: it counts the bytes of batches, and only grows.
///
/// It is the same in every copy of the log: files, marks and the way from one segment to the next do not move it.
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

/// Which log it is: records of one never count as records of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogId {
    /// The cluster that it belongs to. A single server is a cluster, with a number of its own.
    pub cluster: u128,
    /// The number of the partition in it.
    pub partition: u32,
}

impl LogId {
    /// What the content checksum of the first record continues.
    pub(crate) fn chain_start(self) -> u32 {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&self.cluster.to_le_bytes());
        bytes[16..].copy_from_slice(&self.partition.to_le_bytes());
        crc32c::crc32c(&bytes)
    }
}

/// The number of an open. Every open begins a new epoch, and an older one may not append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// Every epoch that is written is below this one, so that arithmetic on them cannot overflow.
    pub(crate) const LIMIT: Self = Self(1 << 47);

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
