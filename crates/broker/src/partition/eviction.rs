//! Takes records of messages out of memory while they take too much of it.
//!
//! A snapshot has written their pages. So nothing is written here, and nothing is lost in a crash: a run becomes cold only
//! if the newest durable snapshot names its page, and none is under way that could name another one.

use std::cell::Cell;

use kew_engine::{Hand, KnownPages, Leaving, PageNumber, Pass, Resident, Timestamp};
use kew_log::LocalLog;
use kew_planted::{Keeper, Seam, alter};

use super::Partition;
use super::known_pages::{PagesOfLog, page_to_log};
use super::loads::Pins;

/// What one turn looks at, in steps of 20 ns: about 0.15 ms.
const TURN_STEPS: u32 = 7_500;

/// A snapshot is due by memory if so much of the limit has changed since the last one, and writing has rested or the limit is
/// passed: what cannot leave memory must not make one after the other.
const CHANGED_SHARE: u64 = 8;
/// Or if so much has changed, as in a queue that is being filled.
const CHANGED_SHARE_AT_ONCE: u64 = 2;
/// And at least this part of the slack, some thousand records: a snapshot has parts that do not depend on what changed.
const CHANGED_SHARE_OF_SLACK: u64 = 16;

/// While a snapshot is written, commands wait if records take so many times the limit, and more than the slack.
const WAITS_ABOVE: u64 = 2;

/// Nothing is evicted below three quarters of the limit.
pub(super) fn begins_at(limit_bytes: u64) -> u64 {
    limit_bytes / 4 * 3
}

/// Whether records that a page has may leave memory, or a run its page.
///
/// Where a copy is damaged, memory may have what the next snapshot needs to mend it. A run that is on no page alone may get
/// another one from a snapshot that is under way. A full disk changes nothing: the next snapshot copies the page.
pub(super) fn may_leave(log: &dyn LocalLog, page: PageNumber, leaving: Leaving) -> bool {
    let is_settled = || !log.snapshots().is_under_way;
    let is_whole = || log.has_whole(page_to_log(page));
    let may = match leaving {
        Leaving::Copies => is_whole(),
        Leaving::Records => is_whole() && is_settled(),
        Leaving::Page => is_settled(),
    };
    !keeps(Keeper::Pages, !may)
}

/// Whether something keeps a run in memory, as it passes a seam.
pub(super) fn keeps(keeper: Keeper, is_kept: bool) -> bool {
    let mut kept = (keeper, is_kept);
    alter(Seam::MayEvict, &mut kept);
    kept.1
}

/// The hand, and whether it is worth moving it.
#[derive(Debug, Default)]
pub(super) struct Eviction {
    hand: Hand,
    /// What is needed next is spared, unless that is too much.
    pass: Pass,
    /// How many runs it has evicted on this round.
    found: u64,
    /// It has found nothing on a whole round, or has spared nothing on it, and rests until more bytes than these are in
    /// memory, or until a snapshot was written.
    rests_until_bytes: u64,
    /// It has come round since the last snapshot, and spared nothing if that was needed.
    has_come_round: bool,
}

impl Eviction {
    /// Notes that a snapshot was written: runs have other pages now, so the hand begins anew.
    pub(super) fn snapshot_written(&mut self) {
        *self = Self::default();
    }

    /// Ends a round, after which so much is in memory. If that is above the limit, the next one spares nothing. After that
    /// one, what is left cannot leave, and what is read meanwhile is needed: it would be read again and again.
    fn end_round(&mut self, size_bytes: u64, limit_bytes: u64) {
        let found = std::mem::take(&mut self.found);
        let pass = std::mem::take(&mut self.pass);
        if pass == Pass::Middle && size_bytes > limit_bytes {
            self.pass = Pass::All;
            return;
        }
        self.has_come_round = true;
        if found == 0 || pass == Pass::All {
            self.rests_until_bytes = size_bytes + (limit_bytes / 16).max(1);
        }
    }
}

impl<T> Partition<T> {
    /// How many bytes of memory records may take, if there is a limit.
    pub(super) fn limit_bytes(&self) -> Option<u64> {
        self.options.resident_limit.bytes(self.measured.messages())
    }

    /// Whether records take too much memory, and some of them may leave it.
    pub(super) fn is_evicting(&self) -> bool {
        let is_too_much = |limit_bytes| {
            let size_bytes = self.state.resident().size_bytes();
            size_bytes > begins_at(limit_bytes) && size_bytes >= self.eviction.rests_until_bytes
        };
        !self.stopped && self.limit_bytes().is_some_and(is_too_much)
    }

    /// Whether a snapshot may begin. While one is under way, no run becomes cold, and none leaves its page. So where one
    /// follows the other, as on a slow disk, both hands come round in between.
    pub(super) fn lets_snapshot_begin(&self) -> bool {
        let has_come_round = self.eviction.has_come_round || !self.is_evicting();
        self.is_full() || has_come_round && !self.is_looking_for_pages()
    }

