//! In which blocks an id may be.
//!
//! A table of 2^k blocks has 2^(k+6) buckets by the first bits of the hashes. An entry is k bits for the block and 32 - k
//! for the next bits of the hash: each table knows 38 bits. So four tables are put together without reading an id, and
//! the next two bits of a hash become bits of its bucket. That is done in pieces, with each block that is added.

use std::collections::VecDeque;
use std::hint::black_box;

/// The bits of a hash that a table knows.
const KNOWN_BITS: u32 = 38;

/// A block has so many buckets, as a power of two: 16 ids each.
const BUCKET_BITS: u32 = 6;

/// Four tables become one.
const LEVEL_BITS: u32 = 2;

/// The largest table has so many blocks, as a power of two: 4.2 million ids and 18 MB.
const BLOCK_BITS_MAX: u32 = 12;

/// How many buckets of each table are put together with each new block. A table of 2^k blocks has 64 of these for each
/// block, and the next four of that level come after four times as many blocks.
const BUCKETS_AT_ONCE: usize = 128;

/// How many tables a look-up reads at the same time.
const TABLES_AT_ONCE: usize = 8;

/// The entries of consecutive blocks.
#[derive(Debug)]
pub(super) struct Table {
    /// The number of its first block, by the size of a table.
    number: u64,
    /// Where the entries of each bucket begin, and where the last one ends.
    starts: Vec<u32>,
    entries: Vec<u32>,
}

/// The bucket of an id in a table.
#[derive(Clone, Copy, Default)]
struct Bucket<'a> {
    bits: u32,
    number: u64,
    entries: &'a [u32],
}

/// A table that is being made of those of the level below.
#[derive(Debug)]
struct Merging {
    number: u64,
    /// The next bucket of the level below.
    next: usize,
    starts: Vec<u32>,
    entries: Vec<u32>,
}

/// Tables of one size, oldest first.
#[derive(Debug, Default)]
struct Level {
    tables: VecDeque<Table>,
    /// The table of the next level that its oldest ones become.
    merging: Option<Merging>,
}

/// The tables of all full blocks.
#[derive(Debug)]
pub(super) struct Index {
    levels: Vec<Level>,
}

impl Default for Index {
    fn default() -> Self {
        let levels = (0..=BLOCK_BITS_MAX / LEVEL_BITS).map(|_| Level::default());
        Self {
            levels: levels.collect(),
        }
    }
}

/// How many blocks a table of a level has, as a power of two.
fn block_bits(level: usize) -> u32 {
    u32::try_from(level).map_or(BLOCK_BITS_MAX, |level| level * LEVEL_BITS)
}

impl Index {
    /// Adds the table of one block under its number, which is larger than that of all others.
    pub(super) fn add(&mut self, block: u64, table: Table) {
        if let Some(lowest) = self.levels.first_mut() {
            let number = block;
            lowest.tables.push_back(Table { number, ..table });
        }
        for level in 0..self.levels.len() {
            self.merge(level);
        }
    }

    /// Forgets the tables of blocks that all come before one.
    pub(super) fn drop_before(&mut self, block: u64) {
        for (level, tables) in self.levels.iter_mut().enumerate() {
            let bits = block_bits(level);
            let is_over = |number: u64| (number + 1) << bits <= block;
            if let Some(merging) = &tables.merging {
                // Its tables stay together, until all of them go.
                if (merging.number + 1) << (bits + LEVEL_BITS) > block {
                    continue;
                }
                tables.merging = None;
            }
            while tables.tables.front().is_some_and(|it| is_over(it.number)) {
                tables.tables.pop_front();
            }
        }
    }

    /// The numbers of the blocks in which an id may be. Some may be forgotten.
    ///
    /// The entries of each table are somewhere else in memory, and no cache has them. So those of several tables are
    /// asked for before any is compared: a processor waits for all of them at the same time.
    pub(super) fn blocks_of(&self, id: u128) -> Vec<u64> {
        let mut tables = self.levels.iter().enumerate().flat_map(|(level, of)| {
            let bits = block_bits(level);
            of.tables.iter().map(move |table| (bits, table))
        });
        let mut blocks = Vec::new();
        let mut buckets = [Bucket::default(); TABLES_AT_ONCE];
        loop {
            let mut count = 0;
            for (bucket, (bits, table)) in buckets.iter_mut().zip(&mut tables) {
                *bucket = table.bucket_of(id, bits);
                count += 1;
            }
            let Some(buckets) = buckets.get(..count).filter(|_| count > 0) else {
                return blocks;
            };
            black_box(buckets.iter().fold(0, |sum, it| sum ^ it.ends()));
            for bucket in buckets.iter().filter(|it| it.may_have(id)) {
                blocks.extend(bucket.blocks_of(id));
            }
        }
    }

