//! An ordered map by number, in chunks that a snapshot can share.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::{Mark, Marked, own, own_marked};
use crate::vocabulary::Hint;

/// How many numbers share a chunk at most, as a power of two: so many references are copied with a chunk, and
/// one is taken for each chunk when a snapshot begins.
const CHUNK_BITS_MAX: u32 = 6;

/// Numbers and their values, in rising order.
pub(crate) type Chunk<T> = Marked<Numbered<T>>;

/// The values of a chunk.
pub(crate) type Numbered<T> = Vec<(u64, T)>;

/// A map by number.
///
/// Invariant: no chunk is empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SharedMap<T> {
    bits: u32,
    chunks: BTreeMap<u64, Arc<Chunk<T>>>,
    count: usize,
    /// How many values were copied because a snapshot had them.
    copied: Hint<u64>,
}

impl<T> SharedMap<T> {
    /// An empty map. With short runs its chunks are short too, so that tests see their edges.
    pub(crate) fn new(run_length: u64) -> Self {
        Self {
            bits: run_length.checked_ilog2().unwrap_or(0).min(CHUNK_BITS_MAX),
            chunks: BTreeMap::new(),
            count: 0,
            copied: Hint::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        let chunk = self.chunks.get(&(number >> self.bits))?;
        chunk.get(find(chunk, number).ok()?).map(|(_, it)| it)
    }

    pub(crate) fn first(&self) -> Option<&T> {
        let (_, chunk) = self.chunks.first_key_value()?;
        chunk.first().map(|(_, it)| it)
    }

    pub(crate) fn last(&self) -> Option<&T> {
        let (_, chunk) = self.chunks.last_key_value()?;
        chunk.last().map(|(_, it)| it)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let chunks = self.chunks.values();
        chunks.flat_map(|chunk| chunk.iter().map(|(number, it)| (*number, it)))
    }

    /// The values of numbers in a range.
    pub(crate) fn range(&self, numbers: RangeInclusive<u64>) -> impl Iterator<Item = (u64, &T)> {
        let (from, until) = numbers.into_inner();
        let chunks = self.chunks.range(from >> self.bits..);
        let all = chunks.flat_map(move |(_, chunk)| {
            let first = chunk.partition_point(|(number, _)| *number < from);
            let rest = chunk.get(first..).unwrap_or_default();
            rest.iter().map(|(number, it)| (*number, it))
        });
        all.take_while(move |(number, _)| *number <= until)
    }

    /// The chunks, for a snapshot.
    pub(crate) fn share(&self) -> Vec<Arc<Chunk<T>>> {
        self.chunks.values().cloned().collect()
    }

    /// The mark of the chunk with a number.
    pub(crate) fn mark_of(&self, number: u64) -> Option<&Mark> {
        let chunk = self.chunks.get(&(number >> self.bits))?;
        Some(chunk.mark())
    }

    /// Whether two numbers share a chunk that is not there yet.
    pub(crate) fn is_new_chunk(&self, one: u64, other: u64) -> bool {
        let chunk = one >> self.bits;
        chunk == other >> self.bits && !self.chunks.contains_key(&chunk)
    }

    /// How many values were copied since the last call.
    pub(crate) fn take_copied(&mut self) -> u64 {
        std::mem::take(&mut *self.copied)
    }
}

impl<T: Clone> SharedMap<T> {
    /// A value, to change it.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(&(number >> self.bits))?;
        let index = find(chunk, number).ok()?;
        let chunk = own_marked(chunk, &mut self.copied, |it| it.len() as u64);
        chunk.get_mut(index).map(|(_, it)| it)
    }

    /// A value, to change how it lies in memory and not what a page says of it: the chunk keeps its mark.
    pub(crate) fn get_physical(&mut self, number: u64) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(&(number >> self.bits))?;
        let index = find(chunk, number).ok()?;
        let chunk = own(chunk, &mut self.copied, |it| it.len() as u64).physical();
        chunk.get_mut(index).map(|(_, it)| it)
    }

    /// A value, to change it. If there is none, a new one.
    pub(crate) fn get_or_insert_with(
        &mut self,
        number: u64,
        new: impl FnOnce() -> T,
    ) -> Option<&mut T> {
        let chunk = self.chunks.entry(number >> self.bits).or_default();
        let chunk = own_marked(chunk, &mut self.copied, |it| it.len() as u64);
        let index = match find(chunk, number) {
            Ok(index) => index,
            Err(index) => {
                chunk.insert(index, (number, new()));
                self.count += 1;
                index
            }
        };
        chunk.get_mut(index).map(|(_, it)| it)
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let key = number >> self.bits;
        let chunk = self.chunks.get_mut(&key)?;
        let index = find(chunk, number).ok()?;
        let chunk = own_marked(chunk, &mut self.copied, |it| it.len() as u64);
        let (_, removed) = chunk.remove(index);
        self.count -= 1;
        if chunk.is_empty() {
            self.chunks.remove(&key);
        } else if chunk.len() <= chunk.capacity() / 4 {
            // Half of the room stays: the next changes move no memory.
            chunk.shrink_to(2 * chunk.len());
        }
        Some(removed)
    }

    /// Removes the values of a range of numbers for which `is_gone`, in order.
    pub(crate) fn remove_if(
        &mut self,
        numbers: RangeInclusive<u64>,
        is_gone: impl Fn(&T) -> bool,
    ) -> Vec<(u64, T)> {
        let gone = self.range(numbers).filter(|(_, it)| is_gone(it));
        let gone: Vec<u64> = gone.map(|(number, _)| number).collect();
        let removed = gone
            .iter()
            .filter_map(|number| Some((*number, self.remove(*number)?)));
        removed.collect()
    }
}

