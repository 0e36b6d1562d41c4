//! What a log has on this machine, for its owner.

use thiserror::Error;

use crate::storage::IoFailure;
use crate::{LogEnd, LogPosition};

/// The snapshots of a log.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotStatus<'a> {
    /// Position of the newest snapshot that is durable.
    pub last: Option<LogPosition>,
    /// What the last snapshot has written, with its pages. `None` before the first one of this opening.
    pub written_bytes: Option<u64>,
    /// How much was appended since the last snapshot was begun.
    pub bytes_since: u64,
    /// Whether a snapshot is begun and not durable yet.
    pub is_under_way: bool,
    /// Why the last snapshot was not written: the disk was full, or no file descriptor was left.
    pub failed: Option<&'a IoFailure>,
}

/// Why no snapshot was begun.
#[derive(Clone, Debug, Error)]
pub enum BeginSnapshotError {
    /// Another snapshot is being written.
    #[error("another snapshot is being written")]
    Busy,
    /// The log has ended.
    #[error(transparent)]
    Ended(#[from] LogEnd),
}
