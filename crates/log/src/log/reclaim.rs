//! Snapshots, and the files they make unnecessary.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::SegmentLog;
use super::backup::Pins;
use crate::job::{Retire, Retired, Unneeded, WriteSnapshot, WrittenSnapshot};
use crate::pages::{PageStore, SnapshotContent, SnapshotForm};
use crate::segment::{Recycled, Segment};
use crate::snapshot::{SnapshotError, SnapshotHeader};
use crate::storage::IoFailure;
use crate::{BeginSnapshotError, LiveBytes, LogPosition, SnapshotStatus};

/// Two snapshots are kept, so that damage to one does not lose the log.
const SNAPSHOTS_KEPT: usize = 2;

/// Known snapshots, and the files to be removed.
pub(super) struct Reclaim {
    /// Valid snapshots, oldest first.
    snapshots: Vec<LogPosition>,
    /// The sizes of snapshots, as far as they are known.
    snapshot_sizes: BTreeMap<LogPosition, u64>,
    /// Damaged snapshot files. They are removed once two snapshots are whole, and a newer one is there.
    snapshots_damaged: Vec<LogPosition>,
    pending: Option<PendingSnapshot>,
    /// Why the last one was given up.
    pub(super) snapshot_error: Option<IoFailure>,
    /// What the last one has written, with its pages.
    pub(super) snapshot_size_bytes: Option<u64>,
    pub(super) bytes_since_snapshot: u64,
    unneeded: Unneeded,
    /// Holds back the removal of some of these files.
    pub(super) pins: Pins,
    /// The segments that the newest snapshot needs for their bodies. `None` if it was written before the open.
    live: Option<BTreeSet<LogPosition>>,
    is_retiring: bool,
    /// The disk had no space even to remove files. Tried again when something was freed, or after a while.
    is_retire_put_off: bool,
}

struct PendingSnapshot {
    header: SnapshotHeader,
    /// The first positions of segments that are needed for their bodies.
    live: BTreeSet<LogPosition>,
    /// The bytes counted when the snapshot was begun. Counted again if it cannot be written.
    bytes_before: u64,
    /// The most that it takes on a full disk, if that is known. Checked in tests.
    bytes_max: Option<u64>,
    /// `None` until all of it is gathered, and while the job is under way.
    content: Option<Box<dyn SnapshotContent>>,
}

impl Reclaim {
    pub(super) fn resume(
        snapshots: BTreeMap<LogPosition, u64>,
        snapshots_damaged: Vec<LogPosition>,
        superseded: Vec<Arc<Segment>>,
        bytes_since_snapshot: u64,
    ) -> Self {
        Self {
            snapshots: snapshots.keys().copied().collect(),
            snapshot_sizes: snapshots,
            snapshots_damaged,
            pending: None,
            snapshot_error: None,
            snapshot_size_bytes: None,
            bytes_since_snapshot,
            unneeded: Unneeded {
                segments: superseded,
                ..Unneeded::default()
            },
            pins: Pins::default(),
            live: None,
            is_retiring: false,
            is_retire_put_off: false,
        }
    }

    /// The size of the snapshots' files, as far as it is known.
    pub(super) fn snapshots_size_bytes(&self) -> u64 {
        self.snapshot_sizes.values().sum()
    }

    /// The size of the files that go with the kept snapshots once two others were written on a full disk: these and all page
    /// files, but for those with pages that cannot be read.
    pub(super) fn kept_size_bytes(&self, pages: &PageStore) -> u64 {
        let kept = self.snapshots.iter().rev().take(SNAPSHOTS_KEPT);
        let sizes = kept.filter_map(|position| self.snapshot_sizes.get(position));
        let page_bytes = pages.size_bytes().saturating_sub(pages.lasting_bytes());
        sizes.sum::<u64>() + page_bytes
    }

    /// The size of the newest snapshot's file. 0 if there is none, and `None` if it is one without pages, which does not
    /// say what pages would take.
    pub(super) fn manifest_size_bytes(&self, pages: &PageStore) -> Option<u64> {
        let Some(newest) = self.snapshots.last() else {
            return Some(0);
        };
        let has_pages = !pages.newest().pages().is_empty();
        let size_bytes = self.snapshot_sizes.get(newest).copied();
        size_bytes.filter(|_| has_pages)
    }

