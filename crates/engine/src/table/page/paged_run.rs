//! A run as its directory page has it, and its messages with those of its page.

use std::collections::BTreeMap;
use std::iter::Peekable;

use super::super::RunLength;
use super::super::bits::Bits;
use super::super::far::Waiting;
use super::super::patch::Patch;
use super::super::record::{MessageState, Record, Side};
use super::super::spread::Spread;
use super::Paged;
use crate::vocabulary::{SequenceNumber, Timestamp};

/// A run of a directory page.
#[derive(Debug)]
pub(crate) struct PagedRun {
    pub(crate) index: u64,
    pub(super) live: Bits,
    pub(in crate::table) ready: Bits,
    pub(crate) size_bytes: u64,
    /// The lengths of the bodies that messages elsewhere count. Zero if an earlier version wrote it.
    pub(in crate::table) borrowed_bytes: u64,
    pub(crate) expires_first: Timestamp,
    pub(crate) expires_last: Timestamp,
    /// No message came earlier. `None` if an earlier version wrote it.
    pub(crate) enqueued_first: Option<Timestamp>,
    pub(crate) spread: Spread,
    /// Whether a page of its own follows.
    pub(crate) has_page: bool,
    /// Whether a message may have what the bits do not say.
    pub(in crate::table) has_special: bool,
    /// The slots of messages that were set aside, if there are any.
    pub(super) quarantined: Option<Bits>,
    /// What the bits do not say of the states of messages that are as its page has them.
    pub(super) waiting: Option<Waiting>,
    /// Changes to records of its page, by slot.
    pub(super) patches: BTreeMap<usize, Patch>,
    /// The records that are here.
    pub(super) here: Vec<Paged>,
}

/// A message with its number.
pub(crate) type Numbered = (SequenceNumber, Record, Side);

impl PagedRun {
    /// The slots whose messages are not as they are on the run's page.
    pub(in crate::table) fn changed(&self) -> Bits {
        let mut changed = self.told();
        for slot in self.patches.keys() {
            changed.insert(*slot);
        }
        changed
    }

    /// The slots whose states are told here.
    fn told(&self) -> Bits {
        let mut told = Bits::default();
        for (slot, ..) in self.states() {
            told.insert(slot);
        }
        told
    }

    /// The states that are told here, and until when they last.
    fn states(&self) -> impl Iterator<Item = (usize, MessageState, Timestamp)> {
        let here = self.here.iter();
        let here = here.map(|(slot, record, _)| (*slot, record.state, record.due_at));
        let patched = self.patches.iter().filter_map(|(slot, patch)| {
            let (state, until) = patch.standing()?;
            Some((*slot, state, until))
        });
        here.chain(patched)
    }

    /// The same, by number.
    pub(crate) fn told_states(
        &self,
        length: RunLength,
    ) -> impl Iterator<Item = (SequenceNumber, MessageState, Timestamp)> {
        let first = length.first_of(self.index);
        let states = self.states();
        states.map(move |(slot, state, until)| {
            (SequenceNumber::new(first + slot as u64), state, until)
        })
    }

    /// The number of its first message, and how many there are.
    pub(crate) fn first_and_count(&self, length: RunLength) -> (SequenceNumber, u64) {
        let first = length.first_of(self.index) + self.live.first().unwrap_or_default() as u64;
        (SequenceNumber::new(first), self.live.count() as u64)
    }

    /// Whether a restore needs nothing that is on its page: all messages there can be received in the order of their
    /// numbers, or the run says which of them wait, and none is in another order; or none is left. One with more changes
    /// than may lie beside the page of a run in memory gets another page: so these changes do not stay in memory, and in its
    /// directory, for as long as it has messages. But its page may be damaged if messages of it were set aside.
    pub(crate) fn is_plain(&self, length: RunLength) -> bool {
        let is_plain = !self.has_special || self.live.is_empty();
        let changes = self.here.len() + self.patches.len();
        self.can_be_damaged()
            && is_plain
            && (changes <= length.changes_max() || self.quarantined.is_some())
    }

    /// Whether a restore can do without messages whose records are lost with its page: what each of them counts for is
    /// known. What is not known is which session it has, so it is in none.
    pub(crate) fn can_be_damaged(&self) -> bool {
        let is_known = self.has_page && self.enqueued_first.is_some();
        is_known && (self.waiting.is_some() || self.untold().is_empty())
    }

    /// The slots of messages whose states are told neither by their bits nor here.
    pub(in crate::table) fn untold(&self) -> Bits {
        self.live.without(&self.ready).without(&self.told())
    }

    /// What is said of these.
    pub(in crate::table) fn waiting(&self, length: RunLength) -> Option<Waiting> {
        self.waiting.map(|it| it.of(&self.untold(), length))
    }

    /// The states of these.
    pub(crate) fn waiting_states(
        &self,
        length: RunLength,
    ) -> impl Iterator<Item = (SequenceNumber, MessageState)> {
        let first = length.first_of(self.index);
        let untold = self.untold();
        let states = self.waiting.into_iter();
        let states = states.flat_map(move |it| it.states(&untold).collect::<Vec<_>>());
        states.map(move |(slot, state)| (SequenceNumber::new(first + slot as u64), state))
    }

