//! The message ids that a queue remembers, to drop duplicates.
//!
//! They lie in blocks in the order of their times. A full block does not change any more, and is found by an index. It can
//! leave memory once a page has it; then a look-up that needs it asks for it first.

mod block;
mod index;
mod seconds;

use std::collections::BTreeMap;
use std::sync::Arc;

use kew_planted::{Bug, is_planted};

use self::block::Places;
pub(crate) use self::block::{Block, Ids};
use self::index::{Index, Table};
use self::seconds::{Seconds, by_second, counting_from, counts_until};
use crate::shared::{Chunk, SharedMap, own_marked};
use crate::table::{GroupRead, ReadOf, RunLength, Taken};
use crate::vocabulary::{PageNumber, Timestamp};

/// What a remembered id counts for in its queue's size.
pub(crate) const REMEMBERED_ID_SIZE_BYTES: u64 = 128;

/// The most that one takes in a snapshot: a hash and a time.
pub(crate) const REMEMBERED_SIZE_BYTES: u64 = 24;

/// How many blocks of dropped ids leave memory at most when a new id comes, and as one due thing: 5 µs each, while one
/// block comes with 1,024 ids.
const FREED_AT_ONCE_MAX: usize = 16;

/// Ids that are due are looked for once in this time. Otherwise each new id would change a busy queue's deadline.
const FORGET_INTERVAL_MS: u64 = 1000;

/// With fewer dropped ids, the newest block stays as it is.
const DROPPED_MIN: usize = 4;

/// Message ids seen within the window, as keyed hashes of 128 bits.
///
/// Ids older than the window do not count. They are dropped as new ones come: the kept ids are a function of the
/// events. Those that no new one drops are forgotten as due work, without an event: two values are equal if they
/// differ in such ids alone. Dropped ids leave memory a little later, with their block.
///
/// The times of events do not fall. If one does, its id has the time of the last one: `apply` is total. No event repeats
/// an id within its window. If one does, the id counts twice.
#[derive(Debug)]
pub(crate) struct Duplicates {
    /// Full blocks, by consecutive numbers. Nothing in them changes.
    full: SharedMap<Block>,
    /// The number of the newest block.
    next: u64,
    index: Index,
    newest: Block,
    places: Places,
    seconds: Seconds,
    /// Ids seen before this time are dropped.
    kept_from: Timestamp,
    /// Ids seen before this time are forgotten, or do not count any more.
    forgotten_before: Timestamp,
    /// How many there are.
    all: u64,
    /// How many of them are in full blocks in memory.
    resident: u64,
    /// How many blocks are not in memory.
    cold_blocks: u64,
    length: RunLength,
    copied: u64,
}

/// A block that a page has, with what follows from it alone: a start prepares it on the thread that reads.
#[derive(Debug)]
pub(crate) struct ReadBlock {
    ids: Ids,
    by_second: Vec<(u64, u32)>,
    table: Table,
}

impl ReadBlock {
    pub(crate) fn of(ids: Ids) -> Self {
        Self {
            by_second: by_second(ids.iter().map(|(at, _)| at)),
            table: Table::of(ids.hashes()),
            ids,
        }
    }
}

/// Remembered ids with their times, as a snapshot shares them.
#[derive(Clone, Debug)]
pub(crate) struct SharedIds {
    full: Vec<Arc<Chunk<Block>>>,
    newest: Block,
    kept_from: Timestamp,
}

impl SharedIds {
    /// How many references it has.
    pub(crate) fn len(&self) -> usize {
        self.full.len()
    }

    /// The blocks that have ids which count.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let full = self.full.iter().flat_map(|chunk| chunk.iter());
        let blocks = full.map(|(_, block)| block).chain([&self.newest]);
        let from = counting_from(self.kept_from);
        let kept = blocks.filter(|block| !block.is_empty() && block.last_at() >= from);
        kept.cloned().collect()
    }
}

