//! A run: consecutive sequence numbers of an entity, and what their messages count for together.

use std::collections::BTreeMap;

use super::Entry;
use super::ask::Seen;
use super::bits::Bits;
use super::cold::Cold;
use super::length::RunLength;
use super::paged::Paged;
use super::record::{Leased, Record, Side};
use super::records::Records;
use super::resident::Resident;
use super::spread::{Live, Spread};
use crate::vocabulary::{BodyLocation, BodyMove, Hint, SequenceNumber, Timestamp};

#[derive(Debug)]
pub(crate) struct Run {
    pub(super) length: RunLength,
    pub(super) index: u64,
    /// Those in memory: all of them, unless the run is cold.
    pub(super) records: Records,
    /// The slots with a message.
    pub(super) live: Bits,
    /// The live ones that can be received in the order of their numbers.
    pub(super) ready: Bits,
    /// Of the records in memory.
    pub(super) sides: BTreeMap<usize, Side>,
    pub(super) live_count: u64,
    pub(super) size_bytes: u64,
    /// The lengths of the bodies that messages elsewhere count.
    pub(super) borrowed_bytes: u64,
    /// Where its messages' bodies lie.
    pub(super) spread: Spread,
    /// A lower bound of when the next message expires: the message that had it may be gone.
    pub(super) expires_first: Hint<Timestamp>,
    /// An upper bound of all expiries, likewise.
    pub(super) expires_last: Timestamp,
    /// No message came earlier.
    pub(super) enqueued_first: Timestamp,
    /// Whether a message has, or had, what its state does not say and what its queue counts or keeps in an order: a
    /// session, a source, or changes to its properties.
    pub(super) has_special: bool,
    /// It gets a page, however few messages it has.
    pub(super) wants_page: bool,
    /// How many messages its page has at most, if that is known: the page was worth writing again then, or it was wanted.
    pub(super) page_of: u16,
    /// The slots of messages that were set aside, because their records are lost. They count, and are in no order.
    pub(super) quarantined: Option<Box<Bits>>,
    /// Set if the records lie on a page.
    pub(super) cold: Option<Box<Cold>>,
    /// The page that a snapshot has of it.
    pub(super) paged: Paged,
}

/// The bounds, and how the records lie, depend on the past. Only the messages count, and of records those
/// that both have in memory.
impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        let (own, others) = (self.seen_from(self.start()), other.seen_from(other.start()));
        let mut both = own.zip(others);
        (self.size_bytes, self.live, self.ready) == (other.size_bytes, other.live, other.ready)
            && self.borrowed_bytes == other.borrowed_bytes
            && self.quarantined == other.quarantined
            && both.all(|((_, one), (_, other))| {
                let here = one.zip(other);
                here.is_none_or(|(one, other)| one == other)
            })
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
            quarantined: self.quarantined.clone(),
            cold: self.cold.clone(),
            paged: self.paged.clone(),
            ..*self
        }
    }
}

