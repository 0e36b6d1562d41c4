//! A log as one machine has it.

use std::collections::BTreeSet;

use thiserror::Error;

use super::{LogFiles, LogUpkeep};
use crate::pages::{PagesRead, PagesToRead, SnapshotContent, ToDrain};
use crate::storage::IoFailure;
use crate::{Body, BodyLocation, Job, JobOutcome, LogEnd, LogPosition, PageNumber};

/// Bodies, snapshots and pages of this copy of a log. Nothing here blocks: what blocks is a [`Job`].
pub trait LocalLog: LogFiles + LogUpkeep + Send {
    /// Everything before this position is durable. It moves in [`complete`](Self::complete) alone, and never back.
    fn durable(&self) -> LogPosition;

    /// A body, from memory or from a file. `None` if it is not there any more. Does no I/O.
    ///
    /// It can be read as soon as it is appended. Do not show it to a client before it is durable.
    fn body(&self, at: BodyLocation) -> Option<Body>;

    /// The next blocking job; commits come first. At most one job of each kind is out at a time. Any thread may run it.
    fn next_job(&mut self) -> Option<Job>;

    /// Takes the outcome of a job. After an end, every later call returns it too.
    fn complete(&mut self, outcome: JobOutcome) -> Result<(), LogEnd>;

    /// Begins a snapshot of the state at the log's end. Returns false if nothing was appended since the last one.
    ///
    /// `live` are the first positions of the segments with bodies that are still needed. Every other segment goes once
    /// two snapshots lie behind it.
    fn begin_snapshot(&mut self, live: BTreeSet<LogPosition>) -> Result<bool, BeginSnapshotError>;

    /// Gives the content of the snapshot that was begun: the state at the position at which it was begun.
    fn write_snapshot(&mut self, content: Box<dyn SnapshotContent>);

    /// The snapshots.
    fn snapshots(&self) -> SnapshotStatus<'_>;

    /// Sets how large the state is. From then on a batch that grows it has room only while the space to drain that much
    /// is reserved.
    fn keep_for_draining(&mut self, state: ToDrain);

    /// Whether the newest snapshot names a page.
    fn names_page(&self, number: PageNumber) -> bool;

    /// The same, of a page that is whole in each of its copies, as far as is known.
    fn has_whole(&self, number: PageNumber) -> bool;

    /// The size of a page that the newest snapshot names, in one of its copies.
    fn page_size_bytes(&self, number: PageNumber) -> Option<u64>;

    /// Pages of the newest snapshot, to read them on any thread. They stay until [`end_read`](Self::end_read).
    fn read_pages(&mut self, numbers: &mut dyn Iterator<Item = PageNumber>) -> PagesToRead;

    /// Ends a read of pages.
    fn end_read(&mut self, read: PagesRead);
}

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
