//! A run whose records are on a page, and not in memory.
//!
//! Its bits, counts and bounds stay in memory. So what effects do to it needs no page: a message that ends takes two
//! bits with it, one that arrives is put beside the page, and a lease is kept as a *patch* until the record is read.
//! The run's own records are then those that changed since its page was written (`paged.rs`), which stay, and copies of
//! the page's, which can be dropped at any time. It keeps its page as long as it is cold: each snapshot names it.
//!
//! What a snapshot has of a run is the same before and after records are taken out of memory or read: the run's directory
//! may lie on a page that is not written again.
//!
//! Whether a run is cold is no part of the state, and no decision depends on it: a decision asks for what it reads
//! (`Missing`), and to read a record that is not there is a mistake.

use std::collections::BTreeMap;

use kew_planted::{Bug, is_planted};

use super::bits::Bits;
use super::far::{Far, Waiting};
use super::length::RunLength;
use super::missing::{Group, Slots};
use super::page::Paged;
use super::patch::Patch;
use super::record::{Leased, MessageState};
use super::records::Records;
use super::run::Run;
use super::timed::TimedKey;
use crate::vocabulary::{
    BodyLocation, BodyMove, Hint, Incarnation, PageNumber, SequenceNumber, Timestamp,
};

#[derive(Clone, Debug, Default)]
pub(super) struct Cold {
    /// Changes to records that are not in memory.
    pub(super) patches: BTreeMap<usize, Patch>,
    /// What of its page is not ready. `None` if nothing was when the run became cold.
    pub(super) waiting: Option<Box<Waiting>>,
    /// Messages that are in no order by time although they wait for one.
    pub(super) far: Option<Box<Far>>,
}

/// What became of records that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// They are in memory, as far as their messages are still there.
    InMemory,
    /// Their run has another page by now, or is in memory, or has ended. What is still needed is to be asked for again.
    Replaced,
    /// The page has no record of a message that is there.
    Damaged,
}

/// Its slots and records.
impl Run {
    /// Whether a message's record is not in memory.
    pub(super) fn is_cold_at(&self, number: SequenceNumber) -> bool {
        self.is_cold() && {
            let slot = self.slot(number);
            self.live.contains(slot) && self.records.get(slot).is_none()
        }
    }

    /// Whether records may not be in memory.
    pub(crate) fn is_cold(&self) -> bool {
        self.cold.is_some()
    }

    /// The group of a message.
    pub(super) fn group_of(&self, number: SequenceNumber) -> usize {
        self.slot(number) / self.length.slots_per_group()
    }

    /// A message among those of its group.
    pub(super) fn slot_in_group(&self, number: SequenceNumber) -> Slots {
        1 << (self.slot(number) % self.length.slots_per_group())
    }

    /// The messages of a group whose records are not in memory.
    pub(super) fn missing_in(&self, group: usize) -> Slots {
        let count = self.length.slots_per_group();
        let first = group * count;
        let live = self.live.iter_from(first);
        let slots = live.take_while(|slot| slot - first < count);
        let missing = slots.filter(|slot| self.records.get(*slot).is_none());
        missing.fold(0, |all, slot| all | 1 << (slot - first))
    }

    /// Notes that a record in memory is not the one of the page any more.
    pub(super) fn note_changed(&mut self, slot: usize) {
        self.paged.note(slot);
    }

    /// Notes that a message is gone.
    pub(super) fn note_gone(&mut self, slot: usize) {
        self.forget_far(slot);
        if let Some(cold) = &mut self.cold {
            cold.patches.remove(&slot);
        } else if self.has_few() && !self.wants_page {
            self.paged.forget();
        }
    }

    /// The patch of a message whose record is not in memory. `None` if there is no such message.
    fn patch(&mut self, slot: usize) -> Option<&mut Patch> {
        let is_live = self.live.contains(slot);
        let cold = self.cold.as_mut().filter(|_| is_live)?;
        self.paged.note(slot);
        Some(cold.patches.entry(slot).or_default())
    }

    /// Leases a message whose record is not in memory. Returns false if there is none.
    pub(super) fn lease_cold(&mut self, slot: usize, leased: &Leased) -> bool {
        let Some(patch) = self.patch(slot) else {
            return false;
        };
        patch.lease(leased);
        self.forget_far(slot);
        if leased.state == MessageState::Ready {
            self.expires_last = self.expires_last.max(leased.until);
        }
        true
    }

