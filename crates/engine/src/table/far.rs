//! Messages that wait for a time (the end of a lease, a lock or a schedule) and whose records are on a page alone.
//!
//! A message whose record is in memory is in the backlog's order by time. One that waits for long leaves that order with
//! its record: its run keeps a bit for it, and for each group of its page a time before which none of these messages is
//! due. Once that has come, those of the group are read, and enter the order again.
//!
//! A directory page says which messages of a run's page wait, so that a start need not read it.

use super::bits::Bits;
use super::length::RunLength;
use super::missing::{Group, Missing, Slots};
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

/// The most groups of a run.
const GROUPS_MAX: usize = 8;

/// For each group of a run, a time before which none of its messages is due.
type Firsts = [Timestamp; GROUPS_MAX];

/// Messages that are in no order by time.
#[derive(Clone, Debug)]
pub(in crate::table) struct Far {
    slots: Bits,
    /// `NEVER` for a group that has none.
    firsts: Firsts,
}

/// No message of a run is due earlier, and none of that run has a lower number. It compares with others as their messages do.
pub(crate) type FarKey = (Timestamp, u64);

/// What of a run's page cannot be received in the order of its number, and is as the page has it. What neither waits for a
/// time nor is deferred can be received in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Waiting {
    /// Those that wait for a time.
    timed: Bits,
    /// Of these, the scheduled ones. The others are locked, or leased.
    scheduled: Bits,
    deferred: Bits,
    firsts: Firsts,
}

impl RunLength {
    /// The most that a directory page says of the messages of a run that wait: three sets of bits, and times.
    pub(crate) fn waiting_size_bytes_max(self) -> u64 {
        let words = self.as_u64().div_ceil(64);
        3 * (4 + 8 * words) + 10 * self.groups().len() as u64
    }

    fn group_of_slot(self, slot: usize) -> usize {
        slot / self.slots_per_group()
    }

    /// Those of some slots that are in a group.
    fn slots_in(self, group: usize, slots: &Bits) -> impl Iterator<Item = usize> {
        let (from, count) = (group * self.slots_per_group(), self.slots_per_group());
        slots
            .iter_from(from)
            .take_while(move |slot| slot - from < count)
    }

    /// The groups that have some of the slots.
    fn groups_with(self, slots: &Bits) -> impl Iterator<Item = usize> {
        let has_some = move |group: &usize| self.slots_in(*group, slots).next().is_some();
        self.groups().filter(has_some)
    }
}

/// Notes that a message of a group is due at that time.
fn lower(firsts: &mut Firsts, group: usize, at: Timestamp) {
    if let Some(first) = firsts.get_mut(group) {
        *first = at.min(*first);
    }
}

/// Those of some groups.
fn only(firsts: &Firsts, groups: impl Iterator<Item = usize>) -> Firsts {
    let mut only = [Timestamp::NEVER; GROUPS_MAX];
    for group in groups {
        if let (Some(to), Some(first)) = (only.get_mut(group), firsts.get(group)) {
            *to = *first;
        }
    }
    only
}

impl Far {
    fn new() -> Self {
        Self {
            slots: Bits::default(),
            firsts: [Timestamp::NEVER; GROUPS_MAX],
        }
    }

    fn add(&mut self, slot: usize, at: Timestamp, length: RunLength) {
        self.slots.insert(slot);
        lower(&mut self.firsts, length.group_of_slot(slot), at);
    }

    /// Returns whether it was one of them.
    fn remove(&mut self, slot: usize, length: RunLength) -> bool {
        let was_far = self.slots.remove(slot);
        let group = length.group_of_slot(slot);
        if was_far
            && length.slots_in(group, &self.slots).next().is_none()
            && let Some(first) = self.firsts.get_mut(group)
        {
            *first = Timestamp::NEVER;
        }
        was_far
    }

    fn first(&self) -> Timestamp {
        self.firsts.iter().min().copied().unwrap_or_default()
    }
}

