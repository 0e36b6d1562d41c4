//! The messages of a session: their numbers, and which of them can be received or are locked.
//!
//! They follow from the messages of the queue. A number takes 4 bytes, in a block of numbers that rise. Most sessions
//! have one block. If there are more, the blocks with messages to receive and those with locked ones are known: a
//! receiver does not walk over a million deferred messages.

mod block;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use self::block::Block;
use crate::vocabulary::SequenceNumber;

/// What a message of a session is to receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Scheduled or deferred. If messages are not received session by session, any message.
    Other,
    /// It can be received.
    Ready,
    /// It is locked, and released with the session.
    Locked,
}

/// The messages of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionMessages(Blocks);

#[derive(Clone, Debug)]
enum Blocks {
    One(Block),
    Many(Box<Many>),
}

/// More numbers than fit into one block.
///
/// Invariants: a block has a key; its numbers are not below that, and those before it are. No block is empty. `ready`
/// and `locked` have the keys of the blocks with such messages.
#[derive(Clone, Debug, Default)]
struct Many {
    blocks: BTreeMap<u64, Block>,
    ready: BTreeSet<u64>,
    locked: BTreeSet<u64>,
    locked_count: usize,
}

/// How they lie depends on the past. Only the messages count, and what is known of them: a set that is wrong makes
/// two states unequal.
impl PartialEq for SessionMessages {
    fn eq(&self, other: &Self) -> bool {
        let all = |it: &Self| it.0.from(0).flat_map(Block::marked).collect::<Vec<_>>();
        all(self) == all(other)
            && self.ready().eq(other.ready())
            && self.locked().eq(other.locked())
            && self.locked_count() == other.locked_count()
    }
}

impl Eq for SessionMessages {}

impl Default for SessionMessages {
    fn default() -> Self {
        Self(Blocks::One(Block::default()))
    }
}

impl SessionMessages {
    /// Adds a message, or changes the mark of one that is there. Blocks have so many messages at most.
    pub(crate) fn put(&mut self, number: SequenceNumber, mark: Mark, length_max: usize) {
        let number = number.as_u64();
        match &mut self.0 {
            Blocks::One(block) => {
                if !block.put(number, mark, length_max) {
                    let mut many = Many::default();
                    many.add(std::mem::take(block));
                    many.put(number, mark, length_max);
                    self.0 = Blocks::Many(Box::new(many));
                }
            }
            Blocks::Many(many) => many.put(number, mark, length_max),
        }
    }