    /// Whether a snapshot is being written, or files are being removed.
    pub(super) fn is_busy(&self, pages: &PageStore) -> bool {
        self.pending.is_some() || self.is_retiring || self.has_retired(pages)
    }

    /// Whether files are being removed, or are about to be.
    pub(super) fn is_removing(&self, pages: &PageStore) -> bool {
        self.is_retiring || (!self.is_retire_put_off && self.has_retired(pages))
    }

    fn has_retired(&self, pages: &PageStore) -> bool {
        self.pins.has_free(&self.unneeded) || !pages.unneeded().is_empty()
    }

    /// The size of the files that only a pin keeps.
    pub(super) fn held_bytes(&self, pages: &PageStore) -> u64 {
        let pins = &self.pins;
        let segments = self.unneeded.segments.iter();
        let segments = segments.filter(|segment| pins.is_segment_pinned(segment));
        let snapshots = self.unneeded.snapshots.iter();
        let snapshots = snapshots.filter(|position| pins.is_snapshot_pinned(**position));
        let sizes = snapshots.map(|position| {
            let size_bytes = self.snapshot_sizes.get(position);
            size_bytes.copied().unwrap_or_default() + pages.bytes_only_for(*position)
        });
        let segments = segments.map(|segment| segment.header.capacity_bytes);
        segments.sum::<u64>() + sizes.sum::<u64>()
    }

    /// Takes a snapshot whose file is damaged out of those that are kept. Its file is removed once two are whole and
    /// one of them is newer, or replaced by one at the same position.
    pub(super) fn forget_damaged(&mut self, position: LogPosition) {
        if self.snapshots.last() == Some(&position) {
            self.live = None;
        }
        if self.snapshots.extract_if(.., |it| *it == position).count() > 0 {
            self.snapshot_sizes.remove(&position);
            self.snapshots_damaged.push(position);
        }
    }

    /// Whether there is a file of that snapshot.
    pub(super) fn knows_snapshot(&self, position: LogPosition) -> bool {
        self.snapshots.contains(&position) || self.snapshots_damaged.contains(&position)
    }

    pub(super) fn live_at_last_snapshot(&self) -> Option<&BTreeSet<LogPosition>> {
        self.live.as_ref()
    }

    /// Retires segments that cover no position and lead nowhere any more.
    pub(super) fn retire_passed(&mut self, passed: impl Iterator<Item = Arc<Segment>>) {
        self.unneeded.segments.extend(passed);
    }

    pub(super) fn retire_surplus(&mut self, recycled: &mut Vec<Recycled>) {
        self.unneeded.surplus.append(recycled);
    }

    /// Puts back files that were not removed, before the files retired since.
    fn put_back(&mut self, left: Unneeded) {
        let since = std::mem::replace(&mut self.unneeded, left);
        // The pages know them.
        self.unneeded.pairs.clear();
        self.unneeded.snapshots.extend(since.snapshots);
        self.unneeded.segments.extend(since.segments);
        self.unneeded.surplus.extend(since.surplus);
    }

    /// Tries again to remove files after the disk had no space for that.
    pub(super) fn retry_retire(&mut self) {
        self.is_retire_put_off = false;
    }
}

impl SegmentLog {
    /// Begins a snapshot of the state at the log's end. Returns false if nothing was appended since the last
    /// one. Its content may follow later, when more was appended: see [`SegmentLog::write_snapshot`]. What lies before the
    /// end need not be durable yet: the job waits until it is, and if the log stops before, there is no snapshot.
    ///
    /// A segment without live bytes is removed once two snapshots lie behind it.
    pub fn begin_snapshot(&mut self, live: &dyn LiveBytes) -> Result<bool, BeginSnapshotError> {
        self.check_ended()?;
        if self.reclaim.pending.is_some() {
            return Err(BeginSnapshotError::Busy);
        }
        let live = self.live_segments(live);
        let is_new = self.reclaim.snapshots.last() != Some(&self.end);
        match is_new {
            true => self.begin_snapshot_here(live),
            false => self.retire_before_snapshots(&live),
        }
        self.snapshot_is_begun();
        Ok(is_new)
    }

