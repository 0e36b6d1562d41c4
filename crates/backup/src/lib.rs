//! Backups of a log's files: copied, verified, resumed, and put back.
//!
//! A backup is a directory of copies with one manifest. [`take`] copies the files that a
//! [`BackupPlan`](kew_log::BackupPlan) names, checks every copy, and writes the manifest last. [`Backup::open`]
//! verifies a backup, and [`Backup::copy_to`] puts its files into a new data directory.
//!
//! The crate knows files and their checksums. It knows no message, no server, no clock, and nothing of how the
//! files of the plan are kept in their place meanwhile.
//!
//! Invariants:
//!
//! - A file has its final name only after its bytes are durable and were read back and checked. The name has
//!   what tells it from every other content, so a file is never overwritten.
//! - The manifest is replaced in one step. Files of the backup before it are removed only after that.

mod backup;
mod copy;
mod destination;
mod directory;
mod error;
mod manifest;
mod pages;
mod take;
mod view;

pub use backup::{Backup, stated_size_bytes};
pub use directory::Directory;
pub use error::{BackupError, BoxError};
pub use manifest::{Manifest, StoredFile};
pub use take::{Source, Taken, take, take_on};
pub use view::View;

/// What is being done with the bytes that are reported as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading them from the source, and writing the copy.
    Copy,
    /// Reading a copy back, and checking it.
    Check,
    /// They are there already, from an earlier run: reading them, to compare them with their checksum.
    Reuse,
    /// Reading the records of copies: each file by itself, and in the end as a start would. Every byte may be read more
    /// than once.
    Verify,
}

/// Learns of every byte that is read, in pieces of at most 1 MiB.
pub trait Progress: Send + Sync {
    /// Notes bytes that were read. It may wait, to bound the rate. An error ends the operation, except in
    /// [`Phase::Verify`]: copies stay where they are.
    fn note(&self, phase: Phase, bytes: u64) -> Result<(), BoxError>;
}

impl<F: Fn(Phase, u64) -> Result<(), BoxError> + Send + Sync> Progress for F {
    fn note(&self, phase: Phase, bytes: u64) -> Result<(), BoxError> {
        self(phase, bytes)
    }
}
