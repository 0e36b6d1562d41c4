//! The records of a run: those of its messages, and no others.
//!
//! They lie densely in blocks of 36 slots. So a run takes as much memory as its messages need, however few are left
//! and wherever they are, and a change moves at most 35 records.
//!
//! A block also has the numbers that its messages were first sent under elsewhere, if one has such a number: the copies
//! of a topic's messages all have. They take 4 bytes for each slot.

use super::length::RunLength;
use super::record::Record;
use crate::vocabulary::SequenceNumber;

/// 36 records take 2,016 bytes, and the allocator gives 2,048. For 64 records, which are 3,584 bytes, it would give
/// 4,096: it rounds up what is no power of two, to align it.
const SLOTS_PER_BLOCK: usize = 36;

const _: () = assert!(SLOTS_PER_BLOCK <= u64::BITS as usize);
const _: () = assert!((SLOTS_PER_BLOCK * size_of::<Record>()).next_power_of_two() == 2048);

/// How many records a block has room for as it grows. These sizes fit too.
const ROOMS: [usize; 4] = [4, 9, 18, SLOTS_PER_BLOCK];

/// Records by slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    /// In the order of their slots. None is empty.
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    /// Its slots begin at 36 times this number.
    index: usize,
    /// Which of its slots have a record.
    live: u64,
    /// Their records, in the order of the slots.
    records: Vec<Record>,
    /// Their first numbers, if one has one.
    firsts: Option<Box<Firsts>>,
}

/// First numbers of the slots of a block, as far as they are near each other.
#[derive(Clone, Debug)]
struct Firsts {
    /// Half of the range lies below the first number that came.
    base: u64,
    /// How much the number of each slot is above the base. 0 without one.
    above: [u32; SLOTS_PER_BLOCK],
}

impl Firsts {
    fn near(number: SequenceNumber) -> Self {
        let base = number.as_u64().saturating_sub(1 << (u32::BITS - 1));
        Self {
            base: base.saturating_sub(1),
            above: [0; SLOTS_PER_BLOCK],
        }
    }

    fn get(&self, slot: usize) -> Option<SequenceNumber> {
        let above = self.above.get(slot % SLOTS_PER_BLOCK).copied();
        let above = above.filter(|above| *above > 0)?;
        Some(SequenceNumber::new(self.base + u64::from(above)))
    }

    /// Returns false if the number does not fit.
    fn set(&mut self, slot: usize, number: SequenceNumber) -> bool {
        let above = number.as_u64().checked_sub(self.base);
        let above = above.and_then(|above| u32::try_from(above).ok());
        let place = self.above.get_mut(slot % SLOTS_PER_BLOCK);
        match (place, above.filter(|above| *above > 0)) {
            (Some(place), Some(above)) => {
                *place = above;
                true
            }
            (Some(_) | None, _) => false,
        }
    }

    fn clear(&mut self, slot: usize) {
        if let Some(above) = self.above.get_mut(slot % SLOTS_PER_BLOCK) {
            *above = 0;
        }
    }
}

/// A copy has the same room for more records: it is made because one is to be changed.
impl Clone for Block {
    fn clone(&self) -> Self {
        let mut records = Vec::with_capacity(self.records.capacity());
        records.extend_from_slice(&self.records);
        Self {
            records,
            firsts: self.firsts.clone(),
            ..*self
        }
    }
}

impl Block {
    /// Where the record of a slot is, or would be.
    fn place(&self, slot: usize) -> usize {
        (self.live & (bit(slot) - 1)).count_ones() as usize
    }

    fn has(&self, slot: usize) -> bool {
        self.live & bit(slot) != 0
    }

    /// Makes room for one more record.
    fn reserve(&mut self, length: RunLength) {
        let count = self.records.len();
        if count == self.records.capacity() {
            let room = room_for(count + 1).min(slots_of(self.index, length));
            let more = room.saturating_sub(count);
            self.records.reserve_exact(more);
        }
    }

    fn is_full(&self) -> bool {
        self.records.len() == SLOTS_PER_BLOCK
    }
}

/// The room that a block gets for so many records.
fn room_for(count: usize) -> usize {
    let room = ROOMS.into_iter().find(|room| *room >= count);
    room.unwrap_or(SLOTS_PER_BLOCK)
}

/// How many slots a block has in runs of a length. The last one has fewer: 16 of 1,024, and 20 of 128.
fn slots_of(index: usize, length: RunLength) -> usize {
    let rest = length.slots().saturating_sub(index * SLOTS_PER_BLOCK);
    rest.min(SLOTS_PER_BLOCK)
}

fn bit(slot: usize) -> u64 {
    1 << (slot % SLOTS_PER_BLOCK)
}

impl Records {
    pub(super) fn get(&self, slot: usize) -> Option<&Record> {
        self.with_block(slot).map(|(record, _)| record)
    }

    /// A record, and the first number of its message, if it has one.
    pub(super) fn get_with_first(&self, slot: usize) -> Option<(&Record, Option<SequenceNumber>)> {
        let (record, block) = self.with_block(slot)?;
        let first = block.firsts.as_ref().and_then(|it| it.get(slot));
        Some((record, first))
    }

