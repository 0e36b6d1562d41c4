//! A run: consecutive sequence numbers of an entity, and what their messages count for together.

use std::collections::BTreeMap;

use super::Entry;
use super::bits::Bits;
use super::length::RunLength;
use super::record::{Record, Side};
use super::records::Records;
use super::spread::{Live, Spread};
use crate::vocabulary::{BodyMove, Hint, SequenceNumber, Timestamp};

#[derive(Debug)]
pub(crate) struct Run {
    length: RunLength,
    index: u64,
    records: Records,
    /// The slots with a message.
    live: Bits,
    /// The live ones that can be received in the order of their numbers.
    ready: Bits,
    sides: BTreeMap<usize, Side>,
    live_count: u64,
    pub(super) size_bytes: u64,
    /// Where its messages' bodies lie.
    pub(super) spread: Spread,
    /// A lower bound of when the next message expires: the message that had it may be gone.
    pub(super) expires_first: Hint<Timestamp>,
    /// An upper bound of all expiries, likewise. A run that comes from a snapshot may have a lower one.
    expires_last: Timestamp,
}

/// The bounds, and how the records lie, depend on the past. Only the messages count.
impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        (self.size_bytes, self.ready) == (other.size_bytes, other.ready)
            && self.entries().eq(other.entries())
    }
}

impl Eq for Run {}

impl Clone for Run {
    fn clone(&self) -> Self {
        Self {
            records: self.records.clone(),
            spread: self.spread.clone(),
            sides: self.sides.clone(),
            expires_first: Hint::new(*self.expires_first),
            ..*self
        }
    }
}

impl Run {
    pub(super) fn new(length: RunLength, index: u64) -> Self {
        Self {
            length,
            index,
            records: Records::default(),
            live: Bits::default(),
            ready: Bits::default(),
            sides: BTreeMap::new(),
            live_count: 0,
            size_bytes: 0,
            spread: Spread::default(),
            expires_first: Hint::new(Timestamp::NEVER),
            expires_last: Timestamp::ZERO,
        }
    }

    fn number(&self, slot: usize) -> SequenceNumber {
        SequenceNumber::new(self.length.first_of(self.index) + slot as u64)
    }