impl Run {
    /// How many numbers it is made for.
    pub(crate) fn length(&self) -> RunLength {
        self.length
    }

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
            borrowed_bytes: 0,
            spread: Spread::default(),
            expires_first: Hint::new(Timestamp::NEVER),
            expires_last: Timestamp::ZERO,
            enqueued_first: Timestamp::NEVER,
            has_special: false,
            wants_page: false,
            page_of: 0,
            quarantined: None,
            cold: None,
            paged: Paged::default(),
        }
    }

    pub(super) fn number(&self, slot: usize) -> SequenceNumber {
        SequenceNumber::new(self.length.first_of(self.index) + slot as u64)
    }

    pub(super) fn slot(&self, number: SequenceNumber) -> usize {
        self.length.slot_of(number.as_u64())
    }

    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// Its first number.
    pub(super) fn start(&self) -> SequenceNumber {
        self.number(0)
    }

    /// Whether there is a message of that number.
    pub(super) fn contains(&self, number: SequenceNumber) -> bool {
        self.live.contains(self.slot(number))
    }

    /// Whether a message can be received in the order of its number.
    pub(super) fn is_ready(&self, number: SequenceNumber) -> bool {
        self.ready.contains(self.slot(number))
    }

    /// The number of the first message.
    pub(super) fn first(&self) -> Option<SequenceNumber> {
        self.live.first().map(|slot| self.number(slot))
    }

    /// The numbers of its messages, in order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = SequenceNumber> {
        self.live.iter_from(0).map(|slot| self.number(slot))
    }

    /// The number of the first message that can be received in the order of its number.
    pub(super) fn first_ready(&self) -> Option<SequenceNumber> {
        self.ready.first().map(|slot| self.number(slot))
    }

    /// The number of the last message.
    pub(super) fn last(&self) -> Option<SequenceNumber> {
        self.live.last().map(|slot| self.number(slot))
    }

    /// How many records are in memory.
    pub(super) fn records_here(&self) -> u64 {
        self.records.count()
    }

    /// What of it is in memory.
    pub(crate) fn resident(&self) -> Resident {
        Resident {
            records: self.records_here(),
            cold_runs: u64::from(self.is_cold()),
            patches: self.patch_count(),
            quarantined: self.quarantined_count(),
            far: self.far_count(),
            ..Resident::default()
        }
    }

    /// The lengths of the bodies that messages elsewhere count.
    pub(crate) fn borrowed_bytes(&self) -> u64 {
        self.borrowed_bytes
    }

    /// How many messages there are, without those that were set aside.
    pub(crate) fn live_count(&self) -> u64 {
        self.live_count
    }

    /// The numbers from the first message to the last one, without the number after it.
    pub(crate) fn range(&self) -> (SequenceNumber, SequenceNumber) {
        let taken = self.taken();
        let first = taken.first().map(|slot| self.number(slot));
        let until = taken.last().map(|slot| self.number(slot).next());
        (first.unwrap_or_default(), until.unwrap_or_default())
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

    /// Puts a message into its slot, and counts its bodies. Returns false if there is one.
    pub(super) fn put(
        &mut self,
        number: SequenceNumber,
        record: Record,
        side: Side,
        mut count: impl FnMut(&mut Spread, BodyLocation),
    ) -> bool {
        let slot = self.slot(number);
        if self.live.contains(slot) || self.is_quarantined(slot) {
            return false;
        }
        self.records.put(slot, record, self.length);
        self.live.insert(slot);
        self.live_count += 1;
        self.expires_last = self.expires_last.max(record.expires_at);
        self.enqueued_first = self.enqueued_first.min(record.enqueued_at);
        self.has_special |= record.session != 0 || side.is_special();
        count(&mut self.spread, record.body);
        let side = self.without_first(slot, side);
        if !side.is_empty() {
            for overlay in &side.overlays {
                count(&mut self.spread, *overlay);
            }
            self.sides.insert(slot, side);
        }
        self.note_changed(slot);
        self.note_growth();
        true
    }

    /// Puts the first number of a message where those of others are, if it fits there. Returns what else there is.
    pub(super) fn without_first(&mut self, slot: usize, side: Side) -> Side {
        let first = side.first_number;
        let first_number = first.filter(|it| !self.records.set_first_number(slot, *it));
        Side {
            first_number,
            ..side
        }
    }

    /// Takes a message out of its slot. Returns whether its record was in memory, and `None` if there is none.
    pub(super) fn take(&mut self, number: SequenceNumber) -> Option<bool> {
        let slot = self.slot(number);
        if !self.live.remove(slot) {
            return None;
        }
        self.ready.remove(slot);
        self.sides.remove(&slot);
        let was_here = self.records.take(slot);
        self.live_count -= 1;
        self.note_gone(slot);
        Some(was_here)
    }

    /// Gives a message a lease. Returns false if there is none.
    pub(super) fn lease(&mut self, number: SequenceNumber, leased: &Leased) -> bool {
        let slot = self.slot(number);
        let Some(record) = self.records.get_mut(slot) else {
            return self.lease_cold(slot, leased);
        };
        record.lease(leased);
        self.expires_last = self.expires_last.max(record.expires_at);
        self.note_changed(slot);
        true
    }

    /// Gives a message a body, or a change to its properties, in another place.
    pub(super) fn move_body(&mut self, number: SequenceNumber, body: BodyMove) {
        let slot = self.slot(number);
        if self.is_cold_at(number) {
            self.move_body_cold(slot, body);
            return;
        }
        self.note_changed(slot);
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

    /// Changes what few messages have. Nothing happens if there is no such message in memory.
    pub(super) fn change_side(&mut self, number: SequenceNumber, change: impl FnOnce(&mut Side)) {
        let slot = self.slot(number);
        if self.records.get(slot).is_some() {
            let side = self.sides.entry(slot).or_default();
            change(side);
            self.has_special |= side.is_special();
            self.note_changed(slot);
        }
    }

    /// Adds a change to a message's properties. Nothing happens if there is no such message.
    pub(super) fn add_overlay(&mut self, number: SequenceNumber, overlay: BodyLocation) {
        if self.is_cold_at(number) {
            self.add_overlay_cold(self.slot(number), overlay);
        } else {
            self.change_side(number, |side| side.overlays.push(overlay));
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

    /// The message of a live slot. A reader has asked for it before, or the run is not cold.
    pub(super) fn entry(&self, slot: usize) -> Option<Entry<'_>> {
        let entry = self.entry_here(slot);
        assert!(
            entry.is_some(),
            "the record of {:?} is read and not in memory",
            self.number(slot)
        );
        entry
    }

    /// The message of a slot, if its record is in memory.
    pub(super) fn entry_here(&self, slot: usize) -> Option<Entry<'_>> {
        let (record, first_number) = self.records.get_with_first(slot)?;
        Some(Entry {
            number: self.number(slot),
            record,
            first_number,
            side: self.sides.get(&slot),
        })
    }

    fn seen_at(&self, slot: usize) -> Seen<'_> {
        (self.number(slot), self.entry_here(slot))
    }

    /// A message, as far as it is in memory.
    pub(super) fn seen(&self, number: SequenceNumber) -> Option<Seen<'_>> {
        let slot = self.slot(number);
        self.live.contains(slot).then(|| self.seen_at(slot))
    }

    /// The messages from a number on.
    pub(crate) fn seen_from(&self, number: SequenceNumber) -> impl Iterator<Item = Seen<'_>> {
        let slots = self.live.iter_from(self.first_slot_from(number));
        slots.map(|slot| self.seen_at(slot))
    }

    /// Those that can be received in the order of their numbers.
    pub(super) fn ready_seen(&self) -> impl Iterator<Item = Seen<'_>> {
        self.ready.iter_from(0).map(|slot| self.seen_at(slot))
    }

    fn first_slot_from(&self, number: SequenceNumber) -> usize {
        match self.length.run_of(number.as_u64()) < self.index {
            true => 0,
            false => self.slot(number),
        }
    }

    /// The messages, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.live.iter_from(0).filter_map(|slot| self.entry(slot))
    }

    /// The messages whose records are in memory, in order.
    #[cfg(test)]
    pub(crate) fn entries_here(&self) -> impl Iterator<Item = Entry<'_>> {
        self.live
            .iter_from(0)
            .filter_map(|slot| self.entry_here(slot))
    }

    /// Whether a message has a source.
    pub(crate) fn has_sources(&self) -> bool {
        self.sides.values().any(|side| side.source.is_some())
    }

    /// The messages from a number of this run on.
    pub(crate) fn entries_from(&self, number: SequenceNumber) -> impl Iterator<Item = Entry<'_>> {
        let slots = self.live.iter_from(self.first_slot_from(number));
        slots.filter_map(|slot| self.entry(slot))
    }

    /// The messages that can be received in the order of their numbers.
    pub(super) fn ready_entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.ready.iter_from(0).filter_map(|slot| self.entry(slot))
    }

    /// All messages, to change them. The run is not cold.
    pub(super) fn records_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        assert!(self.cold.is_none(), "a cold run is changed as a whole");
        self.paged.forget();
        self.records.iter_mut()
    }

    /// Counts its bodies as if they were new, and asserts that they are those of its spread. Takes a spread's word for
    /// bodies of messages whose records are not in memory, or lost.
    pub(crate) fn count_again(&self, live: &mut Live) {
        if self.records_here() < self.live_count || self.quarantined.is_some() {
            live.add_all(&self.spread);
            return;
        }
        let mut spread = Spread::default();
        for body in self.entries().flat_map(Entry::bodies) {
            live.add(&mut spread, body);
        }
        assert_eq!(spread, self.spread, "where bodies of a run lie");
        let borrowed = self.entries().map(|entry| entry.borrowed_bytes());
        let borrowed: u64 = borrowed.sum();
        assert_eq!(borrowed, self.borrowed_bytes, "what a run borrows");
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.live.count() as u64, self.live_count);
        assert!(self.count() > 0, "a run without messages is removed");
        let aside = self.quarantined.as_deref().copied().unwrap_or_default();
        assert!(aside.and(&self.live).is_empty());
        assert!(self.ready.iter_from(0).all(|it| self.live.contains(it)));
        assert!(self.sides.keys().all(|it| self.live.contains(*it)));
        let here = self.entries_here().count() as u64;
        assert!(here == self.records.count() && (self.is_cold() || here == self.live_count));
        for entry in self.entries_here() {
            assert!(self.expires_last >= entry.record.expires_at);
        }
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.records.capacity()
    }
}
