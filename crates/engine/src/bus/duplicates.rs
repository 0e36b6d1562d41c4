//! The message ids that a queue remembers, to drop duplicates.

use std::collections::BTreeMap;

use kew_planted::{Bug, is_planted};

use crate::shared::{SharedBlocks, SharedDeque};
use crate::table::RunLength;
use crate::vocabulary::Timestamp;

/// Remembered ids with their times, as a snapshot shares them.
pub(crate) type SharedIds = SharedBlocks<(Timestamp, u128)>;

/// What a remembered id counts for in its queue's size.
pub(crate) const REMEMBERED_ID_SIZE_BYTES: u64 = 128;

/// The most that one takes in a snapshot: a hash and a time.
pub(crate) const REMEMBERED_SIZE_BYTES: u64 = 24;

/// How many dropped ids leave memory at most when a new id comes. More leave than come, so that the number of
/// ids falls to those in the window. Few enough leave that no message waits long.
const FREED_AT_ONCE_MAX: usize = 128;

/// How many leave memory as one due thing.
const FORGOTTEN_AT_ONCE_MAX: usize = 16;

/// Ids that are due are looked for once in this time. Otherwise each new id would change a busy queue's deadline.
const FORGET_INTERVAL_MS: u64 = 1000;

/// Message ids seen within the window, as keyed hashes of 128 bits.
///
/// Ids older than the window do not count. They are dropped as new ones come: the kept ids are a function of the
/// events. Those that no new one drops are forgotten as due work, without an event: two values are equal if they
/// differ in such ids alone. Dropped ids leave memory a little later, a few at once.
#[derive(Debug)]
pub(crate) struct Duplicates {
    seen_at: BTreeMap<u128, Timestamp>,
    /// By time. An id that came again after its window has two entries. The older one has another time than
    /// `seen_at`; it does not count, and is older than the window.
    by_time: SharedDeque<(Timestamp, u128)>,
    /// How many of the oldest entries are dropped.
    dropped: usize,
    /// Ids seen before this time are dropped.
    kept_from: Timestamp,
    /// Ids seen before this time are forgotten, or do not count any more.
    forgotten_before: Timestamp,
}

impl PartialEq for Duplicates {
    fn eq(&self, other: &Self) -> bool {
        let from = self.forgotten_before.max(other.forgotten_before);
        let kept = |of: &Self| {
            let kept = of.iter().filter(|(_, at)| *at >= from);
            kept.collect::<BTreeMap<_, _>>()
        };
        kept(self) == kept(other)
    }
}

impl Eq for Duplicates {}

impl Duplicates {
    pub(crate) fn new(length: RunLength) -> Self {
        Self {
            seen_at: BTreeMap::new(),
            by_time: SharedDeque::new(length.as_u64()),
            dropped: 0,
            kept_from: Timestamp::ZERO,
            forgotten_before: Timestamp::ZERO,
        }
    }

    /// The kept ids in the order of their times, for a snapshot. An id that came twice counts as of the second
    /// time.
    pub(crate) fn share(&self) -> SharedIds {
        self.by_time.share(self.dropped)
    }

    /// How many ids were copied since the last call because a snapshot had them.
    pub(crate) fn take_copied(&mut self) -> u64 {
        self.by_time.take_copied()
    }

    /// Remembers an id, and drops some ids older than the window.
    pub(crate) fn note(&mut self, id: u128, window_ms: u64, at: Timestamp) {
        self.keep_from(within(window_ms, at));
        self.free(FREED_AT_ONCE_MAX);
        self.insert(id, at);
    }

    /// Forgets ids older than the window, and frees the memory of some dropped ones.
    pub(crate) fn forget(&mut self, window_ms: u64, now: Timestamp) {
        let from = within(window_ms, now);
        self.forgotten_before = self.forgotten_before.max(from);
        self.drop_before(from);
        self.free(FORGOTTEN_AT_ONCE_MAX);
    }