    /// Adds a change to the properties of such a message.
    pub(super) fn add_overlay_cold(&mut self, slot: usize, overlay: BodyLocation) {
        if let Some(patch) = self.patch(slot) {
            patch.add_overlay(overlay);
            self.has_special = true;
        }
    }

    /// Moves a body of such a message. An event says so only if it was there.
    pub(super) fn move_body_cold(&mut self, slot: usize, body: BodyMove) {
        if let Some(patch) = self.patch(slot) {
            patch.move_body(body);
        }
    }

    /// When a message came, or an earlier time if its record is not in memory.
    pub(super) fn enqueued_at(&self, number: SequenceNumber) -> Option<Timestamp> {
        let slot = self.slot(number);
        match (self.records.get(slot), &self.cold) {
            (Some(record), _) => Some(record.enqueued_at),
            (None, Some(_)) if self.live.contains(slot) => Some(self.enqueued_first),
            (None, Some(_) | None) => None,
        }
    }

    /// The state that the patch of a message gives it.
    pub(super) fn patch_state(&self, slot: usize) -> Option<MessageState> {
        let patch = self.cold.as_ref()?.patches.get(&slot)?;
        patch.standing().map(|(state, _)| state)
    }

    /// Changes to records that are not in memory, by slot.
    pub(super) fn patches(&self) -> impl Iterator<Item = (&usize, &Patch)> {
        self.cold.iter().flat_map(|cold| &cold.patches)
    }

    /// How many these are.
    pub(super) fn patch_count(&self) -> u64 {
        self.cold.as_ref().map_or(0, |cold| cold.patches.len()) as u64
    }

    /// The slots of these.
    pub(super) fn patched(&self) -> Bits {
        let mut patched = Bits::default();
        for (slot, _) in self.patches() {
            patched.insert(*slot);
        }
        patched
    }

    /// The page of a run that has one, also if its records are in memory.
    pub(crate) fn known_page(&self) -> Option<PageNumber> {
        self.paged.page().map(|(page, _)| page)
    }

    /// The page of a cold run.
    pub(crate) fn cold_page(&self) -> Option<PageNumber> {
        let page = self.paged.page().filter(|_| self.is_cold());
        page.map(|(page, _)| page)
    }

    /// Its page, if that has records that are in memory and can leave it.
    pub(super) fn page_to_evict(&self) -> Option<PageNumber> {
        // Mostly nothing is here, and that is known at once.
        if self.records_here() == 0 || !self.can_be_cold() {
            return None;
        }
        let (page, changed) = self.paged.page()?;
        let changed = changed.and(&self.live).count() as u64;
        // All that have a patch have changed, and are not in memory.
        (self.records_here() > changed.saturating_sub(self.patch_count())).then_some(page)
    }

    /// Whether records can be taken out of memory: the others are few.
    pub(super) fn can_be_cold(&self) -> bool {
        self.is_cold() || self.has_kept_page()
    }

    /// The same run without the records of its page. `None` if it has no page, or if too many changed since. Messages that
    /// are due after `far_from` leave the order by time; their places there are returned.
    pub(super) fn evicted(&self, far_from: Timestamp) -> Option<(Self, Vec<TimedKey>)> {
        let (_, changed) = self.paged.page().filter(|_| self.can_be_cold())?;
        let mut cold = match &self.cold {
            Some(cold) => Cold::clone(cold),
            None => Cold::default(),
        };
        if self.records_here() == self.live_count {
            cold.waiting = self.waiting().map(Box::new);
        }
        let mut run = Self {
            records: Records::default(),
            sides: BTreeMap::new(),
            spread: self.spread.clone(),
            expires_first: Hint::new(*self.expires_first),
            quarantined: self.quarantined.clone(),
            cold: Some(Box::new(cold)),
            paged: self.paged.clone(),
            ..*self
        };
        let is_dropped = is_planted(Bug::ChangedDropped);
        for slot in changed.iter_from(0).filter(|_| !is_dropped) {
            if let Some(record) = self.records.get(slot) {
                run.records.put(slot, *record, self.length);
            }
            if let Some(entry) = self.entry_here(slot) {
                let side = run.without_first(slot, entry.whole_side());
                if !side.is_empty() {
                    run.sides.insert(slot, side);
                }
            }
        }
        let left = run.leave_order(self, far_from);
        Some((run, left))
    }

