//! Messages that receivers come to next, of which records may not be in memory.

use super::Table;
use super::missing::{Group, Slots};
use super::run::Run;
use crate::vocabulary::{Incarnation, SequenceNumber, Timestamp};

/// Messages of a group that are going to be received soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupAhead {
    /// Their group.
    pub group: Group,
    /// These messages.
    pub messages: Slots,
    /// What is not in memory, of these and of others that are read with them.
    pub missing: Slots,
}

impl GroupAhead {
    /// They, and what is read with them.
    pub fn records(&self) -> Slots {
        self.messages | self.missing
    }
}

impl Table {
    /// The groups with messages that can be received in the order of their numbers, in that order, with the first such
    /// number of each. Leaves out runs of which all has expired at `now`.
    pub(crate) fn ready_groups(
        &self,
        entity: Incarnation,
        now: Timestamp,
    ) -> impl Iterator<Item = (SequenceNumber, GroupAhead)> {
        let runs = self.ready.iter().filter_map(|index| self.runs.get(*index));
        let runs = runs.filter(move |run| !run.has_expired(now));
        runs.flat_map(move |run| run.ready_groups(entity))
    }

    /// A message alone, with its group.
    pub(crate) fn group_ahead(
        &self,
        entity: Incarnation,
        number: SequenceNumber,
    ) -> Option<GroupAhead> {
        let run = self.run(self.length.run_of(number.as_u64()))?;
        let (_, entry) = run.seen(number)?;
        let slot = run.slot_in_group(number);
        Some(GroupAhead {
            group: Group {
                entity,
                run: run.index(),
                index: run.group_of(number),
            },
            messages: slot,
            missing: if entry.is_some() { 0 } else { slot },
        })
    }
}

impl Run {
    fn ready_groups(
        &self,
        entity: Incarnation,
    ) -> impl Iterator<Item = (SequenceNumber, GroupAhead)> {
        let count = self.length.slots_per_group();
        let groups = 0..self.length.slots().div_ceil(count);
        groups.filter_map(move |index| {
            let first = index * count;
            let ready = self.ready.iter_from(first);
            let ready = ready.take_while(|slot| slot - first < count);
            let ready = ready.fold(0, |all, slot| all | 1 << (slot - first));
            let first_ready =
                (ready != 0).then(|| first + Slots::trailing_zeros(ready) as usize)?;
            let missing = match self.is_cold() {
                // As a receive asks: it takes the whole group.
                true => self.missing_in(index),
                false => 0,
            };
            let ahead = GroupAhead {
                group: Group {
                    entity,
                    run: self.index,
                    index,
                },
                messages: ready,
                missing,
            };
            Some((self.number(first_ready), ahead))
        })
    }
}
