//! Which records are wanted, for what, and how many of them may be in memory for that.
//!
//! Who misses records asks for all of them at once. They are *admitted* in the order in which they were asked for, while
//! no more than a bound are held together. The first asker that has not got everything is always admitted: so askers that
//! hold a part of what they need cannot block each other. What is admitted is read, each record once for all that want it.
//! It counts until its askers are done, once for all that ask for the same messages of a group.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::{Group, Incarnation, RunId, Slots};

/// The most records that are held for askers together, unless the first one needs more: 16 MiB.
pub(super) const HELD_RECORDS_MAX: u64 = 270_000;

/// What records are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::partition) enum Asker {
    /// A command that waits, by its number.
    Command(u64),
    /// Due work of an entity.
    DueWork(Incarnation),
    /// Bodies move to another place.
    Evacuation,
}

type Groups = BTreeMap<Group, Slots>;

struct Want {
    asker: Asker,
    /// What is not admitted yet.
    parked: Groups,
    /// What is admitted, and not in memory yet.
    unread: Groups,
    /// What was admitted.
    held: Vec<(Group, Slots)>,
}

impl Want {
    fn new(asker: Asker) -> Self {
        Self {
            asker,
            parked: Groups::new(),
            unread: Groups::new(),
            held: Vec::new(),
        }
    }

