//! Disk space follows live data: when a snapshot is written only to free segments, which segment is to be emptied, and
//! when something is tried again.
//!
//! The log looks some time after something was appended, and again as long as there is something to do. So an idle one
//! that is as it should be does nothing. A look takes a step for each segment and each unit in which live bytes are
//! counted.
//!
//! A wanted snapshot is begun by the owner, which first says how large its state is. What depends on either follows then:
//! the beat that makes the next snapshot differ, the time for which writing rests, and a smaller ballast.

mod look;
mod victims;

use std::mem;

use self::look::Look;
use self::victims::Victims;
use super::SegmentLog;
use crate::{BootTime, LiveBytes, Reservation, ReserveError, Tidied};

/// How long after a change, or after the last look, the next one is.
const LOOK_INTERVAL_MS: u64 = 250;

/// How long after the first call of `tidy` the first one is.
const FIRST_LOOK_MS: u64 = 1000;

/// How many segments an idle log keeps for reuse.
const RECYCLED_KEPT: usize = 1;

/// How often the log tries again on a full disk.
const SPACE_RETRY_INTERVAL_MS: u64 = 1000;

/// The same interval while two snapshots would free something.
const SPACE_FREED_INTERVAL_MS: u64 = 250;

/// How soon jobs are tried again that had no file descriptor.
const OPENING_RETRY_INTERVAL_MS: u64 = 100;

/// Snapshots that only make space are written for at most a tenth of the time, at 250 MB a second. Whether they would
/// free anything is looked at more often: that takes microseconds, because the bytes that are still needed are counted.
const MAKE_SPACE_BYTES_PER_MS: u64 = 25_000;

/// When the log does what.
pub(super) struct Tidying {
    /// When the owner last called.
    now: BootTime,
    /// Whether it has called. The first look is when the log has been open for a while.
    is_started: bool,
    look_at: BootTime,
    /// How long a look must rest.
    rest_ms: u64,
    /// No snapshot is written before this time only to free segments.
    snapshot_from: BootTime,
    /// No snapshot is tried before this time: the last one has failed.
    snapshot_retry_at: BootTime,
    /// While batches that grow the state have no room: when to try the disk again.
    space_retry_at: BootTime,
    /// Before this time, no snapshot is written that would only free space on a full disk.
    make_space_at: BootTime,
    /// Whether there was no room even for a batch that frees space.
    is_without_room: bool,
    /// When jobs are tried again that had no file descriptor.
    opening_retry_at: BootTime,
    /// How much of the disk was free behind the last prepared segment, if that is known.
    free_bytes: Option<u64>,
    /// What the snapshot is for that the owner is about to begin.
    wanted: Option<Wanted>,
    /// Whether to look at the ballast once the owner has said how large its state is.
    is_shrink_due: bool,
    victims: Victims,
}

/// Why a snapshot is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// It frees segments.
    ToFree,
    /// It makes space on a full disk. The next one needs a beat if it would free anything.
    ToMakeSpace { needs_beat: bool },
}

impl Default for Tidying {
    fn default() -> Self {
        Self {
            now: BootTime::ZERO,
            is_started: false,
            look_at: BootTime::NEVER,
            rest_ms: 0,
            snapshot_from: BootTime::ZERO,
            snapshot_retry_at: BootTime::ZERO,
            space_retry_at: BootTime::NEVER,
            make_space_at: BootTime::ZERO,
            is_without_room: false,
            opening_retry_at: BootTime::NEVER,
            free_bytes: None,
            wanted: None,
            is_shrink_due: false,
            victims: Victims::default(),
        }
    }
}

impl Tidying {
    fn due_at(&self) -> BootTime {
        self.look_at
            .min(self.space_retry_at)
            .min(self.opening_retry_at)
    }

    fn next_look_at(&self) -> BootTime {
        self.now.plus_ms(LOOK_INTERVAL_MS.max(self.rest_ms))
    }

    /// Makes the log look, because something has changed.
    pub(super) fn look_soon(&mut self) {
        let at = self.next_look_at();
        set_if_unset(&mut self.look_at, at);
    }

    /// Makes the log look with the next call.
    fn look_now(&mut self) {
        self.look_at = self.look_at.min(self.now.plus_ms(self.rest_ms));
    }

    /// No snapshot is tried before this time.
    pub(super) fn snapshot_retry_at(&self) -> BootTime {
        self.snapshot_retry_at
    }