    /// How many bytes it takes.
    #[cfg(test)]
    pub(super) fn size_bytes(&self) -> u64 {
        let tables = self.levels.iter().flat_map(|level| level.tables.iter());
        let counts = tables.map(|it| it.entries.len() + it.starts.len());
        4 * counts.sum::<usize>() as u64
    }

    /// Puts the oldest tables of a level together, if those of a table of the next level are there: a piece.
    fn merge(&mut self, at: usize) {
        if at + 1 == self.levels.len() {
            return;
        }
        let Some(level) = self.levels.get_mut(at) else {
            return;
        };
        if level.merging.is_none() {
            let (first, last) = (level.tables.front(), level.tables.back());
            let group_of = |table: &Table| table.number >> LEVEL_BITS;
            let (Some(first), Some(last)) = (first.map(group_of), last) else {
                return;
            };
            // The last one of a group completes it.
            let is_complete = group_of(last) > first || last.number & 3 == 3;
            if !is_complete {
                return;
            }
            level.merging = Some(Merging::new(first));
        }
        let Some(mut merging) = level.merging.take() else {
            return;
        };
        let group = level.tables.iter();
        let group = group.take_while(|table| table.number >> LEVEL_BITS == merging.number);
        let group: Vec<&Table> = group.collect();
        if merging.step(block_bits(at), &group) {
            let count = group.len();
            level.tables.drain(..count);
            let table = merging.into_table();
            if let Some(next) = self.levels.get_mut(at + 1) {
                next.tables.push_back(table);
            }
        } else {
            level.merging = Some(merging);
        }
    }
}

impl Table {
    /// The table of one block, as that of the first number.
    pub(super) fn of(hashes: &[u128]) -> Self {
        // Where each bucket ends, and the place before the last one while entries are put in.
        let mut starts = vec![0_u32; (1 << BUCKET_BITS) + 1];
        for hash in hashes {
            if let Some(count) = starts.get_mut(bucket_of(*hash, 0)) {
                *count += 1;
            }
        }
        let mut until = 0;
        for start in &mut starts {
            until += *start;
            *start = until;
        }
        let mut entries = vec![0; hashes.len()];
        for hash in hashes {
            let Some(start) = starts.get_mut(bucket_of(*hash, 0)) else {
                continue;
            };
            *start -= 1;
            let place = usize::try_from(*start).ok();
            if let Some(entry) = place.and_then(|place| entries.get_mut(place)) {
                *entry = print_of(*hash, 0);
            }
        }
        Self {
            number: 0,
            starts,
            entries,
        }
    }

    /// The bucket of an id in a table of 2^bits blocks.
    fn bucket_of(&self, id: u128, bits: u32) -> Bucket<'_> {
        Bucket {
            bits,
            number: self.number,
            entries: self.bucket(bucket_of(id, bits)),
        }
    }

    fn bucket(&self, bucket: usize) -> &[u32] {
        let at = |index: usize| Some(usize::try_from(*self.starts.get(index)?).unwrap_or(0));
        let range = at(bucket).zip(at(bucket + 1));
        let entries = range.and_then(|(from, until)| self.entries.get(from..until));
        entries.unwrap_or_default()
    }
}

impl Bucket<'_> {
    /// Something that depends on all memory that it has: 16 entries are one line of a cache, or two.
    fn ends(&self) -> u32 {
        let [first, last] =
            [self.entries.first(), self.entries.last()].map(|it| it.copied().unwrap_or_default());
        first ^ last
    }

    /// Whether an entry is like an id. To compare all is faster than to stop at the first one.
    fn may_have(&self, id: u128) -> bool {
        let print = print_of(id, self.bits);
        let entries = self.entries.iter();
        entries.fold(false, |has, entry| has | (entry >> self.bits == print))
    }

    /// The numbers of its blocks in which an id may be.
    fn blocks_of(&self, id: u128) -> impl Iterator<Item = u64> {
        let Self { bits, number, .. } = *self;
        let print = print_of(id, bits);
        let entries = self.entries.iter();
        let found = entries.filter(move |entry| *entry >> bits == print);
        found.map(move |entry| (number << bits) + u64::from(entry & mask(bits)))
    }
}

