//! The pages of a manifest with their places, and the bytes of that list.

use std::collections::BTreeMap;

use super::{PageNumber, PagePlace};
use crate::segment::memory_size;

/// A part of a manifest has at most so many pages.
pub(super) const PAGES_PER_PART: usize = 4096;

/// A page that a manifest names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePage {
    /// Its number.
    pub number: PageNumber,
    /// Where it lies.
    pub place: PagePlace,
}

/// What a manifest names in a pair of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InPair {
    /// The bytes of the pages, of one copy.
    pub(crate) size_bytes: u64,
    /// Where the last one ends.
    pub(crate) end: u64,
}

/// The pages of a manifest, in the order in which they are restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTable(Vec<TablePage>);

impl PageTable {
    /// The pages, in order.
    pub fn pages(&self) -> &[TablePage] {
        &self.0
    }

    /// Adds a page.
    pub fn push(&mut self, number: PageNumber, place: PagePlace) {
        self.0.push(TablePage { number, place });
    }

    /// The places by number.
    pub fn places(&self) -> BTreeMap<PageNumber, PagePlace> {
        let pages = self.0.iter();
        pages.map(|page| (page.number, page.place)).collect()
    }

    /// Its pages in the order of their numbers. Takes time: not for the partition's thread.
    pub(super) fn by_number(&self) -> ByNumber {
        let mut indexes: Vec<u32> = (0..).take(self.0.len()).collect();
        indexes.sort_unstable_by_key(|index| {
            let page = self.0.get(memory_size(u64::from(*index)));
            page.map(|page| page.number)
        });
        ByNumber(indexes)
    }

    /// The bytes of the pages in each pair of files, of one copy.
    pub fn bytes_by_pair(&self) -> BTreeMap<u32, u64> {
        bytes_by_pair(self.0.iter().map(|page| &page.place))
    }

    /// What it names in each pair of files.
    pub(crate) fn by_pair(&self) -> BTreeMap<u32, InPair> {
        let mut by_pair: BTreeMap<u32, InPair> = BTreeMap::new();
        for TablePage { place, .. } in &self.0 {
            let pair = by_pair.entry(place.pair).or_default();
            pair.size_bytes += u64::from(place.size_bytes);
            let end = u64::from(place.offset) + u64::from(place.size_bytes);
            pair.end = end.max(pair.end);
        }
        by_pair
    }

    /// Its bytes, in parts of bounded size.
    pub(super) fn parts(&self) -> Vec<Vec<u8>> {
        self.0.chunks(PAGES_PER_PART).map(part).collect()
    }

    /// Adds the pages of a part. Takes no more memory than the part has bytes, times a small number.
    pub(super) fn add_part(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        let mut r = Varints(bytes);
        let mut before = Before::default();
        while !r.0.is_empty() {
            let page = before
                .read(&mut r)
                .ok_or("a page of the manifest is not one")?;
            self.0.push(page);
        }
        Ok(())
    }
}

/// The pages of a table in the order of their numbers: 4 bytes for each.
#[derive(Clone, Debug, Default)]
pub(super) struct ByNumber(Vec<u32>);

impl ByNumber {
    /// Where a page of that table lies, if it has that page.
    pub(super) fn place(&self, table: &PageTable, number: PageNumber) -> Option<PagePlace> {
        let page = |index: &u32| table.0.get(memory_size(u64::from(*index)));
        let found = self.0.binary_search_by(|index| {
            let other = page(index).map(|page| page.number);
            other.cmp(&Some(number))
        });
        page(self.0.get(found.ok()?)?).map(|page| page.place)
    }
}

/// The bytes of pages in each pair of files, of one copy.
pub(crate) fn bytes_by_pair<'a>(places: impl Iterator<Item = &'a PagePlace>) -> BTreeMap<u32, u64> {
    let mut by_pair = BTreeMap::new();
    for place in places {
        *by_pair.entry(place.pair).or_default() += u64::from(place.size_bytes);
    }
    by_pair
}

fn part(pages: &[TablePage]) -> Vec<u8> {
    let (mut out, mut before) = (Vec::new(), Before::default());
    for page in pages {
        before.put(&mut out, page);
    }
    out
}

/// What the next page is a difference to: pages that were written together lie behind each other.
#[derive(Default)]
struct Before {
    number: u64,
    pair: u64,
    end: u64,
}

impl Before {
    fn put(&mut self, out: &mut Vec<u8>, page: &TablePage) {
        let TablePage { number, place } = page;
        put_varint(out, zigzag(number.as_u64().wrapping_sub(self.number)));
        put_varint(out, zigzag(u64::from(place.pair).wrapping_sub(self.pair)));
        put_varint(out, zigzag(u64::from(place.offset).wrapping_sub(self.end)));
        put_varint(out, place.size_bytes.into());
        self.follow(page);
    }

    fn read(&mut self, r: &mut Varints<'_>) -> Option<TablePage> {
        let number = self.number.wrapping_add(unzigzag(r.next()?));
        let pair = self.pair.wrapping_add(unzigzag(r.next()?));
        let offset = self.end.wrapping_add(unzigzag(r.next()?));
        let size_bytes = u32::try_from(r.next()?).ok()?;
        let place = PagePlace {
            pair: u32::try_from(pair).ok()?,
            offset: u32::try_from(offset).ok()?,
            size_bytes,
        };
        place.offset.checked_add(size_bytes)?;
        let page = TablePage {
            number: PageNumber::new(number),
            place,
        };
        self.follow(&page);
        Some(page)
    }

    fn follow(&mut self, page: &TablePage) {
        let place = page.place;
        let end = u64::from(place.offset) + u64::from(place.size_bytes);
        *self = Self {
            number: page.number.as_u64().wrapping_add(1),
            pair: place.pair.into(),
            end: end.next_multiple_of(super::format::ALIGNMENT.into()),
        };
    }
}

fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference >> 63).wrapping_neg()
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Reads what [`put_varint`] wrote.
pub(super) struct Varints<'a>(pub(super) &'a [u8]);

impl Varints<'_> {
    pub(super) fn next(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page() -> impl Strategy<Value = TablePage> {
        (any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>()).prop_map(
            |(number, pair, offset, size)| TablePage {
                number: PageNumber::new(number),
                place: PagePlace {
                    pair,
                    offset,
                    size_bytes: size.min(u32::MAX - offset),
                },
            },
        )
    }

    proptest! {
        #[test]
        fn a_table_is_read_as_it_was_written(pages in prop::collection::vec(page(), 0..50)) {
            let table = PageTable(pages);
            let mut read = PageTable::default();
            for part in table.parts() {
                prop_assert_eq!(read.add_part(&part), Ok(()));
            }
            prop_assert_eq!(read, table);
        }

        #[test]
        fn garbage_takes_no_more_memory_than_it_has(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut read = PageTable::default();
            let _ = read.add_part(&bytes);
            prop_assert!(read.0.len() <= bytes.len() / 4);
        }
    }

    #[test]
    fn pages_that_lie_behind_each_other_take_five_bytes() {
        let mut table = PageTable::default();
        for index in 0..10_000 {
            let place = PagePlace {
                pair: 3,
                offset: 4096 + index * 1_208,
                size_bytes: 1_205,
            };
            table.push(PageNumber::new(u64::from(index) + 7), place);
        }
        let parts = table.parts();
        assert_eq!(parts.len(), 3);
        let bytes: usize = parts.iter().map(Vec::len).sum();
        assert!(bytes < 50_200, "{bytes}");
        assert_eq!(table.bytes_by_pair(), [(3, 12_050_000)].into());
    }
}
