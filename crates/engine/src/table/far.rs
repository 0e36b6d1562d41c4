//! Messages that wait for a time (the end of a lease, a lock or a schedule) and whose records are on a page alone.
//!
//! A message whose record is in memory is in the backlog's order by time. One that waits for long leaves that order with
//! its record: its run keeps a bit for it, and a time before which none of these messages is due. Once that has come, all
//! of them are read, and enter the order again.
//!
//! A directory page says which messages of a run's page wait, so that a start need not read it.

use super::bits::Bits;
use super::length::RunLength;
use super::missing::Missing;
use super::page::directory::{bits, put_bits};
use super::paged::RecordsAt;
use super::record::{MessageState, Record};
use super::timed::TimedKey;
use super::{Live, Run, Table};
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::elements::{put_time, time};
use crate::vocabulary::{Incarnation, SequenceNumber, Timestamp};

/// How many runs are read at once whose messages may be due.
const RUNS_AT_ONCE: usize = 4;

/// Messages that are in no order by time.
#[derive(Clone, Debug)]
pub(in crate::table) struct Far {
    slots: Bits,
    /// None of them is due earlier.
    first: Timestamp,
}

/// What of a run's page cannot be received in the order of its number, and is as the page has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Waiting {
    /// Those that wait for a time. The others are deferred.
    timed: Bits,
    /// Of these, the scheduled ones. The others are locked, or leased.
    scheduled: Bits,
    /// None of them is due earlier.
    first: Timestamp,
}

impl RunLength {
    /// The most that a directory page says of the messages of a run that wait: two sets of bits, and a time.
    pub(crate) fn waiting_size_bytes_max(self) -> u64 {
        let words = self.as_u64().div_ceil(64);
        2 * (4 + 8 * words) + 10
    }
}

impl Waiting {
    fn new() -> Self {
        Self {
            timed: Bits::default(),
            scheduled: Bits::default(),
            first: Timestamp::NEVER,
        }
    }

    fn add(&mut self, slot: usize, record: &Record) {
        match record.state {
            MessageState::Ready | MessageState::Deferred => return,
            MessageState::Locked { .. } => {}
            MessageState::Scheduled => {
                self.scheduled.insert(slot);
            }
        }
        self.timed.insert(slot);
        self.first = self.first.min(record.due_at);
    }

    /// What it says of some of the slots.
    pub(in crate::table) fn of(&self, slots: &Bits) -> Self {
        Self {
            timed: self.timed.and(slots),
            scheduled: self.scheduled.and(slots),
            first: self.first,
        }
    }

    /// The states of these messages. Whose a lock is, and when it ends, is on the page: nothing counts that.
    pub(in crate::table) fn states(
        &self,
        slots: &Bits,
    ) -> impl Iterator<Item = (usize, MessageState)> {
        slots.iter_from(0).map(|slot| (slot, self.state(slot)))
    }

    fn state(&self, slot: usize) -> MessageState {
        match (self.scheduled.contains(slot), self.timed.contains(slot)) {
            (true, _) => MessageState::Scheduled,
            (false, true) => MessageState::Locked { deferred: false },
            (false, false) => MessageState::Deferred,
        }
    }

    /// Its messages that wait for a time, none of which is in an order.
    pub(in crate::table) fn far(&self) -> Option<Box<Far>> {
        let (slots, first) = (self.timed, self.first);
        (!slots.is_empty()).then(|| Box::new(Far { slots, first }))
    }

    pub(in crate::table) fn put(&self, out: &mut Vec<u8>) {
        put_bits(out, &self.timed);
        put_bits(out, &self.scheduled);
        put_time(out, self.first);
    }

    /// Reads it, of a run with these messages.
    pub(in crate::table) fn read(r: &mut Reader<'_>, live: &Bits) -> Result<Self, DecodeError> {
        let (timed, scheduled, first) = (bits(r)?, bits(r)?, time(r)?);
        let is_within = timed.without(live).is_empty() && scheduled.without(&timed).is_empty();
        match is_within {
            true => Ok(Self {
                timed,
                scheduled,
                first,
            }),
            false => Err(r.error("waiting messages that are not those of a run")),
        }
    }
}

/// What a run says of its messages that are in no order by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FarKnown {
    count: u64,
    first: Option<Timestamp>,
}

impl Table {
    /// How many messages wait for a time that only their pages have.
    pub(crate) fn far_count(&self) -> u64 {
        *self.far_count
    }

    /// None of them is due earlier.
    pub(crate) fn far_first(&self) -> Option<Timestamp> {
        self.far.first().map(|(at, _)| *at)
    }

    /// Whether a message is one of them.
    pub(crate) fn is_far(&self, number: SequenceNumber) -> bool {
        let run = self.run(self.length.run_of(number.as_u64()));
        run.is_some_and(|run| run.is_far(number))
    }

    /// Asks for those of some runs that may be due at that time.
    pub(crate) fn ask_far(&self, entity: Incarnation, at: Timestamp, missing: &mut Missing) {
        let due = self.far.iter().take_while(|(first, _)| *first <= at);
        let runs = due.filter_map(|(_, run)| self.run(*run)).take(RUNS_AT_ONCE);
        for number in runs.flat_map(Run::far_numbers) {
            self.ask(entity, number, missing);
        }
    }

    /// Counts what a run says now, and not what it said before.
    pub(super) fn recount_far(
        &mut self,
        index: u64,
        before: FarKnown,
        after: FarKnown,
        live: &mut Live,
    ) {
        if before != after {
            live.resident.far = live.resident.far + after.count - before.count;
            self.note_far(index, before, after);
        }
    }

