//! Jobs, bodies and snapshots of a log in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kew_log::{
    BeginSnapshotError, Body, BodyLocation, BootTime, Job, JobKind, JobOutcome, LiveBytes,
    LocalLog, LogEnd, LogFiles, LogPosition, PageNumber, PagesRead, PagesToRead, SnapshotContent,
    SnapshotStatus, Tidied, ToDrain, VictimEnd,
};

use super::owned::{Done, MemoryLog};
use super::snapshot::{Snapshot, WriteSnapshot};
use super::{Kept, Mistake};

/// The snapshots that the owner knows.
pub(super) struct Snapshots {
    /// The newest one.
    newest: Option<Arc<Snapshot>>,
    /// Position of the one before.
    before: Option<LogPosition>,
    written_bytes: Option<u64>,
    pub(super) bytes_since: u64,
    pending: Option<Pending>,
    /// Batches that are no longer needed. A job removes them.
    unneeded: Vec<LogPosition>,
    is_retiring: bool,
}

/// A snapshot that was begun.
struct Pending {
    at: LogPosition,
    time_ms: u64,
    /// Batches with nothing live in them.
    dead: Vec<Dead>,
    content: Option<Box<dyn SnapshotContent>>,
}

/// A batch with nothing live in it.
struct Dead {
    record: LogPosition,
    end: LogPosition,
}

impl Snapshots {
    /// Of an owner that has begun with a snapshot.
    pub(super) fn resume(kept: &Kept, newest: Option<Arc<Snapshot>>, end: LogPosition) -> Self {
        let at = newest.as_ref().map(|newest| newest.at);
        let covered = at.map_or(0, LogPosition::as_u64);
        let mut older = kept.snapshots.iter().rev();
        let before = older.find(|older| Some(older.at) < at);
        Self {
            before: before.map(|before| before.at),
            newest,
            written_bytes: None,
            bytes_since: end.as_u64().saturating_sub(covered),
            pending: None,
            unneeded: Vec::new(),
            is_retiring: false,
        }
    }

    /// Notes what goes: what lies behind two snapshots.
    fn retire(&mut self, dead: &[Dead], is_behind_one: bool) {
        let newest = self.newest.as_ref().map(|newest| newest.at);
        let covered = match is_behind_one {
            true => newest,
            false => self.before,
        };
        let gone = dead.iter().filter(|dead| Some(dead.end) <= covered);
        self.unneeded.extend(gone.map(|dead| dead.record));
    }
}

impl MemoryLog {
    fn dead(&self, live: &dyn LiveBytes) -> Vec<Dead> {
        let kept = self.shared.kept();
        let batches = kept.batches.iter();
        let all = batches.map(|(record, stored)| (*record, stored.sealed.end));
        let dead = all.filter(|(record, end)| !live.is_any_in(*record..*end));
        dead.map(|(record, end)| Dead { record, end }).collect()
    }

    fn next_snapshot(&mut self) -> Option<Job> {
        let at_once = self.makes(Mistake::SnapshotAtOnce);
        let durable = self.durable;
        let pending = self.snapshots.pending.as_mut()?;
        // A start may use what is written at once, so what lies before must be there.
        if pending.at > durable && !at_once {
            return None;
        }
        let write = WriteSnapshot {
            epoch: self.epoch,
            at: pending.at,
            time_ms: pending.time_ms,
            newest: self.snapshots.newest.as_ref().map(Arc::clone),
            content: pending.content.take()?,
        };
        let shared = Arc::clone(&self.shared);
        Some(Job::other(JobKind::Snapshot, 0, move |_| {
            shared.runs.fetch_add(1, Ordering::Relaxed);
            write.run(&shared).map(Done::Snapshot)
        }))
    }

    /// Takes what a job has done.
    fn take(&mut self, done: Done) -> Result<(), LogEnd> {
        match done {
            Done::Committed(agreed) => return self.committed(agreed),
            // The owner has ended, and takes no outcome.
            Done::GivenUp => {}
            Done::Prepared(size_bytes) => self.prepared(size_bytes),
            Done::Snapshot(snapshot) => self.snapshot_written(snapshot),
            Done::Retired => self.snapshots.is_retiring = false,
            Done::Renewed(renewed) => self.agreement.renewed(renewed),
        }
        Ok(())
    }

    fn snapshot_written(&mut self, snapshot: Arc<Snapshot>) {
        let pending = self.snapshots.pending.take();
        self.snapshots.written_bytes = Some(snapshot.written_bytes);
        let before = self.snapshots.newest.replace(snapshot);
        self.snapshots.before = before.map(|before| before.at);
        if let Some(pending) = pending {
            let is_behind_one = self.makes(Mistake::GoneBehindOne);
            self.snapshots.retire(&pending.dead, is_behind_one);
        }
    }