    fn is_served(&self) -> bool {
        self.parked.is_empty() && self.unread.is_empty()
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Wants {
    /// In the order in which they were asked for.
    wants: BTreeMap<u64, Want>,
    numbers: BTreeMap<Asker, u64>,
    next: u64,
    /// Those that have not got everything.
    unserved: BTreeSet<u64>,
    /// Those of which something is not admitted.
    parked: BTreeSet<u64>,
    /// What is admitted, and for how many.
    admitted: BTreeMap<(Group, Slots), u32>,
    /// How many records that are.
    held: u64,
    /// Which wants miss messages of a group.
    missing: BTreeSet<(Group, u64)>,
    /// What is to be read, and is not being read.
    asked: Groups,
    under_way: BTreeSet<(Group, Slots)>,
    /// The entity of the group that was taken last: others come first.
    taken_of: Incarnation,
}

fn count_of(slots: Slots) -> u64 {
    u64::from(slots.count_ones())
}

impl Wants {
    /// Asks for records. A command keeps what it has got before. Others begin anew once they have got everything.
    pub(super) fn ask(&mut self, asker: Asker, groups: impl IntoIterator<Item = (Group, Slots)>) {
        match asker {
            Asker::Command(_) => {}
            Asker::DueWork(_) | Asker::Evacuation => {
                if self.is_done(asker) {
                    self.release(asker);
                }
            }
        }
        let mut groups = groups.into_iter().peekable();
        if groups.peek().is_none() {
            return;
        }
        let next = &mut self.next;
        let number = *self.numbers.entry(asker).or_insert_with(|| {
            *next += 1;
            *next
        });
        let want = self.wants.entry(number);
        let want = want.or_insert_with(|| Want::new(asker));
        for (group, slots) in groups {
            let unread = want.unread.get(&group).copied().unwrap_or_default();
            if slots & !unread != 0 {
                *want.parked.entry(group).or_default() |= slots & !unread;
            }
        }
        if !want.parked.is_empty() {
            self.parked.insert(number);
            self.unserved.insert(number);
            self.admit_parked();
        }
    }

    fn admit_parked(&mut self) {
        while let Some(number) = self.parked.first().copied() {
            let Some(want) = self.wants.get_mut(&number) else {
                self.parked.remove(&number);
                continue;
            };
            let parked = want.parked.iter();
            let more = parked.filter(|(group, slots)| {
                let shared = (**group, **slots);
                !self.admitted.contains_key(&shared)
            });
            let count: u64 = more.map(|(_, slots)| count_of(*slots)).sum();
            let is_first = self.unserved.first() == Some(&number);
            if !is_first && self.held + count > HELD_RECORDS_MAX {
                return;
            }
            self.parked.remove(&number);
            self.held += count;
            let groups = std::mem::take(&mut want.parked);
            for (group, slots) in &groups {
                *want.unread.entry(*group).or_default() |= slots;
                want.held.push((*group, *slots));
                *self.admitted.entry((*group, *slots)).or_default() += 1;
                self.missing.insert((*group, number));
            }
            for (group, slots) in groups {
                self.read_later(group, slots & !self.being_read(group));
            }
        }
    }

    fn read_later(&mut self, group: Group, slots: Slots) {
        if slots != 0 {
            *self.asked.entry(group).or_default() |= slots;
        }
    }

    fn being_read(&self, group: Group) -> Slots {
        let reads = self.under_way.range((group, 0)..=(group, Slots::MAX));
        reads.fold(0, |all, (_, slots)| all | slots)
    }

    /// The wants that miss messages of a group.
    fn missing_of(&self, group: Group) -> impl Iterator<Item = u64> {
        let wants = self.missing.range((group, 0)..=(group, u64::MAX));
        wants.map(|(_, number)| *number)
    }

    /// Which of these messages of a group somebody misses. Mostly the first one does that is looked at, however many there
    /// are.
    fn wanted_of(&self, group: Group, slots: Slots) -> Slots {
        let mut wanted = 0;
        for number in self.missing_of(group) {
            let want = self.wants.get(&number);
            let unread = want.and_then(|want| want.unread.get(&group));
            wanted |= unread.copied().unwrap_or_default() & slots;
            if wanted == slots {
                break;
            }
        }
        wanted
    }

    /// Takes a group to read: of the next entity that has one.
    pub(super) fn take(&mut self) -> Option<(Group, Slots)> {
        let from = Group::first_behind(self.taken_of);
        let next = self.asked.range(from..).next();
        let (group, slots) = next.or(self.asked.first_key_value())?;
        let taken = (*group, *slots);
        self.asked.remove(&taken.0);
        self.taken_of = taken.0.entity;
        self.under_way.insert(taken);
        Some(taken)
    }

    /// Ends a read. Returns the askers that have got everything.
    pub(super) fn end_read(&mut self, group: Group, slots: Slots) -> Vec<Asker> {
        self.under_way.remove(&(group, slots));
        let waiting: Vec<u64> = self.missing_of(group).collect();
        let mut served = Vec::new();
        for number in waiting {
            let Some(want) = self.wants.get_mut(&number) else {
                continue;
            };
            let unread = want.unread.entry(group).or_default();
            *unread &= !slots;
            if *unread == 0 {
                want.unread.remove(&group);
                self.missing.remove(&(group, number));
            }
            if want.is_served() {
                self.unserved.remove(&number);
                served.push(want.asker);
            }
        }
        if !served.is_empty() {
            self.admit_parked();
        }
        served
    }

    /// Ends a read that was not tried. What is still wanted is read later.
    pub(super) fn put_back(&mut self, group: Group, slots: Slots) {
        self.under_way.remove(&(group, slots));
        self.read_later(group, self.wanted_of(group, slots));
    }

    /// Ends a read that failed. Returns the askers that wanted something of it.
    pub(super) fn fail(&mut self, group: Group, slots: Slots) -> Vec<Asker> {
        self.under_way.remove(&(group, slots));
        let wants = self.missing_of(group).filter_map(|it| self.wants.get(&it));
        let failed = wants.filter(|want| want.unread.get(&group).is_some_and(|it| it & slots != 0));
        failed.map(|want| want.asker).collect()
    }

    /// Ends what an asker wants, if it wants something. What nobody else wants is not read any more.
    pub(super) fn release(&mut self, asker: Asker) {
        let Some(number) = self.numbers.remove(&asker) else {
            return;
        };
        let Some(want) = self.wants.remove(&number) else {
            return;
        };
        self.unserved.remove(&number);
        self.parked.remove(&number);
        for (group, slots) in want.held {
            if let Some(sharing) = self.admitted.get_mut(&(group, slots)) {
                *sharing -= 1;
                if *sharing == 0 {
                    self.admitted.remove(&(group, slots));
                    self.held -= count_of(slots);
                }
            }
        }
        for group in want.unread.into_keys() {
            self.missing.remove(&(group, number));
            if let Some(asked) = self.asked.remove(&group) {
                self.read_later(group, self.wanted_of(group, asked));
            }
        }
        self.admit_parked();
    }

    /// Whether an asker has got everything, or has asked for nothing.
    pub(super) fn is_done(&self, asker: Asker) -> bool {
        let number = self.numbers.get(&asker);
        let want = number.and_then(|number| self.wants.get(number));
        want.is_none_or(Want::is_served)
    }

    /// Whether records of a run are to be read, or being read.
    pub(super) fn has_run(&self, run: RunId) -> bool {
        let first = Group::first_of(run);
        let missing = self.missing.range((first, 0)..).next();
        let read = self.under_way.range((first, 0)..).next();
        missing.is_some_and(|(group, _)| group.run() == run)
            || read.is_some_and(|(group, _)| group.run() == run)
    }

    /// Whether something is being read.
    pub(super) fn is_reading(&self) -> bool {
        !self.under_way.is_empty()
    }
}

#[cfg(test)]
mod tests;
