//! Which records are wanted, for what, and how many of them may be in memory for that.
//!
//! Who misses records asks for all of them at once. They are *admitted* in the order in which they were asked for, while
//! no more than a bound are held together. The first asker that has not got everything is always admitted: so askers that
//! hold a part of what they need cannot block each other. Who needs little passes those that wait for a place, as long as
//! there is room for that: a client with a cold message does not wait for another one that settles thousands. This room is
//! there whatever the first asker needs. What is admitted is read, each record once for all that want it. It counts until
//! its askers are done, once for all that ask for the same messages of a group. A block of remembered ids counts as the
//! records that it takes the memory of.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::{Group, Incarnation, RunId, Slots};

/// The most records that are held for askers together, unless the first one needs more: 16 MiB.
pub(super) const HELD_RECORDS_MAX: u64 = 270_000;

/// Who asks for so many at most passes others, with so many records beside the others.
const SMALL_RECORDS_MAX: u64 = 1024;
const HELD_BY_SMALL_MAX: u64 = 27_000;

/// What records are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::partition) enum Asker {
    /// A command that waits, by its number.
    Command(u64),
    /// Due work of an entity, which rests until then. What is read may belong to another one.
    DueWork(Incarnation),
    /// Bodies move to another place.
    Evacuation,
    /// A scrub looks for what has damaged bytes.
    Scrub,
}

type Groups = BTreeMap<Group, Slots>;

struct Want {
    asker: Asker,
    /// What is not admitted yet.
    parked: Groups,
    /// How many records more are held with that, as far as was known when it was asked for.
    parked_count: u64,
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
            parked_count: 0,
            unread: Groups::new(),
            held: Vec::new(),
        }
    }

    fn is_served(&self) -> bool {
        self.parked.is_empty() && self.unread.is_empty()
    }
}

/// What is admitted.
#[derive(Clone, Copy, Debug, Default)]
struct Admitted {
    /// For how many.
    sharing: u32,
    /// Whether the first of these has passed others.
    has_passed: bool,
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
    /// Those of these that ask for little.
    small: BTreeSet<u64>,
    admitted: BTreeMap<(Group, Slots), Admitted>,
    /// How many records that are.
    held: u64,
    /// How many of them were admitted for those that passed others.
    held_by_small: u64,
    /// Which wants miss messages of a group.
    missing: BTreeSet<(Group, u64)>,
    /// What is to be read, and is not being read.
    asked: Groups,
    under_way: BTreeSet<(Group, Slots)>,
    /// The entity of the group that was taken last: others come first.
    taken_of: Incarnation,
}