impl PartialEq for Duplicates {
    fn eq(&self, other: &Self) -> bool {
        let from = self.forgotten_before.max(other.forgotten_before);
        let kept = |of: &Self| {
            let kept = of.iter().filter(|(_, at)| *at >= from);
            kept.collect::<BTreeMap<_, _>>()
        };
        let (own, theirs) = (kept(self), kept(other));
        if self.cold_blocks + other.cold_blocks == 0 {
            return own == theirs;
        }
        // Of ids that one has in memory and the other one has not, it is known in which blocks they may be.
        let has = |of: &Self, in_memory: &BTreeMap<_, _>, (id, at): (&u128, &Timestamp)| {
            in_memory.get(id).map_or_else(
                || of.missing(*id, Timestamp::ZERO).next().is_some(),
                |known| known == at,
            )
        };
        let from = counting_from(from.max(self.kept_from).max(other.kept_from));
        self.seconds.from(from).eq(other.seconds.from(from))
            && own.iter().all(|one| has(other, &theirs, one))
            && theirs.iter().all(|one| has(self, &own, one))
    }
}

impl Eq for Duplicates {}

impl Duplicates {
    pub(crate) fn new(length: RunLength) -> Self {
        Self {
            full: SharedMap::new(length.as_u64()),
            next: 0,
            index: Index::default(),
            newest: Block::default(),
            places: Places::default(),
            seconds: Seconds::default(),
            kept_from: Timestamp::ZERO,
            forgotten_before: Timestamp::ZERO,
            all: 0,
            resident: 0,
            cold_blocks: 0,
            length,
            copied: 0,
        }
    }

    /// The kept ids in the order of their times, for a snapshot.
    pub(crate) fn share(&self) -> SharedIds {
        SharedIds {
            full: self.full.share(),
            newest: Arc::clone(&self.newest),
            kept_from: self.kept_from,
        }
    }

    /// The time before which ids are dropped, if a block that a snapshot has has such ids.
    pub(crate) fn dropped_before(&self) -> Option<Timestamp> {
        let kept = self.first_from(counting_from(self.kept_from))?;
        (kept.first_at() < self.kept_from).then_some(self.kept_from)
    }

    /// The first block with an id seen from a time on. It is searched for: there can be any number of blocks before it
    /// that wait to be freed, and a snapshot asks for it in one step.
    fn first_from(&self, from: Timestamp) -> Option<&Block> {
        let oldest = self.full.iter().next();
        // Full blocks have numbers that follow each other, in the order of their times.
        let (mut first, mut end) = (oldest.map_or(self.next, |(it, _)| it), self.next);
        while first < end {
            let middle = first + (end - first) / 2;
            let block = self.full.get(middle);
            match block.is_some_and(|block| block.last_at() < from) {
                true => first = middle + 1,
                false => end = middle,
            }
        }
        let newest = (!self.newest.is_empty()).then_some(&self.newest);
        let newest = newest.filter(|block| block.last_at() >= from);
        self.full.get(first).or(newest)
    }

    /// How many ids were copied since the last call because a snapshot had them.
    pub(crate) fn take_copied(&mut self) -> u64 {
        std::mem::take(&mut self.copied) + self.full.take_copied()
    }

    /// Remembers an id, and drops some ids older than the window.
    pub(crate) fn note(&mut self, id: u128, window_ms: u64, at: Timestamp) {
        self.keep_from(within(window_ms, at));
        self.free();
        self.add(id, at);
    }

    /// Forgets ids older than the window, and frees the memory of some dropped ones.
    pub(crate) fn forget(&mut self, window_ms: u64, now: Timestamp) {
        let from = within(window_ms, now);
        self.forgotten_before = self.forgotten_before.max(from);
        self.seconds
            .drop_before(self.kept_from.max(self.forgotten_before));
        self.free();
    }

    /// When there is something to forget, or earlier.
    pub(crate) fn next_deadline(&self, window_ms: u64) -> Option<Timestamp> {
        let last_at = self.blocks().next()?.last_at();
        if last_at < self.needed_from() {
            return Some(Timestamp::ZERO);
        }
        let over_ms = counts_until(last_at, window_ms).as_ms();
        let round_ms = over_ms.div_ceil(FORGET_INTERVAL_MS);
        Some(Timestamp::from_ms(
            round_ms.saturating_mul(FORGET_INTERVAL_MS),
        ))
    }