    /// Whether this version would write it in the same form.
    pub(crate) fn is_of_this_version(&self) -> bool {
        self.enqueued_first.is_some() && (!self.has_page || self.can_be_damaged())
    }

    pub(in crate::table) fn live(&self) -> Bits {
        self.live
    }

    /// The slots of messages that were set aside, if there are any.
    pub(in crate::table) fn quarantined(&self) -> Option<&Bits> {
        self.quarantined.as_ref()
    }

    /// Whether messages of it were set aside: its page may not be readable.
    pub(crate) fn has_quarantined(&self) -> bool {
        self.quarantined.is_some()
    }

    pub(in crate::table) fn patches(&self) -> &BTreeMap<usize, Patch> {
        &self.patches
    }

    /// Its messages, with those of its page.
    pub(crate) fn messages(
        &self,
        length: RunLength,
        page: Vec<Paged>,
    ) -> Messages<'_, impl Iterator<Item = usize>> {
        Messages {
            first: length.first_of(self.index),
            slots: self.live.iter_from(0),
            here: &self.here,
            page: page.into_iter().peekable(),
            patches: &self.patches,
        }
    }

    /// Its records that are not on its page.
    pub(crate) fn here(&self) -> &[Paged] {
        &self.here
    }

    /// What is left of its messages, with what is left of its page, and the numbers of those that are missing.
    pub(crate) fn left(
        &self,
        length: RunLength,
        page: Vec<Paged>,
    ) -> (Vec<Numbered>, Vec<SequenceNumber>) {
        let first = length.first_of(self.index);
        let page = page.into_iter().map(|(slot, mut record, mut side)| {
            if let Some(patch) = self.patches.get(&slot) {
                side = lay_over(patch, &mut record, side);
            }
            (slot, record, side)
        });
        let all = page.chain(self.here.iter().cloned());
        let mut records: BTreeMap<usize, (Record, Option<Box<Side>>)> = all
            .map(|(slot, record, side)| (slot, (record, side)))
            .collect();
        let (mut left, mut missing) = (Vec::new(), Vec::new());
        for slot in self.live.iter_from(0) {
            let number = SequenceNumber::new(first + slot as u64);
            match records.remove(&slot) {
                Some((record, side)) => left.push(numbered(number, record, side)),
                None => missing.push(number),
            }
        }
        (left, missing)
    }
}

/// The messages of a run: the records that are in its directory, and those of its page.
pub(crate) struct Messages<'a, S> {
    first: u64,
    slots: S,
    here: &'a [Paged],
    page: Peekable<std::vec::IntoIter<Paged>>,
    patches: &'a BTreeMap<usize, Patch>,
}

/// Lays over a message of the run's page what changed since.
fn lay_over(patch: &Patch, record: &mut Record, side: Option<Box<Side>>) -> Option<Box<Side>> {
    let mut side = side.map(|it| *it).unwrap_or_default();
    patch.clone().lay_over(record, &mut side);
    (!side.is_empty()).then(|| Box::new(side))
}

impl<S: Iterator<Item = usize>> Messages<'_, S> {
    /// The next one. An error if its record is missing, or if one is in the directory and not live.
    pub(crate) fn next(&mut self) -> Result<Option<Numbered>, &'static str> {
        let Some(slot) = self.slots.next() else {
            let is_done = self.here.is_empty();
            return is_done
                .then_some(None)
                .ok_or("record of a message that is gone");
        };
        while self.page.next_if(|(at, ..)| *at < slot).is_some() {}
        let paged = self.page.next_if(|(at, ..)| *at == slot);
        let paged = match self.here.split_first() {
            Some((changed, rest)) if changed.0 == slot => {
                self.here = rest;
                Some(changed.clone())
            }
            Some(_) | None => paged,
        };
        let (_, mut record, mut side) = paged.ok_or("run whose records are missing")?;
        // Those that are in the directory have none.
        if !self.patches.is_empty()
            && let Some(patch) = self.patches.get(&slot)
        {
            side = lay_over(patch, &mut record, side);
        }
        let number = SequenceNumber::new(self.first + slot as u64);
        Ok(Some((
            number,
            record,
            side.map(|it| *it).unwrap_or_default(),
        )))
    }
}

/// The messages of a run's page without its directory, also those that were gone. `None` if there is no such run.
pub(crate) fn without_directory(
    length: RunLength,
    index: u64,
    page: Vec<Paged>,
) -> Option<Vec<Numbered>> {
    if length.run_of((1 << SequenceNumber::BITS) - 1) < index {
        return None;
    }
    let first = length.first_of(index);
    let records = page.into_iter();
    let records = records.filter(|(slot, ..)| *slot < length.slots());
    let numbered = records.map(|(slot, record, side)| {
        let number = SequenceNumber::new(first + slot as u64);
        numbered(number, record, side)
    });
    Some(numbered.collect())
}

fn numbered(number: SequenceNumber, record: Record, side: Option<Box<Side>>) -> Numbered {
    (number, record, side.map(|it| *it).unwrap_or_default())
}