impl Waiting {
    fn new() -> Self {
        Self {
            timed: Bits::default(),
            scheduled: Bits::default(),
            deferred: Bits::default(),
            firsts: [Timestamp::NEVER; GROUPS_MAX],
        }
    }

    fn add(&mut self, slot: usize, record: &Record, length: RunLength) {
        match record.state {
            MessageState::Ready => return,
            MessageState::Deferred => {
                self.deferred.insert(slot);
                return;
            }
            MessageState::Locked { .. } => {}
            MessageState::Scheduled => {
                self.scheduled.insert(slot);
            }
        }
        self.timed.insert(slot);
        lower(&mut self.firsts, length.group_of_slot(slot), record.due_at);
    }

    /// What it says of some of the slots.
    pub(in crate::table) fn of(&self, slots: &Bits, length: RunLength) -> Self {
        let timed = self.timed.and(slots);
        Self {
            timed,
            scheduled: self.scheduled.and(slots),
            deferred: self.deferred.and(slots),
            firsts: only(&self.firsts, length.groups_with(&timed)),
        }
    }

    /// Raises the times of groups whose messages that wait are all known.
    fn raise(&mut self, untold: &Bits, known: &Far, length: RunLength) {
        let unknown = self.timed.and(untold).without(&known.slots);
        for group in length.groups() {
            let is_known = length.slots_in(group, &unknown).next().is_none();
            if is_known && let Some(first) = self.firsts.get_mut(group) {
                *first = known.firsts.get(group).copied().unwrap_or_default();
            }
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
            (false, false) if self.deferred.contains(slot) => MessageState::Deferred,
            (false, false) => MessageState::Ready,
        }
    }

    /// Its messages that wait for a time, none of which is in an order.
    pub(in crate::table) fn far(&self) -> Option<Box<Far>> {
        let (slots, firsts) = (self.timed, self.firsts);
        (!slots.is_empty()).then(|| Box::new(Far { slots, firsts }))
    }

    /// Sets of bits, then the time of each group that has messages which wait for one. Which messages are deferred follows
    /// from the others, unless some can be received in their sessions.
    pub(in crate::table) fn put(&self, out: &mut Vec<u8>, length: RunLength, has_sessions: bool) {
        put_bits(out, &self.timed);
        put_bits(out, &self.scheduled);
        if has_sessions {
            put_bits(out, &self.deferred);
        }
        for group in length.groups_with(&self.timed) {
            put_time(out, self.firsts.get(group).copied().unwrap_or_default());
        }
    }