    /// When there is something to forget, or earlier.
    pub(crate) fn next_deadline(&self, window_ms: u64) -> Option<Timestamp> {
        let (oldest, _) = self.by_time.front()?;
        if self.dropped > 0 {
            return Some(Timestamp::ZERO);
        }
        let over_ms = oldest.plus_ms(window_ms).as_ms();
        let round_ms = over_ms.div_ceil(FORGET_INTERVAL_MS);
        Some(Timestamp::from_ms(
            round_ms.saturating_mul(FORGET_INTERVAL_MS),
        ))
    }

    /// Drops the ids seen before a time. They do not come back when the window grows.
    pub(crate) fn keep_from(&mut self, time: Timestamp) {
        self.kept_from = self.kept_from.max(time);
        self.drop_before(time);
    }

    fn drop_before(&mut self, time: Timestamp) {
        let before = self.by_time.partition_point(|(at, _)| at < time);
        self.dropped = self.dropped.max(before);
    }

    /// When the last id was seen.
    pub(crate) fn last_at(&self) -> Option<Timestamp> {
        self.by_time.back().map(|(at, _)| at)
    }

    /// Restores an id of a snapshot.
    pub(crate) fn restore(&mut self, id: u128, at: Timestamp) {
        self.insert(id, at);
    }

    /// Adds the ids that another reading of the same log has found.
    pub(crate) fn absorb(&mut self, other: &Self) {
        self.free(usize::MAX);
        for (id, at) in other.iter() {
            let known = self.seen_at.entry(id).or_insert(at);
            *known = at.max(*known);
        }
        let mut by_time: Vec<_> = self.seen_at.iter().map(|(id, at)| (*at, *id)).collect();
        by_time.sort_unstable();
        while self.by_time.pop_front().is_some() {}
        by_time
            .into_iter()
            .for_each(|it| self.by_time.push_back(it));
    }

    fn insert(&mut self, id: u128, at: Timestamp) {
        if let Some(before) = self.seen_at.insert(id, at)
            && before >= self.kept_from
        {
            // No event repeats an id within its window, but `apply` is total.
            let from = self.by_time.partition_point(|(at, _)| at < before);
            let found = (from..self.by_time.len())
                .take_while(|index| self.by_time.get(*index).is_some_and(|it| it.0 == before))
                .find(|index| self.by_time.get(*index).is_some_and(|it| it.1 == id));
            if let Some(index) = found {
                self.by_time.remove(index);
                self.dropped -= usize::from(index < self.dropped);
            }
        }
        let place = match self.by_time.back() {
            Some((last, _)) if last > at => self.by_time.partition_point(|(one, _)| one <= at),
            _ => self.by_time.len(),
        };
        self.dropped += usize::from(place < self.dropped);
        self.by_time.insert(place, (at, id));
    }

    /// Frees the memory of dropped ids.
    fn free(&mut self, count_max: usize) {
        for _ in 0..self.dropped.min(count_max) {
            if let Some((at, id)) = self.by_time.pop_front()
                && self.seen_at.get(&id) == Some(&at)
            {
                self.seen_at.remove(&id);
            }
            self.dropped -= 1;
        }
    }

    /// Whether an id was seen within the window before `now`.
    pub(crate) fn has(&self, id: u128, window_ms: u64, now: Timestamp) -> bool {
        self.seen_at.get(&id).is_some_and(|at| {
            let is_seen = *at >= self.kept_from && !at.plus_ms(window_ms).has_passed(now);
            is_seen || is_planted(Bug::BusWindowNeverEnds)
        })
    }

    /// How many ids were seen within the window before `now`.
    pub(crate) fn count(&self, window_ms: u64, now: Timestamp) -> u64 {
        let is_over = |(at, _): (Timestamp, u128)| at.plus_ms(window_ms).has_passed(now);
        let over = self.by_time.partition_point(is_over);
        (self.by_time.len() - over.max(self.dropped)) as u64
    }

    /// How many are in memory.
    pub(crate) fn kept_count(&self) -> u64 {
        self.by_time.len() as u64
    }