    fn slot(&self, number: SequenceNumber) -> usize {
        self.length.slot_of(number.as_u64())
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// Whether a message can be received in the order of its number.
    pub(super) fn is_ready(&self, number: SequenceNumber) -> bool {
        self.ready.contains(self.slot(number))
    }

    /// The number of the first message.
    pub(super) fn first(&self) -> Option<SequenceNumber> {
        self.live.first().map(|slot| self.number(slot))
    }

    /// The number of the last message.
    pub(super) fn last(&self) -> Option<SequenceNumber> {
        self.live.last().map(|slot| self.number(slot))
    }

    /// How many messages there are.
    pub(crate) fn live_count(&self) -> u64 {
        self.live_count
    }

    /// The numbers from the first message to the last one, without the number after it.
    pub(crate) fn range(&self) -> (SequenceNumber, SequenceNumber) {
        let until = self.last().map(SequenceNumber::next);
        (self.first().unwrap_or_default(), until.unwrap_or_default())
    }

    /// Whether all of its messages lie in a range of numbers.
    pub(super) fn is_within(&self, from: SequenceNumber, until: SequenceNumber) -> bool {
        let (first, end) = self.range();
        first >= from && end <= until
    }

    pub(super) fn overlaps(&self, from: SequenceNumber, until: SequenceNumber) -> bool {
        let (first, end) = self.range();
        first < until && end > from
    }

    /// Puts a message into its slot. Returns false if there is one.
    pub(super) fn put(
        &mut self,
        number: SequenceNumber,
        record: Record,
        side: Side,
        live: &mut Live,
    ) -> bool {
        let slot = self.slot(number);
        if self.live.contains(slot) {
            return false;
        }
        self.records.put(slot, record, self.length);
        self.live.insert(slot);
        self.live_count += 1;
        self.expires_last = self.expires_last.max(record.expires_at);
        live.add(&mut self.spread, record.body);
        if !side.is_empty() {
            for overlay in &side.overlays {
                live.add(&mut self.spread, *overlay);
            }
            self.sides.insert(slot, side);
        }
        true
    }

    /// Takes a message out of its slot. Returns false if there is none.
    pub(super) fn take(&mut self, number: SequenceNumber) -> bool {
        let slot = self.slot(number);
        if !self.live.remove(slot) {
            return false;
        }
        self.ready.remove(slot);
        self.sides.remove(&slot);
        self.records.take(slot);
        self.live_count -= 1;
        true
    }

    /// Changes a message. Returns false if there is none.
    pub(super) fn change(
        &mut self,
        number: SequenceNumber,
        change: impl FnOnce(&mut Record),
    ) -> bool {
        let slot = self.slot(number);
        let Some(record) = self.records.get_mut(slot) else {
            return false;
        };
        change(record);
        self.expires_last = self.expires_last.max(record.expires_at);
        true
    }

    /// Gives a message a body, or a change to its properties, in another place.
    pub(super) fn move_body(&mut self, number: SequenceNumber, body: BodyMove) {
        let slot = self.slot(number);
        let record = self.records.get_mut(slot);
        let sent = record.map(|record| &mut record.body).into_iter();
        let side = self.sides.get_mut(&slot).into_iter();
        let mut bodies = sent.chain(side.flat_map(|side| &mut side.overlays));
        if let Some(found) = bodies.find(|it| **it == body.from) {
            *found = body.to;
        }
    }

    /// Where its messages' bodies lie.
    pub(crate) fn spread(&self) -> &Spread {
        &self.spread
    }

    /// Changes what few messages have. Nothing happens if there is no such message.
    pub(super) fn change_side(&mut self, number: SequenceNumber, change: impl FnOnce(&mut Side)) {
        let slot = self.slot(number);
        if self.live.contains(slot) {
            change(self.sides.entry(slot).or_default());
        }
    }

    /// Whether a message can be received in the order of its number.
    pub(super) fn set_ready(&mut self, number: SequenceNumber, is_ready: bool) {
        let slot = self.slot(number);
        if is_ready {
            self.ready.insert(slot);
        } else {
            self.ready.remove(slot);
        }
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether every message can be received in the order of its number.
    pub(crate) fn is_all_ready(&self) -> bool {
        self.ready == self.live
    }

    /// Whether all of its messages have expired for certain.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_last.has_passed(now)
    }

    pub(super) fn get(&self, number: SequenceNumber) -> Option<Entry<'_>> {
        let slot = self.slot(number);
        self.live.contains(slot).then(|| self.entry(slot))?
    }

    fn entry(&self, slot: usize) -> Option<Entry<'_>> {
        Some(Entry {
            number: self.number(slot),
            record: self.records.get(slot)?,
            side: self.sides.get(&slot),
        })
    }

    /// The messages, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.live.iter_from(0).filter_map(|slot| self.entry(slot))
    }

    /// Whether a message has a source.
    pub(crate) fn has_sources(&self) -> bool {
        self.sides.values().any(|side| side.source.is_some())
    }

    /// The messages from a number of this run on.
    pub(crate) fn entries_from(&self, number: SequenceNumber) -> impl Iterator<Item = Entry<'_>> {
        let slot = if self.length.run_of(number.as_u64()) < self.index {
            0
        } else {
            self.slot(number)
        };
        let slots = self.live.iter_from(slot);
        slots.filter_map(|slot| self.entry(slot))
    }

    /// The messages that can be received in the order of their numbers.
    pub(super) fn ready_entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.ready.iter_from(0).filter_map(|slot| self.entry(slot))
    }

    /// All messages, to change them.
    pub(super) fn records_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.records.iter_mut()
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.live.count() as u64, self.live_count);
        assert!(self.live_count > 0, "a run without messages is removed");
        assert!(self.ready.iter_from(0).all(|it| self.live.contains(it)));
        assert!(self.sides.keys().all(|it| self.live.contains(*it)));
        assert_eq!(self.entries().count() as u64, self.live_count);
        for entry in self.entries() {
            assert!(self.expires_last >= entry.record.expires_at);
        }
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.records.capacity()
    }
}
