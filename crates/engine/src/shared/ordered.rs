//! An ordered set of small values, in blocks.
//!
//! It takes little more than the bytes of its values: a block that values come behind gets full, and others are half
//! full at least when they are split. A change moves the values of one block. The first block lies by itself, so that
//! a small set has one allocation.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

/// How many values a block has at most.
const LENGTH_MAX: usize = 128;

/// How many it has at most in tests, at least.
const LENGTH_MIN: usize = 4;

/// A set of values in rising order.
///
/// Invariants: only the first block can be empty, and only if all is. A block of `rest` has a key; its values are not
/// below that, and those before it are.
#[derive(Clone, Debug)]
pub(crate) struct Ordered<T> {
    length_max: usize,
    first: VecDeque<T>,
    rest: BTreeMap<T, VecDeque<T>>,
    count: usize,
}

/// How they lie depends on the past. Only the values count.
impl<T: Ord + Copy> PartialEq for Ordered<T> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}

impl<T: Ord + Copy> Eq for Ordered<T> {}

impl<T: Ord + Copy> Ordered<T> {
    /// An empty set. With short runs its blocks are short too, so that tests see their edges.
    pub(crate) fn new(run_length: u64) -> Self {
        let length_max = usize::try_from(run_length).unwrap_or(LENGTH_MAX);
        Self {
            length_max: length_max.clamp(LENGTH_MIN, LENGTH_MAX),
            first: VecDeque::new(),
            rest: BTreeMap::new(),
            count: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.first.front()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.rest.values().flatten())
    }

    /// The values above one, which need not be there.
    pub(crate) fn iter_after(&self, value: T) -> impl Iterator<Item = &T> {
        let (key, block) = match self.rest.range(..=value).next_back() {
            Some((key, block)) => (Some(key), block),
            None => (None, &self.first),
        };
        let from = block.partition_point(|it| *it <= value);
        let later = (key.map_or(Unbounded, Excluded), Unbounded);
        let later = self.rest.range(later).flat_map(|(_, block)| block);
        block.iter().skip(from).chain(later)
    }

    /// The block that has, or would have, a value, with its key. The first one has none.
    fn block_of(&mut self, value: &T) -> (Option<T>, &mut VecDeque<T>) {
        match self.rest.range_mut(..=value).next_back() {
            Some((key, block)) => (Some(*key), block),
            None => (None, &mut self.first),
        }
    }

    fn block_mut(&mut self, key: Option<T>) -> &mut VecDeque<T> {
        let block = key.and_then(|key| self.rest.get_mut(&key));
        block.unwrap_or(&mut self.first)
    }

    /// Adds a value. Returns false if it was there.
    pub(crate) fn insert(&mut self, value: T) -> bool {
        let length_max = self.length_max;
        let (key, block) = self.block_of(&value);
        let Err(place) = find(block, &value) else {
            return false;
        };
        if block.len() < length_max {
            block.insert(place, value);
        } else if place == length_max && self.is_last(key) {
            let mut block = VecDeque::with_capacity(length_max);
            block.push_back(value);
            self.rest.insert(value, block);
        } else {
            self.split(key, place, value);
        }
        self.count += 1;
        true
    }

    fn is_last(&self, key: Option<T>) -> bool {
        self.rest.last_key_value().map(|(last, _)| *last) == key
    }

    /// Makes two blocks of a full one, and adds a value at a place of the old one.
    fn split(&mut self, key: Option<T>, place: usize, value: T) {
        let middle = self.length_max / 2;
        let block = self.block_mut(key);
        let mut upper = block.split_off(middle);
        if place > middle {
            upper.insert(place - middle, value);
        } else {
            block.insert(place, value);
        }
        if let Some(first) = upper.front() {
            self.rest.insert(*first, upper);
        }
    }

    /// Removes a value. Returns false if it was not there.
    pub(crate) fn remove(&mut self, value: &T) -> bool {
        let few = self.length_max / 4;
        let (key, block) = self.block_of(value);
        let Ok(place) = find(block, value) else {
            return false;
        };
        block.remove(place);
        let has_few = block.len() <= few;
        self.count -= 1;
        if has_few {
            self.gather(key);
        }
        true
    }

    /// Puts the values of a block with few together with those of its neighbours, if these have few too.
    fn gather(&mut self, key: Option<T>) {
        if self.rest.is_empty() {
            shrink(&mut self.first);
            return;
        }
        self.take_next(key);
        if let Some(key) = key {
            self.rest.get_mut(&key).map(shrink);
            let before = self.rest.range(..key).next_back();
            let before = before.map(|(key, _)| *key);
            self.take_next(before);
        }
    }