    /// An upper bound of what they take in a snapshot.
    pub(crate) fn snapshot_size_bytes_max(&self) -> u64 {
        self.kept_count() * REMEMBERED_SIZE_BYTES
    }

    /// All kept ids, in the order of their times.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u128, Timestamp)> {
        let kept = self.by_time.iter_from(self.dropped);
        kept.filter(|(at, id)| self.seen_at.get(id) == Some(at))
            .map(|(at, id)| (id, at))
    }
}

/// The earliest time within the window before `now`.
fn within(window_ms: u64, now: Timestamp) -> Timestamp {
    Timestamp::from_ms(now.as_ms().saturating_add(1).saturating_sub(window_ms))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW_MS: u64 = 100;

    fn empty() -> Duplicates {
        Duplicates::new(RunLength::TINY)
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn restored(from: &Duplicates) -> Duplicates {
        let mut duplicates = empty();
        for (block, skipped) in from.share().blocks() {
            let ids = block.iter().skip(skipped);
            ids.for_each(|(at, id)| duplicates.restore(*id, *at));
        }
        duplicates
    }

    proptest! {
        #[test]
        fn as_many_count_as_are_known(
            steps in proptest::collection::vec((0u64..40, 0u8..12), 1..200),
        ) {
            let (mut now, mut duplicates) = (1000, empty());
            for (passed_ms, id) in steps {
                now += passed_ms;
                // Ids that are known are not noted, nor do others cost anything.
                if !duplicates.has(id.into(), WINDOW_MS, at(now)) {
                    duplicates.note(id.into(), WINDOW_MS, at(now));
                }
                for later in [0, 50, 99, 100, 200] {
                    let then = at(now + later);
                    let known = (0..12).filter(|id| duplicates.has(*id, WINDOW_MS, then));
                    let known = known.count() as u64;
                    prop_assert_eq!(duplicates.count(WINDOW_MS, then), known);
                    prop_assert_eq!(restored(&duplicates).count(WINDOW_MS, then), known);
                }
                prop_assert_eq!(&restored(&duplicates), &duplicates);
                let mut absorbed = empty();
                absorbed.absorb(&duplicates);
                prop_assert_eq!(&absorbed, &duplicates);
            }
        }

        #[test]
        fn any_order_of_events_is_taken(
            steps in proptest::collection::vec((0u64..500, 0u8..12), 1..60),
        ) {
            let mut duplicates = empty();
            for (ms, id) in steps {
                duplicates.note(id.into(), WINDOW_MS, at(ms));
                prop_assert!(duplicates.by_time.iter_from(0).is_sorted_by_key(|(at, _)| at));
                prop_assert_eq!(duplicates.seen_at[&u128::from(id)], at(ms));
            }
        }
    }

    #[test]
    fn what_is_dropped_does_not_depend_on_a_restart() {
        let mut duplicates = empty();
        (0..200).for_each(|id| duplicates.note(id, WINDOW_MS, at(1)));
        // Its first entry stands for nothing from now on.
        duplicates.note(150, WINDOW_MS, at(200));
        let mut restarted = restored(&duplicates);
        for id in [1000, 1001] {
            duplicates.note(id, WINDOW_MS, at(201));
            restarted.note(id, WINDOW_MS, at(201));
        }
        assert_eq!(restarted, duplicates);
    }

    #[test]
    fn few_are_dropped_at_once_and_in_the_end_all() {
        let mut duplicates = empty();
        (0..1000).for_each(|id| duplicates.note(id, WINDOW_MS, at(1)));
        assert_eq!(duplicates.count(WINDOW_MS, at(100)), 1000);
        assert_eq!(duplicates.count(WINDOW_MS, at(101)), 0);
        duplicates.note(1000, WINDOW_MS, at(200));
        assert_eq!(duplicates.seen_at.len(), 1000 - FREED_AT_ONCE_MAX + 1);
        (1001..1020).for_each(|id| duplicates.note(id, WINDOW_MS, at(200)));
        assert_eq!(duplicates.seen_at.len(), 20);
    }

    #[test]
    fn ids_leave_memory_without_a_new_one() {
        let mut duplicates = empty();
        (0..1000).for_each(|id| duplicates.note(id, WINDOW_MS, at(1)));
        duplicates.note(1000, WINDOW_MS, at(50));
        let replayed = restored(&duplicates);
        assert_eq!(duplicates.next_deadline(WINDOW_MS), Some(at(1000)));
        let mut steps = 0;
        while duplicates
            .next_deadline(WINDOW_MS)
            .is_some_and(|it| it.has_passed(at(1000)))
        {
            duplicates.forget(WINDOW_MS, at(1000));
            assert_eq!(duplicates, replayed);
            steps += 1;
        }
        assert_eq!(steps, 1001usize.div_ceil(FORGOTTEN_AT_ONCE_MAX));
        assert_eq!((duplicates.seen_at.len(), duplicates.by_time.len()), (0, 0));
        assert_eq!(duplicates.next_deadline(WINDOW_MS), None);
        // What is within the window stays, and counts.
        duplicates.note(1, WINDOW_MS, at(2000));
        duplicates.forget(WINDOW_MS, at(2099));
        assert!(duplicates.has(1, WINDOW_MS, at(2099)));
        assert_ne!(duplicates, replayed);
        duplicates.forget(WINDOW_MS, at(2100));
        assert_eq!(duplicates.next_deadline(WINDOW_MS), None);
    }

    #[test]
    fn an_event_drops_any_number_and_they_leave_memory_later() {
        let mut duplicates = empty();
        (0..1000).for_each(|id| duplicates.note(id, WINDOW_MS, at(1)));
        duplicates.note(1000, WINDOW_MS, at(50));
        duplicates.keep_from(at(2));
        let longer_ms = 10 * WINDOW_MS;
        assert_eq!(duplicates.count(longer_ms, at(51)), 1);
        assert!(!duplicates.has(0, longer_ms, at(51)) && duplicates.has(1000, longer_ms, at(51)));
        assert_eq!(restored(&duplicates), duplicates);
        // An id that was dropped can come again before it has left memory.
        duplicates.note(999, longer_ms, at(52));
        assert_eq!(duplicates.seen_at.len(), 1000 + 1 - FREED_AT_ONCE_MAX);
        (0..7).for_each(|id| duplicates.note(2000 + id, longer_ms, at(53)));
        assert_eq!((duplicates.seen_at.len(), duplicates.by_time.len()), (9, 9));
        assert_eq!(duplicates.count(longer_ms, at(53)), 9);
    }

    proptest! {
        /// A window that changes, as updates of a queue change it.
        #[test]
        fn a_longer_window_brings_no_id_back(
            steps in proptest::collection::vec((0u64..40, 0u8..12, 1u64..20), 1..200),
        ) {
            let (mut now, mut window_ms) = (1000, WINDOW_MS);
            let (mut duplicates, mut model) = (empty(), BTreeMap::new());
            for (passed_ms, id, window) in steps {
                now += passed_ms;
                model.retain(|_, seen_ms| *seen_ms + window_ms > now);
                // A window in ten is another one.
                if window < 3 {
                    duplicates.keep_from(at(now - window_ms + 1));
                    window_ms = window * WINDOW_MS;
                    model.retain(|_, seen_ms| *seen_ms + window_ms > now);
                }
                let is_known = duplicates.has(id.into(), window_ms, at(now));
                prop_assert_eq!(is_known, model.contains_key(&id));
                if !is_known {
                    duplicates.note(id.into(), window_ms, at(now));
                    model.insert(id, now);
                }
                let count = model.len() as u64;
                prop_assert_eq!(duplicates.count(window_ms, at(now)), count);
                prop_assert_eq!(restored(&duplicates).count(window_ms, at(now)), count);
                prop_assert_eq!(&restored(&duplicates), &duplicates);
            }
        }
    }
}
