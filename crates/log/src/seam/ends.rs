//! How a log ends for its owner.

use thiserror::Error;

use crate::storage::IoFailure;
use crate::{Epoch, LogPosition};

/// The log has ended for its owner, for good. What is durable beyond the last reported position is unknown: only a new
/// opening can find out.
///
/// A log of segments only fails for its owner, because its directory is locked. A promotion to an old epoch is fenced. The
/// other ends are those of logs with several owners: after them a process can follow the log, and own it again later.
#[derive(Clone, Debug, Error)]
pub enum LogEnd {
    /// Another owner has begun this epoch.
    #[error("the log has stopped: another owner has begun epoch {0}")]
    Fenced(Epoch),
    /// From this position on, this copy differs from what was agreed.
    #[error("the log has stopped: this copy differs from the agreed log from position {0} on")]
    Diverged(LogPosition),
    /// The storage failed.
    #[error("the log has stopped: {0}")]
    Failed(#[source] IoFailure),
}
