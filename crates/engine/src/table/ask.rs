//! What of a table is in memory: asked for, read from pages, and given back.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::cold::{GroupRead, GroupToRead, Sealing};
use super::missing::{Group, Missing};
use super::{Entry, Run, Table};
use crate::vocabulary::{Incarnation, SequenceNumber, Timestamp};

/// A message of a walk. `None` if its record is not in memory.
pub(crate) type Seen<'a> = (SequenceNumber, Option<Entry<'a>>);

impl Table {
    /// Whether records of some messages may not be in memory.
    pub(crate) fn has_cold(&self) -> bool {
        !self.cold.is_empty()
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
            missing.groups.insert(Group { entity, run, index });
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

    /// When a message came, or an earlier time if its record is not in memory.
    pub(crate) fn enqueued_at(&self, number: SequenceNumber) -> Option<Timestamp> {
        let run = self.run(self.length.run_of(number.as_u64()))?;
        run.enqueued_at(number)
    }

    /// Likewise of the first message.
    pub(crate) fn first_enqueued_at(&self) -> Option<Timestamp> {
        let run = self.runs.first()?;
        run.enqueued_at(run.first()?)
    }

    /// What is to be read, if it still is on a page.
    pub(crate) fn to_read(&self, group: Group) -> Option<GroupToRead> {
        let page = self.run(group.run)?.page()?.clone();
        Some(GroupToRead { group, page })
    }

    /// Takes records that were read. Returns false if the run has another page by now, or none.
    pub(crate) fn take_read(&mut self, read: GroupRead) -> bool {
        // It does not change what a snapshot has.
        let run = self.run_mut(read.group.run);
        run.is_some_and(|run| run.add_copies(&read.page, read.messages))
    }

    /// Takes records of some runs out of memory.
    pub(crate) fn seal(&mut self, runs: RangeInclusive<u64>, mut choose: impl FnMut() -> Sealing) {
        let indexes: Vec<u64> = self.runs.range(runs).map(|(index, _)| index).collect();
        for index in indexes {
            let Some(run) = self.runs.get(index) else {
                continue;
            };
            let sealed: Option<Run> = match choose() {
                Sealing::Stay => None,
                Sealing::Forget => run.forgotten(),
                Sealing::Write => Some(run.sealed(false)),
                Sealing::WriteFailing => Some(run.sealed(true)),
            };
            if let Some(sealed) = sealed
                && let Some(run) = self.runs.get_mut(index)
            {
                *run = Arc::new(sealed);
                self.cold.insert(index);
            }
        }
    }
}