impl Merging {
    fn new(number: u64) -> Self {
        Self {
            number,
            next: 0,
            starts: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Puts the next buckets of tables together, each of so many blocks. Returns whether it was the last piece.
    fn step(&mut self, bits: u32, tables: &[&Table]) -> bool {
        let count = 1_usize << (bits + BUCKET_BITS);
        if self.next == 0 {
            let entries = tables.iter().map(|table| table.entries.len());
            self.entries.reserve_exact(entries.sum());
            self.starts.reserve_exact((count << LEVEL_BITS) + 1);
        }
        let until = count.min(self.next + BUCKETS_AT_ONCE);
        // The next bits of a hash, as its entry has them.
        let rest_bits = 32 - bits - LEVEL_BITS;
        let mut parts = [(); 1 << LEVEL_BITS].map(|()| Vec::new());
        for bucket in self.next..until {
            for table in tables {
                let place = u32::try_from(table.number & 3).unwrap_or_default() << bits;
                for entry in table.bucket(bucket) {
                    let print = entry >> bits;
                    let block = place | entry & mask(bits);
                    let merged = (print & mask(rest_bits)) << (bits + LEVEL_BITS) | block;
                    if let Some(part) = parts.get_mut((print >> rest_bits) as usize) {
                        part.push(merged);
                    }
                }
            }
            for part in &mut parts {
                self.starts.push(length_of(self.entries.len()));
                self.entries.append(part);
            }
        }
        self.next = until;
        until == count
    }

    fn into_table(mut self) -> Table {
        self.starts.push(length_of(self.entries.len()));
        Table {
            number: self.number,
            starts: self.starts,
            entries: self.entries,
        }
    }
}

fn mask(bits: u32) -> u32 {
    (1 << bits) - 1
}

/// The bucket of a hash in a table of 2^bits blocks.
fn bucket_of(hash: u128, bits: u32) -> usize {
    (hash >> (u128::BITS - BUCKET_BITS - bits)) as usize
}

/// The bits of a hash behind those of its bucket.
fn print_of(hash: u128, bits: u32) -> u32 {
    let known = (hash >> (u128::BITS - KNOWN_BITS)) as u64;
    (known & ((1 << (32 - bits)) - 1)) as u32
}

/// A table has fewer than 2^32 entries.
fn length_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Hashes of which many agree in their first bits.
    fn hash() -> impl Strategy<Value = u128> {
        prop_oneof![
            any::<u128>(),
            (0_u128..64).prop_map(|bits| bits << 90),
            (0_u128..9).prop_map(|bits| bits << 120 | 5 << 95),
            0_u128..5,
        ]
    }

    proptest! {
        #[test]
        fn each_id_is_found_in_its_block_and_others_by_their_first_bits(
            blocks in prop::collection::vec(prop::collection::vec(hash(), 0..6), 1..150),
            dropped in prop::collection::vec(0_usize..160, 0..20),
        ) {
            let mut index = Index::default();
            let mut first = 0;
            for (number, hashes) in (0_u64..).zip(&blocks) {
                index.add(number, Table::of(hashes));
                if let Some(before) = dropped.get(usize::try_from(number).unwrap() / 8) {
                    first = first.max((*before as u64).min(number + 1));
                    index.drop_before(first);
                }
                let all = blocks.iter().take(usize::try_from(number).unwrap() + 1);
                let all: Vec<_> = (0_u64..).zip(all).collect();
                for hash in all.iter().flat_map(|(_, hashes)| hashes.iter()) {
                    let found: BTreeSet<u64> = index.blocks_of(*hash).into_iter().collect();
                    let found: BTreeSet<u64> = found.into_iter().filter(|it| *it >= first).collect();
                    let is_like = |it: &u128| it >> (128 - KNOWN_BITS) == hash >> (128 - KNOWN_BITS);
                    let expected = all.iter().filter(|(_, hashes)| hashes.iter().any(is_like));
                    let expected = expected.map(|(number, _)| *number).filter(|it| *it >= first);
                    prop_assert_eq!(found, expected.collect());
                }
            }
            index.drop_before(blocks.len() as u64);
            let left: usize = index.levels.iter().map(|level| level.tables.len()).sum();
            prop_assert_eq!(left, 0);
        }
    }

    #[test]
    fn tables_are_put_together_in_pieces_and_few_are_left() {
        let mut index = Index::default();
        let hash = |number: u64| {
            let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            u128::from(mixed) << 64
        };
        let ids_of = |block: u64| [hash(2 * block), hash(2 * block + 1)];
        for block in 0..5000 {
            index.add(block, Table::of(&ids_of(block)));
            for level in &index.levels {
                assert!(level.tables.len() <= 8, "{block}");
            }
        }
        for block in 0..5000 {
            for id in ids_of(block) {
                assert!(index.blocks_of(id).contains(&block));
            }
        }
        assert_eq!(index.levels[6].tables.len(), 1);
        assert_eq!(index.levels[6].tables[0].entries.len(), 2 * 4096);
        // Of the sizes, 16 bytes for four ids are the starts of small blocks here.
        assert!(index.size_bytes() < 5000 * (64 * 4 + 8) + 8000);
        index.drop_before(5000);
        assert_eq!(index.size_bytes(), 0);
    }
}
