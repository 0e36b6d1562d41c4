//! What a partition does at its time, whether or not anybody asks for something.

use kew_engine::Timestamp;

use super::Partition;

/// After this long without a command, the log's end is marked as durable.
const IDLE_BEFORE_MARK_MS: u64 = 100;

/// How often a full disk is tried again.
pub(super) const SPACE_RETRY_INTERVAL_MS: u64 = 1000;

/// The same while there is something that two snapshots would free.
const SPACE_FREED_INTERVAL_MS: u64 = 250;

/// All that is kept is walked to see what can be freed, and copied into a snapshot: some 4 ms for each MB of it, and a
/// tenth of the time at most.
const MAKE_SPACE_BYTES_PER_MS: u64 = 25_000;

impl<T> Partition<T> {
    /// What is done at its time, whether or not anybody asks for something.
    pub(super) fn keep_up(&mut self, now: Timestamp, is_idle: bool) {
        if self.space_retry_at.is_some_and(|at| at.has_passed(now)) {
            self.log.retry_prepare();
            let interval_ms = self.state_size_bytes / MAKE_SPACE_BYTES_PER_MS;
            // What was drained meanwhile need not be waited for.
            self.make_space_at = self.make_space_at.min(now.plus_ms(interval_ms));
            // Without any room nothing else can go on.
            if self.is_without_room || self.make_space_at.has_passed(now) {
                self.is_space_made = self.make_space();
                self.make_space_at = now.plus_ms(interval_ms);
            }
            let retry_ms = match self.is_space_made {
                true => SPACE_FREED_INTERVAL_MS,
                false => SPACE_RETRY_INTERVAL_MS,
            };
            self.space_retry_at = Some(now.plus_ms(retry_ms));
        }
        if !is_idle {
            self.active_at = now;
            self.is_marked = false;
        } else if !self.is_marked && self.mark_at().has_passed(now) {
            self.log.mark();
            self.is_marked = true;
        }
    }

    /// What was drained becomes space when two snapshots lie behind it. The mark makes the second
    /// differ from the first. Says whether there is something to be freed.
    fn make_space(&mut self) -> bool {
        let live = self.live_segments();
        let can_free = self.log.can_free_segments(&live);
        if (can_free || self.log.snapshot_error().is_some()) && self.is_snapshot_possible() {
            self.snapshot_with(live);
        }
        if can_free {
            self.log.force_mark();
        }
        can_free
    }

    fn mark_at(&self) -> Timestamp {
        self.active_at.plus_ms(IDLE_BEFORE_MARK_MS)
    }

    /// When a turn is due though nobody asks for one.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let mark = (!self.is_marked).then(|| self.mark_at());
        // Without any room what is due has to wait until there is space.
        let due = self.state.next_deadline();
        let due = due.filter(|_| !self.is_without_room);
        [mark, due, self.space_retry_at].into_iter().flatten().min()
    }
}