    /// `live` are the first positions of the segments with bodies that are still needed.
    fn begin_snapshot_here(&mut self, live: BTreeSet<LogPosition>) {
        let position = self.end;
        self.reclaim.pending = Some(PendingSnapshot {
            header: SnapshotHeader {
                log: self.id,
                position,
                chain: self.chain,
                time_ms: self.time_ms,
                epoch: self.epoch,
                part_count: 0,
                begins_anew: false,
                has_pages: false,
                table_parts: 0,
            },
            live,
            bytes_before: std::mem::take(&mut self.reclaim.bytes_since_snapshot),
            bytes_max: self.snapshot_bytes_max(),
            content: None,
        });
    }

    /// Gives the content of the snapshot that was begun: the state at the position at which it was begun. A job
    /// writes it.
    pub fn write_snapshot(&mut self, content: Box<dyn SnapshotContent>) {
        if let Some(pending) = &mut self.reclaim.pending {
            pending.content = Some(content);
        }
    }

    /// Begins a snapshot whose content is there already. Returns false if nothing was appended since the last one.
    pub fn snapshot(
        &mut self,
        content: impl SnapshotContent + 'static,
        live: &dyn LiveBytes,
    ) -> Result<bool, BeginSnapshotError> {
        let is_begun = self.begin_snapshot(live)?;
        if is_begun {
            self.write_snapshot(Box::new(content));
        }
        Ok(is_begun)
    }

    /// The snapshots.
    pub fn snapshots(&self) -> SnapshotStatus<'_> {
        let reclaim = &self.reclaim;
        SnapshotStatus {
            last: self.last_snapshot(),
            written_bytes: reclaim.snapshot_size_bytes,
            bytes_since: reclaim.bytes_since_snapshot,
            is_under_way: reclaim.pending.is_some(),
            failed: reclaim.snapshot_error.as_ref(),
            retry_at: self.tidying.snapshot_retry_at(),
        }
    }

    /// Whether two more snapshots would free segments.
    pub fn can_free_segments(&self, live: &dyn LiveBytes) -> bool {
        !self
            .unneeded(self.end, &self.live_segments(live))
            .is_empty()
    }

    /// The size of the segments that two more snapshots would free. `live` are the first positions of the segments with
    /// bodies that are still needed.
    pub(super) fn freeable_bytes(&self, live: &BTreeSet<LogPosition>) -> u64 {
        let firsts = self.unneeded(self.end, live).into_iter();
        let segments = firsts.filter_map(|first| self.segments.get(&first));
        segments.map(|segment| segment.header.capacity_bytes).sum()
    }

    /// Removes files that are kept for reuse, until so many are left: first those that were made for a large batch, then
    /// the smallest. Returns whether there were more.
    pub(super) fn trim_recycled(&mut self, kept: usize) -> bool {
        let largest_bytes = self.options.segment_size_max_bytes;
        let is_usual = |recycled: &Recycled| recycled.capacity_bytes <= largest_bytes;
        self.recycled
            .sort_by_key(|recycled| (is_usual(recycled), recycled.capacity_bytes));
        let usual = self.recycled.iter().filter(|it| is_usual(it)).count();
        let surplus = self.recycled.len() - usual.min(kept);
        let mut removed = self.recycled.drain(..surplus).collect();
        self.reclaim.retire_surplus(&mut removed);
        surplus > 0
    }

    /// What the newest snapshot would take at most if all of its pages were written anew. `None` if it has none.
    pub fn anew_size_bytes(&self) -> Option<u64> {
        let manifest_bytes = self.reclaim.manifest_size_bytes(&self.pages)?;
        Some(manifest_bytes + self.pages.newest_files_bytes_max())
    }

    /// The snapshots that are kept, oldest first. Up to two, and more only before the first one of this open.
    pub(super) fn kept_snapshots(&self) -> impl DoubleEndedIterator<Item = LogPosition> {
        self.reclaim.snapshots.iter().copied()
    }

    /// Position of the newest snapshot that is durable.
    pub(super) fn last_snapshot(&self) -> Option<LogPosition> {
        self.reclaim.snapshots.last().copied()
    }

    /// Position of the snapshot that is begun and not durable yet.
    pub(super) fn pending_snapshot(&self) -> Option<LogPosition> {
        let pending = self.reclaim.pending.as_ref();
        pending.map(|pending| pending.header.position)
    }
}