    fn with_block(&self, slot: usize) -> Option<(&Record, &Block)> {
        let at = self.find(slot).ok()?;
        let block = self.blocks.get(at).filter(|block| block.has(slot))?;
        Some((block.records.get(block.place(slot))?, block))
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Record> {
        let at = self.find(slot).ok()?;
        let block = self.blocks.get_mut(at).filter(|block| block.has(slot))?;
        let place = block.place(slot);
        block.records.get_mut(place)
    }

    /// Puts a record into a slot that has none, in a run of a length.
    pub(super) fn put(&mut self, slot: usize, record: Record, length: RunLength) {
        let at = self.find(slot).unwrap_or_else(|at| {
            self.blocks.insert(at, self.block_for(slot, at, length));
            at
        });
        if let Some(block) = self.blocks.get_mut(at) {
            let place = block.place(slot);
            block.live |= bit(slot);
            block.reserve(length);
            block.records.insert(place, record);
        }
    }

    /// Notes the first number of the message in a slot. Returns false if it is too far from those of the messages
    /// near it, or if there is no such message.
    pub(super) fn set_first_number(&mut self, slot: usize, number: SequenceNumber) -> bool {
        let block = self.find(slot).ok().and_then(|at| self.blocks.get_mut(at));
        let Some(block) = block.filter(|block| block.has(slot)) else {
            return false;
        };
        let firsts = block
            .firsts
            .get_or_insert_with(|| Box::new(Firsts::near(number)));
        firsts.set(slot, number)
    }

    /// Takes the record out of a slot. Returns false if it has none.
    pub(super) fn take(&mut self, slot: usize) -> bool {
        let Ok(at) = self.find(slot) else {
            return false;
        };
        let Some(block) = self.blocks.get_mut(at).filter(|block| block.has(slot)) else {
            return false;
        };
        let place = block.place(slot);
        block.records.remove(place);
        block.live &= !bit(slot);
        if let Some(firsts) = &mut block.firsts {
            firsts.clear(slot);
        }
        if block.records.is_empty() {
            self.blocks.remove(at);
        } else if block.records.len() <= block.records.capacity() / 4 {
            // Half of the room stays: the next changes move no memory.
            block.records.shrink_to(room_for(2 * block.records.len()));
        }
        true
    }

    /// All records, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.blocks.iter_mut().flat_map(|block| &mut block.records)
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.blocks.iter().map(|it| it.records.len() as u64).sum()
    }

    /// How many records there is room for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.blocks.iter().map(|it| it.records.capacity()).sum()
    }

    /// The place of the block with a slot, or where it would be. Nearly always that block is the last one, or no block is
    /// missing between it and the first one.
    fn find(&self, slot: usize) -> Result<usize, usize> {
        let index = slot / SLOTS_PER_BLOCK;
        let is_at = |at: usize| self.blocks.get(at).is_some_and(|it| it.index == index);
        let last = self.blocks.len().wrapping_sub(1);
        let first_index = self.blocks.first().map_or(0, |it| it.index);
        let from_first = index.wrapping_sub(first_index);
        if let Some(at) = [last, from_first].into_iter().find(|at| is_at(*at)) {
            return Ok(at);
        }
        let blocks = &self.blocks;
        blocks.binary_search_by_key(&index, |block| block.index)
    }

    /// A block that comes after a full one will be full too. Others are those of a short queue.
    fn block_for(&self, slot: usize, at: usize, length: RunLength) -> Block {
        let index = slot / SLOTS_PER_BLOCK;
        let before = at.checked_sub(1).and_then(|before| self.blocks.get(before));
        let room = if before.is_some_and(Block::is_full) {
            slots_of(index, length)
        } else {
            0
        };
        Block {
            index,
            live: 0,
            records: Vec::with_capacity(room),
            firsts: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::{BodyLocation, Timestamp};

    fn with(slots: impl IntoIterator<Item = usize>) -> Records {
        let mut records = Records::default();
        let record = Record::ready(Timestamp::ZERO, BodyLocation::default());
        for slot in slots {
            records.put(slot, record, RunLength::DEFAULT);
        }
        records
    }

    fn first_number(records: &Records, slot: usize) -> Option<SequenceNumber> {
        records.get_with_first(slot)?.1
    }

    #[test]
    fn first_numbers_that_are_near_each_other_are_kept() {
        let number = SequenceNumber::new;
        let (near, far) = (1 << 40, 1 << 31);
        let mut records = with(0..80);
        let kept = [
            (0, near),
            (1, near - far),
            (2, near + far - 2),
            (35, near),
            // The next block begins anew.
            (36, 1),
            (79, 1 << 50),
        ];
        for (slot, first) in kept {
            assert!(records.set_first_number(slot, number(first)), "{slot}");
        }
        for (slot, first) in [
            (3, near - far - 1),
            (4, near + far),
            (5, 0),
            (6, u64::MAX >> 8),
        ] {
            assert!(!records.set_first_number(slot, number(first)), "{slot}");
            assert_eq!(first_number(&records, slot), None);
        }
        for (slot, first) in kept {
            assert_eq!(first_number(&records, slot), Some(number(first)));
        }
        // It goes with its message.
        assert!(records.take(0));
        assert!(!records.set_first_number(0, number(near)));
        records.put(
            0,
            Record::ready(Timestamp::ZERO, BodyLocation::default()),
            RunLength::DEFAULT,
        );
        assert_eq!(first_number(&records, 0), None);
        assert_eq!(first_number(&records.clone(), 1), Some(number(near - far)));
    }
}
