//! A bit for each slot of a run.

use super::length::SLOTS_MAX;

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = SLOTS_MAX / WORD_BITS;

/// A set of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits([u64; WORDS]);

impl Bits {
    /// Adds a slot. Returns false if it was there.
    pub(super) fn insert(&mut self, slot: usize) -> bool {
        let was_there = self.contains(slot);
        if let Some(word) = self.0.get_mut(slot / WORD_BITS) {
            *word |= bit(slot);
        }
        !was_there
    }

    /// Removes a slot. Returns false if it was not there.
    pub(super) fn remove(&mut self, slot: usize) -> bool {
        let was_there = self.contains(slot);
        if let Some(word) = self.0.get_mut(slot / WORD_BITS) {
            *word &= !bit(slot);
        }
        was_there
    }

    pub(super) fn contains(&self, slot: usize) -> bool {
        let word = self.0.get(slot / WORD_BITS);
        word.is_some_and(|word| word & bit(slot) != 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The slots of both.
    pub(super) fn and(&self, other: &Self) -> Self {
        let mut both = *self;
        for (word, other) in both.0.iter_mut().zip(other.0) {
            *word &= other;
        }
        both
    }

    /// The slots of one of them, or both.
    pub(super) fn or(&self, other: &Self) -> Self {
        let mut all = *self;
        for (word, other) in all.0.iter_mut().zip(other.0) {
            *word |= other;
        }
        all
    }

    /// The slots of this one and not of the other.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut left = *self;
        for (word, other) in left.0.iter_mut().zip(other.0) {
            *word &= !other;
        }
        left
    }

    /// A bit for each slot.
    pub(super) fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    pub(super) fn words_mut(&mut self) -> &mut [u64; WORDS] {
        &mut self.0
    }

    pub(super) fn first(&self) -> Option<usize> {
        self.iter_from(0).next()
    }

    pub(super) fn last(&self) -> Option<usize> {
        let mut words = self.0.iter().enumerate().rev();
        let (index, word) = words.find(|(_, word)| **word != 0)?;
        Some(index * WORD_BITS + word.ilog2() as usize)
    }

    /// The slots from one on, in order.
    pub(super) fn iter_from(&self, first: usize) -> impl Iterator<Item = usize> + '_ {
        let mut index = first / WORD_BITS;
        let above = u64::MAX << (first % WORD_BITS);
        let mut word = self.0.get(index).map_or(0, |word| word & above);
        std::iter::from_fn(move || {
            while word == 0 {
                index += 1;
                word = *self.0.get(index)?;
            }
            let slot = index * WORD_BITS + word.trailing_zeros() as usize;
            word &= word - 1;
            Some(slot)
        })
    }
}

fn bit(slot: usize) -> u64 {
    1 << (slot % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(
            steps in prop::collection::vec((any::<bool>(), 0..SLOTS_MAX), 0..300),
            from in 0..=SLOTS_MAX,
        ) {
            let (mut bits, mut model) = (Bits::default(), BTreeSet::new());
            for (is_insert, slot) in steps {
                if is_insert {
                    prop_assert_eq!(bits.insert(slot), model.insert(slot));
                } else {
                    prop_assert_eq!(bits.remove(slot), model.remove(&slot));
                }
                prop_assert_eq!(bits.contains(slot), model.contains(&slot));
            }
            prop_assert_eq!(bits.count(), model.len());
            prop_assert_eq!(bits.is_empty(), model.is_empty());
            prop_assert_eq!(bits.first(), model.first().copied());
            prop_assert_eq!(bits.last(), model.last().copied());
            prop_assert!(bits.iter_from(from).eq(model.range(from..).copied()));
        }
    }

    #[test]
    fn a_slot_beyond_the_last_is_never_there() {
        let mut bits = Bits::default();
        bits.insert(SLOTS_MAX);
        assert!(bits.is_empty() && !bits.contains(SLOTS_MAX));
    }
}