/// Outcomes of jobs, and the choice of files to retire.
impl SegmentLog {
    pub(super) fn next_snapshot(&mut self) -> Option<WriteSnapshot> {
        // A start may use what is written at once, so a crash must not be able to take its state back.
        let is_durable = self.pending_snapshot() <= Some(self.durable);
        if !is_durable || !self.is_snapshot_let_through() {
            return None;
        }
        let may_take_ballast = self.is_draining();
        let pending = self.reclaim.pending.as_mut()?;
        let content = pending.content.take()?;
        let form = match may_take_ballast {
            true => SnapshotForm::Anew,
            false => SnapshotForm::Pages,
        };
        let manifest = self.pages.begin_with(pending.header, form);
        Some(WriteSnapshot {
            manifest: manifest.expect("there is one snapshot at a time"),
            content,
            may_take_ballast,
        })
    }

    pub(super) fn snapshot_written(&mut self, written: WrittenSnapshot) -> Option<IoFailure> {
        if written.took_ballast {
            self.ballast_taken();
        }
        match self.pages.complete(written.manifest) {
            Ok((size_bytes, written_bytes)) => {
                self.snapshot_done(size_bytes, written_bytes);
                None
            }
            Err(error) => self.snapshot_failed(error, written.took_ballast),
        }
    }

    fn snapshot_done(&mut self, size_bytes: u64, written_bytes: u64) {
        let Some(pending) = self.reclaim.pending.take() else {
            return;
        };
        self.reclaim.snapshot_error = None;
        self.reclaim.retry_retire();
        self.reclaim.snapshot_size_bytes = Some(written_bytes);
        let position = pending.header.position;
        self.reclaim.snapshots.push(position);
        self.reclaim.snapshot_sizes.insert(position, size_bytes);
        // The snapshot has replaced a damaged file at the same position.
        self.reclaim
            .snapshots_damaged
            .retain(|damaged| *damaged != position);
        self.retire_before_snapshots(&pending.live);
        self.reclaim.live = Some(pending.live);
        if cfg!(debug_assertions) {
            self.check_bound(pending.bytes_max);
        }
    }

    /// What is reserved bounds a snapshot with all pages anew.
    fn check_bound(&self, bytes_max: Option<u64>) {
        if let (Some(bytes_max), Some(anew_bytes)) = (bytes_max, self.anew_size_bytes()) {
            assert!(
                anew_bytes <= bytes_max,
                "a snapshot with all pages anew takes {anew_bytes} bytes, and {bytes_max} are reserved"
            );
        }
    }

    fn snapshot_failed(&mut self, error: SnapshotError, took_ballast: bool) -> Option<IoFailure> {
        if let Some(pending) = self.reclaim.pending.take() {
            self.reclaim.bytes_since_snapshot += pending.bytes_before;
        }
        match error {
            SnapshotError::Unfinished(failure) if failure.is_no_space() => {
                if took_ballast {
                    self.retire_older_snapshot();
                }
                self.begin_draining();
                self.reclaim.snapshot_error = Some(failure);
                self.tidying.snapshot_failed();
                None
            }
            SnapshotError::Unfinished(failure) if failure.is_no_descriptor() => {
                self.is_short_of_descriptors = true;
                self.reclaim.snapshot_error = Some(failure);
                self.tidying.snapshot_failed();
                None
            }
            SnapshotError::Unfinished(failure) | SnapshotError::Unsure(failure) => Some(failure),
        }
    }

    /// Even the ballast had no space for a third snapshot, because something else has taken it. Removing the
    /// older one may make space.
    fn retire_older_snapshot(&mut self) {
        let reclaim = &mut self.reclaim;
        if reclaim.snapshots.len() >= SNAPSHOTS_KEPT {
            let older = reclaim.snapshots.remove(0);
            reclaim.snapshot_sizes.remove(&older);
            reclaim.unneeded.snapshots.push(older);
        }
    }

