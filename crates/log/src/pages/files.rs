//! Which page files there are, which of them are needed, and which one is to be emptied.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;

use super::format::{BLOCK_SIZE, Copy, name, pair_of};
use super::{InPair, PageOptions};
use crate::LogPosition;
use crate::storage::{self, Action, IoFailure, Storage};

/// So many dead bytes do not matter, however few are alive.
const SMALL_BYTES: u64 = 1 << 20;

/// A start finds no pair above it, so that a name always stands for a new one. No log makes so many.
const PAIR_MAX: u32 = u32::MAX / 2;

/// The pairs of files in a directory, and what the kept manifests name in them.
#[derive(Debug, Default)]
pub(super) struct PageFiles {
    /// The size of the longer file of each pair.
    pairs: BTreeMap<u32, u64>,
    /// What each manifest whose file is there names in each pair.
    named: BTreeMap<LogPosition, BTreeMap<u32, InPair>>,
}

impl PageFiles {
    /// The files of a directory. No manifest is noted yet.
    pub(super) fn find(storage: &dyn Storage) -> Result<Self, IoFailure> {
        let mut files = Self::default();
        for name in storage::list(storage)? {
            if let Some(pair) = pair_of(&name) {
                if pair > PAIR_MAX {
                    let error = io::Error::other("no pair can follow one with so high a number");
                    return Err(IoFailure::new(Action::Open, &name, error));
                }
                let file = storage::open(storage, &name)?;
                files.note_pair(pair, storage::len(&*file, &name)?);
            }
        }
        Ok(files)
    }

    /// The next pair that no file is of.
    pub(super) fn next_pair(&self) -> u32 {
        self.pairs.last_key_value().map_or(0, |(last, _)| last + 1)
    }

    /// Notes a pair, and the size of a file of it.
    pub(super) fn note_pair(&mut self, pair: u32, size_bytes: u64) {
        let known = self.pairs.entry(pair).or_default();
        *known = size_bytes.max(*known);
    }

    /// Notes what a manifest names, instead of what one at the same position named.
    pub(super) fn note_manifest(&mut self, position: LogPosition, by_pair: BTreeMap<u32, InPair>) {
        self.named.insert(position, by_pair);
    }

    /// Forgets a manifest whose file is removed.
    pub(super) fn forget_manifest(&mut self, position: LogPosition) {
        self.named.remove(&position);
    }

    /// The size of all files.
    pub(super) fn size_bytes(&self) -> u64 {
        self.pairs.values().map(|size_bytes| 2 * size_bytes).sum()
    }

    /// The size of both files of these pairs.
    pub(super) fn size_bytes_of(&self, pairs: impl IntoIterator<Item = u32>) -> u64 {
        let sizes = pairs.into_iter().filter_map(|pair| self.pairs.get(&pair));
        sizes.map(|size_bytes| 2 * size_bytes).sum()
    }

    /// The pairs in which no noted manifest names a page, without the one that is appended to.
    pub(super) fn unneeded(&self, open: Option<u32>) -> Vec<u32> {
        let is_named = |pair: u32| self.named.values().any(|named| named.contains_key(&pair));
        let pairs = self.pairs.keys().copied();
        pairs
            .filter(|pair| Some(*pair) != open && !is_named(*pair))
            .collect()
    }

    /// What a manifest names in each pair.
    pub(super) fn named_by(&self, position: LogPosition) -> BTreeMap<u32, InPair> {
        self.named.get(&position).cloned().unwrap_or_default()
    }

    /// Whether there are files of that pair.
    pub(super) fn has_pair(&self, pair: u32) -> bool {
        self.pairs.contains_key(&pair)
    }

    /// The size of the files that are there only for this manifest.
    pub(super) fn bytes_only_for(&self, position: LogPosition) -> u64 {
        let Some(named) = self.named.get(&position) else {
            return 0;
        };
        let is_others = |pair: &u32| {
            let mut others = self.named.iter().filter(|(at, _)| **at != position);
            others.any(|(_, named)| named.contains_key(pair))
        };
        let own = named.keys().filter(|pair| !is_others(pair));
        own.filter_map(|pair| self.pairs.get(pair))
            .map(|size_bytes| 2 * size_bytes)
            .sum()
    }