    /// Adds records of a group of a page: those that are wanted, and not in memory. Adds to `came` the places of those that
    /// enter the order by time again.
    pub(super) fn add_copies(&mut self, read: GroupRead, came: &mut Vec<TimedKey>) -> Taken {
        if self.cold_page() != Some(read.page) {
            return Taken::Replaced;
        }
        let ReadOf::Messages(messages) = read.of else {
            return Taken::Damaged;
        };
        self.put_copies(messages, came);
        if self.missing_in(read.group.index) & read.wanted != 0 {
            return Taken::Damaged;
        }
        if self.is_whole_again() && self.has_kept_page() {
            self.cold = None;
        }
        Taken::InMemory
    }

    /// Whether a cold run has all of its records in memory.
    pub(super) fn is_whole_again(&self) -> bool {
        self.is_cold() && self.patch_count() == 0 && self.records.count() == self.live_count
    }

    /// Whether a cold run needs nothing of its page: all that is left of it has changed, and is in memory.
    pub(super) fn has_outgrown_page(&self) -> bool {
        // Most runs have other records, and that is known at once.
        self.is_whole_again()
            && (self.paged.page())
                .is_some_and(|(_, changed)| self.live.without(&changed).is_empty())
    }

    pub(super) fn put_copies(&mut self, messages: Vec<Paged>, came: &mut Vec<TimedKey>) {
        for (slot, mut record, side) in messages {
            let mut side = side.map(|it| *it).unwrap_or_default();
            if !self.live.contains(slot) || self.records.get(slot).is_some() {
                continue;
            }
            if let Some(cold) = &mut self.cold
                && let Some(patch) = cold.patches.remove(&slot)
            {
                patch.lay_over(&mut record, &mut side);
            }
            if self.forget_far(slot) {
                came.push((record.due_at, self.number(slot)));
            }
            self.records.put(slot, record, self.length);
            let side = self.without_first(slot, side);
            if !side.is_empty() {
                self.sides.insert(slot, side);
            }
        }
    }
}

/// A group that is to be read.
#[derive(Clone, Debug)]
pub struct GroupToRead {
    pub(crate) group: Group,
    pub(crate) wanted: Slots,
    pub(crate) page: PageNumber,
}

/// What was wanted of a group, as it was read.
#[derive(Debug)]
pub struct GroupRead {
    pub(crate) group: Group,
    pub(crate) wanted: Slots,
    pub(crate) page: PageNumber,
    pub(crate) of: ReadOf,
}

/// What was in it.
#[derive(Debug)]
pub(crate) enum ReadOf {
    /// The wanted messages, and no others.
    Messages(Vec<Paged>),
    /// The remembered ids of a block.
    Ids(Vec<(Timestamp, u128)>),
}

impl GroupRead {
    /// Their entity.
    pub(crate) fn entity(&self) -> Incarnation {
        self.group.entity
    }
}

impl GroupToRead {
    /// What it is.
    pub fn group(&self) -> Group {
        self.group
    }

    /// Which of its messages are needed.
    pub fn wanted(&self) -> Slots {
        self.wanted
    }

    /// These messages as they were read. Others take no memory.
    pub(crate) fn only_wanted(self, length: RunLength, mut messages: Vec<Paged>) -> GroupRead {
        let first = self.group.index * length.slots_per_group();
        let is_wanted = |slot: usize| {
            let place = slot.checked_sub(first);
            let place = place.filter(|place| *place < length.slots_per_group());
            place.is_some_and(|place| self.wanted & 1 << place != 0)
        };
        messages.retain(|(slot, ..)| is_wanted(*slot));
        messages.shrink_to_fit();
        self.with(ReadOf::Messages(messages))
    }

    /// The ids of a block, as they were read.
    pub(crate) fn with_ids(self, ids: Vec<(Timestamp, u128)>) -> GroupRead {
        self.with(ReadOf::Ids(ids))
    }

    fn with(self, of: ReadOf) -> GroupRead {
        GroupRead {
            group: self.group,
            wanted: self.wanted,
            page: self.page,
            of,
        }
    }

    /// The page that has it.
    pub fn page(&self) -> PageNumber {
        self.page
    }

    /// The groups of the page that are needed for it: what the page is of, and its messages. A page of ids has one.
    pub fn groups(&self) -> impl Iterator<Item = usize> {
        let messages = match self.group.block() {
            Some(_) => None,
            None => Some(1 + self.group.index),
        };
        [0].into_iter().chain(messages)
    }
}
