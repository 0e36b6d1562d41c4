//! A block of remembered ids, in the order of their times.

use crate::shared::Marked;
use crate::vocabulary::Timestamp;

/// Ids that follow each other.
pub(crate) type Block = std::sync::Arc<Marked<Ids>>;

/// Ids in the order of their times: 20 bytes each, or nothing if they are on a page alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ids {
    first_at: Timestamp,
    /// What is known of those that are not in memory.
    cold: Option<Cold>,
    /// How long after the first one each of them was seen.
    after_ms: Vec<u32>,
    hashes: Vec<u128>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cold {
    count: usize,
    last_at: Timestamp,
}

impl Ids {
    /// A block of these, unless they are of more than 49 days.
    pub(crate) fn of(ids: &[(Timestamp, u128)]) -> Option<Self> {
        let mut block = Self {
            first_at: Timestamp::ZERO,
            cold: None,
            after_ms: Vec::with_capacity(ids.len()),
            hashes: Vec::with_capacity(ids.len()),
        };
        let mut ids = ids.iter();
        ids.all(|(at, id)| block.push(*id, *at)).then_some(block)
    }

    /// The block without its ids.
    pub(super) fn evicted(&self) -> Self {
        Self {
            first_at: self.first_at,
            cold: Some(Cold {
                count: self.len(),
                last_at: self.last_at(),
            }),
            ..Self::default()
        }
    }

    /// Whether the ids are not in memory.
    pub(crate) fn is_cold(&self) -> bool {
        self.cold.is_some()
    }

    /// Whether these are the ids of this block, as far as that is known.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let known = |of: &Self| (of.len(), of.first_at(), of.last_at());
        known(self) == known(other)
    }

    pub(crate) fn len(&self) -> usize {
        self.cold.map_or(self.hashes.len(), |cold| cold.count)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the first one was seen.
    pub(crate) fn first_at(&self) -> Timestamp {
        self.first_at
    }

    /// When the last one was seen.
    pub(crate) fn last_at(&self) -> Timestamp {
        let last = || self.at(self.hashes.len().saturating_sub(1));
        self.cold.map_or_else(last, |cold| cold.last_at)
    }

    /// When the one of a place was seen.
    pub(super) fn at(&self, place: usize) -> Timestamp {
        let after_ms = self.after_ms.get(place).copied().unwrap_or_default();
        self.first_at.plus_ms(after_ms.into())
    }

    pub(super) fn hash(&self, place: usize) -> Option<u128> {
        self.hashes.get(place).copied()
    }

    pub(super) fn hashes(&self) -> &[u128] {
        &self.hashes
    }

    /// Those in memory, with their times. A block that is not in memory has none here.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Timestamp, u128)> {
        let hashes = self.hashes.iter().enumerate();
        hashes.map(|(place, hash)| (self.at(place), *hash))
    }

    /// When an id was seen last.
    pub(super) fn seen_at(&self, id: u128) -> Option<Timestamp> {
        let place = self.hashes.iter().rposition(|hash| *hash == id)?;
        Some(self.at(place))
    }

    /// Adds an id that was not seen before the last one. Returns false if there is too much time between the first one and
    /// this one.
    pub(crate) fn push(&mut self, id: u128, at: Timestamp) -> bool {
        if self.is_empty() {
            self.first_at = at;
        }
        let after_ms = at.as_ms().saturating_sub(self.first_at.as_ms());
        let Ok(after_ms) = u32::try_from(after_ms) else {
            return false;
        };
        self.after_ms.push(after_ms);
        self.hashes.push(id);
        true
    }

    /// How many were seen before a time.
    pub(super) fn count_before(&self, time: Timestamp) -> usize {
        let first_at = self.first_at;
        let is_before = |after_ms: &u32| first_at.plus_ms((*after_ms).into()) < time;
        self.after_ms.partition_point(is_before)
    }

    /// The ids without so many at the beginning.
    pub(super) fn without(&self, count: usize) -> Self {
        let mut left = Self::default();
        for (at, id) in self.iter().skip(count) {
            left.push(id, at);
        }
        left
    }

    /// Gives back the memory for more ids.
    pub(super) fn shrink(&mut self) {
        self.after_ms.shrink_to_fit();
        self.hashes.shrink_to_fit();
    }
}

