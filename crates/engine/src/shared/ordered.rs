//! An ordered set of small values, in blocks.
//!
//! It takes little more than the bytes of its values: a block that values come behind gets full, and so does one that
//! values come into near its end. Others are half full at least when they are split. Of two neighbours after removals,
//! one is more than half full, or both together have more than five eighths of a block. A change moves the values of
//! one block, and a few of the next one. The first block lies by itself, so that a small set has one allocation.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use super::BlockLength;

/// A block with values keeps room for so many: the next changes allocate nothing.
const ROOM_MIN: usize = 4;

/// A set of values in rising order.
///
/// Invariant: the first block is empty only if all is.
#[derive(Clone, Debug)]
pub(crate) struct Ordered<T> {
    length: BlockLength,
    first: VecDeque<T>,
    /// Nearly all sets have none.
    rest: Option<Box<Rest<T>>>,
}

/// The blocks behind the first one.
///
/// Invariants: a block has a key; its values are not below that, and those before it are. There are blocks, and none
/// is empty.
#[derive(Clone, Debug)]
struct Rest<T> {
    blocks: BTreeMap<T, VecDeque<T>>,
    count: usize,
}

/// How they lie depends on the past. Only the values count.
impl<T: Ord + Copy> PartialEq for Ordered<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<T: Ord + Copy> Eq for Ordered<T> {}