    /// Pairs whose pages the next manifest is to have elsewhere, with how many bytes are to be moved out of each: those
    /// with the smallest share of bytes that the newest manifest names, until no more is dead than alive, or those with
    /// the fewest, if there are too many pairs. Altogether at most `moved_bytes_max`.
    ///
    /// Pairs in which it names nothing go by themselves, so they are not among them. The pair that is appended to can be:
    /// then it is to be left.
    pub(super) fn to_empty(
        &self,
        options: &PageOptions,
        newest: &BTreeMap<u32, InPair>,
        open: Option<u32>,
        moved_bytes_max: u64,
    ) -> BTreeMap<u32, u64> {
        let of_pair = |(pair, named): (&u32, &InPair)| {
            let size_bytes = self.pairs.get(pair).copied().unwrap_or_default();
            Pair {
                pair: *pair,
                live_bytes: named.size_bytes,
                dead_bytes: size_bytes.saturating_sub(u64::from(BLOCK_SIZE) + named.size_bytes),
            }
        };
        let mut pairs: Vec<Pair> = newest.iter().map(of_pair).collect();
        let live_bytes: u64 = pairs.iter().map(|pair| pair.live_bytes).sum();
        let mut dead_bytes: u64 = pairs.iter().map(|pair| pair.dead_bytes).sum();
        let small_bytes = SMALL_BYTES.min(u64::from(options.file_size_bytes) / 2);
        let dead_bytes_max = live_bytes.max(small_bytes);
        let full_pairs = live_bytes.div_ceil(options.file_size_bytes.into());
        let mut surplus = newest.len().saturating_sub(
            usize::try_from(2 * full_pairs).map_or(usize::MAX, |it| it.max(options.pairs_max)),
        );
        // What is appended to a pair with little in it costs nothing. One that is mostly dead is in the way.
        pairs.retain(|it| Some(it.pair) != open || it.dead_bytes > it.live_bytes);
        if dead_bytes > dead_bytes_max {
            pairs.sort_by(Pair::by_share);
        } else {
            pairs.sort_by_key(|pair| pair.live_bytes);
            pairs.retain(|it| Some(it.pair) != open);
        }
        let (mut to_empty, mut left_bytes) = (BTreeMap::new(), moved_bytes_max);
        for pair in pairs {
            let is_enough = dead_bytes <= dead_bytes_max && surplus == 0;
            if is_enough || left_bytes == 0 {
                break;
            }
            let moved_bytes = pair.live_bytes.min(left_bytes);
            left_bytes -= moved_bytes;
            to_empty.insert(pair.pair, moved_bytes);
            dead_bytes -= pair.dead_bytes;
            surplus = surplus.saturating_sub(1);
        }
        to_empty
    }

    /// Forgets pairs whose files are removed.
    pub(super) fn forget_pairs(&mut self, pairs: &[u32]) {
        for pair in pairs {
            self.pairs.remove(pair);
        }
    }
}

/// A pair in which the newest manifest names pages.
struct Pair {
    pair: u32,
    live_bytes: u64,
    dead_bytes: u64,
}

impl Pair {
    /// The one with the smaller share of live bytes comes first: it frees most for what is moved.
    fn by_share(&self, other: &Self) -> Ordering {
        let cross = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let (left, right) = (
            cross(self.live_bytes, other.dead_bytes),
            cross(other.live_bytes, self.dead_bytes),
        );
        left.cmp(&right).then(self.pair.cmp(&other.pair))
    }
}