    /// Puts the values of the next block into a block, if they are few together or the block has none.
    fn take_next(&mut self, key: Option<T>) {
        let later = (key.map_or(Unbounded, Excluded), Unbounded);
        let next = self.rest.range(later).next();
        let Some((next, length)) = next.map(|(next, block)| (*next, block.len())) else {
            return;
        };
        let own = self.block_mut(key).len();
        if own > 0 && length > 0 && own + length > self.length_max / 2 {
            return;
        }
        if let Some(values) = self.rest.remove(&next) {
            let block = self.block_mut(key);
            if block.is_empty() {
                *block = values;
            } else {
                block.extend(values);
            }
        }
    }
}

/// Gives back room, if few values are left. Half of the room stays: the next changes move no memory.
fn shrink<T>(block: &mut VecDeque<T>) {
    if block.len() <= block.capacity() / 4 {
        block.shrink_to(2 * block.len());
    }
}

/// The place of a value in a block, or where it would be. Most changes are at the ends.
fn find<T: Ord>(block: &VecDeque<T>, value: &T) -> Result<usize, usize> {
    match (block.front(), block.back()) {
        (_, Some(last)) if last < value => Err(block.len()),
        (Some(first), _) if first == value => Ok(0),
        _ => block.binary_search(value),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    impl<T: Ord + Copy + std::fmt::Debug> Ordered<T> {
        fn check(&self) {
            assert!(self.iter().is_sorted());
            assert_eq!(self.iter().count(), self.count);
            assert!(!self.first.is_empty() || self.rest.is_empty());
            let blocks = self.rest.iter();
            assert!(blocks.clone().all(|(_, block)| !block.is_empty()));
            let mut before = self.first.back();
            for (key, block) in blocks {
                assert!(before < Some(key) && block.front() >= Some(key));
                before = block.back();
            }
            let lengths = self.rest.values().map(VecDeque::len);
            assert!(lengths.chain([self.first.len()]).max() <= Some(self.length_max));
        }

        fn room(&self) -> usize {
            let rest = self.rest.values().map(VecDeque::capacity);
            rest.sum::<usize>() + self.first.capacity()
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            steps in prop::collection::vec((0_u8..5, 0_u32..60), 1..300),
            length in 4_u64..9,
        ) {
            let (mut set, mut model) = (Ordered::new(length), BTreeSet::new());
            let mut highest = 0;
            for (how, value) in steps {
                match how {
                    0 => prop_assert_eq!(set.insert(value), model.insert(value)),
                    1 => prop_assert_eq!(set.remove(&value), model.remove(&value)),
                    2 => {
                        highest += 1 + value % 3;
                        prop_assert_eq!(set.insert(highest), model.insert(highest));
                    }
                    3 => {
                        let first = model.pop_first();
                        prop_assert_eq!(set.first(), first.as_ref());
                        first.inspect(|first| assert!(set.remove(first)));
                    }
                    _ => {
                        let after = model.range((Excluded(value), Unbounded));
                        prop_assert!(set.iter_after(value).eq(after));
                    }
                }
                set.check();
                prop_assert_eq!(set.len(), model.len());
                prop_assert_eq!(set.first(), model.first());
                prop_assert!(set.iter().eq(&model));
            }
            let mut fresh = Ordered::new(length);
            model.iter().for_each(|value| assert!(fresh.insert(*value)));
            prop_assert_eq!(&fresh, &set);
            fresh.insert(1000);
            prop_assert_ne!(&fresh, &set);
        }
    }

    #[test]
    fn values_in_rising_order_take_no_more_than_their_room() {
        let mut set = Ordered::new(1024);
        (0..10_000).for_each(|value| assert!(set.insert(value)));
        assert!(set.room() < 10_000 + LENGTH_MAX);
        // However few are left, they lie together.
        (0..10_000).filter(|it| it % 50 != 0).for_each(|value| {
            set.remove(&value);
        });
        set.check();
        assert!(
            set.room() <= 4 * set.len(),
            "{} for {}",
            set.room(),
            set.len()
        );
        assert!(set.rest.len() <= 200 / 32);
    }

    #[test]
    fn values_in_any_order_fill_half_of_their_room_at_least() {
        let mut set = Ordered::new(1024);
        let values = || (0_u64..50_000).map(|it| it * 611_953 % 50_000);
        values().for_each(|value| assert!(set.insert(value)));
        set.check();
        assert!(set.room() < 50_000 * 3 / 2, "{}", set.room());
        values().for_each(|value| assert!(set.remove(&value)));
        assert!(set.room() == 0 && set.rest.is_empty());
    }

    /// Falling values would make blocks of one value each if each began a new one.
    #[test]
    fn values_in_falling_order_share_blocks() {
        let mut set = Ordered::new(1024);
        (0..10_000)
            .rev()
            .for_each(|value| assert!(set.insert(value)));
        set.check();
        assert!(set.room() < 2 * 10_000 + LENGTH_MAX, "{}", set.room());
    }
}
