//! A log as one machine has it.

use thiserror::Error;

use super::{BootTime, LiveBytes, LogFiles, Tidied, VictimEnd};
use crate::pages::{PagesRead, PagesToRead, SnapshotContent, ToDrain};
use crate::storage::IoFailure;
use crate::{Body, BodyLocation, Job, JobOutcome, LogEnd, LogPosition, PageNumber};

/// Bodies, snapshots and pages of this copy of a log. Nothing here blocks: what blocks is a [`Job`].
pub trait LocalLog: Send {
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
    /// What has no live bytes goes once two snapshots lie behind it.
    fn begin_snapshot(&mut self, live: &dyn LiveBytes) -> Result<bool, BeginSnapshotError>;

    /// Gives the content of the snapshot that was begun: the state at the position at which it was begun.
    fn write_snapshot(&mut self, content: Box<dyn SnapshotContent>);

    /// The snapshots.
    fn snapshots(&self) -> SnapshotStatus<'_>;

    /// Tries again what had no space or no file descriptor, gives back space that is not needed, and says what the owner
    /// is to do for more. It is called in each turn, before [`reserve`](super::OwnedLog::reserve), and does nothing
    /// before it is due.
    ///
    /// `is_idle` says that there were no commands for a while: then there is time to free little space, too.
    fn tidy(&mut self, now: BootTime, live: &dyn LiveBytes, is_idle: bool) -> Tidied;

    /// Notes how emptying the victim has ended that [`tidy`](Self::tidy) has named.
    fn end_victim(&mut self, end: VictimEnd);

    /// When [`tidy`](Self::tidy) has something to do, if nothing else happens.
    fn next_wake(&self) -> Option<BootTime>;

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

    /// The log's files. `None` if it has none.
    fn files(&self) -> Option<&dyn LogFiles>;

    /// The same, to change something.
    fn files_mut(&mut self) -> Option<&mut dyn LogFiles>;
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
    /// No other one is to be begun before this time, because of that.
    pub retry_at: BootTime,
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