    /// Removes a message, if it is there.
    pub(crate) fn remove(&mut self, number: SequenceNumber, length_max: usize) {
        let number = number.as_u64();
        match &mut self.0 {
            Blocks::One(block) => {
                block.remove(number);
            }
            Blocks::Many(many) => {
                many.remove(number, length_max);
                if let Some(block) = many.take_only(length_max / 2) {
                    self.0 = Blocks::One(block);
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match &self.0 {
            Blocks::One(block) => block.is_empty(),
            Blocks::Many(many) => many.blocks.is_empty(),
        }
    }

    pub(crate) fn has_ready(&self) -> bool {
        match &self.0 {
            Blocks::One(block) => block.ready_count() > 0,
            Blocks::Many(many) => !many.ready.is_empty(),
        }
    }

    pub(crate) fn first_ready(&self) -> Option<SequenceNumber> {
        self.ready().next()
    }

    /// Those that can be received, in order.
    pub(crate) fn ready(&self) -> impl Iterator<Item = SequenceNumber> {
        let blocks = self.0.named(|many| &many.ready);
        blocks
            .flat_map(|block| block.with(Mark::Ready))
            .map(SequenceNumber::new)
    }

    pub(crate) fn locked_count(&self) -> usize {
        match &self.0 {
            Blocks::One(block) => block.locked_count(),
            Blocks::Many(many) => many.locked_count,
        }
    }

    /// The locked ones, in order.
    pub(crate) fn locked(&self) -> impl Iterator<Item = SequenceNumber> {
        let blocks = self.0.named(|many| &many.locked);
        blocks
            .flat_map(|block| block.with(Mark::Locked))
            .map(SequenceNumber::new)
    }

    /// All of them from a number on, in order.
    pub(crate) fn numbers_from(
        &self,
        first: SequenceNumber,
    ) -> impl Iterator<Item = SequenceNumber> + use<'_> {
        let first = first.as_u64();
        let blocks = self.0.from(first);
        let numbers = blocks.flat_map(move |block| block.numbers_from(first));
        numbers.map(SequenceNumber::new)
    }
}

impl Blocks {
    /// The blocks from that of a number on.
    fn from(&self, number: u64) -> impl Iterator<Item = &Block> + use<'_> {
        let (one, many) = self.split();
        let many = many.into_iter().flat_map(move |many| {
            let first = many.key_of(number).unwrap_or_default();
            many.blocks.range(first..).map(|(_, block)| block)
        });
        one.into_iter().chain(many)
    }

    /// The blocks of which there are keys.
    fn named(&self, keys: fn(&Many) -> &BTreeSet<u64>) -> impl Iterator<Item = &Block> + use<'_> {
        let (one, many) = self.split();
        let many = many.into_iter().flat_map(move |many| {
            let keys = keys(many).iter();
            keys.filter_map(|key| many.blocks.get(key))
        });
        one.into_iter().chain(many)
    }

    fn split(&self) -> (Option<&Block>, Option<&Many>) {
        match self {
            Self::One(block) => (Some(block), None),
            Self::Many(many) => (None, Some(many)),
        }
    }
}

impl Many {
    /// The key of the block that has, or would have, a number. `None` below all of them.
    fn key_of(&self, number: u64) -> Option<u64> {
        let (key, _) = self.blocks.range(..=number).next_back()?;
        Some(*key)
    }

    /// Adds a block that has numbers.
    fn add(&mut self, block: Block) {
        // A split block has two numbers at least, and others have got one.
        let first = block.first().expect("a block that is added has numbers");
        self.locked_count += block.locked_count();
        self.note(first, &block);
        self.blocks.insert(first, block);
    }

    /// Takes a block out.
    fn take(&mut self, key: u64) -> Option<Block> {
        let block = self.blocks.remove(&key)?;
        self.locked_count -= block.locked_count();
        self.note(key, &Block::default());
        Some(block)
    }

    /// Keeps the sets in step with a block.
    fn note(&mut self, key: u64, block: &Block) {
        for (keys, count) in [
            (&mut self.ready, block.ready_count()),
            (&mut self.locked, block.locked_count()),
        ] {
            if count > 0 {
                keys.insert(key);
            } else {
                keys.remove(&key);
            }
        }
    }

    /// Changes a block, and returns what came of it. A change of a mark leaves the sets as they are, unless the block
    /// has its first or last one.
    fn change<T>(&mut self, key: u64, change: impl FnOnce(&mut Block) -> T) -> Option<T> {
        let block = self.blocks.get_mut(&key)?;
        let before = (block.ready_count(), block.locked_count());
        let result = change(block);
        let after = (block.ready_count(), block.locked_count());
        self.locked_count = self.locked_count + after.1 - before.1;
        for (keys, before, after) in [
            (&mut self.ready, before.0, after.0),
            (&mut self.locked, before.1, after.1),
        ] {
            if before == 0 && after > 0 {
                keys.insert(key);
            } else if before > 0 && after == 0 {
                keys.remove(&key);
            }
        }
        Some(result)
    }

