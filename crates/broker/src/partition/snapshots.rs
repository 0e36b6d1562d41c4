//! When a snapshot is written, and which segments of the log stay in use.

use std::collections::BTreeSet;

use bytes::Bytes;
use kew_log::LogPosition;
use kew_planted::{Seam, alter};

use super::Partition;

impl<T> Partition<T> {
    /// Writes a snapshot if one is due and no write is on its way to the disk. The partition calls this
    /// itself after each commit.
    pub fn snapshot_if_due(&mut self) {
        let after = self.last_snapshot_bytes.saturating_mul(4);
        let after = if self.log.is_draining() {
            self.log.drain_interval_bytes()
        } else {
            after.max(self.options.snapshot_after_bytes)
        };
        if self.log.bytes_since_snapshot() >= after && self.snapshot_retry_at.has_passed(self.now) {
            self.snapshot();
        }
    }

    /// Writes a snapshot if anything happened since the last one and no write is on its way to the disk.
    pub fn snapshot(&mut self) {
        if self.is_snapshot_possible() {
            self.snapshot_with(self.live_segments());
        }
    }

    pub(super) fn is_snapshot_possible(&self) -> bool {
        let is_quiet = self.log.durable() == self.log.end() && !self.log.is_snapshotting();
        !self.stopped && is_quiet && self.log.bytes_since_snapshot() > 0
    }

    pub(super) fn snapshot_with(&mut self, live: BTreeSet<LogPosition>) {
        let mut parts = Vec::new();
        self.state
            .snapshot(|part| parts.push(Bytes::copy_from_slice(part)));
        self.last_snapshot_bytes = parts.iter().map(|part| part.len() as u64).sum();
        debug_assert!(
            self.last_snapshot_bytes <= self.state.snapshot_size_bytes_max(),
            "what is kept for draining bounds a snapshot"
        );
        let mut snapshot = (parts, live);
        alter(Seam::Snapshot, &mut snapshot);
        let (parts, live) = snapshot;
        if let Err(error) = self.log.snapshot(parts, live) {
            panic!("a snapshot was refused by a quiet log: {error}");
        }
    }

    /// The bases of the segments with bodies that are still needed.
    pub(super) fn live_segments(&self) -> BTreeSet<LogPosition> {
        let segments: Vec<_> = self.log.segments().collect();
        let mut is_live = vec![false; segments.len()];
        // Bodies that follow each other are nearly always in one segment.
        let mut last = LogPosition::new(1)..LogPosition::new(0);
        for body in self.state.bodies() {
            let record = LogPosition::new(body.record);
            if last.contains(&record) {
                continue;
            }
            let after = segments.partition_point(|segment| segment.first <= record);
            let index = after
                .checked_sub(1)
                .expect("a body that the state refers to is in the log");
            let (Some(segment), Some(live)) = (segments.get(index), is_live.get_mut(index)) else {
                continue;
            };
            *live = true;
            let end = segments.get(after).map(|next| next.first);
            last = segment.first..end.unwrap_or(LogPosition::new(u64::MAX));
        }
        let live = segments.iter().zip(is_live).filter(|(_, live)| *live);
        live.map(|(segment, _)| segment.base).collect()
    }
}