impl Wants {
    /// Asks for records. Commands and due work keep what they have got before. Searches begin anew once they have got
    /// everything.
    pub(super) fn ask(&mut self, asker: Asker, groups: impl IntoIterator<Item = (Group, Slots)>) {
        match asker {
            Asker::Command(_) | Asker::DueWork(_) => {}
            Asker::Evacuation | Asker::Scrub => {
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
        if want.parked.is_empty() {
            return;
        }
        let parked = want.parked.iter();
        let more = parked.filter(|(group, slots)| {
            let shared = (**group, **slots);
            !self.admitted.contains_key(&shared)
        });
        want.parked_count = more.map(|(group, slots)| group.records_of(*slots)).sum();
        match want.parked_count <= SMALL_RECORDS_MAX {
            true => self.small.insert(number),
            false => self.small.remove(&number),
        };
        self.parked.insert(number);
        self.unserved.insert(number);
        self.admit_parked();
    }

    fn admit_parked(&mut self) {
        while let Some(number) = self.parked.first().copied()
            && (self.unserved.first() == Some(&number) || self.has_room(number, self.held))
        {
            self.admit(number, false);
        }
        while let Some(number) = self.small.first().copied()
            && self.has_room(number, self.held_beside_others())
        {
            self.admit(number, true);
        }
    }

    /// What those that pass others hold, and what they leave of the bound to these. What the first asker has beyond the
    /// bound takes nothing of their room.
    fn held_beside_others(&self) -> u64 {
        let others = self.held - self.held_by_small;
        (self.held_by_small + others.min(HELD_RECORDS_MAX)).saturating_sub(HELD_BY_SMALL_MAX)
    }

    fn has_room(&self, number: u64, held: u64) -> bool {
        let want = self.wants.get(&number);
        want.is_none_or(|want| held + want.parked_count <= HELD_RECORDS_MAX)
    }

    fn admit(&mut self, number: u64, has_passed: bool) {
        self.parked.remove(&number);
        self.small.remove(&number);
        let Some(want) = self.wants.get_mut(&number) else {
            return;
        };
        let groups = std::mem::take(&mut want.parked);
        for (group, slots) in &groups {
            *want.unread.entry(*group).or_default() |= slots;
            want.held.push((*group, *slots));
            let admitted = self.admitted.entry((*group, *slots)).or_default();
            if admitted.sharing == 0 {
                admitted.has_passed = has_passed;
                self.held += group.records_of(*slots);
                self.held_by_small += match has_passed {
                    true => group.records_of(*slots),
                    false => 0,
                };
            }
            admitted.sharing += 1;
            self.missing.insert((*group, number));
        }
        for (group, slots) in groups {
            self.read_later(group, slots & !self.being_read(group));
        }
    }

    /// Whether there is no place for more.
    pub(super) fn is_full(&self) -> bool {
        self.held >= HELD_RECORDS_MAX || !self.parked.is_empty()
    }

    fn read_later(&mut self, group: Group, slots: Slots) {
        if slots != 0 {
            *self.asked.entry(group).or_default() |= slots;
        }
    }

    /// Which messages of a group are being read.
    pub(super) fn being_read(&self, group: Group) -> Slots {
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

    /// Begins a read that nobody has asked for. Who comes to want these messages meanwhile waits for it.
    pub(super) fn begin_read(&mut self, group: Group, slots: Slots) {
        self.under_way.insert((group, slots));
    }

    /// Whether somebody misses one of these messages.
    pub(super) fn is_wanted(&self, group: Group, slots: Slots) -> bool {
        self.wanted_of(group, slots) != 0
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

    /// Ends a read that failed. Returns the askers that want something of its group, which is not read for them.
    pub(super) fn fail(&mut self, group: Group, slots: Slots) -> Vec<Asker> {
        self.under_way.remove(&(group, slots));
        self.asked.remove(&group);
        let wants = self.missing_of(group).filter_map(|it| self.wants.get(&it));
        wants.map(|want| want.asker).collect()
    }

    /// Ends the wait of an asker for messages of a group that cannot be read. Whether it waits for nothing else.
    pub(super) fn do_without(&mut self, asker: Asker, group: Group) -> bool {
        let Some(number) = self.numbers.get(&asker).copied() else {
            return true;
        };
        let Some(want) = self.wants.get_mut(&number) else {
            return true;
        };
        debug_assert!(want.parked.is_empty(), "it was admitted as a whole");
        want.unread.remove(&group);
        let is_served = want.is_served();
        self.missing.remove(&(group, number));
        if let Some(asked) = self.asked.remove(&group) {
            self.read_later(group, self.wanted_of(group, asked));
        }
        if is_served {
            self.unserved.remove(&number);
            self.admit_parked();
        }
        is_served
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
        self.small.remove(&number);
        for (group, slots) in want.held {
            let Some(admitted) = self.admitted.get_mut(&(group, slots)) else {
                continue;
            };
            admitted.sharing -= 1;
            if admitted.sharing == 0 {
                let records = group.records_of(slots);
                self.held -= records;
                self.held_by_small -= if admitted.has_passed { records } else { 0 };
                self.admitted.remove(&(group, slots));
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

    /// Whether something that an asker wants has to wait for a place.
    pub(super) fn is_parked(&self, asker: Asker) -> bool {
        let number = self.numbers.get(&asker);
        number.is_some_and(|number| self.parked.contains(number))
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

    /// What is being read.
    pub(super) fn under_way(&self) -> &BTreeSet<(Group, Slots)> {
        &self.under_way
    }

    /// Whether something is being read.
    pub(super) fn is_reading(&self) -> bool {
        !self.under_way.is_empty()
    }
}

#[cfg(test)]
mod tests;
