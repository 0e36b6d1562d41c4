//! What of a table is in memory: asked for, read from pages, and given back.

use std::ops::Range;
use std::sync::Arc;

use super::cold::{GroupRead, GroupToRead, Taken};
use super::missing::{Group, Missing, Slots};
use super::{CountUnit, Entry, Leaving, Live, Resident, Table, TimedKey};
use crate::vocabulary::{Incarnation, PageNumber, SequenceNumber, Timestamp};

/// A message of a walk. `None` if its record is not in memory.
pub(crate) type Seen<'a> = (SequenceNumber, Option<Entry<'a>>);

impl Table {
    /// Whether records of some messages may not be in memory.
    pub(crate) fn has_cold(&self) -> bool {
        *self.cold_count > 0
    }

    /// Whether there is a message of that number. Needs no record.
    pub(crate) fn contains(&self, number: SequenceNumber) -> bool {
        let run = self.run(self.length.run_of(number.as_u64()));
        run.is_some_and(|run| run.contains(number))
    }

    /// Asks for a message's record, if it is not in memory.
    pub(crate) fn ask(&self, entity: Incarnation, number: SequenceNumber, missing: &mut Missing) {
        let run = self.length.run_of(number.as_u64());
        if let Some(it) = self.run(run)
            && it.is_cold_at(number)
        {
            let index = it.group_of(number);
            let slots = it.slot_in_group(number);
            missing.add(Group { entity, run, index }, slots);
        }
    }

    /// Asks for a message's record, if it is not in memory, and for those of its whole group: who walks over messages in
    /// the order of their numbers needs them next.
    pub(crate) fn ask_near(
        &self,
        entity: Incarnation,
        number: SequenceNumber,
        missing: &mut Missing,
    ) {
        let run = self.length.run_of(number.as_u64());
        if let Some(it) = self.run(run)
            && it.is_cold_at(number)
        {
            let index = it.group_of(number);
            let group = Group { entity, run, index };
            if !missing.has(group, it.slot_in_group(number)) {
                missing.add(group, it.missing_in(index));
            }
        }
    }

    /// Every message from a number on, in order.
    pub(crate) fn seen_from(&self, number: SequenceNumber) -> impl Iterator<Item = Seen<'_>> {
        let first = self.length.run_of(number.as_u64());
        let runs = self.runs.range(first..=u64::MAX);
        runs.flat_map(move |(_, run)| run.seen_from(number))
    }

    /// Every message of a run, in order.
    pub(crate) fn seen_of(&self, index: u64) -> impl Iterator<Item = Seen<'_>> {
        let run = self.run(index).into_iter();
        run.flat_map(|run| run.seen_from(run.start()))
    }

    /// The messages of [`Table::ready`].
    pub(crate) fn ready_seen(&self, now: Timestamp) -> impl Iterator<Item = Seen<'_>> {
        let runs = self.ready.iter().filter_map(|index| self.runs.get(*index));
        let runs = runs.filter(move |run| !run.has_expired(now));
        runs.flat_map(|run| run.ready_seen())
    }

    /// The number of the first message that is ready.
    pub(crate) fn first_ready(&self) -> Option<SequenceNumber> {
        let run = self.runs.get(*self.ready.first()?)?;
        run.first_ready()
    }

    /// A message.
    pub(crate) fn seen(&self, number: SequenceNumber) -> Option<Seen<'_>> {
        let run = self.run(self.length.run_of(number.as_u64()))?;
        run.seen(number)
    }

    /// The group of a message.
    pub(crate) fn group_of(&self, entity: Incarnation, number: SequenceNumber) -> Group {
        let number = number.as_u64();
        Group {
            entity,
            run: self.length.run_of(number),
            index: self.length.slot_of(number) / self.length.slots_per_group(),
        }
    }

    /// Whether the run of a message has bytes in a range of whole units.
    pub(crate) fn has_bytes_near(
        &self,
        number: SequenceNumber,
        unit: CountUnit,
        positions: &Range<u64>,
    ) -> bool {
        let run = self.run(self.length.run_of(number.as_u64()));
        run.is_some_and(|run| run.spread().is_in(unit, positions))
    }

    /// When a message came, or an earlier time if its record is not in memory.
    pub(crate) fn enqueued_at(&self, number: SequenceNumber) -> Option<Timestamp> {
        let run = self.run(self.length.run_of(number.as_u64()))?;
        run.enqueued_at(number)
    }

    /// Likewise of the first message.
    pub(crate) fn first_enqueued_at(&self) -> Option<Timestamp> {
        // A run may have nothing but messages that were set aside.
        let runs = self.runs.iter();
        let (_, run) = runs.into_iter().find(|(_, run)| run.live_count() > 0)?;
        run.enqueued_at(run.first()?)
    }

    /// What of a run is not in memory, by group.
    pub(crate) fn missing_of(&self, entity: Incarnation, run: u64) -> Missing {
        let mut missing = Missing::default();
        let cold = self.run(run).filter(|it| it.is_cold());
        for index in cold.into_iter().flat_map(|_| self.length.groups()) {
            let slots = cold.map_or(0, |it| it.missing_in(index));
            if slots != 0 {
                missing.add(Group { entity, run, index }, slots);
            }
        }
        missing
    }

    /// What is to be read of a group, if it still is on a page.
    pub(crate) fn to_read(&self, group: Group, wanted: Slots) -> Option<GroupToRead> {
        let run = self.run(group.run)?;
        let page = run.cold_page()?;
        let wanted = wanted & run.missing_in(group.index);
        (wanted != 0).then_some(GroupToRead {
            group,
            wanted,
            page,
        })
    }

    /// Takes records that were read. Adds to `came` the places of those that enter the order by time again.
    pub(crate) fn take_read(
        &mut self,
        read: GroupRead,
        came: &mut Vec<TimedKey>,
        live: &mut Live,
    ) -> Taken {
        let index = read.group.run;
        let Some(run) = self.run_physical(index) else {
            return Taken::Replaced;
        };
        let (before, far_before) = (run.resident(), run.far_known());
        let taken = run.add_copies(read, came);
        let (after, far_after) = (run.resident(), run.far_known());
        self.recount_resident(before, after, live);
        self.note_far(index, far_before, far_after);
        taken
    }

    pub(super) fn recount_resident(&mut self, before: Resident, after: Resident, live: &mut Live) {
        live.resident.take(before);
        live.resident.add(after);
        *self.cold_count = *self.cold_count + after.cold_runs - before.cold_runs;
    }

    /// Takes records of a run out of memory that its page has. Returns the places of messages that are due after `far_from`
    /// and leave the order by time; `None` if it has no page, or if it would keep more changes beside it than it may.
    pub(crate) fn evict(
        &mut self,
        index: u64,
        far_from: Timestamp,
        live: &mut Live,
    ) -> Option<Vec<TimedKey>> {
        let run = self.runs.get(index)?;
        let (before, far_before) = (run.resident(), run.far_known());
        let (evicted, left) = run.evicted(far_from)?;
        let (after, far_after) = (evicted.resident(), evicted.far_known());
        if let Some(run) = self.runs.get_physical(index) {
            *run = Arc::new(evicted);
        }
        self.recount_resident(before, after, live);
        self.note_far(index, far_before, far_after);
        Some(left)
    }

    /// The runs of which records may be taken out of memory, each with the page that would be their only one, and what they
    /// are.
    pub(crate) fn evictable(&self) -> impl Iterator<Item = (u64, PageNumber, Leaving)> {
        let runs = self.runs.iter();
        runs.filter_map(|(index, run)| Some((index, run.page_to_evict()?, Leaving::of(run))))
    }
}
