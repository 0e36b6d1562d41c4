//! What the owner of a log does for its space and its retries.

use std::collections::BTreeSet;

use crate::{LogPosition, SegmentSpan};

/// Upkeep for which the log needs its owner, who knows what is live and what time it is.
///
/// `live` are the first positions of the segments with bodies that are still needed.
pub trait LogUpkeep {
    /// Makes the log try again to prepare a segment and its ballast, after the disk was full.
    fn retry_prepare(&mut self);

    /// Whether a job had no file descriptor. Such jobs wait for [`retry_opening`](Self::retry_opening).
    fn is_short_of_descriptors(&self) -> bool;

    /// Lets jobs that need a file descriptor be tried again.
    fn retry_opening(&mut self);

    /// Removes files that are kept for reuse, until so many are left. Returns whether there were more.
    fn trim_recycled(&mut self, kept: usize) -> bool;

    /// Makes the ballast smaller, if it is at least twice as large as needed. Returns whether it does.
    fn shrink_ballast(&mut self) -> bool;

    /// Whether two more snapshots would free segments.
    fn can_free_segments(&self, live: &BTreeSet<LogPosition>) -> bool;

    /// The size of the segments that two more snapshots would free.
    fn freeable_bytes(&self, live: &BTreeSet<LogPosition>) -> u64;

    /// The segment that holds the record at a position.
    fn segment_of(&self, record: LogPosition) -> Option<SegmentSpan>;

    /// The most that a snapshot takes on a full disk, now and until all is drained.
    fn drained_snapshot_bytes_max(&self) -> u64;

    /// The least of that since the log began to drain, or was opened.
    fn reserved_for_bytes(&self) -> u64;

    /// What the newest snapshot would take at most if all of its pages were written anew. `None` if it has none.
    fn anew_size_bytes(&self) -> Option<u64>;
}
