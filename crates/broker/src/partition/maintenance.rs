//! Disk space follows live data: when snapshots are written only to free segments.
//!
//! A partition looks some time after it has appended something, and again as long as there is something to do. So an
//! idle one that is as it should be does nothing. A look takes a step for each segment and each unit in which bytes
//! are counted.

use std::collections::BTreeSet;

use kew_engine::Timestamp;
use kew_log::LogPosition;

use super::Partition;

/// How long after a change, or after the last look, the next one is.
const LOOK_INTERVAL_MS: u64 = 250;

/// After this long without a command a partition is idle: it has time to free little space, too.
const IDLE_MS: u64 = 1000;

/// How many segments an idle partition keeps for reuse.
const RECYCLED_KEPT: usize = 1;

/// When the partition looks.
#[derive(Debug, Default)]
pub(super) struct Maintenance {
    /// Whether there was a turn. A partition looks when it has been open for a while.
    is_started: bool,
    look_at: Option<Timestamp>,
    /// No snapshot is written before this time only to free segments.
    snapshot_from: Timestamp,
}

impl Maintenance {
    /// Notes a change, so that there is a look.
    pub(super) fn look_soon(&mut self, now: Timestamp) {
        self.look_at.get_or_insert(now.plus_ms(LOOK_INTERVAL_MS));
    }

    /// When the next look is due.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.look_at
    }
}

impl<T> Partition<T> {
    /// Carries out what is due by now, if anything is.
    pub(super) fn maintain(&mut self, now: Timestamp) {
        if !self.maintenance.is_started {
            self.maintenance.is_started = true;
            self.maintenance.look_at = Some(now.plus_ms(IDLE_MS));
        }
        let look_at = self.maintenance.look_at;
        if !look_at.is_some_and(|at| at.has_passed(now)) {
            return;
        }
        self.maintenance.look_at = None;
        let is_idle = self.active_at.plus_ms(IDLE_MS).has_passed(now);
        let is_freeing = self.free_segments(now, is_idle);
        let is_tidying = is_idle && !is_freeing && self.tidy();
        if is_freeing || is_tidying || !is_idle {
            self.maintenance.look_soon(now);
        }
    }

    /// Writes a snapshot if two more would free enough. Returns whether it is not done yet. On a full disk
    /// `make_space` does this.
    fn free_segments(&mut self, now: Timestamp, is_idle: bool) -> bool {
        if self.log.is_draining() {
            return false;
        }
        let live = self.live_segments();
        if self.log.freeable_bytes(&live) <= self.worth_a_snapshot_bytes(is_idle) {
            return false;
        }
        let is_quiet = self.log.durable() == self.log.end() && !self.log.is_snapshotting();
        let from = self.maintenance.snapshot_from.max(self.snapshot_retry_at);
        if !is_quiet || !from.has_passed(now) {
            return true;
        }
        // The mark makes the second snapshot differ from the first.
        if self.log.bytes_since_snapshot() == 0 {
            return self.log.force_mark();
        }
        self.snapshot_to_free(now, live);
        true
    }

    fn snapshot_to_free(&mut self, now: Timestamp, live: BTreeSet<LogPosition>) {
        self.measure_state();
        let interval_ms = self.writing_interval_ms();
        self.maintenance.snapshot_from = now.plus_ms(interval_ms);
        self.snapshot_with(live);
    }

    /// A purge has made the state smaller at once, and no growth is a reason to measure it.
    fn measure_state(&mut self) {
        self.growth_bytes = u64::MAX;
        self.keep_for_draining();
    }

    /// How much must be free to be worth two snapshots.
    fn worth_a_snapshot_bytes(&self, is_idle: bool) -> u64 {
        let largest_bytes = self.options.log.segment_size_max_bytes;
        let least_bytes = match is_idle {
            true => (largest_bytes / 2).max(self.state.live_bytes() / 10),
            false => 2 * largest_bytes,
        };
        least_bytes.max(self.last_snapshot_bytes)
    }

    /// Gives back what only a busy partition needs. Returns whether there was anything.
    fn tidy(&mut self) -> bool {
        let is_trimmed = self.log.trim_recycled(RECYCLED_KEPT);
        self.measure_state();
        is_trimmed || self.log.shrink_ballast()
    }
}