    /// Notes that a snapshot has failed.
    pub(super) fn snapshot_failed(&mut self) {
        self.snapshot_retry_at = self.now.plus_ms(SPACE_RETRY_INTERVAL_MS);
    }

    /// Lets jobs rest that have no file descriptor.
    pub(super) fn rest_without_descriptors(&mut self) {
        let at = self.now.plus_ms(OPENING_RETRY_INTERVAL_MS);
        set_if_unset(&mut self.opening_retry_at, at);
    }

    /// Notes how much of the disk is free.
    pub(super) fn note_free(&mut self, free_bytes: Option<u64>) {
        self.free_bytes = free_bytes;
    }

    /// Notes whether a batch that grows the state has room.
    pub(super) fn note_growth(&mut self, reserved: &Result<Reservation, ReserveError>) {
        match reserved {
            Ok(_) => {
                self.space_retry_at = BootTime::NEVER;
                self.is_without_room = false;
            }
            // Try again at once the first time: there may be something to free.
            Err(ReserveError::NoSpace) => set_if_unset(&mut self.space_retry_at, self.now),
            Err(ReserveError::NotPrepared | ReserveError::Ended(_)) => {}
        }
    }

    /// Notes whether a batch that frees space has room.
    pub(super) fn note_freeing(&mut self, reserved: &Result<Reservation, ReserveError>) {
        self.is_without_room = matches!(reserved, Err(ReserveError::NoSpace));
    }
}

fn set_if_unset(at: &mut BootTime, to: BootTime) {
    if *at == BootTime::NEVER {
        *at = to;
    }
}

/// Calls of the owner.
impl SegmentLog {
    /// Tries again what had no space or no file descriptor, gives back space that is not needed, and says what the owner
    /// is to do for more. It does nothing before it is due.
    ///
    /// `is_idle` says that there were no commands for a while: then there is time to free little space, too.
    pub fn tidy(&mut self, now: BootTime, live: &dyn LiveBytes, is_idle: bool) -> Tidied {
        self.tidying.now = now;
        let mut tidied = Tidied::default();
        let is_due = self.tidying.due_at().has_passed(now) || !self.tidying.is_started;
        if !is_due || self.ended.is_some() {
            return tidied;
        }
        self.tidying.wanted = None;
        self.tidying.is_shrink_due = false;
        if self.tidying.space_retry_at.has_passed(now) {
            self.make_space(live, &mut tidied);
        }
        if !self.tidying.is_started {
            self.tidying.is_started = true;
            self.tidying.look_at = now.plus_ms(FIRST_LOOK_MS);
        }
        if self.tidying.look_at.has_passed(now) {
            self.look(live, is_idle, &mut tidied);
        }
        if self.tidying.opening_retry_at.has_passed(now) {
            self.retry_opening();
        }
        tidied
    }

    /// When [`tidy`](Self::tidy) has something to do, if nothing else happens.
    pub fn next_wake(&self) -> Option<BootTime> {
        if self.ended.is_some() {
            return None;
        }
        let due_at = self.tidying.due_at();
        (due_at != BootTime::NEVER).then_some(due_at)
    }

    /// Lets jobs that need a file descriptor be tried again.
    fn retry_opening(&mut self) {
        self.is_short_of_descriptors = false;
        self.tidying.opening_retry_at = BootTime::NEVER;
    }

    /// Goes on with what has waited for the size of the state.
    pub(super) fn size_is_known(&mut self) {
        if mem::take(&mut self.tidying.is_shrink_due) && self.shrink_ballast() {
            let look_at = self.tidying.next_look_at();
            self.tidying.look_at = self.tidying.look_at.min(look_at);
        }
    }

    /// Goes on with what has waited for a snapshot to begin.
    pub(super) fn snapshot_is_begun(&mut self) {
        match self.tidying.wanted.take() {
            Some(Wanted::ToFree) => self.tidying.snapshot_from = self.writing_rests_until(),
            // The beat makes the second snapshot differ from the first.
            Some(Wanted::ToMakeSpace { needs_beat: true }) => {
                self.beat(self.time_ms);
            }
            Some(Wanted::ToMakeSpace { needs_beat: false }) | None => {}
        }
    }
}

