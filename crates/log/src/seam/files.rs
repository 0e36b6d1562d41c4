//! The files of a log, for backups, scrubs, counts and tools.

use crate::{
    BackupPlan, BeginBackupError, Body, BodyLocation, LogPosition, LogSpace, PageNumber, PinId,
    Scrub, ScrubCursor, SegmentSpan,
};

/// The files of a log.
pub trait LogFiles {
    /// Begins a backup of everything that is durable now. The files of its plan stay until
    /// [`end_backup`](Self::end_backup), or until the disk is full.
    fn begin_backup(&mut self) -> Result<(PinId, BackupPlan), BeginBackupError>;

    /// Ends a backup. The files that were kept for it are removed in the background.
    fn end_backup(&mut self, id: PinId);

    /// The size of the files that are kept only for a backup, in bytes. `None` if its pin was given up.
    fn backup_held_bytes(&self, id: PinId) -> Option<u64>;

    /// The next file of a pass. `None` at the end of the pass.
    fn next_scrub(&self, cursor: ScrubCursor) -> Option<Scrub>;

    /// Writes the header of a segment again with the next commit. Returns whether it does: not if no commit writes to
    /// that segment any more.
    fn write_header(&mut self, file: &str) -> bool;

    /// A body in its file, also if it is in memory.
    fn body_in_file(&self, at: BodyLocation) -> Option<Body>;

    /// Notes that the file of a snapshot, or of pages, is damaged. Returns the position before which no start may
    /// begin, so that none needs what is damaged.
    fn note_damaged_file(&mut self, file: &str) -> LogPosition;

    /// Every start replays from there or later. `None` if there are fewer than two snapshots.
    fn replays_from(&self) -> Option<LogPosition>;

    /// Whether a snapshot, a file of pages or a segment of that name is one of the log's.
    fn has_file(&self, name: &str) -> bool;

    /// How many pages the newest snapshot names although all of their copies are damaged.
    fn unreadable_pages(&self) -> usize;

    /// Whether a page is one of these.
    fn is_unreadable(&self, number: PageNumber) -> bool;

    /// Counts of the log, for metrics.
    fn space(&self) -> LogSpace;

    /// The segments in use, in order of position.
    fn segments(&self) -> Box<dyn Iterator<Item = SegmentSpan> + '_>;
}
