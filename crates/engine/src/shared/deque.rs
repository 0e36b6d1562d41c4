//! A queue of small values, in blocks and chunks of blocks that a snapshot can share.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Marked, own, own_marked};
use crate::vocabulary::Hint;

/// How many values share a block at most, as a power of two.
const BLOCK_BITS_MAX: u32 = 10;

/// How many blocks share a chunk at most, as a power of two.
const CHUNK_BITS_MAX: u32 = 6;

/// Values that follow each other.
pub(crate) type Block<T> = Arc<Marked<Vec<T>>>;

type Chunk<T> = Arc<Vec<Block<T>>>;

/// A queue to which values come at the end, and which they leave at the front. To add or remove others moves all
/// values behind.
///
/// Invariants: values have consecutive places, and each lies in the block of its place. The first value is in the
/// first chunk. Only blocks of which all values have left are empty.
#[derive(Debug)]
pub(crate) struct SharedDeque<T> {
    block_bits: u32,
    chunk_bits: u32,
    chunks: VecDeque<Chunk<T>>,
    /// The place of the first value. What lies in its block before it has left.
    first: usize,
    /// The place after the last value.
    end: usize,
    /// How many values and blocks were copied because a snapshot had them.
    copied: Hint<u64>,
}

/// What a snapshot has of a queue: its chunks, and how many values in them it leaves out.
#[derive(Clone, Debug)]
pub(crate) struct SharedBlocks<T> {
    chunks: Vec<Chunk<T>>,
    skipped: usize,
    block_bits: u32,
}

impl<T> SharedBlocks<T> {
    /// How many references it has.
    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// The blocks, each with the number of values at its beginning that are left out.
    pub(crate) fn blocks(&self) -> Vec<(Block<T>, usize)> {
        let blocks = self.chunks.iter().flat_map(|chunk| chunk.iter());
        let places = (0..).step_by(1 << self.block_bits);
        let parts = blocks.zip(places).map(|(block, place)| {
            let skipped = self.skipped.saturating_sub(place);
            (Arc::clone(block), skipped.min(block.len()))
        });
        parts
            .filter(|(block, skipped)| block.len() > *skipped)
            .collect()
    }
}

impl<T: Copy> SharedDeque<T> {
    /// An empty queue. With short runs its blocks are short too, so that tests see their edges.
    pub(crate) fn new(run_length: u64) -> Self {
        let bits = run_length.checked_ilog2().unwrap_or(0);
        Self {
            block_bits: bits.min(BLOCK_BITS_MAX),
            chunk_bits: bits.min(CHUNK_BITS_MAX),
            chunks: VecDeque::new(),
            first: 0,
            end: 0,
            copied: Hint::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first == self.end
    }

    pub(crate) fn get(&self, index: usize) -> Option<T> {
        let place = self.first.checked_add(index)?;
        if place >= self.end {
            return None;
        }
        let (chunk, block, slot) = self.split(place);
        self.chunks.get(chunk)?.get(block)?.get(slot).copied()
    }

    pub(crate) fn front(&self) -> Option<T> {
        self.get(0)
    }

    pub(crate) fn back(&self) -> Option<T> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The values from an index on.
    pub(crate) fn iter_from(&self, index: usize) -> impl Iterator<Item = T> {
        (index..self.len()).map_while(|index| self.get(index))
    }

    /// How many values there are before the first for which `is_before` is false.
    pub(crate) fn partition_point(&self, is_before: impl Fn(T) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(&is_before) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    pub(crate) fn push_back(&mut self, value: T) {
        let (chunk, block, _) = self.split(self.end);
        if chunk == self.chunks.len() {
            self.chunks.push_back(Arc::default());
        }
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            let chunk = own(chunk, &mut self.copied, |it| it.len() as u64);
            if block == chunk.len() {
                chunk.push(Arc::default());
            }
            if let Some(block) = chunk.get_mut(block) {
                own_marked(block, &mut self.copied, |it| it.len() as u64).push(value);
            }
        }
        self.end += 1;
    }

    /// Removes the first value. The memory of a block comes back with its last value.
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let value = self.front()?;
        let (_, block, _) = self.split(self.first);
        self.first += 1;
        if self.is_empty() {
            self.chunks = VecDeque::new();
            (self.first, self.end) = (0, 0);
        } else if self.split(self.first).0 > 0 {
            self.chunks.pop_front();
            self.end -= self.first;
            self.first = 0;
        } else if self.split(self.first).1 > block {
            self.empty_block(block);
        }
        Some(value)
    }

    /// Gives back the memory of a block of the first chunk. Its place stays.
    fn empty_block(&mut self, block: usize) {
        let Some(chunk) = self.chunks.front_mut() else {
            return;
        };
        let chunk = own(chunk, &mut self.copied, |it| it.len() as u64);
        if let Some(block) = chunk.get_mut(block) {
            *block = Arc::default();
        }
    }

    /// Adds a value before the one of an index, and moves those behind it.
    pub(crate) fn insert(&mut self, index: usize, value: T) {
        let mut value = value;
        for index in index..self.len() {
            if let Some(next) = self.replace(index, value) {
                value = next;
            }
        }
        self.push_back(value);
    }

    /// Removes the value of an index, and moves those behind it.
    pub(crate) fn remove(&mut self, index: usize) {
        let Some(last) = self.pop_back() else {
            return;
        };
        let mut value = last;
        for index in (index..self.len()).rev() {
            if let Some(before) = self.replace(index, value) {
                value = before;
            }
        }
    }