    /// Reads it, of a run whose messages are these, if they are not ready.
    pub(in crate::table) fn read(
        r: &mut Reader<'_>,
        not_ready: &Bits,
        length: RunLength,
        has_sessions: bool,
    ) -> Result<Self, DecodeError> {
        let (timed, scheduled) = (bits(r)?, bits(r)?);
        let others = not_ready.without(&timed);
        let deferred = if has_sessions { bits(r)? } else { others };
        let is_within = [
            (&timed, not_ready),
            (&scheduled, &timed),
            (&deferred, &others),
        ]
        .into_iter()
        .all(|(some, all)| some.without(all).is_empty());
        if !is_within {
            return Err(r.error("waiting messages that are not those of a run"));
        }
        let mut firsts = [Timestamp::NEVER; GROUPS_MAX];
        for group in length.groups_with(&timed) {
            lower(&mut firsts, group, time(r)?);
        }
        Ok(Self {
            timed,
            scheduled,
            deferred,
            firsts,
        })
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

    /// How many of them are due later than that, as far as that is known without their pages. Takes a step for each run of
    /// the others.
    pub(crate) fn far_count_after(&self, at: Timestamp) -> u64 {
        let due = self.far.iter().take_while(|(first, _)| *first <= at);
        let runs = due.filter_map(|(_, run)| self.run(*run));
        self.far_count() - runs.map(|run| run.far_count_until(at)).sum::<u64>()
    }

    /// What none of them comes before.
    pub(crate) fn far_first(&self) -> Option<FarKey> {
        self.far.first().copied()
    }

    /// Where a message that is due at that time comes among them: before it, all of them are known that come before it.
    pub(crate) fn far_key(&self, (at, number): TimedKey) -> FarKey {
        (at, self.length.run_of(number.as_u64()))
    }

    /// Whether a message is one of them.
    pub(crate) fn is_far(&self, number: SequenceNumber) -> bool {
        let run = self.run(self.length.run_of(number.as_u64()));
        run.is_some_and(|run| run.is_far(number))
    }

    /// Asks for those that may come before one that is due, or at its place: the groups of some runs.
    pub(crate) fn ask_far(&self, entity: Incarnation, due: FarKey, missing: &mut Missing) {
        let runs = self.far.iter().take_while(|first| **first <= due);
        let runs = runs.filter_map(|(_, run)| self.run(*run));
        for run in runs.take(RUNS_AT_ONCE) {
            run.ask_far(entity, due.0, missing);
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
        self.far().map(Far::first)
    }

    /// Whether a message is one of them.
    pub(crate) fn is_far(&self, number: SequenceNumber) -> bool {
        let slot = self.slot(number);
        self.far().is_some_and(|far| far.slots.contains(slot))
    }

    /// How many are in groups in which one may be due at that time.
    fn far_count_until(&self, at: Timestamp) -> u64 {
        let Some(far) = self.far() else {
            return 0;
        };
        let firsts = far.firsts.iter().enumerate();
        let due = firsts.filter(|(_, first)| **first <= at);
        due.map(|(group, _)| self.length.slots_in(group, &far.slots).count() as u64)
            .sum()
    }

    /// Asks for those of the groups in which one may be due at that time.
    fn ask_far(&self, entity: Incarnation, at: Timestamp, missing: &mut Missing) {
        let Some(far) = self.far() else {
            return;
        };
        let firsts = far.firsts.iter().enumerate();
        for (index, _) in firsts.filter(|(_, first)| **first <= at) {
            let first = index * self.length.slots_per_group();
            let slots = self.length.slots_in(index, &far.slots);
            let wanted = slots.fold(0, |all: Slots, slot| all | 1 << (slot - first));
            let run = self.index();
            missing.add(Group { entity, run, index }, wanted);
        }
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
        let was_far = far.remove(slot, self.length);
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
        let mut far = match cold.far.take() {
            Some(far) => *far,
            None => Far::new(),
        };
        // What its page has is known better than before, where all of it was in memory or is far.
        let mut known = far.clone();
        for slot in self.live.without(&self.ready).iter_from(0) {
            let record = before.records.get(slot);
            let left = record.filter(|_| self.records.get(slot).is_none());
            if let Some(record) = left.filter(|it| is_timed(it.state)) {
                known.add(slot, record.due_at, self.length);
                if record.due_at > far_from {
                    far.add(slot, record.due_at, self.length);
                    keys.push((record.due_at, before.number(slot)));
                }
            }
        }
        cold.far = (!far.slots.is_empty()).then(|| Box::new(far));
        let changed = self.paged.page().map(|(_, changed)| changed);
        let untold = self.untold(&changed.unwrap_or_default());
        let length = self.length;
        if let Some(cold) = &mut self.cold
            && let Some(waiting) = &mut cold.waiting
        {
            waiting.raise(&untold, &known, length);
        }
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
            return Some(known.of(&untold, self.length));
        }
        let mut waiting = Waiting::new();
        for slot in untold.iter_from(0) {
            if let Some(record) = self.records.get(slot) {
                waiting.add(slot, record, self.length);
            }
        }
        Some(waiting)
    }
}

impl Run {
    /// The state of a message that only the page has, if it cannot be received in the order of its number.
    pub(super) fn waiting_state(&self, slot: usize) -> Option<MessageState> {
        let waiting = self.cold.as_ref()?.waiting.as_ref()?;
        let is_known = self.live.contains(slot) && !self.ready.contains(slot);
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