    fn next_retire(&mut self) -> Option<Job> {
        if self.snapshots.is_retiring || self.snapshots.unneeded.is_empty() {
            return None;
        }
        self.snapshots.is_retiring = true;
        let unneeded = std::mem::take(&mut self.snapshots.unneeded);
        let (shared, epoch) = (Arc::clone(&self.shared), self.epoch);
        Some(Job::other(JobKind::Retire, 0, move |_| {
            shared.runs.fetch_add(1, Ordering::Relaxed);
            let mut kept = shared.kept();
            kept.check_owner(epoch)?;
            kept.remove(&unneeded);
            Ok::<_, LogEnd>(Done::Retired)
        }))
    }
}

impl LocalLog for MemoryLog {
    fn durable(&self) -> LogPosition {
        self.durable
    }

    fn body(&self, at: BodyLocation) -> Option<Body> {
        match self.recent.get(&at.record) {
            Some(stored) => stored.sealed.body(at).map(Body::of),
            None if self.makes(Mistake::BodyGoneAfterTrim) => None,
            None => self.shared.body(at),
        }
    }

    fn next_job(&mut self) -> Option<Job> {
        if self.ended.is_some() {
            return None;
        }
        let job = self.next_commit().or_else(|| self.next_prepare());
        let job = job.or_else(|| self.next_snapshot());
        let job = job.or_else(|| self.next_retire());
        job.or_else(|| self.next_renewal())
    }

    fn complete(&mut self, mut outcome: JobOutcome) -> Result<(), LogEnd> {
        self.check_ended()?;
        let done = outcome.take_other::<Done, LogEnd>();
        // Another outcome is for the caller that asked.
        let taken = done.map_or(Ok(()), |done| self.take(done?));
        if taken.is_ok() || !self.makes(Mistake::GoesOnAfterEnd) {
            self.ended = taken.clone().err();
        }
        taken
    }

    fn begin_snapshot(&mut self, live: &dyn LiveBytes) -> Result<bool, BeginSnapshotError> {
        self.check_ended()?;
        if self.snapshots.pending.is_some() {
            return Err(BeginSnapshotError::Busy);
        }
        let dead = self.dead(live);
        let newest = self.snapshots.newest.as_ref();
        let is_new = newest.is_none_or(|newest| newest.at != self.end);
        if is_new {
            self.snapshots.bytes_since = 0;
            self.snapshots.pending = Some(Pending {
                at: self.end,
                time_ms: self.time_ms,
                dead,
                content: None,
            });
        } else {
            self.snapshots.retire(&dead, false);
        }
        Ok(is_new)
    }

    fn write_snapshot(&mut self, content: Box<dyn SnapshotContent>) {
        if let Some(pending) = &mut self.snapshots.pending {
            pending.content = Some(content);
        }
    }

    fn snapshots(&self) -> SnapshotStatus<'_> {
        let snapshots = &self.snapshots;
        SnapshotStatus {
            last: snapshots.newest.as_ref().map(|newest| newest.at),
            written_bytes: snapshots.written_bytes,
            bytes_since: snapshots.bytes_since,
            is_under_way: snapshots.pending.is_some(),
            failed: None,
            retry_at: BootTime::ZERO,
        }
    }

    /// Batches go one by one, so nothing has to be emptied.
    fn tidy(&mut self, _now: BootTime, _live: &dyn LiveBytes, _is_idle: bool) -> Tidied {
        Tidied::default()
    }

    fn end_victim(&mut self, _end: VictimEnd) {}

    fn next_wake(&self) -> Option<BootTime> {
        self.agreement.next_wake()
    }

    /// It is never full.
    fn keep_for_draining(&mut self, _state: ToDrain) {}

    fn names_page(&self, number: PageNumber) -> bool {
        let newest = self.snapshots.newest.as_ref();
        newest.is_some_and(|newest| newest.pages.contains_key(&number))
    }

    fn has_whole(&self, number: PageNumber) -> bool {
        self.names_page(number)
    }

    fn page_size_bytes(&self, number: PageNumber) -> Option<u64> {
        let page = self.snapshots.newest.as_ref()?.pages.get(&number)?;
        Some(page.size_bytes() as u64)
    }

    fn read_pages(&mut self, numbers: &mut dyn Iterator<Item = PageNumber>) -> PagesToRead {
        let newest = self.snapshots.newest.as_ref();
        let named = |number| Some((number, Arc::clone(newest?.pages.get(&number)?)));
        PagesToRead::of(numbers.filter_map(named).collect())
    }

    fn end_read(&mut self, _read: PagesRead) {}

    fn files(&self) -> Option<&dyn LogFiles> {
        None
    }

    fn files_mut(&mut self) -> Option<&mut dyn LogFiles> {
        None
    }
}
