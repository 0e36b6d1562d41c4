//! The message ids that a queue remembers, to drop duplicates.

use std::collections::{BTreeMap, VecDeque};

use kew_planted::{Bug, is_planted};

use crate::Timestamp;

/// What a remembered id counts for in its queue's size.
pub(crate) const REMEMBERED_ID_SIZE_BYTES: u64 = 128;

/// How many ids older than the window are dropped at most when a new id comes. More are dropped than come,
/// so that the number of ids falls to those in the window. Few enough are dropped that no message waits
/// long.
const DROPPED_AT_ONCE_MAX: usize = 64;

/// Message ids seen within the window, as keyed hashes of 128 bits.
///
/// Ids older than the window do not count, and are dropped as new ones come. The kept ids are a function of
/// the events.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    seen_at: BTreeMap<u128, Timestamp>,
    /// By time. An id that came again after its window has two entries. The older one has another time than
    /// `seen_at`; it does not count, and is older than the window.
    by_time: VecDeque<(Timestamp, u128)>,
}

impl PartialEq for Duplicates {
    fn eq(&self, other: &Self) -> bool {
        self.seen_at == other.seen_at
    }
}

impl Eq for Duplicates {}

impl Duplicates {
    /// Remembers an id, and drops some ids older than the window.
    pub(crate) fn note(&mut self, id: u128, window_ms: u64, at: Timestamp) {
        self.drop_expired(window_ms, at, DROPPED_AT_ONCE_MAX);
        self.insert(id, at, |seen_at| seen_at.plus_ms(window_ms).has_passed(at));
    }

    /// Drops the ids older than the window, so that a longer window does not bring them back.
    pub(crate) fn window_grows(&mut self, window_ms: u64, at: Timestamp) {
        self.drop_expired(window_ms, at, usize::MAX);
    }

    /// Restores an id of a snapshot.
    pub(crate) fn restore(&mut self, id: u128, at: Timestamp) {
        self.insert(id, at, |_| false);
    }

    /// Adds the ids that another reading of the same log has found.
    pub(crate) fn absorb(&mut self, other: &Self) {
        for (id, at) in other.iter() {
            let known = self.seen_at.entry(id).or_insert(at);
            *known = at.max(*known);
        }
        let mut by_time: Vec<_> = self.seen_at.iter().map(|(id, at)| (*at, *id)).collect();
        by_time.sort_unstable();
        self.by_time = by_time.into();
    }

    fn insert(&mut self, id: u128, at: Timestamp, is_beyond_window: impl Fn(Timestamp) -> bool) {
        if let Some(before) = self.seen_at.insert(id, at)
            && !is_beyond_window(before)
        {
            // No event repeats an id within its window, but `apply` is total.
            let from = self.by_time.partition_point(|(at, _)| *at < before);
            let found = (from..self.by_time.len())
                .take_while(|index| self.by_time.get(*index).is_some_and(|it| it.0 == before))
                .find(|index| self.by_time.get(*index).is_some_and(|it| it.1 == id));
            found.and_then(|index| self.by_time.remove(index));
        }
        let place = match self.by_time.back() {
            Some((last, _)) if *last > at => self.by_time.partition_point(|(one, _)| *one <= at),
            _ => self.by_time.len(),
        };
        self.by_time.insert(place, (at, id));
    }

    fn drop_expired(&mut self, window_ms: u64, at: Timestamp, count_max: usize) {
        let mut dropped = 0;
        while dropped < count_max
            && let Some(&(oldest, id)) = self.by_time.front()
            && oldest.plus_ms(window_ms).has_passed(at)
        {
            self.by_time.pop_front();
            // Entries that do not count are not in a snapshot, so they are not counted here.
            if self.seen_at.get(&id) == Some(&oldest) {
                self.seen_at.remove(&id);
                dropped += 1;
            }
        }
    }

    /// Whether an id was seen within the window before `now`.
    pub(crate) fn has(&self, id: u128, window_ms: u64, now: Timestamp) -> bool {
        self.seen_at.get(&id).is_some_and(|at| {
            !at.plus_ms(window_ms).has_passed(now) || is_planted(Bug::BusWindowNeverEnds)
        })
    }

    /// How many ids were seen within the window before `now`.
    pub(crate) fn count(&self, window_ms: u64, now: Timestamp) -> u64 {
        let is_over = |(at, _): &(Timestamp, u128)| at.plus_ms(window_ms).has_passed(now);
        let over = self.by_time.partition_point(is_over);
        (self.by_time.len() - over) as u64
    }

    /// An upper bound of what they take in a snapshot: a hash and a time each.
    pub(crate) fn snapshot_size_bytes_max(&self) -> u64 {
        self.seen_at.len() as u64 * 24
    }

    /// All kept ids, by time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u128, Timestamp)> {
        let kept = self.by_time.iter();
        kept.filter(|(at, id)| self.seen_at.get(id) == Some(at))
            .map(|(at, id)| (*id, *at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW_MS: u64 = 100;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn restored(from: &Duplicates) -> Duplicates {
        let mut duplicates = Duplicates::default();
        from.iter().for_each(|(id, at)| duplicates.restore(id, at));
        duplicates
    }

    proptest! {
        #[test]
        fn as_many_count_as_are_known(
            steps in proptest::collection::vec((0u64..40, 0u8..12), 1..200),
        ) {
            let (mut now, mut duplicates) = (1000, Duplicates::default());
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
                let mut absorbed = Duplicates::default();
                absorbed.absorb(&duplicates);
                prop_assert_eq!(&absorbed, &duplicates);
            }
        }

        #[test]
        fn any_order_of_events_is_taken(
            steps in proptest::collection::vec((0u64..500, 0u8..12), 1..60),
        ) {
            let mut duplicates = Duplicates::default();
            for (ms, id) in steps {
                duplicates.note(id.into(), WINDOW_MS, at(ms));
                prop_assert!(duplicates.by_time.iter().is_sorted_by_key(|(at, _)| *at));
                prop_assert_eq!(duplicates.seen_at[&u128::from(id)], at(ms));
            }
        }
    }

    #[test]
    fn what_is_dropped_does_not_depend_on_a_restart() {
        let mut duplicates = Duplicates::default();
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
        let mut duplicates = Duplicates::default();
        (0..1000).for_each(|id| duplicates.note(id, WINDOW_MS, at(1)));
        assert_eq!(duplicates.count(WINDOW_MS, at(100)), 1000);
        assert_eq!(duplicates.count(WINDOW_MS, at(101)), 0);
        duplicates.note(1000, WINDOW_MS, at(200));
        assert_eq!(duplicates.seen_at.len(), 1000 - DROPPED_AT_ONCE_MAX + 1);
        (1001..1020).for_each(|id| duplicates.note(id, WINDOW_MS, at(200)));
        assert_eq!(duplicates.seen_at.len(), 20);
        duplicates.window_grows(WINDOW_MS, at(300));
        assert_eq!((duplicates.seen_at.len(), duplicates.by_time.len()), (0, 0));
    }
}