    /// Retires the files that neither of the two newest snapshots needs.
    fn retire_before_snapshots(&mut self, live: &BTreeSet<LogPosition>) {
        let reclaim = &mut self.reclaim;
        let Some(surplus) = reclaim.snapshots.len().checked_sub(SNAPSHOTS_KEPT) else {
            // With a single snapshot, the only fallback is the log from its beginning.
            return;
        };
        let retired = &mut reclaim.unneeded.snapshots;
        retired.extend(reclaim.snapshots.drain(..surplus));
        let (older, newest) = (reclaim.snapshots[0], reclaim.snapshots[SNAPSHOTS_KEPT - 1]);
        let damaged = &mut reclaim.snapshots_damaged;
        retired.extend(damaged.extract_if(.., |position| *position < newest));
        retired.sort_unstable();
        let (sizes, pins) = (&mut reclaim.snapshot_sizes, &reclaim.pins);
        sizes.retain(|position, _| *position >= older || pins.is_snapshot_pinned(*position));
        for first in self.unneeded(older, live) {
            let removed = self.segments.remove(&first);
            self.reclaim.unneeded.segments.extend(removed);
        }
        self.forget_retired_bodies();
    }

    /// The first positions of segments before a position, without live bodies.
    pub(super) fn unneeded(
        &self,
        before: LogPosition,
        live: &BTreeSet<LogPosition>,
    ) -> Vec<LogPosition> {
        let mut unneeded = Vec::new();
        let mut kept_before: Option<&Segment> = None;
        let mut segments = self.segments.values().peekable();
        while let Some(segment) = segments.next() {
            let next = segments.peek().map(|next| &***next);
            // A segment that took over within another one stays as long as that one does. Otherwise the
            // older one would seem to cover the positions after the takeover. Nothing lies behind a roll.
            let limits_kept = kept_before.is_some_and(|kept| segment.took_over_within(kept));
            if next.is_some()
                && segment.end_before(next) <= before
                && !live.contains(&segment.first())
                && !limits_kept
            {
                unneeded.push(segment.first());
                kept_before = None;
            } else {
                kept_before = Some(segment);
            }
        }
        unneeded
    }

    pub(super) fn next_retire(&mut self) -> Option<Retire> {
        let reclaim = &mut self.reclaim;
        let is_resting = reclaim.is_retiring || reclaim.is_retire_put_off;
        if is_resting || !reclaim.has_retired(&self.pages) {
            return None;
        }
        reclaim.is_retiring = true;
        reclaim.unneeded.pairs = self.pages.unneeded();
        Some(Retire {
            unneeded: reclaim.pins.take_free(&mut reclaim.unneeded),
            epoch: self.epoch,
            recycled_max: self.recycled_max().saturating_sub(self.recycled.len()),
            recycled_capacity_bytes_min: self.next_capacity_bytes(),
        })
    }

    /// How many segments to keep for reuse. On a full disk their space is worth more.
    fn recycled_max(&self) -> usize {
        if self.is_draining() {
            0
        } else {
            self.options.recycled_segments_max
        }
    }

    pub(super) fn retire_done(&mut self, retired: Retired) -> Option<IoFailure> {
        self.reclaim.is_retiring = false;
        self.reclaim.put_back(retired.left);
        let (snapshots, pairs) = retired.removed;
        snapshots.iter().for_each(|at| self.pages.forget(*at));
        self.pages.forget_pairs(&pairs);
        match retired.result {
            Ok(()) => {
                self.recycled.extend(retired.recycled);
                if self.is_draining() {
                    let Self {
                        reclaim, recycled, ..
                    } = self;
                    reclaim.retire_surplus(recycled);
                }
                self.retry_prepare();
                None
            }
            // On copy-on-write file systems, even removing a name needs space.
            Err(failure) if failure.is_no_space() => {
                self.reclaim.is_retire_put_off = true;
                None
            }
            Err(failure) => Some(failure),
        }
    }
}