    /// Whether a snapshot is due so that what came since the last one can leave memory: the hand has come round, and records
    /// still take too much.
    pub fn is_due_by_memory(&self) -> bool {
        let least_bytes = self.options.memory_slack_bytes / CHANGED_SHARE_OF_SLACK;
        let is_needed = |limit_bytes| {
            let size_bytes = self.state.resident().size_bytes();
            let may_follow = size_bytes > limit_bytes || self.have_snapshots_rested();
            let share = match may_follow {
                true => CHANGED_SHARE,
                false => CHANGED_SHARE_AT_ONCE,
            };
            let changed = Resident::of_records(self.effects.since_snapshot());
            size_bytes > begins_at(limit_bytes)
                && changed.size_bytes() >= (limit_bytes / share).max(least_bytes)
        };
        self.eviction.has_come_round && self.limit_bytes().is_some_and(is_needed)
    }

    /// Whether a turn has to wait for the snapshot that is being written, because commands bring more into memory than can
    /// leave it. So memory is bounded also on a slow disk. Not while it is gathered, which turns do.
    pub(super) fn waits_for_memory(&self) -> bool {
        let is_written = self.log.snapshots().is_under_way && !self.is_gathering();
        let size_bytes = self.state.resident().size_bytes();
        let limit_bytes = self.limit_bytes();
        let is_too_much = |limit_bytes: u64| {
            let most_bytes = limit_bytes.saturating_mul(WAITS_ABOVE);
            size_bytes > most_bytes.max(self.options.memory_slack_bytes)
        };
        is_written && limit_bytes.is_some_and(is_too_much)
    }

    /// Messages that are due later leave the order by time with their records.
    pub(super) fn far_from(&self) -> Timestamp {
        self.now.time.plus_ms(self.options.far_ms)
    }

    /// Takes some records out of memory, if they take too much of it.
    pub(super) fn evict(&mut self) {
        if !self.is_evicting() {
            return;
        }
        let limit_bytes = self.limit_bytes().unwrap_or_default();
        let far_from = self.far_from();
        let Self {
            state,
            log,
            lanes,
            loads,
            evacuation,
            eviction,
            scrub,
            ..
        } = self;
        let pins = Pins {
            lanes,
            loads,
            evacuation,
            scrub,
        };
        // Nor what was read ahead, of runs behind the first one.
        let spares = |run| eviction.pass == Pass::Middle && loads.is_ahead(run);
        let (known, leaves_unreadable) = (PagesOfLog(&**log), Cell::new(false));
        let may = |run, page, leaving| {
            let may = may_leave(&**log, page, leaving) && !pins.has(run) && !spares(run);
            if may && leaving == Leaving::Page && known.is_unreadable(page) {
                leaves_unreadable.set(true);
            }
            may
        };
        let hand = &mut eviction.hand;
        let evicted = state.evict(hand, eviction.pass, far_from, TURN_STEPS, may);
        eviction.found += evicted.runs;
        if leaves_unreadable.get() {
            loads.warming.note_left_unreadable();
        }
        if evicted.is_round {
            eviction.end_round(state.resident().size_bytes(), limit_bytes);
            // It may have waited for this.
            self.snapshot_if_due();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1600;

    #[test]
    fn a_snapshot_begins_after_the_round_that_takes_all_that_is_needed() {
        let mut eviction = Eviction::default();
        eviction.end_round(1700, LIMIT);
        assert!(!eviction.has_come_round, "it has spared something");
        eviction.end_round(1700, LIMIT);
        assert!(eviction.has_come_round);
        eviction.found = 1;
        eviction.snapshot_written();
        assert!(!eviction.has_come_round && eviction.found == 0);
        eviction.end_round(1500, LIMIT);
        assert!(eviction.has_come_round);
    }

    /// After rounds that have found so many runs, with so much in memory: the next pass, and how long the hand rests.
    fn after(rounds: &[(u64, u64)]) -> (Pass, u64) {
        let mut eviction = Eviction::default();
        for (found, size_bytes) in rounds {
            eviction.found = *found;
            eviction.end_round(*size_bytes, LIMIT);
        }
        (eviction.pass, eviction.rests_until_bytes)
    }

    #[test]
    fn the_hand_rests_after_a_round_that_found_or_spared_nothing() {
        assert_eq!(after(&[(3, 1500)]), (Pass::Middle, 0), "there may be more");
        assert_eq!(after(&[(0, 1500)]), (Pass::Middle, 1600));
        assert_eq!(after(&[(0, 1700)]), (Pass::All, 0));
        assert_eq!(after(&[(3, 1700)]), (Pass::All, 0));
        assert_eq!(after(&[(3, 1700), (0, 1700)]), (Pass::Middle, 1800));
        // A client reads again what was evicted: that is found on each round.
        assert_eq!(after(&[(3, 1700), (1, 1700)]), (Pass::Middle, 1800));
    }
}