/// The places of the ids of a block by hash, while more are added to it. Of an id that is there twice it has the last
/// place.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// A power of two, at least twice as many as there are ids. A place lies at the low bits of its hash, or behind.
    slots: Vec<u16>,
    used: usize,
}

/// No place: a block has 1,024 at most.
const NONE: u16 = u16::MAX;

impl Places {
    /// The places of all ids of a block.
    pub(super) fn of(ids: &Ids) -> Self {
        let slots = vec![NONE; (2 * ids.len()).next_power_of_two()];
        let mut places = Self { slots, used: 0 };
        (0..ids.len()).for_each(|place| places.put(ids, place));
        places
    }

    /// Notes the last id of a block, which was just added.
    pub(super) fn note_last(&mut self, ids: &Ids) {
        if 2 * (self.used + 1) > self.slots.len() {
            *self = Self::of(ids);
        } else {
            self.put(ids, ids.len().saturating_sub(1));
        }
    }

    fn put(&mut self, ids: &Ids, place: usize) {
        let Some(hash) = ids.hash(place) else {
            return;
        };
        let slot = self.slot(ids, hash);
        if let (Some(slot), Ok(place)) = (
            slot.and_then(|slot| self.slots.get_mut(slot)),
            u16::try_from(place),
        ) {
            self.used += usize::from(*slot == NONE);
            *slot = place;
        }
    }

    /// The place of an id.
    pub(super) fn find(&self, ids: &Ids, id: u128) -> Option<usize> {
        let slot = self.slot(ids, id)?;
        let place = self.slots.get(slot).copied()?;
        (place != NONE).then_some(place.into())
    }

    /// The slot that has the place of an id, or the free one where it would be.
    fn slot(&self, ids: &Ids, id: u128) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let first = low_bits(id) & mask;
        (0..=mask).map(|step| (first + step) & mask).find(|slot| {
            let place = self.slots.get(*slot).copied().unwrap_or(NONE);
            place == NONE || ids.hash(place.into()) == Some(id)
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
fn low_bits(hash: u128) -> usize {
    hash as u16 as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    #[test]
    fn each_id_is_found_at_its_last_place() {
        let (mut ids, mut places) = (Ids::default(), Places::default());
        assert_eq!(places.find(&ids, 1), None);
        for number in 0..1024_u32 {
            // Many share their low bits.
            let id = u128::from(number % 1000) << (number % 3 * 40);
            assert!(ids.push(id, at(number.into())));
            places.note_last(&ids);
            let place = places.find(&ids, id);
            assert_eq!(place, Some(ids.len() - 1));
            assert_eq!(ids.seen_at(id), Some(at(number.into())));
        }
        for id in ids.hashes() {
            let place = places.find(&ids, *id);
            assert_eq!(place.map(|it| ids.at(it)), ids.seen_at(*id));
        }
        assert_eq!(places.find(&ids, 7 << 90), None);
        assert_eq!(places.slots.len(), 2048);
    }

    #[test]
    fn a_block_has_the_times_of_49_days() {
        let mut ids = Ids::default();
        assert!(ids.push(1, at(5)) && ids.push(2, at(5 + u64::from(u32::MAX))));
        assert!(!ids.push(3, at(6 + u64::from(u32::MAX))));
        assert_eq!((ids.len(), ids.last_at()), (2, at(5 + u64::from(u32::MAX))));
        assert_eq!((ids.count_before(at(5)), ids.count_before(at(6))), (0, 1));
        let left = ids.without(1);
        assert_eq!((left.first_at(), left.len()), (ids.last_at(), 1));
    }
}
