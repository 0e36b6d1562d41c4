//! Periodic work of a partition, which needs no command: marks, and what the log needs for its space.

use kew_log::{BootTime, Tidied};

use super::Partition;
use super::live::Live;
use crate::Due;

/// After this long without a command, the log's end is marked as durable.
const IDLE_BEFORE_MARK_MS: u64 = 100;

/// After this long without a command a partition is idle: its log has time to free little space, too.
const IDLE_MS: u64 = 1000;

/// How soon is read again when there was no file descriptor.
const READING_RETRY_INTERVAL_MS: u64 = 100;

impl<T> Partition<T> {
    /// Carries out what is due by now. `is_idle` says that the turn has no commands.
    pub(super) fn keep_up(&mut self, now: BootTime, is_idle: bool) {
        self.tidy(now);
        self.evacuate(now);
        if self.reading_retry_at.is_some_and(|at| at.has_passed(now)) {
            self.reading_retry_at = None;
        }
        self.avoid_damage();
        if self.heartbeat.is_due(now, &*self.log) {
            self.beat();
        }
        if !is_idle {
            self.active_at = now;
            self.is_marked = false;
        } else if !self.is_marked && self.mark_at().has_passed(now) {
            self.log.mark();
            self.is_marked = true;
        }
    }

    /// Lets the log see to its space, and does what it needs for that.
    fn tidy(&mut self, now: BootTime) {
        let is_idle = self.active_at.plus_ms(IDLE_MS).has_passed(now);
        let Tidied {
            wants_snapshot,
            wants_size,
            moved_share_per_mille,
            victim,
        } = self.log.tidy(now, &Live::of(&self.state), is_idle);
        self.evacuation.begin(moved_share_per_mille, victim);
        if wants_size {
            // A purge has made the state smaller at once, and no growth is a reason to measure it.
            self.measured.forget();
            self.keep_for_draining();
        }
        if wants_snapshot {
            self.begin_snapshot();
        }
    }

    /// Lets reads rest for a short while: there was no file descriptor, for one of them or for a job of the log.
    pub(super) fn retry_reading(&mut self) {
        let at = self.now.boot.plus_ms(READING_RETRY_INTERVAL_MS);
        self.reading_retry_at.get_or_insert(at);
    }

    /// When it is to be found out that too few other machines answer. Once that is known, the log says when it changes.
    fn next_look_for_quorum(&self) -> Option<BootTime> {
        self.quorum_missed_at()
            .filter(|at| !at.has_passed(self.now.boot))
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
        // A beat had no room, which a turn makes.
        let is_unproven = !self.reads.is_empty() && self.log.durable() == self.log.end();
        // The rest of a snapshot is gathered soon, and records leave memory, also if nothing else happens.
        let is_busy = self.is_gathering() || self.is_evicting();
        let busy = is_busy.then_some(self.now.boot);
        let all = [
            mark,
            self.heartbeat.next(&*self.log),
            self.next_look_for_quorum(),
            self.loads.rests.retry_at(),
            is_rest_over.then_some(self.now.boot),
            self.log.next_wake(),
            self.reading_retry_at,
            self.evacuation.step_at(),
            busy,
            self.next_warming(),
            ready,
            is_unproven.then_some(self.now.boot),
            (unused_at != BootTime::NEVER).then_some(unused_at),
        ];
        Due {
            time: due,
            boot: all.into_iter().flatten().min(),
        }
    }
}