    fn put(&mut self, number: u64, mark: Mark, length_max: usize) {
        let key = self.key_of(number);
        let fits = key.and_then(|key| self.change(key, |it| it.put(number, mark, length_max)));
        if fits == Some(true) {
            return;
        }
        // A full block that numbers come behind stays full. Another is split.
        let block = key.and_then(|key| self.blocks.get(&key));
        let is_within = block.is_some_and(|block| block.last() > Some(number));
        if is_within && let Some(block) = key.and_then(|key| self.take(key)) {
            let (lower, upper) = block.split();
            self.add(lower);
            self.add(upper);
            self.put(number, mark, length_max);
        } else {
            self.put_between(key, number, mark, length_max);
        }
    }

    /// Adds a number that fits into no block: at the beginning of the next one if it can, or else in a new one.
    /// Otherwise falling numbers would make blocks of one each.
    fn put_between(&mut self, key: Option<u64>, number: u64, mark: Mark, length_max: usize) {
        let later = (key.map_or(Unbounded, Excluded), Unbounded);
        let next = self.blocks.range(later).next().map(|(next, _)| *next);
        if let Some(mut block) = next.and_then(|next| self.take(next)) {
            let is_put = block.put_below(number, mark, length_max);
            self.add(block);
            if is_put {
                return;
            }
        }
        let mut block = Block::default();
        block.put(number, mark, length_max);
        self.add(block);
    }

    fn remove(&mut self, number: u64, length_max: usize) {
        let Some(key) = self.key_of(number) else {
            return;
        };
        let length = self.change(key, |block| {
            block.remove(number);
            block.len()
        });
        match length {
            Some(0) => {
                self.take(key);
            }
            Some(length) if length <= length_max / 4 => {
                self.gather(key, length_max / 2);
                if let Some((before, _)) = self.blocks.range(..key).next_back() {
                    self.gather(*before, length_max / 2);
                }
            }
            Some(_) | None => {}
        }
    }

    /// Puts a block and the next one together, if they have few numbers.
    fn gather(&mut self, key: u64, few: usize) {
        let next = self.blocks.range((Excluded(key), Unbounded)).next();
        let next = next.map(|(next, block)| (*next, block.len()));
        let length = self.blocks.get(&key).map_or(0, Block::len);
        let Some((next, _)) = next.filter(|(_, more)| length + more <= few) else {
            return;
        };
        if let Some(block) = self.take(next) {
            let rest = self.change(key, |it| it.append(block));
            if let Some(block) = rest.flatten() {
                self.add(block);
            }
        }
    }

    /// Takes the only block, if it has few numbers. If there is none, one without numbers.
    fn take_only(&mut self, few: usize) -> Option<Block> {
        let (key, block) = self.blocks.first_key_value().unzip();
        let is_small = block.is_none_or(|block| block.len() <= few);
        if self.blocks.len() > 1 || !is_small {
            return None;
        }
        Some(
            key.copied()
                .and_then(|key| self.take(key))
                .unwrap_or_default(),
        )
    }
}

#[cfg(test)]
impl SessionMessages {
    /// How many blocks a receiver visits to find all that it can receive.
    pub(crate) fn visited_by_receiver(&self) -> usize {
        self.0.named(|many| &many.ready).count()
    }

    /// Asserts that counts and sets say what the marks say.
    pub(crate) fn check(&self) {
        self.0.from(0).for_each(Block::check);
        let Blocks::Many(many) = &self.0 else {
            return;
        };
        let (mut end, mut locked_count) = (0, 0);
        for (key, block) in &many.blocks {
            assert!(*key >= end && block.first() >= Some(*key));
            end = block.last().expect("a block has numbers") + 1;
            assert_eq!(many.ready.contains(key), block.ready_count() > 0);
            assert_eq!(many.locked.contains(key), block.locked_count() > 0);
            locked_count += block.locked_count();
        }
        let all = many.ready.union(&many.locked);
        assert!(all.into_iter().all(|key| many.blocks.contains_key(key)));
        assert_eq!(many.locked_count, locked_count);
    }
}

#[cfg(test)]
mod tests;