impl<T: Ord + Copy> Ordered<T> {
    /// An empty set. With short runs its blocks are short too, so that tests see their edges.
    pub(crate) fn new(run_length: u64) -> Self {
        Self {
            length: BlockLength::new(run_length),
            first: VecDeque::new(),
            rest: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.rest.as_ref().map_or(0, |rest| rest.count)
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.first.front()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let rest = self.rest.iter().flat_map(|rest| rest.blocks.values());
        self.first.iter().chain(rest.flatten())
    }

    /// Whether a value is there.
    pub(crate) fn contains(&self, value: &T) -> bool {
        let rest = self.rest.as_ref();
        let found = rest.and_then(|rest| rest.blocks.range(..=value).next_back());
        let block = found.map_or(&self.first, |(_, block)| block);
        find(block, value).is_ok()
    }

    /// The values above one, which need not be there.
    pub(crate) fn iter_after(&self, value: T) -> impl Iterator<Item = &T> {
        let rest = self.rest.as_ref();
        let found = rest.and_then(|rest| rest.blocks.range(..=value).next_back());
        let (key, block) = found.map_or((None, &self.first), |(key, block)| (Some(*key), block));
        let from = block.partition_point(|it| *it <= value);
        let later = (key.map_or(Unbounded, Excluded), Unbounded);
        let later = rest.into_iter().flat_map(move |it| it.blocks.range(later));
        block
            .iter()
            .skip(from)
            .chain(later.flat_map(|(_, block)| block))
    }

    /// Adds a value. Returns false if it was there.
    pub(crate) fn insert(&mut self, value: T) -> bool {
        let length_max = self.length.max();
        let (key, block) = self.block_of(&value);
        let Err(place) = find(block, &value) else {
            return false;
        };
        if block.len() < length_max {
            make_room(block, 1, length_max);
            block.insert(place, value);
            self.note(key, 1, 0);
        } else {
            self.split(key, place, value);
        }
        true
    }

    /// Removes a value. Returns false if it was not there.
    pub(crate) fn remove(&mut self, value: &T) -> bool {
        let length = self.length;
        let (key, block) = self.block_of(value);
        let Ok(place) = find(block, value) else {
            return false;
        };
        block.remove(place);
        let has_few = length.is_few(block.len());
        self.note(key, 0, 1);
        if has_few {
            self.gather(key);
        }
        true
    }

    /// The block that has, or would have, a value, with its key. The first one has none.
    fn block_of(&mut self, value: &T) -> (Option<T>, &mut VecDeque<T>) {
        let rest = self.rest.as_mut();
        match rest.and_then(|rest| rest.blocks.range_mut(..=value).next_back()) {
            Some((key, block)) => (Some(*key), block),
            None => (None, &mut self.first),
        }
    }

    /// The block of a key that there is.
    fn block_mut(&mut self, key: Option<T>) -> &mut VecDeque<T> {
        let Some(key) = key else {
            return &mut self.first;
        };
        let rest = self.rest.as_mut();
        let block = rest.and_then(|rest| rest.blocks.get_mut(&key));
        // A key comes from a look at the blocks, and only blocks behind it went since then.
        block.expect("a key has a block")
    }

    /// Counts values that came into a block, or left it.
    fn note(&mut self, key: Option<T>, came: usize, left: usize) {
        if let Some((rest, _)) = self.rest.as_mut().zip(key) {
            rest.count = rest.count + came - left;
        }
    }

    /// Adds a block.
    fn add(&mut self, key: T, block: VecDeque<T>) {
        let rest = self.rest.get_or_insert_with(|| {
            let (blocks, count) = (BTreeMap::new(), 0);
            Box::new(Rest { blocks, count })
        });
        rest.count += block.len();
        rest.blocks.insert(key, block);
    }

    /// Takes out the block behind one, if `is_taken` for its length.
    fn take_behind(
        &mut self,
        key: Option<T>,
        is_taken: impl FnOnce(usize) -> bool,
    ) -> Option<VecDeque<T>> {
        let rest = self.rest.as_mut()?;
        let later = (key.map_or(Unbounded, Excluded), Unbounded);
        let (next, block) = rest.blocks.range(later).next()?;
        let next = is_taken(block.len()).then_some(*next)?;
        let block = rest.blocks.remove(&next)?;
        rest.count -= block.len();
        if rest.blocks.is_empty() {
            self.rest = None;
        }
        Some(block)
    }

    /// Makes two blocks of a full one, and adds a value at a place of the old one. If the next block has room for the
    /// upper values, they go there.
    fn split(&mut self, key: Option<T>, place: usize, value: T) {
        let length_max = self.length.max();
        let at = self.length.split_at(place);
        let block = self.block_mut(key);
        let mut upper = block.split_off(at);
        let moved = upper.len();
        if place <= at && at < length_max {
            block.insert(place, value);
            self.note(key, 1, moved);
        } else {
            make_room(&mut upper, 1, length_max);
            upper.insert(place - at, value);
            self.note(key, 0, moved);
        }
        let Some(first) = upper.front().copied() else {
            return;
        };
        let added = upper.len();
        let fits = |length| length + added <= length_max;
        if let Some(mut next) = self.take_behind(key, fits) {
            make_room(&mut next, added, length_max);
            upper.into_iter().rev().for_each(|it| next.push_front(it));
            self.add(first, next);
        } else {
            if place == length_max {
                // What comes behind a full block is likely to fill the next one.
                upper.reserve_exact(length_max - added);
            }
            self.add(first, upper);
        }
    }

    /// Puts the values of a block with few together with those of its neighbours, if these have few too.
    fn gather(&mut self, key: Option<T>) {
        self.take_next(key);
        // The first one goes soon if there are others: the next one takes its place.
        if key.is_some() || self.rest.is_none() {
            shrink(self.block_mut(key));
        }
        if let Some((rest, key)) = self.rest.as_ref().zip(key) {
            let before = rest.blocks.range(..key).next_back();
            let before = before.map(|(key, _)| *key);
            self.take_next(before);
        }
    }

    /// Puts the values of the next block into a block, if they are few together or one has none.
    fn take_next(&mut self, key: Option<T>) {
        let own = self.block_mut(key).len();
        let length = self.length;
        let is_taken = |next| own == 0 || next == 0 || length.fits_one(own + next);
        let Some(values) = self.take_behind(key, is_taken) else {
            return;
        };
        self.note(key, values.len(), 0);
        let block = self.block_mut(key);
        if block.is_empty() {
            *block = values;
        } else {
            make_room(block, values.len(), length.max());
            block.extend(values);
        }
    }
}

/// Makes room for more values, twice as much as there was, but not for more than a block has.
fn make_room<T>(block: &mut VecDeque<T>, more: usize, length_max: usize) {
    let count = block.len() + more;
    if count > block.capacity() {
        let room = (2 * block.capacity()).min(length_max).max(ROOM_MIN);
        block.reserve_exact(room.max(count) - block.len());
    }
}

/// Gives back room, if half of it is empty. A part of that stays: the next changes move no memory.
fn shrink<T>(block: &mut VecDeque<T>) {
    let count = block.len();
    if count == 0 {
        block.shrink_to(0);
    } else if count <= block.capacity() / 2 {
        block.shrink_to((count + count / 2).max(ROOM_MIN));
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
        fn blocks(&self) -> impl Iterator<Item = (&T, &VecDeque<T>)> {
            self.rest.iter().flat_map(|rest| &rest.blocks)
        }

        fn check(&self) {
            assert!(self.iter().is_sorted());
            assert_eq!(self.iter().count(), self.len());
            let rest = self.rest.as_ref();
            assert!(rest.is_none_or(|rest| !rest.blocks.is_empty() && !self.first.is_empty()));
            let mut before = self.first.back();
            for (key, block) in self.blocks() {
                assert!(before < Some(key) && block.front() >= Some(key));
                assert!(block.len() <= self.length.max());
                before = block.back();
            }
            assert!(self.first.len() <= self.length.max());
        }

        fn room(&self) -> usize {
            let rest = self.blocks().map(|(_, block)| block.capacity());
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
        assert!(set.room() < 10_000 + BlockLength::new(1024).max());
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
        assert!(set.blocks().count() <= 200 / 40);
    }

    #[test]
    fn values_in_any_order_fill_half_of_their_room_at_least() {
        let mut set = Ordered::new(1024);
        let values = || (0_u64..50_000).map(|it| it * 611_953 % 50_000);
        values().for_each(|value| assert!(set.insert(value)));
        set.check();
        assert!(set.room() < 50_000 * 3 / 2, "{}", set.room());
        values().for_each(|value| assert!(set.remove(&value)));
        assert!(set.room() == 0 && set.rest.is_none());
    }

    /// One message that is scheduled for next year costs those before it nothing.
    #[test]
    fn rising_values_before_a_late_one_fill_their_blocks() {
        for late in [1, 3, 200] {
            let mut set = Ordered::new(1024);
            (0..late).for_each(|it| assert!(set.insert(1_000_000 + it)));
            (0..10_000).for_each(|value| assert!(set.insert(value)));
            set.check();
            let room = set.room();
            assert!(room < 10_000 * 41 / 40 + 3 * 128, "{room} for {late} late");
        }
    }

    /// However the values left, few blocks are left too.
    #[test]
    fn blocks_with_few_values_are_put_together() {
        for left in [5, 10, 30, 50, 64] {
            let mut set = Ordered::new(1024);
            (0..12_800).for_each(|value| assert!(set.insert(value)));
            let gone = (0..12_800).filter(|value| value % 128 >= left);
            gone.for_each(|value| assert!(set.remove(&value)));
            set.check();
            let (count, blocks) = (set.len(), set.blocks().count() + 1);
            assert!(count > (blocks - 1) * 40, "{count} in {blocks} blocks");
            assert!(set.room() <= 2 * count, "{} for {count}", set.room());
        }
    }

    #[test]
    fn a_set_that_stays_small_keeps_its_room() {
        let mut set = Ordered::new(1024);
        assert!(set.insert(0));
        for value in 1..100 {
            assert!(set.insert(value));
            assert!(set.remove(&(value - 1)));
            assert_eq!(set.room(), 4);
        }
    }

    /// Falling values would make blocks of one value each if each began a new one.
    #[test]
    fn values_in_falling_order_share_blocks() {
        let mut set = Ordered::new(1024);
        assert!(set.insert(1_000_000));
        (0..200).for_each(|value| assert!(set.insert(value)));
        let falling = (200..10_000).rev();
        falling.for_each(|value| assert!(set.insert(value)));
        set.check();
        assert!(
            set.room() < 2 * 10_000 + BlockLength::new(1024).max(),
            "{}",
            set.room()
        );
    }
}
