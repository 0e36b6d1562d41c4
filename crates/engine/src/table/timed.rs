//! Leased, locked and delayed messages, in the order of the time at which that ends.
//!
//! Metrics read the number of hidden messages often and for every queue, and must not walk over all of them.
//! So visible messages are counted as time passes them, once for each time that a message is added. The
//! count is not part of the state: two values that differ only in it are equal.

use std::collections::BTreeSet;

use super::RunLength;
use crate::shared::Ordered;
use crate::vocabulary::{SequenceNumber, Timestamp};

/// Above the number of any message.
const LAST: u64 = (1 << SequenceNumber::BITS) - 1;

/// When a message is due, and its number.
pub(crate) type TimedKey = (Timestamp, SequenceNumber);

#[derive(Debug)]
pub(crate) struct Timed {
    keys: Ordered<TimedKey>,
    /// Every message up to here was passed, and `shown` of them are still in the set.
    passed: TimedKey,
    shown: u64,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys
    }
}

impl Eq for Timed {}

impl Timed {
    pub(crate) fn new(length: RunLength) -> Self {
        Self {
            keys: Ordered::new(length.as_u64()),
            passed: (Timestamp::ZERO, SequenceNumber::new(0)),
            shown: 0,
        }
    }

    pub(crate) fn insert(&mut self, key: TimedKey) {
        if self.keys.insert(key) && key <= self.passed {
            self.shown += 1;
        }
    }

    pub(crate) fn remove(&mut self, key: &TimedKey) {
        if self.keys.remove(key) && *key <= self.passed {
            self.shown -= 1;
        }
    }

    /// Removes messages whose times are not known. Walks over all.
    pub(crate) fn remove_all(&mut self, numbers: &BTreeSet<SequenceNumber>) {
        let keys = self.iter().filter(|(_, number)| numbers.contains(number));
        let keys: Vec<TimedKey> = keys.copied().collect();
        keys.iter().for_each(|key| self.remove(key));
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn contains(&self, key: &TimedKey) -> bool {
        self.keys.contains(key)
    }

    pub(crate) fn first(&self) -> Option<&TimedKey> {
        self.keys.first()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &TimedKey> {
        self.keys.iter()
    }

    /// Moves past the messages that became visible by `now`, one by one, and takes each from `budget`.
    /// Returns false if the budget ran out first.
    pub(crate) fn pass_shown(&mut self, now: Timestamp, budget: &mut u32) -> bool {
        let last = (now, SequenceNumber::new(LAST));
        if last <= self.passed {
            return true;
        }
        let later = self.keys.iter_after(self.passed);
        for key in later.take_while(|key| **key <= last) {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            self.passed = *key;
            self.shown += 1;
        }
        self.passed = last;
        true
    }

    /// The time of the last ones that were passed.
    pub(crate) fn passed_at(&self) -> Timestamp {
        self.passed.0
    }

    /// How many messages lie beyond the passed ones.
    pub(crate) fn hidden_count(&self) -> u64 {
        self.keys.len() as u64 - self.shown
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(at: u64, number: u64) -> TimedKey {
        (Timestamp::from_ms(at), SequenceNumber::new(number))
    }

    proptest! {
        #[test]
        fn it_counts_what_a_walk_would_count(
            steps in proptest::collection::vec((any::<bool>(), 0_u64..20, 0_u64..5, 0_u64..3), 1..200),
            budget in 1_u32..4,
        ) {
            let mut timed = Timed::new(RunLength::TINY);
            let mut now = 0;
            for (is_insert, at, number, elapsed) in steps {
                if is_insert {
                    timed.insert(key(at, number));
                } else {
                    timed.remove(&key(at, number));
                }
                now += elapsed;
                while !timed.pass_shown(Timestamp::from_ms(now), &mut budget.clone()) {}
                let hidden = timed.iter().filter(|(at, _)| at.as_ms() > now).count();
                prop_assert_eq!(timed.hidden_count(), hidden as u64);
            }
        }
    }
}