    /// Drops the ids seen before a time. They do not come back when the window grows.
    pub(crate) fn keep_from(&mut self, time: Timestamp) {
        self.kept_from = self.kept_from.max(time);
        self.seconds.drop_before(self.kept_from);
    }

    /// Restores an id of a snapshot.
    pub(crate) fn restore(&mut self, id: u128, at: Timestamp) {
        self.add(id, at);
    }

    /// Restores the ids of a page, in the order of their times. Returns the number of the block that they are, if it is a
    /// full one.
    pub(crate) fn restore_page(
        &mut self,
        read: ReadBlock,
        page: PageNumber,
    ) -> Result<Option<u64>, &'static str> {
        let ids = read.ids;
        if ids.is_empty() {
            return Ok(None);
        }
        if self.last_at().is_some_and(|last| last > ids.first_at()) {
            return Err("ids that are not in the order of their times");
        }
        self.fill();
        self.all += ids.len() as u64;
        let from = counting_from(self.kept_from).as_ms() / 1000;
        for (second, count) in read.by_second {
            if second >= from {
                self.seconds.note_all(second, count);
            }
        }
        let is_full = ids.len() >= self.length_max();
        self.newest = with_page(ids, page);
        if !is_full {
            self.places = Places::of(&self.newest);
            return Ok(None);
        }
        let number = self.next;
        self.fill_with(read.table);
        Ok(Some(number))
    }

    /// Adds the ids that another reading of the same log has found.
    pub(crate) fn absorb(&mut self, other: &Self) {
        let cold = self.cold_blocks + other.cold_blocks;
        assert_eq!(cold, 0, "a repair has all ids in memory");
        let mut seen_at = BTreeMap::new();
        for (id, at) in self.iter().chain(other.iter()) {
            let known = seen_at.entry(id).or_insert(at);
            *known = at.max(*known);
        }
        let mut by_time: Vec<_> = seen_at.into_iter().map(|(id, at)| (at, id)).collect();
        by_time.sort_unstable();
        let before = std::mem::replace(self, Self::new(self.length));
        (self.kept_from, self.forgotten_before) = (before.kept_from, before.forgotten_before);
        by_time.into_iter().for_each(|(at, id)| self.add(id, at));
    }

    fn length_max(&self) -> usize {
        usize::try_from(self.length.as_u64()).unwrap_or(usize::MAX)
    }

    /// When the last id was seen.
    fn last_at(&self) -> Option<Timestamp> {
        let last = self.full.last();
        let last = (!self.newest.is_empty()).then_some(&self.newest).or(last);
        last.map(|block| block.last_at())
    }

    fn add(&mut self, id: u128, at: Timestamp) {
        let at = self.last_at().map_or(at, |last| last.max(at));
        if self.newest.len() >= self.length_max() {
            self.fill();
        }
        if !self.push(id, at) {
            self.fill();
            self.push(id, at);
        }
        self.tally(at);
    }

    fn push(&mut self, id: u128, at: Timestamp) -> bool {
        let newest = own_marked(&mut self.newest, &mut self.copied, |it| it.len() as u64);
        let is_pushed = newest.push(id, at);
        if is_pushed {
            self.places.note_last(&self.newest);
        }
        is_pushed
    }

    fn tally(&mut self, at: Timestamp) {
        self.all += 1;
        if at >= counting_from(self.kept_from) {
            self.seconds.note(at);
        }
    }

    /// Makes the newest block a full one.
    fn fill(&mut self) {
        if !self.newest.is_empty() {
            let table = Table::of(self.newest.hashes());
            self.fill_with(table);
        }
    }

    /// The same, with the table of its ids.
    fn fill_with(&mut self, table: Table) {
        let mut block = std::mem::take(&mut self.newest);
        self.places = Places::default();
        if let Some(own) = Arc::get_mut(&mut block) {
            own.physical().shrink();
        }
        self.index.add(self.next, table);
        self.resident += block.len() as u64;
        self.full.get_or_insert_with(self.next, || block);
        self.next += 1;
    }

    /// Ids seen before this time do not count any more.
    fn needed_from(&self) -> Timestamp {
        counting_from(self.kept_from.max(self.forgotten_before))
    }

    /// Frees the memory of some ids that are not needed any more.
    fn free(&mut self) {
        let before = self.needed_from();
        for _ in 0..FREED_AT_ONCE_MAX {
            let Some((number, block)) = self.full.iter().next() else {
                self.free_newest(before);
                return;
            };
            if block.last_at() >= before {
                return;
            }
            let count = block.len() as u64;
            self.all -= count;
            match block.is_cold() {
                true => self.cold_blocks -= 1,
                false => self.resident -= count,
            }
            self.full.remove(number);
            self.index.drop_before(number + 1);
        }
    }

    /// There are no other blocks. What is left is copied once half of it is not needed.
    fn free_newest(&mut self, before: Timestamp) {
        let dropped = self.newest.count_before(before);
        if dropped == self.newest.len() {
            self.newest = Block::default();
            self.places = Places::default();
        } else if dropped >= DROPPED_MIN && dropped >= self.newest.len() / 2 {
            let left = self.newest.without(dropped);
            self.newest = Block::default();
            *own_marked(&mut self.newest, &mut self.copied, |_| 0) = left;
            self.places = Places::of(&self.newest);
        } else {
            return;
        }
        self.all -= dropped as u64;
    }

    /// All blocks, oldest first.
    fn blocks(&self) -> impl Iterator<Item = &Block> {
        let newest = (!self.newest.is_empty()).then_some(&self.newest);
        self.full.iter().map(|(_, block)| block).chain(newest)
    }

    /// Whether an id was seen within the window before `now`.
    pub(crate) fn has(&self, id: u128, window_ms: u64, now: Timestamp) -> bool {
        let is_seen = |at: Timestamp| {
            let is_seen = at >= self.kept_from && !at.plus_ms(window_ms).has_passed(now);
            is_seen || is_planted(Bug::BusWindowNeverEnds)
        };
        let newest = self.places.find(&self.newest, id);
        if newest.is_some_and(|place| is_seen(self.newest.at(place))) {
            return true;
        }
        let from = self.kept_from.max(within(window_ms, now));
        let blocks = self.index.blocks_of(id);
        let mut seen = blocks.into_iter().filter_map(|block| {
            let block = self.full.get(block)?;
            let is_missing = block.is_cold() && block.last_at() >= from;
            assert!(!is_missing, "a look-up has asked for the ids that it reads");
            block.seen_at(id)
        });
        seen.any(is_seen)
    }

    /// The blocks that a look-up of an id within the window before `now` reads and that are not in memory: what
    /// [`Duplicates::has`] must not be asked without.
    pub(crate) fn missing_for(
        &self,
        id: u128,
        window_ms: u64,
        now: Timestamp,
    ) -> impl Iterator<Item = u64> {
        self.missing(id, within(window_ms, now))
    }

    /// The blocks with ids from a time on in which an id may be and that are not in memory.
    fn missing(&self, id: u128, from: Timestamp) -> impl Iterator<Item = u64> {
        let from = self.kept_from.max(from);
        let blocks = self.index.blocks_of(id).into_iter();
        blocks.filter(move |number| {
            let block = self.full.get(*number);
            block.is_some_and(|block| block.is_cold() && block.last_at() >= from)
        })
    }

    /// Whether ids may not be in memory.
    pub(crate) fn has_cold(&self) -> bool {
        self.cold_blocks > 0
    }

    /// How many ids of full blocks are in memory, and how many blocks are not.
    pub(crate) fn resident(&self) -> (u64, u64) {
        (self.resident, self.cold_blocks)
    }

    /// The page of a block.
    pub(crate) fn page_of(&self, block: u64) -> Option<PageNumber> {
        self.full.get(block)?.mark().get()
    }

    /// The page of a block that is not in memory, and has ids that count. Snapshots do not name the pages of others.
    pub(crate) fn page_to_read(&self, block: u64) -> Option<PageNumber> {
        self.page_of_cold(self.full.get(block)?)
    }

    /// The pages of all blocks that are not in memory and have ids that count.
    pub(crate) fn cold_pages(&self) -> impl Iterator<Item = PageNumber> {
        let blocks = self.full.iter().map(|(_, block)| block);
        blocks.filter_map(|block| self.page_of_cold(block))
    }

    fn page_of_cold(&self, block: &Block) -> Option<PageNumber> {
        let counts = block.last_at() >= counting_from(self.kept_from);
        let page = block.mark().get();
        page.filter(|_| counts && block.is_cold())
    }

    /// The full blocks from one on, each with its page. `None` in place of the page if there is none, or if the block is
    /// not in memory.
    pub(crate) fn evictable(&self, from: u64) -> impl Iterator<Item = (u64, Option<PageNumber>)> {
        let blocks = self.full.range(from..=u64::MAX);
        blocks.map(|(number, block)| {
            let page = block.mark().get().filter(|_| !block.is_cold());
            (number, page)
        })
    }

    /// The number of the newest block, which never leaves memory.
    pub(crate) fn newest_block(&self) -> u64 {
        self.next
    }

    /// Takes the ids of a block out of memory, if a page has them.
    pub(crate) fn evict(&mut self, number: u64) {
        let Some(block) = self.full.get_physical(number) else {
            return;
        };
        if let Some(page) = block.mark().get().filter(|_| !block.is_cold()) {
            self.resident -= block.len() as u64;
            self.cold_blocks += 1;
            *block = with_page(block.evicted(), page);
        }
    }

    /// Takes the ids of a block that were read.
    pub(crate) fn take_read(&mut self, number: u64, read: &GroupRead) -> Taken {
        let block = self.full.get_physical(number);
        let cold = block.filter(|it| it.is_cold() && it.mark().get() == Some(read.page));
        let Some(block) = cold else {
            return Taken::Replaced;
        };
        let ReadOf::Ids(ids) = &read.of else {
            return Taken::Damaged;
        };
        let Some(ids) = Ids::of(ids).filter(|ids| ids.is_like(block)) else {
            return Taken::Damaged;
        };
        self.resident += ids.len() as u64;
        self.cold_blocks -= 1;
        *block = with_page(ids, read.page);
        Taken::InMemory
    }

    /// How many ids count: those that were seen in seconds that had not ended when the window before `now` began.
    pub(crate) fn count(&self, window_ms: u64, now: Timestamp) -> u64 {
        self.seconds.count(window_ms, now)
    }

    /// How many there are, with dropped ones that are not gone yet.
    pub(crate) fn kept_count(&self) -> u64 {
        self.all
    }

    /// How many blocks they are.
    pub(crate) fn block_count(&self) -> u64 {
        self.full.len() as u64 + u64::from(!self.newest.is_empty())
    }

    /// An upper bound of what they take in a snapshot.
    pub(crate) fn snapshot_size_bytes_max(&self) -> u64 {
        self.kept_count() * REMEMBERED_SIZE_BYTES
    }

    /// All kept ids in memory, in the order of their times.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u128, Timestamp)> {
        let ids = self.blocks().flat_map(|block| block.iter());
        let kept = ids.filter(|(at, _)| *at >= self.kept_from);
        kept.map(|(at, id)| (id, at))
    }
}

/// A block that has a page.
fn with_page(ids: Ids, page: PageNumber) -> Block {
    let mut block = crate::shared::Marked::<Ids>::default();
    *block.physical() = ids;
    block.mark().set(page);
    Arc::new(block)
}

/// The earliest time within the window before `now`.
fn within(window_ms: u64, now: Timestamp) -> Timestamp {
    Timestamp::from_ms(now.as_ms().saturating_add(1).saturating_sub(window_ms))
}

#[cfg(test)]
mod tests;