/// Removes the files of pairs, durably. Removing them again is harmless.
pub fn remove_pairs(storage: &dyn Storage, pairs: &[u32]) -> Result<(), IoFailure> {
    for pair in pairs {
        for copy in Copy::BOTH {
            storage::remove(storage, &name(*pair, copy))?;
        }
    }
    match pairs {
        [] => Ok(()),
        _ => storage::sync_dir(storage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PageNumber, PagePlace, PageTable};

    /// A manifest that names these bytes of these pairs.
    fn table(pages: &[(u32, u32)]) -> BTreeMap<u32, InPair> {
        let mut table = PageTable::default();
        for (pair, size_bytes) in pages {
            let place = PagePlace {
                pair: *pair,
                offset: BLOCK_SIZE,
                size_bytes: *size_bytes,
            };
            table.push(PageNumber::new(1), place);
        }
        table.by_pair()
    }

    fn files(sizes: &[u64]) -> PageFiles {
        let mut files = PageFiles::default();
        for (pair, size_bytes) in (0..).zip(sizes) {
            files.note_pair(pair, u64::from(BLOCK_SIZE) + size_bytes);
        }
        files
    }

    const OPTIONS: PageOptions = PageOptions {
        file_size_bytes: 200,
        copied_bytes_max: 1000,
        pairs_max: 4,
    };

    #[test]
    fn a_pair_goes_when_no_manifest_names_it() {
        let mut files = files(&[100, 100, 100]);
        files.note_manifest(LogPosition::new(1), table(&[(0, 100)]));
        files.note_manifest(LogPosition::new(2), table(&[(1, 100)]));
        assert_eq!(files.unneeded(Some(2)), []);
        assert_eq!(files.unneeded(None), [2]);
        files.forget_manifest(LogPosition::new(1));
        assert_eq!(files.unneeded(Some(2)), [0]);
        files.note_manifest(LogPosition::new(2), table(&[]));
        assert_eq!(files.unneeded(Some(2)), [0, 1]);
        assert_eq!(files.next_pair(), 3);
    }

    #[test]
    fn the_emptiest_pair_is_emptied_when_more_is_dead_than_alive() {
        let files = files(&[200, 200, 200]);
        let to_empty =
            |named: &[(u32, u32)], open| files.to_empty(&OPTIONS, &table(named), open, 1000);
        let dense = [(0, 120), (1, 100), (2, 90)];
        assert!(to_empty(&dense, None).is_empty(), "290 dead of 600");
        let sparse = [(0, 120), (1, 90), (2, 80)];
        assert_eq!(to_empty(&sparse, None), [(2, 80)].into());
        // The one that is appended to is left only if more of it is dead than alive.
        assert_eq!(to_empty(&sparse, Some(2)), [(2, 80)].into());
        let sparse = [(0, 90), (1, 80), (2, 120)];
        assert_eq!(to_empty(&sparse, Some(2)), [(1, 80)].into());
        // Pairs that the newest manifest does not name go by themselves.
        assert!(to_empty(&[(0, 120)], None).is_empty());
        assert!(to_empty(&[], None).is_empty());
    }

    #[test]
    fn small_files_of_many_starts_are_emptied_too() {
        let files = files(&[10; 5]);
        let named = table(&[(0, 9), (1, 8), (2, 9), (3, 9)]);
        assert!(files.to_empty(&OPTIONS, &named, None, 1000).is_empty());
        let more = table(&[(0, 9), (1, 8), (2, 9), (3, 9), (4, 7)]);
        let to_empty = files.to_empty(&OPTIONS, &more, Some(4), 1000);
        assert_eq!(to_empty, [(1, 8)].into());
    }

    #[test]
    fn pairs_are_emptied_until_no_more_is_dead_than_alive_or_all_that_may_be_moved_is() {
        let files = files(&[200; 6]);
        let named = table(&[(0, 20), (1, 50), (2, 10), (3, 40), (4, 190), (5, 190)]);
        let to_empty = |moved_bytes_max| files.to_empty(&OPTIONS, &named, None, moved_bytes_max);
        // 700 are dead and 500 alive.
        assert_eq!(to_empty(1000), [(0, 20), (2, 10)].into());
        assert_eq!(to_empty(15), [(0, 5), (2, 10)].into());
        assert_eq!(to_empty(10), [(2, 10)].into());
    }

    #[test]
    fn a_state_that_needs_many_full_pairs_has_not_too_many() {
        let files = files(&[200; 9]);
        let dense: Vec<_> = (0..9).map(|pair| (pair, 190)).collect();
        assert!(
            files
                .to_empty(&OPTIONS, &table(&dense), None, 1000)
                .is_empty()
        );
    }

    #[test]
    fn what_only_one_manifest_needs_is_counted_with_its_copy() {
        let mut files = files(&[100, 60]);
        files.note_manifest(LogPosition::new(1), table(&[(0, 100), (1, 10)]));
        files.note_manifest(LogPosition::new(2), table(&[(1, 60)]));
        let block = u64::from(BLOCK_SIZE);
        assert_eq!(files.bytes_only_for(LogPosition::new(1)), 2 * (block + 100));
        assert_eq!(files.bytes_only_for(LogPosition::new(2)), 0);
        assert_eq!(files.bytes_only_for(LogPosition::new(3)), 0);
    }
}
