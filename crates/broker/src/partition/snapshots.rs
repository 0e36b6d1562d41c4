//! When a snapshot is written, and which segments of the log stay in use.

use std::collections::BTreeSet;

use bytes::Bytes;
use kew_engine::{Snapshot, SnapshotParts};
use kew_log::{LogPosition, SnapshotContent};
use kew_planted::{Seam, alter};

use super::Partition;

/// A snapshot on its way to the disk. The job that writes it plans its parts and encodes them.
pub(crate) enum Content {
    Shared(Snapshot),
    Planned(SnapshotParts),
}

impl SnapshotContent for Content {
    fn plan(&mut self) -> usize {
        let planned = Self::Planned(SnapshotParts::default());
        let parts = match std::mem::replace(self, planned) {
            Self::Shared(snapshot) => snapshot.plan(),
            Self::Planned(parts) => parts,
        };
        let count = parts.count();
        *self = Self::Planned(parts);
        count
    }

    fn put_part(&self, index: usize, out: &mut Vec<u8>) {
        match self {
            Self::Shared(_) => panic!("a part is asked for before its plan was made"),
            Self::Planned(parts) => parts.put(index, out),
        }
    }
}

/// How many effects there were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EffectCounts {
    /// Since the snapshot that this start has used.
    pub(super) all: u64,
    /// Up to the last snapshot that is durable, and up to the one that is being written.
    in_last: u64,
    in_next: u64,
}

impl EffectCounts {
    pub(super) fn after_replay(effect_count: u64) -> Self {
        Self {
            all: effect_count,
            ..Self::default()
        }
    }

    /// Those that a start would apply now.
    fn since_snapshot(self) -> u64 {
        self.all - self.in_last
    }
}

impl<T> Partition<T> {
    /// Writes a snapshot if one is due and no write is on its way to the disk. The partition calls this
    /// itself after each commit.
    pub fn snapshot_if_due(&mut self) {
        let written_bytes = self.log.bytes_since_snapshot();
        let is_due = if self.log.is_draining() {
            written_bytes >= self.log.drain_interval_bytes()
        } else {
            let is_long = written_bytes >= self.options.snapshot_after_bytes
                || self.effects.since_snapshot() >= self.options.snapshot_after_effects;
            // A fifth of all bytes at most, unless each snapshot is much larger than the one before.
            is_long && written_bytes >= self.last_snapshot_bytes.saturating_mul(4)
        };
        if is_due && self.snapshot_retry_at.has_passed(self.now.boot) && self.is_snapshot_possible()
        {
            self.snapshot_with(self.live_segments());
        }
    }

    /// Writes a snapshot if anything happened since the last one and no write is on its way to the disk. If one is
    /// being gathered, the rest of that is gathered now.
    pub fn snapshot(&mut self) {
        if self.is_snapshot_possible() {
            self.snapshot_with(self.live_segments());
        }
        self.gather(u64::MAX);
    }

    /// Prepares a clean end: a snapshot of everything, so that the next start replays nothing, and a mark. Carry out
    /// all jobs, then call it again if it returns true: a snapshot that was already under way has an older state.
    pub fn close(&mut self) -> bool {
        let is_older_under_way = self.log.is_snapshotting();
        self.snapshot();
        self.mark();
        is_older_under_way
    }

    pub(super) fn is_snapshot_possible(&self) -> bool {
        let is_quiet = self.log.durable() == self.log.end() && !self.log.is_snapshotting();
        !self.stopped && is_quiet && self.log.bytes_since_snapshot() > 0
    }

    pub(super) fn snapshot_with(&mut self, mut live: BTreeSet<LogPosition>) {
        alter(Seam::SnapshotBegun, &mut live);
        match self.log.begin_snapshot(live) {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => panic!("a snapshot was refused by a quiet log: {error}"),
        }
        if cfg!(debug_assertions) {
            self.snapshot_bound_bytes = self.state.snapshot_size_bytes_max();
        }
        self.effects.in_next = self.effects.all;
        self.state.begin_snapshot();
        self.gather(self.options.gather_steps);
    }

    /// Whether a snapshot is being gathered: each turn gathers a piece.
    pub fn is_gathering(&self) -> bool {
        !self.stopped && self.state.is_gathering()
    }

    /// Gathers a piece of the snapshot that was begun, if there is one. Once all is gathered, a job can write it.
    pub(super) fn gather(&mut self, steps: u64) {
        if self.is_gathering()
            && let Some(snapshot) = self.state.gather(steps)
        {
            let mut altered: Option<Vec<Bytes>> = None;
            alter(Seam::Snapshot, &mut altered);
            match altered {
                None => self.log.write_snapshot(Content::Shared(snapshot)),
                Some(parts) => self.log.write_snapshot(parts),
            }
        }
    }

    /// Notes that a snapshot was written.
    pub(super) fn snapshot_written(&mut self) {
        self.effects.in_last = self.effects.in_next;
        self.last_snapshot_bytes = self.log.last_snapshot_size_bytes().unwrap_or_default();
        debug_assert!(
            self.last_snapshot_bytes <= self.snapshot_bound_bytes,
            "what is kept for draining bounds a snapshot"
        );
    }

    /// The first positions of the segments with bodies that are still needed. A unit in which bytes are counted may lie
    /// in two segments: then it keeps both.
    pub(super) fn live_segments(&self) -> BTreeSet<LogPosition> {
        let segments = self.log.segments();
        let live = segments.filter(|segment| self.state.is_any_live_in(segment.records()));
        live.map(|segment| segment.first).collect()
    }
}