/// The index of a number in a chunk, or where it would be.
fn find<T>(chunk: &Numbered<T>, number: u64) -> Result<usize, usize> {
    match chunk.last() {
        // Most changes are at the end.
        Some((last, _)) if *last == number => return Ok(chunk.len() - 1),
        Some((last, _)) if *last < number => return Err(chunk.len()),
        Some(_) | None => {}
    }
    // Mostly no number is left out.
    let first = chunk.first().map_or(0, |(first, _)| *first);
    let distance = number.checked_sub(first);
    let place = distance.and_then(|it| usize::try_from(it).ok());
    match place.and_then(|place| Some((place, chunk.get(place)?))) {
        Some((place, (there, _))) if *there == number => Ok(place),
        Some(_) | None => chunk.binary_search_by_key(&number, |(number, _)| *number),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, u8),
        Change(u64, u8),
        Remove(u64),
        RemoveRange(u64, u64),
        Share,
    }

    fn step() -> impl Strategy<Value = Step> {
        let number = || 0_u64..24;
        prop_oneof![
            4 => (number(), any::<u8>()).prop_map(|(number, value)| Step::Put(number, value)),
            3 => (number(), any::<u8>()).prop_map(|(number, value)| Step::Change(number, value)),
            2 => number().prop_map(Step::Remove),
            1 => (number(), number()).prop_map(|(from, until)| Step::RemoveRange(from, until)),
            1 => Just(Step::Share),
        ]
    }

    fn flat(shared: &[Arc<Chunk<u8>>]) -> Vec<(u64, u8)> {
        shared
            .iter()
            .flat_map(|chunk| chunk.iter().copied())
            .collect()
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_what_was_shared_stays(
            steps in prop::collection::vec(step(), 1..80),
            run_length in 1_u64..9,
        ) {
            let (mut map, mut model) = (SharedMap::new(run_length), BTreeMap::new());
            let mut shared = Vec::new();
            for step in steps {
                match step {
                    Step::Put(number, value) => {
                        let there = *map.get_or_insert_with(number, || value).unwrap();
                        prop_assert_eq!(there, *model.entry(number).or_insert(value));
                    }
                    Step::Change(number, value) => {
                        let (there, expected) = (map.get_mut(number), model.get_mut(&number));
                        prop_assert_eq!(&there, &expected);
                        if let (Some(there), Some(expected)) = (there, expected) {
                            (*there, *expected) = (value, value);
                        }
                    }
                    Step::Remove(number) => {
                        prop_assert_eq!(map.remove(number), model.remove(&number));
                    }
                    Step::RemoveRange(from, until) if from <= until => {
                        let removed = map.remove_if(from..=until, |it| it % 2 == 0);
                        let expected = model.extract_if(from..=until, |_, it| *it % 2 == 0);
                        prop_assert_eq!(removed, expected.collect::<Vec<_>>());
                    }
                    Step::RemoveRange(..) => {}
                    Step::Share => shared.push((map.share(), model.clone())),
                }
                prop_assert!(map.iter().eq(model.iter().map(|(number, it)| (*number, it))));
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(map.first(), model.values().next());
                prop_assert_eq!(map.last(), model.values().next_back());
                let range = map.range(5..=17).map(|(number, it)| (number, *it));
                let expected = model.range(5..=17).map(|(number, it)| (*number, *it));
                prop_assert!(range.eq(expected));
                prop_assert!(map.chunks.values().all(|chunk| !chunk.is_empty()));
            }
            for (chunks, model) in shared {
                prop_assert_eq!(flat(&chunks), model.into_iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_chunk_gives_back_the_room_that_is_not_needed() {
        let mut map = SharedMap::new(64);
        (0..6400).for_each(|number| *map.get_or_insert_with(number, || 0_u8).unwrap() = 1);
        let gone = (0..6400).filter(|number| number % 64 != 0);
        gone.for_each(|number| assert!(map.remove(number).is_some()));
        let room: usize = map.chunks.values().map(|chunk| chunk.capacity()).sum();
        assert!(room <= 4 * map.len(), "{room} for {}", map.len());
    }

    #[test]
    fn what_changes_in_memory_alone_keeps_the_mark() {
        let mut map = SharedMap::new(4);
        map.get_or_insert_with(5, || 0_u8);
        let page = crate::vocabulary::PageNumber::new(7);
        map.mark_of(5).unwrap().set(page);
        let shared = map.share();
        *map.get_physical(5).unwrap() = 1;
        assert_eq!(map.mark_of(5).unwrap().get(), Some(page));
        assert_eq!((flat(&shared), map.take_copied()), (vec![(5, 0)], 1));
        map.get_mut(5);
        assert_eq!(map.mark_of(5).unwrap().get(), None);
    }

    #[test]
    fn a_change_copies_one_chunk_once() {
        let mut map = SharedMap::new(4);
        for number in 0..12 {
            map.get_or_insert_with(number, || 0_u8);
        }
        assert_eq!(map.take_copied(), 0);
        let shared = map.share();
        assert_eq!(shared.len(), 3);
        *map.get_mut(5).unwrap() = 1;
        *map.get_mut(6).unwrap() = 1;
        assert_eq!(map.take_copied(), 4);
        drop(shared);
        *map.get_mut(0).unwrap() = 1;
        assert_eq!(map.take_copied(), 0);
    }
}
