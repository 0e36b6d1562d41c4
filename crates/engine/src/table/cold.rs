//! A run whose records are on a page, and not in memory.
//!
//! Its bits, counts and bounds stay in memory. So what effects do to it needs no page: a message that ends takes two
//! bits with it, one that arrives is put beside the page, and a lease is kept as a *patch* until the record is read.
//! The run's own records are then those that were changed, which stay, and copies of the page's, which can be dropped
//! at any time.
//!
//! Whether a run is cold is no part of the state, and no decision depends on it: a decision asks for what it reads
//! (`Missing`), and to read a record that is not there is a mistake.

use std::borrow::Cow;
use std::collections::BTreeMap;

use thiserror::Error;

use super::Entry;
use super::bits::Bits;
use super::page::{Page, Paged, SLOTS_PER_GROUP};
use super::record::{Leased, MessageState, Record, Side};
use super::records::Records;
use super::run::Run;
use crate::vocabulary::codec::DecodeError;
use crate::vocabulary::{BodyLocation, BodyMove, Incarnation, SequenceNumber, Timestamp};

#[derive(Clone, Debug)]
pub(super) struct Cold {
    page: Page,
    /// The slots whose record is in memory because the page has another one, or none.
    changed: Bits,
    /// Changes to records that are not in memory.
    patches: BTreeMap<usize, Patch>,
    /// No message of the page came earlier.
    enqueued_first: Timestamp,
}

/// What was done to a message whose record is not in memory: values, not differences.
#[derive(Clone, Debug, Default)]
struct Patch {
    leased: Option<Leased>,
    /// When it expires, if it became ready meanwhile.
    expires_at: Option<Timestamp>,
    overlays: Vec<BodyLocation>,
    /// Moves of what the page has.
    moves: Vec<BodyMove>,
}

impl Patch {
    fn lease(&mut self, leased: &Leased) {
        if leased.state == MessageState::Ready {
            self.expires_at = Some(leased.until);
        }
        let before = self.leased.and_then(|before| before.body);
        self.leased = Some(Leased {
            body: leased.body.or(before),
            ..*leased
        });
    }

    fn move_body(&mut self, body: BodyMove) {
        let sent = self.leased.as_mut().and_then(|it| it.body.as_mut());
        let sent = sent.map(|body| &mut body.location).into_iter();
        match sent.chain(&mut self.overlays).find(|at| **at == body.from) {
            Some(at) => *at = body.to,
            None => self.moves.push(body),
        }
    }

    /// Lays it over a message of the page.
    fn lay_over(self, record: &mut Record, side: &mut Side) {
        for body in self.moves {
            let sent = std::iter::once(&mut record.body);
            if let Some(at) = sent.chain(&mut side.overlays).find(|at| **at == body.from) {
                *at = body.to;
            }
        }
        if let Some(expires_at) = self.expires_at {
            record.expires_at = expires_at;
        }
        if let Some(leased) = &self.leased {
            record.lease(leased);
        }
        side.overlays.extend(self.overlays);
    }
}

/// What becomes of a run in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealing {
    /// It stays as it is.
    Stay,
    /// Copies of records of its page are dropped.
    Forget,
    /// Its records are written to a new page.
    Write,
    /// Likewise, and the first read of the page fails.
    WriteFailing,
}