    /// The same, without the partition's sum.
    pub(super) fn note_far(&mut self, index: u64, before: FarKnown, after: FarKnown) {
        if before.first != after.first {
            if let Some(first) = before.first {
                self.far.remove(&(first, index));
            }
            if let Some(first) = after.first {
                self.far.insert((first, index));
            }
        }
        *self.far_count = *self.far_count + after.count - before.count;
    }
}

impl Run {
    pub(super) fn far_known(&self) -> FarKnown {
        FarKnown {
            count: self.far_count(),
            first: self.far_first(),
        }
    }

    /// How many of its messages are in no order by time although they wait for one.
    pub(crate) fn far_count(&self) -> u64 {
        let far = self.far();
        far.map_or(0, |far| far.slots.count() as u64)
    }

    /// How many messages cannot be received in the order of their numbers: at most the 1,024 of a run.
    pub(super) fn not_ready_count(&self) -> u32 {
        u32::try_from(self.live.without(&self.ready).count()).unwrap_or(u32::MAX)
    }

    /// None of them is due earlier.
    pub(crate) fn far_first(&self) -> Option<Timestamp> {
        self.far().map(|far| far.first)
    }

    /// Whether a message is one of them.
    pub(crate) fn is_far(&self, number: SequenceNumber) -> bool {
        let slot = self.slot(number);
        self.far().is_some_and(|far| far.slots.contains(slot))
    }

    /// Their numbers.
    pub(super) fn far_numbers(&self) -> impl Iterator<Item = SequenceNumber> {
        let far = self.far().into_iter();
        let slots = far.flat_map(|far| far.slots.iter_from(0));
        slots.map(|slot| self.number(slot))
    }

    fn far(&self) -> Option<&Far> {
        self.cold.as_ref()?.far.as_deref()
    }

    /// A message is not one of them any more. Returns whether it was.
    pub(super) fn forget_far(&mut self, slot: usize) -> bool {
        let Some(cold) = &mut self.cold else {
            return false;
        };
        let Some(far) = &mut cold.far else {
            return false;
        };
        let was_far = far.slots.remove(slot);
        if far.slots.is_empty() {
            cold.far = None;
        }
        was_far
    }

    /// Lets messages whose records have left memory leave their order by time too, if they are due after `far_from`.
    /// Returns their places there.
    pub(super) fn leave_order(&mut self, before: &Self, far_from: Timestamp) -> Vec<TimedKey> {
        let mut keys = Vec::new();
        let Some(cold) = &mut self.cold else {
            return keys;
        };
        let (mut slots, mut first) = match cold.far.take() {
            Some(far) => (far.slots, far.first),
            None => (Bits::default(), Timestamp::NEVER),
        };
        for slot in self.live.without(&self.ready).iter_from(0) {
            let record = before.records.get(slot);
            let left = record.filter(|_| self.records.get(slot).is_none());
            if let Some(record) = left.filter(|it| is_timed(it.state) && it.due_at > far_from) {
                slots.insert(slot);
                first = first.min(record.due_at);
                keys.push((record.due_at, before.number(slot)));
            }
        }
        cold.far = (!slots.is_empty()).then(|| Box::new(Far { slots, first }));
        keys
    }

    /// The slots of messages whose states only its page tells: they are not ready, and neither changed since nor patched.
    fn untold(&self, changed: &Bits) -> Bits {
        let here = changed
            .iter_from(0)
            .filter(|slot| self.records.get(*slot).is_some());
        let mut told = Bits::default();
        for slot in here {
            told.insert(slot);
        }
        let patched = self
            .patches()
            .filter(|(_, patch)| patch.standing().is_some());
        for (slot, _) in patched {
            told.insert(*slot);
        }
        self.live.without(&self.ready).without(&told)
    }

    /// What its page has of messages that cannot be received in the order of their numbers. `None` if it has none, or if the
    /// run has no page.
    pub(in crate::table) fn waiting(&self) -> Option<Waiting> {
        let changed = match self.records_at() {
            RecordsAt::Directory => return None,
            RecordsAt::Page(_, changed) => changed,
            RecordsAt::NewPage => Bits::default(),
        };
        if self.is_all_ready() {
            return None;
        }
        let untold = self.untold(&changed);
        if untold.is_empty() {
            return None;
        }
        // A cold run was told when it became cold, or by its directory.
        if let Some(known) = self.cold.as_ref().and_then(|cold| cold.waiting.as_ref())
            && self.records_here() < self.live_count()
        {
            return Some(known.of(&untold));
        }
        let mut waiting = Waiting::new();
        for slot in untold.iter_from(0) {
            if let Some(record) = self.records.get(slot) {
                waiting.add(slot, record);
            }
        }
        Some(waiting)
    }
}

impl Run {
    /// The state of a message that only the page has, if it is not ready. That of a message with a session is not known.
    pub(super) fn waiting_state(&self, slot: usize) -> Option<MessageState> {
        let waiting = self.cold.as_ref()?.waiting.as_ref()?;
        let is_known = self.live.contains(slot) && !self.ready.contains(slot) && !self.has_special;
        is_known.then(|| waiting.state(slot))
    }
}

/// Whether a message of that state waits for a time.
pub(crate) fn is_timed(state: MessageState) -> bool {
    match state {
        MessageState::Locked { .. } | MessageState::Scheduled => true,
        MessageState::Ready | MessageState::Deferred => false,
    }
}