    fn replace(&mut self, index: usize, value: T) -> Option<T> {
        let (chunk, block, slot) = self.split(self.first + index);
        let chunk = self.chunks.get_mut(chunk)?;
        let chunk = own(chunk, &mut self.copied, |it| it.len() as u64);
        let block = own_marked(chunk.get_mut(block)?, &mut self.copied, |it| {
            it.len() as u64
        });
        Some(std::mem::replace(block.get_mut(slot)?, value))
    }

    fn pop_back(&mut self) -> Option<T> {
        let last = self.back()?;
        let (chunk, block, _) = self.split(self.end - 1);
        self.end -= 1;
        if self.is_empty() {
            self.chunks = VecDeque::new();
            (self.first, self.end) = (0, 0);
            return Some(last);
        }
        let shared = self.chunks.get_mut(chunk)?;
        let blocks = own(shared, &mut self.copied, |it| it.len() as u64);
        let values = own_marked(blocks.get_mut(block)?, &mut self.copied, |it| {
            it.len() as u64
        });
        values.pop();
        if values.is_empty() {
            blocks.pop();
        }
        if blocks.is_empty() {
            self.chunks.pop_back();
        }
        Some(last)
    }

    /// All values, for a snapshot, without the first ones.
    pub(crate) fn share(&self, skipped: usize) -> SharedBlocks<T> {
        SharedBlocks {
            chunks: self.chunks.iter().cloned().collect(),
            skipped: self.first + skipped,
            block_bits: self.block_bits,
        }
    }

    /// How many values and blocks were copied since the last call.
    pub(crate) fn take_copied(&mut self) -> u64 {
        std::mem::take(&mut *self.copied)
    }

    /// The chunk, the block and the slot of a place.
    fn split(&self, place: usize) -> (usize, usize, usize) {
        let block = place >> self.block_bits;
        let slot = place - (block << self.block_bits);
        let chunk = block >> self.chunk_bits;
        (chunk, block - (chunk << self.chunk_bits), slot)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u16),
        Pop,
        Insert(usize, u16),
        Remove(usize),
        Share(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => any::<u16>().prop_map(Step::Push),
            4 => Just(Step::Pop),
            1 => (0_usize..20, any::<u16>()).prop_map(|(at, value)| Step::Insert(at, value)),
            1 => (0_usize..20).prop_map(Step::Remove),
            1 => (0_usize..5).prop_map(Step::Share),
        ]
    }

    fn flat(shared: &SharedBlocks<u16>) -> Vec<u16> {
        let blocks = shared.blocks();
        let values = blocks
            .iter()
            .flat_map(|(block, skipped)| &block[*skipped..]);
        values.copied().collect()
    }

    proptest! {
        #[test]
        fn it_is_a_queue_and_what_was_shared_stays(
            steps in prop::collection::vec(step(), 1..200),
            run_length in 1_u64..9,
        ) {
            let (mut queue, mut model) = (SharedDeque::new(run_length), VecDeque::new());
            let mut shared = Vec::new();
            for step in steps {
                match step {
                    Step::Push(value) => {
                        queue.push_back(value);
                        model.push_back(value);
                    }
                    Step::Pop => prop_assert_eq!(queue.pop_front(), model.pop_front()),
                    Step::Insert(index, value) => {
                        let index = index.min(model.len());
                        queue.insert(index, value);
                        model.insert(index, value);
                    }
                    Step::Remove(index) if index < model.len() => {
                        queue.remove(index);
                        model.remove(index);
                    }
                    Step::Remove(_) => {}
                    Step::Share(skipped) => {
                        let skipped = skipped.min(model.len());
                        let rest: Vec<u16> = model.range(skipped..).copied().collect();
                        shared.push((queue.share(skipped), rest));
                    }
                }
                prop_assert!(queue.iter_from(0).eq(model.iter().copied()));
                prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(queue.front(), model.front().copied());
                prop_assert_eq!(queue.back(), model.back().copied());
                for (shared, model) in &shared {
                    prop_assert_eq!(&flat(shared), model);
                }
            }
        }
    }

    #[test]
    fn memory_comes_back_from_the_front() {
        let mut queue = SharedDeque::new(4);
        (0..100).for_each(|value| queue.push_back(value));
        let blocks = |queue: &SharedDeque<i32>| {
            let blocks = queue.chunks.iter().flat_map(|chunk| chunk.iter());
            blocks.filter(|block| !block.is_empty()).count()
        };
        assert_eq!(blocks(&queue), 25);
        (0..90).for_each(|_| assert!(queue.pop_front().is_some()));
        assert_eq!(blocks(&queue), 3);
        (0..10).for_each(|_| assert!(queue.pop_front().is_some()));
        assert!(queue.chunks.is_empty() && queue.pop_front().is_none());
    }

    #[test]
    fn half_of_a_sorted_queue_lies_before_its_middle() {
        let mut queue = SharedDeque::new(4);
        (0..100).for_each(|value| queue.push_back(value));
        (0..10).for_each(|_| assert!(queue.pop_front().is_some()));
        assert_eq!(queue.partition_point(|it| it < 50), 40);
        assert_eq!(queue.partition_point(|_| true), 90);
        assert_eq!(queue.partition_point(|_| false), 0);
    }
}