/// Why messages cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The page cannot be read now.
    #[error("a page cannot be read")]
    Failed,
    /// The page is not what was written.
    #[error("a page is damaged: {0}")]
    Damaged(DecodeError),
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

    pub(super) fn is_cold(&self) -> bool {
        self.cold.is_some()
    }

    /// The group of a message.
    pub(super) fn group_of(&self, number: SequenceNumber) -> usize {
        self.slot(number) / SLOTS_PER_GROUP
    }

    pub(super) fn page(&self) -> Option<&Page> {
        self.cold.as_ref().map(|cold| &cold.page)
    }

    /// Notes that a record in memory is not the one of the page any more.
    pub(super) fn note_changed(&mut self, slot: usize) {
        self.paged.note(slot);
        if let Some(cold) = &mut self.cold {
            cold.changed.insert(slot);
        }
    }

    /// Notes that a message is gone.
    pub(super) fn note_gone(&mut self, slot: usize) {
        if let Some(cold) = &mut self.cold {
            cold.changed.remove(slot);
            cold.patches.remove(&slot);
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
        if leased.state == MessageState::Ready {
            self.expires_last = self.expires_last.max(leased.until);
        }
        true
    }

    /// Adds a change to the properties of such a message.
    pub(super) fn add_overlay_cold(&mut self, slot: usize, overlay: BodyLocation) {
        if let Some(patch) = self.patch(slot) {
            patch.overlays.push(overlay);
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
            (None, Some(cold)) if self.live.contains(slot) => Some(cold.enqueued_first),
            (None, Some(_) | None) => None,
        }
    }

    /// The run with all of its records, for one walk. Reads a cold one's page: not for decisions.
    pub(crate) fn whole(&self) -> Cow<'_, Self> {
        match &self.cold {
            None => Cow::Borrowed(self),
            Some(cold) => Cow::Owned(self.warmed(cold)),
        }
    }

    /// What `each` makes of every message. Reads a cold run's page: not for decisions.
    pub(super) fn read_all<R>(&self, each: impl Fn(Entry<'_>) -> R) -> Vec<R> {
        self.whole().entries().map(each).collect()
    }

    fn warmed(&self, cold: &Cold) -> Self {
        let mut run = self.clone();
        for index in 0..cold.page.group_count() {
            let messages = cold.page.group(index);
            run.put_copies(messages.expect("a page in memory is as it was written"));
        }
        run.cold = None;
        run
    }

    /// The same run without its records, which are on a page.
    pub(super) fn sealed(&self, fails_once: bool) -> Self {
        let whole = self.whole();
        let page = Page::of(whole.entries().map(|entry| {
            let Entry {
                number,
                record,
                side,
            } = entry;
            (self.slot(number), record, side)
        }));
        let page = if fails_once {
            page.failing_once()
        } else {
            page
        };
        let enqueued = whole.entries().map(|entry| entry.record.enqueued_at);
        let cold = Cold {
            page,
            changed: Bits::default(),
            patches: BTreeMap::new(),
            enqueued_first: enqueued.min().unwrap_or(Timestamp::ZERO),
        };
        self.without_records(cold)
    }

    /// The same cold run without copies of its page's records.
    pub(super) fn forgotten(&self) -> Option<Self> {
        let cold = self.cold.as_ref()?;
        let mut run = self.without_records(Cold::clone(cold));
        for slot in cold.changed.iter_from(0) {
            if let Some(record) = self.records.get(slot) {
                run.records.put(slot, *record, self.length);
            }
            if let Some(side) = self.sides.get(&slot) {
                run.sides.insert(slot, side.clone());
            }
        }
        Some(run)
    }

    fn without_records(&self, cold: Cold) -> Self {
        Self {
            records: Records::default(),
            sides: BTreeMap::new(),
            spread: self.spread.clone(),
            expires_first: crate::vocabulary::Hint::new(*self.expires_first),
            cold: Some(Box::new(cold)),
            paged: self.paged.clone(),
            ..*self
        }
    }

    /// Adds records that were read from a page. Returns false if the run has another page by now, or none.
    pub(super) fn add_copies(&mut self, page: &Page, messages: Vec<Paged>) -> bool {
        let is_there = self.page().is_some_and(|own| own.is(page));
        if is_there {
            self.put_copies(messages);
        }
        is_there
    }

    fn put_copies(&mut self, messages: Vec<Paged>) {
        for (slot, mut record, side) in messages {
            let mut side = side.map(|it| *it).unwrap_or_default();
            if !self.live.contains(slot) || self.records.get(slot).is_some() {
                continue;
            }
            if let Some(cold) = &mut self.cold
                && let Some(patch) = cold.patches.remove(&slot)
            {
                patch.lay_over(&mut record, &mut side);
                cold.changed.insert(slot);
            }
            self.records.put(slot, record, self.length);
            if !side.is_empty() {
                self.sides.insert(slot, side);
            }
        }
    }
}

/// A group that is to be read.
#[derive(Clone, Debug)]
pub struct GroupToRead {
    pub(crate) group: super::Group,
    pub(crate) page: Page,
}

/// A group that was read.
#[derive(Debug)]
pub struct GroupRead {
    pub(crate) group: super::Group,
    pub(crate) page: Page,
    pub(super) messages: Vec<Paged>,
}

impl GroupRead {
    /// The entity of its messages.
    pub(crate) fn entity(&self) -> Incarnation {
        self.group.entity
    }
}

impl GroupToRead {
    /// What it is.
    pub fn group(&self) -> super::Group {
        self.group
    }

    /// Reads it. Takes time: not for the partition's thread.
    pub fn read(self) -> Result<GroupRead, ReadError> {
        if self.page.fails() {
            return Err(ReadError::Failed);
        }
        let messages = self.page.group(self.group.index);
        let messages = messages.map_err(ReadError::Damaged)?;
        Ok(GroupRead {
            group: self.group,
            page: self.page,
            messages,
        })
    }
}
