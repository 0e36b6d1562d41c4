//! When a snapshot is written, and how long its steps take.

use std::mem;

use kew_engine::{Snapshot, SnapshotPages, SnapshotParts};
use kew_log::{PageContent, PageNumber, PlannedSnapshot, SnapshotContent};
use kew_planted::{Seam, alter};

use super::Partition;
use super::live::Live;
use crate::Spent;
use crate::follower::to_engine;

/// How much more than the log a snapshot may write that is due by effects. Less would make a start longer if small changes
/// are spread over a large state.
pub(super) const SHARE_MAX: u64 = 4;

/// For how long snapshots rest that are due by effects, as a multiple of how long the last one took, and at most.
const REST_FACTOR: u64 = 9;
pub(super) const REST_MS_MAX: u64 = 60_000;

/// A snapshot on its way to the disk. The job that writes it plans its pieces and encodes them.
pub(crate) enum Content {
    Shared(Snapshot),
    Planned(Planned),
}

/// The pieces of a snapshot.
pub(crate) enum Planned {
    Whole(SnapshotParts),
    Paged(SnapshotPages),
}

impl SnapshotContent for Content {
    fn plan(&mut self) -> PlannedSnapshot {
        let none = Self::Planned(Planned::Whole(SnapshotParts::default()));
        let planned = match mem::replace(self, none) {
            Self::Shared(snapshot) if snapshot.fits_pages() => {
                Planned::Paged(snapshot.plan_pages())
            }
            Self::Shared(snapshot) => Planned::Whole(snapshot.plan()),
            Self::Planned(planned) => planned,
        };
        let counts = planned.counts();
        *self = Self::Planned(planned);
        counts
    }

    fn can_make(&self, index: usize) -> bool {
        self.paged().is_some_and(|pages| pages.can_encode(index))
    }

    fn put_part(&self, index: usize, out: &mut Vec<u8>) {
        match self {
            Self::Shared(_) => panic!("a part is asked for before its plan was made"),
            Self::Planned(Planned::Whole(parts)) => parts.put(index, out),
            Self::Planned(Planned::Paged(pages)) => out.extend_from_slice(&pages.parts()[index]),
        }
    }

    fn page(&self, index: usize) -> Option<PageNumber> {
        let page = self.paged()?.page(index)?;
        Some(PageNumber::new(page.as_u64()))
    }

    fn put_page(&self, index: usize, page: &mut PageContent) {
        let encoded = self.paged().and_then(|pages| pages.encode(index));
        let encoded = encoded.expect("only pages of the plan are asked for");
        page.begin(encoded.kind);
        for group in &encoded.groups {
            page.add_group(|out| out.extend_from_slice(group));
        }
    }

    fn keep(&self, index: usize, page: PageNumber) {
        if let Some(pages) = self.paged() {
            pages.keep(index, to_engine(page));
        }
    }
}

impl Content {
    fn paged(&self) -> Option<&SnapshotPages> {
        match self {
            Self::Planned(Planned::Paged(pages)) => Some(pages),
            Self::Shared(_) | Self::Planned(Planned::Whole(_)) => None,
        }
    }
}

impl Planned {
    fn counts(&self) -> PlannedSnapshot {
        let (parts, pages) = match self {
            Self::Whole(parts) => (parts.count(), 0),
            Self::Paged(pages) => (pages.parts().len(), pages.page_count()),
        };
        PlannedSnapshot { parts, pages }
    }
}

/// How long the steps of snapshots took, if the driver has given clocks.
#[derive(Debug, Default)]
pub(super) struct StepTimes {
    clocks: Option<fn() -> Spent>,
    /// Those that the driver has not taken yet.
    taken: Vec<Spent>,
}

impl StepTimes {
    fn begin(&self) -> Option<Spent> {
        self.clocks.map(|clocks| clocks())
    }

    fn end(&mut self, began: Option<Spent>) {
        let took = began.zip(self.begin());
        self.taken.extend(took.map(|(began, now)| now.since(began)));
    }
}

impl<T> Partition<T> {
    /// Writes a snapshot if one is due and none is on its way to the disk. The partition calls this itself after each
    /// commit.
    pub fn snapshot_if_due(&mut self) {
        let may_begin = self.log.snapshots().retry_at.has_passed(self.now.boot)
            && self.is_snapshot_possible()
            && self.lets_snapshot_begin();
        if self.is_snapshot_due() && may_begin {
            self.begin_snapshot();
        }
    }

    /// Whether a snapshot is due, if one can be written.
    pub(super) fn is_snapshot_due(&self) -> bool {
        let written_bytes = self.log.snapshots().bytes_since;
        if let Some(full) = self.log.limits().full {
            return written_bytes >= full.snapshot_after_bytes;
        }
        written_bytes >= self.due_after_bytes()
            || self.is_due_by_effects(written_bytes)
            || self.is_due_by_memory()
            || self.is_due_by_warming()
    }

