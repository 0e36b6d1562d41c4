//! The segment log as its owner has it. Each method is one of the log's own.

use super::{BeginBackupError, LogSpace, PinId, SegmentLog, SegmentSpan};
use crate::pages::{PagesRead, PagesToRead, SnapshotContent, ToDrain};
use crate::{
    AppendError, BackupPlan, BatchBuilder, BeginSnapshotError, Body, BodyLocation, BootTime, Job,
    JobOutcome, LiveBytes, LocalLog, LogEnd, LogFiles, LogHealth, LogLimits, LogPosition, Need,
    OwnedLog, PageNumber, Reservation, ReserveError, Scrub, ScrubCursor, SnapshotStatus, Tidied,
    VictimEnd,
};

impl LocalLog for SegmentLog {
    fn durable(&self) -> LogPosition {
        self.durable()
    }

    fn body(&self, at: BodyLocation) -> Option<Body> {
        self.body(at)
    }

    fn next_job(&mut self) -> Option<Job> {
        self.next_job()
    }

    fn complete(&mut self, outcome: JobOutcome) -> Result<(), LogEnd> {
        self.complete(outcome)
    }

    fn begin_snapshot(&mut self, live: &dyn LiveBytes) -> Result<bool, BeginSnapshotError> {
        self.begin_snapshot(live)
    }

    fn write_snapshot(&mut self, content: Box<dyn SnapshotContent>) {
        self.write_snapshot(content)
    }

    fn snapshots(&self) -> SnapshotStatus<'_> {
        self.snapshots()
    }

    fn tidy(&mut self, now: BootTime, live: &dyn LiveBytes, is_idle: bool) -> Tidied {
        self.tidy(now, live, is_idle)
    }

    fn end_victim(&mut self, end: VictimEnd) {
        self.end_victim(end)
    }

    fn next_wake(&self) -> Option<BootTime> {
        self.next_wake()
    }

    fn keep_for_draining(&mut self, state: ToDrain) {
        self.keep_for_draining(state)
    }

    fn names_page(&self, number: PageNumber) -> bool {
        self.names_page(number)
    }

    fn has_whole(&self, number: PageNumber) -> bool {
        self.has_whole(number)
    }

    fn page_size_bytes(&self, number: PageNumber) -> Option<u64> {
        self.page_size_bytes(number)
    }

    fn read_pages(&mut self, numbers: &mut dyn Iterator<Item = PageNumber>) -> PagesToRead {
        self.read_pages(numbers)
    }

    fn end_read(&mut self, read: PagesRead) {
        self.end_read(read)
    }

    fn files(&self) -> Option<&dyn LogFiles> {
        Some(self)
    }

    fn files_mut(&mut self) -> Option<&mut dyn LogFiles> {
        Some(self)
    }
}

impl OwnedLog for SegmentLog {
    fn limits(&self) -> LogLimits {
        self.limits()
    }

    fn reserve(&mut self, need: Need) -> Result<Reservation, ReserveError> {
        self.reserve(need)
    }

    fn append(&mut self, at: Reservation, batch: BatchBuilder) -> Result<LogPosition, AppendError> {
        self.append(at, batch)
    }

    fn beat(&mut self, time_ms: u64) -> bool {
        self.beat(time_ms)
    }

    fn mark(&mut self) -> bool {
        self.mark()
    }

    fn end(&self) -> LogPosition {
        self.end()
    }

    /// Its directory is locked.
    fn owned_until(&self) -> BootTime {
        BootTime::NEVER
    }

    fn health(&self) -> LogHealth {
        self.health()
    }

    /// No job waits for another machine.
    fn stop(&mut self) {}
}

impl LogFiles for SegmentLog {
    fn begin_backup(&mut self) -> Result<(PinId, BackupPlan), BeginBackupError> {
        self.begin_backup()
    }

    fn end_backup(&mut self, id: PinId) {
        self.end_backup(id)
    }

    fn backup_held_bytes(&self, id: PinId) -> Option<u64> {
        self.backup_held_bytes(id)
    }

    fn next_scrub(&self, cursor: ScrubCursor) -> Option<Scrub> {
        self.next_scrub(cursor)
    }

    fn write_header(&mut self, file: &str) -> bool {
        self.write_header(file)
    }

    fn body_in_file(&self, at: BodyLocation) -> Option<Body> {
        self.body_in_file(at)
    }

    fn note_damaged_file(&mut self, file: &str) -> LogPosition {
        self.note_damaged_file(file)
    }

    fn replays_from(&self) -> Option<LogPosition> {
        self.replays_from()
    }

    fn has_file(&self, name: &str) -> bool {
        self.has_file(name)
    }

    fn unreadable_pages(&self) -> usize {
        self.unreadable_pages()
    }

    fn is_unreadable(&self, number: PageNumber) -> bool {
        self.is_unreadable(number)
    }

    fn space(&self) -> LogSpace {
        self.space()
    }

    fn segments(&self) -> Box<dyn Iterator<Item = SegmentSpan> + '_> {
        Box::new(self.segments())
    }
}
