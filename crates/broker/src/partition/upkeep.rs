//! Periodic work of a partition, which needs no command: marks, and making space on a full disk.

use std::collections::BTreeSet;

use kew_log::{BootTime, LogPosition};

use super::Partition;
use crate::Due;

/// After this long without a command, the log's end is marked as durable.
const IDLE_BEFORE_MARK_MS: u64 = 100;

/// How often the log tries again on a full disk.
pub(super) const SPACE_RETRY_INTERVAL_MS: u64 = 1000;

/// The same interval while two snapshots would free something.
const SPACE_FREED_INTERVAL_MS: u64 = 250;

/// How soon jobs are tried again that had no file descriptor.
const OPENING_RETRY_INTERVAL_MS: u64 = 100;

/// Snapshots that only make space are written for at most a tenth of the time, at 250 MB a second. Whether they would
/// free anything is looked at more often: that takes microseconds, because the bytes that are still needed are counted.
const MAKE_SPACE_BYTES_PER_MS: u64 = 25_000;

impl<T> Partition<T> {
    /// Carries out what is due by now. `is_idle` says that the turn has no commands.
    pub(super) fn keep_up(&mut self, now: BootTime, is_idle: bool) {
        if self.space_retry_at.is_some_and(|at| at.has_passed(now)) {
            self.log.retry_prepare();
            let interval_ms = self.writing_interval_ms();
            // Drained messages make the next snapshot smaller: do not wait for the interval that was computed
            // before.
            self.make_space_at = self.make_space_at.min(now.plus_ms(interval_ms));
            let live = self.live_segments();
            let can_free = self.log.can_free_segments(&live);
            let is_wanted = can_free || self.log.snapshots().failed.is_some();
            // With no room at all, nothing else can go on.
            if is_wanted && (self.is_without_room || self.make_space_at.has_passed(now)) {
                self.make_space(live, can_free);
                self.make_space_at = now.plus_ms(interval_ms);
            }
            let retry_ms = match can_free {
                true => SPACE_FREED_INTERVAL_MS,
                false => SPACE_RETRY_INTERVAL_MS,
            };
            self.space_retry_at = Some(now.plus_ms(retry_ms));
        }
        self.maintain(now);
        if self.opening_retry_at.is_some_and(|at| at.has_passed(now)) {
            self.opening_retry_at = None;
            self.log.retry_opening();
        }
        self.avoid_damage();
        if !is_idle {
            self.active_at = now;
            self.is_marked = false;
        } else if !self.is_marked && self.mark_at().has_passed(now) {
            self.log.mark();
            self.is_marked = true;
        }
    }

    /// Frees the space of drained messages, which takes two snapshots behind them. The beat makes the second
    /// snapshot differ from the first.
    fn make_space(&mut self, live: BTreeSet<LogPosition>, can_free: bool) {
        if self.is_snapshot_possible() {
            self.snapshot_with(live);
        }
        if can_free {
            self.log.beat();
        }
    }

    /// How long writing snapshots must rest, to take at most a tenth of the time.
    pub(super) fn writing_interval_ms(&self) -> u64 {
        self.log.drained_snapshot_bytes_max() / MAKE_SPACE_BYTES_PER_MS
    }

    /// Notes whether a job had no file descriptor.
    pub(super) fn note_descriptors(&mut self) {
        if self.log.is_short_of_descriptors() {
            self.retry_opening();
        }
    }

    /// Tries again soon what had no file descriptor.
    pub(super) fn retry_opening(&mut self) {
        let at = self.now.boot.plus_ms(OPENING_RETRY_INTERVAL_MS);
        self.opening_retry_at.get_or_insert(at);
    }

    fn mark_at(&self) -> BootTime {
        self.active_at.plus_ms(IDLE_BEFORE_MARK_MS)
    }

    /// When the next turn is due if no command comes.
    pub fn next_wake(&self) -> Due {
        let mark = (!self.is_marked).then(|| self.mark_at());
        // With no room at all, due events wait until there is space.
        let due = self.state.next_deadline();
        let due = due.filter(|_| !self.is_without_room);
        // A turn ends the rest of entities that a late command needed as they were.
        let is_rest_over = self.loads.rests.is_any_late() && !self.lanes.is_any_late();
        let is_begun =
            self.lanes.has_ready() || self.loads.awaits_turn() || self.damaged.awaits_turn();
        let ready = is_begun.then_some(self.now.boot);
        let unused_at = self.loads.bodies.unused_at();
        // The rest of a snapshot is gathered soon, and records leave memory, also if nothing else happens.
        let is_busy = self.is_gathering() || self.is_evicting();
        let busy = is_busy.then_some(self.now.boot);
        let all = [
            mark,
            self.loads.rests.retry_at(),
            is_rest_over.then_some(self.now.boot),
            self.space_retry_at,
            self.opening_retry_at,
            self.maintenance.next_wake(),
            busy,
            self.next_warming(),
            ready,
            (unused_at != BootTime::NEVER).then_some(unused_at),
        ];
        Due {
            time: due,
            boot: all.into_iter().flatten().min(),
        }
    }
}