    /// So snapshots write a fifth of all bytes, unless one writes more than a whole interval of log, which is bounded: so
    /// is what a start replays.
    fn due_after_bytes(&self) -> u64 {
        let least_bytes = self.options.snapshot_after_bytes;
        let most_bytes = least_bytes.saturating_mul(4);
        (4 * self.last_snapshot_bytes).clamp(least_bytes, most_bytes)
    }

    /// Many effects are not enough: the log must have grown by a quarter of what the last snapshot wrote, and writing
    /// must have rested. So such snapshots write four times as much as the log at most, in a tenth of the time.
    fn is_due_by_effects(&self, written_bytes: u64) -> bool {
        self.effects.since_snapshot() >= self.due_after_effects()
            && written_bytes >= self.last_snapshot_bytes / SHARE_MAX
            && self.have_snapshots_rested()
    }

    /// Whether writing has rested, before a snapshot that bytes of the log do not make due.
    pub(super) fn have_snapshots_rested(&self) -> bool {
        self.snapshots_rest_until.has_passed(self.now.boot)
    }

    /// A snapshot looks at all entities and writes a little for each message that has changed, and a start reads
    /// something for all. So they may be the fewer the more there is.
    fn due_after_effects(&self) -> u64 {
        let least = self.options.snapshot_after_effects;
        (self.measured.pieces() / 10).clamp(least, least.saturating_mul(50))
    }

    /// Writes a snapshot if anything happened since the last one and none is on its way to the disk. If one is being
    /// gathered, the rest of that is gathered now.
    pub fn snapshot(&mut self) {
        if self.is_snapshot_possible() {
            self.begin_snapshot();
        }
        self.gather(u64::MAX);
    }

    /// Prepares a clean end: a snapshot of everything, so that the next start replays nothing, and a mark. Carry out
    /// all jobs, then call it again if it returns true: a snapshot that was already under way has an older state.
    pub fn close(&mut self) -> bool {
        let is_older_under_way = self.log.snapshots().is_under_way;
        self.snapshot();
        self.mark();
        is_older_under_way
    }

    /// Sets how the steps of snapshots are timed: by these clocks of the calling thread. By default they are not.
    ///
    /// A step is work without a pause. One begins a snapshot and gathers its first piece, and each of the others
    /// gathers another piece. The clocks are read twice for each, and at no other time. The driver itself times how
    /// long it takes to complete the job that has written a snapshot: only the driver knows the kind of a job that is
    /// done. If another snapshot begins in that, because what the next start needs is damaged, both steps have its
    /// time.
    pub fn time_snapshot_steps(&mut self, clocks: fn() -> Spent) {
        self.step_times.clocks = Some(clocks);
    }

    /// What each step of a snapshot took, since the last call. After each turn there are a few at most.
    pub fn take_snapshot_steps(&mut self) -> impl Iterator<Item = Spent> + '_ {
        self.step_times.taken.drain(..)
    }

    pub(super) fn is_snapshot_possible(&self) -> bool {
        let snapshots = self.log.snapshots();
        !self.stopped && !snapshots.is_under_way && snapshots.bytes_since > 0
    }

    pub(super) fn begin_snapshot(&mut self) {
        let began = self.step_times.begin();
        // The log notes how much the snapshot may take on a full disk.
        self.keep_for_draining();
        match (self.log).begin_snapshot(&Live::for_snapshot(&self.state)) {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => panic!("a snapshot was refused while none is under way: {error}"),
        }
        self.effects.begun();
        self.measured.snapshot_begun();
        self.snapshot_begun_at = self.now.boot;
        self.state.begin_snapshot();
        self.gather_piece(self.options.gather_steps);
        self.step_times.end(began);
    }

    /// Whether a snapshot is being gathered: each turn gathers a piece.
    pub fn is_gathering(&self) -> bool {
        !self.stopped && self.state.is_gathering()
    }

    /// Gathers a piece of the snapshot that was begun, if there is one. Once all is gathered, a job can write it.
    pub(super) fn gather(&mut self, steps: u64) {
        if self.is_gathering() {
            let began = self.step_times.begin();
            self.gather_piece(steps);
            self.step_times.end(began);
        }
    }

    fn gather_piece(&mut self, steps: u64) {
        if let Some(snapshot) = self.state.gather(steps) {
            let mut content: Box<dyn SnapshotContent> = Box::new(Content::Shared(snapshot));
            alter(Seam::Snapshot, &mut content);
            self.log.write_snapshot(content);
        }
    }

    /// Notes that a snapshot was written.
    pub(super) fn snapshot_written(&mut self) {
        self.effects.written();
        self.measured.snapshot_written();
        self.eviction.snapshot_written();
        let now = self.now.boot;
        self.loads.warming.snapshot_written(now);
        let took_us = now.as_us().saturating_sub(self.snapshot_begun_at.as_us());
        let rest_ms = (took_us / 1000).saturating_mul(REST_FACTOR);
        self.snapshots_rest_until = now.plus_ms(rest_ms.min(REST_MS_MAX));
        self.last_snapshot_bytes = self.log.snapshots().written_bytes.unwrap_or_default();
    }
}