/// What is due.
impl SegmentLog {
    /// Tries again on a full disk, and frees the space of drained messages, which takes two snapshots behind them.
    fn make_space(&mut self, live: &dyn LiveBytes, tidied: &mut Tidied) {
        let now = self.tidying.now;
        self.retry_prepare();
        let rested_at = self.writing_rests_until();
        // Drained messages make the next snapshot smaller: do not wait for the interval that was computed before.
        self.tidying.make_space_at = self.tidying.make_space_at.min(rested_at);
        let can_free = self.can_free_segments(live);
        let is_wanted = can_free || self.reclaim.snapshot_error.is_some();
        // With no room at all, nothing else can go on.
        let is_due = self.tidying.is_without_room || self.tidying.make_space_at.has_passed(now);
        if is_wanted && is_due {
            if self.is_snapshot_possible() {
                self.want_snapshot(
                    Wanted::ToMakeSpace {
                        needs_beat: can_free,
                    },
                    tidied,
                );
            } else if can_free {
                self.beat(self.time_ms);
            }
            self.tidying.make_space_at = rested_at;
        }
        let retry_ms = match can_free {
            true => SPACE_FREED_INTERVAL_MS,
            false => SPACE_RETRY_INTERVAL_MS,
        };
        self.tidying.space_retry_at = now.plus_ms(retry_ms);
    }

    fn look(&mut self, live: &dyn LiveBytes, is_idle: bool, tidied: &mut Tidied) {
        self.tidying.look_at = BootTime::NEVER;
        let look = self.look_at_segments(live);
        let is_evacuating = self.choose_victim(live, &look, is_idle, tidied);
        let is_freeing = self.free_segments(live, &look, is_idle, tidied);
        let is_giving_back =
            is_idle && !is_freeing && !is_evacuating && self.give_space_back(tidied);
        if is_freeing || is_evacuating || is_giving_back || !is_idle {
            self.tidying.look_soon();
        }
        let put_off_until = self.tidying.victims.put_off_until(self.tidying.now);
        self.tidying.look_at = self.tidying.look_at.min(put_off_until);
    }

    /// Asks for a snapshot if two more would free enough. Returns whether it is not done yet. On a full disk
    /// `make_space` does this.
    fn free_segments(
        &mut self,
        live: &dyn LiveBytes,
        look: &Look,
        is_idle: bool,
        tidied: &mut Tidied,
    ) -> bool {
        if self.is_draining() || look.freeable_bytes <= self.worth_a_snapshot_bytes(live, is_idle) {
            return false;
        }
        let tidying = &self.tidying;
        let from = tidying.snapshot_from.max(tidying.snapshot_retry_at);
        let is_under_way = self.pending_snapshot().is_some() || tidied.wants_snapshot;
        if is_under_way || !from.has_passed(tidying.now) {
            return true;
        }
        // The beat makes the second snapshot differ from the first.
        if self.reclaim.bytes_since_snapshot == 0 {
            return self.beat(self.time_ms);
        }
        tidied.wants_size = true;
        self.want_snapshot(Wanted::ToFree, tidied);
        true
    }

    fn want_snapshot(&mut self, wanted: Wanted, tidied: &mut Tidied) {
        tidied.wants_snapshot = true;
        self.tidying.wanted = Some(wanted);
    }

    fn is_snapshot_possible(&self) -> bool {
        self.pending_snapshot().is_none() && self.reclaim.bytes_since_snapshot > 0
    }

    /// How much must be free to be worth two snapshots.
    fn worth_a_snapshot_bytes(&self, live: &dyn LiveBytes, is_idle: bool) -> u64 {
        let largest_bytes = self.options.segment_size_max_bytes;
        let least_bytes = match is_idle {
            true => (largest_bytes / 2).max(live.all_bytes() / 10),
            false => 2 * largest_bytes,
        };
        let last_bytes = self.reclaim.snapshot_size_bytes;
        least_bytes.max(last_bytes.unwrap_or_default())
    }

    /// Gives back what only a busy log needs. Returns whether there was anything, apart from the ballast: how much of it
    /// is needed is known with the size of the state.
    fn give_space_back(&mut self, tidied: &mut Tidied) -> bool {
        let is_trimmed = self.trim_recycled(RECYCLED_KEPT);
        tidied.wants_size = true;
        self.tidying.is_shrink_due = !is_trimmed;
        is_trimmed
    }

    /// Until when writing snapshots must rest, to take at most a tenth of the time.
    fn writing_rests_until(&self) -> BootTime {
        let rest_ms = self.drained_snapshot_bytes_max() / MAKE_SPACE_BYTES_PER_MS;
        self.tidying.now.plus_ms(rest_ms)
    }
}
