//! What a decision needs and what is not in memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::vocabulary::{BodyLocation, Incarnation};

/// Messages that lie together in a page: 128 consecutive numbers of an entity. Or a block of remembered ids: they lie
/// behind all runs of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// The entity.
    pub entity: Incarnation,
    /// Its run.
    pub(crate) run: u64,
    /// The group's place in it.
    pub(crate) index: usize,
}

/// The first block of remembered ids of an entity, among its runs.
const FIRST_BLOCK: u64 = 1 << 63;

/// What is asked for of a block of ids: all.
pub(crate) const ALL_SLOTS: Slots = Slots::MAX;

/// A block of ids takes as much memory as so many records: 1,024 times 20 bytes.
const BLOCK_RECORDS: u64 = 336;

/// The run that a block of remembered ids is, for those that ask for it and keep it in memory.
pub(crate) fn run_of_block(block: u64) -> u64 {
    FIRST_BLOCK | block
}

/// The block of remembered ids that a run is.
pub(crate) fn block_of_run(run: u64) -> Option<u64> {
    run.checked_sub(FIRST_BLOCK)
}

impl Group {
    /// A block of remembered ids.
    pub(crate) fn of_block(entity: Incarnation, block: u64) -> Self {
        Self::first_of((entity, run_of_block(block)))
    }

    /// Whether it is one of messages.
    pub fn is_of_messages(&self) -> bool {
        self.block().is_none()
    }

    /// As many records as it takes memory for if these of its messages are read.
    pub fn records_of(&self, slots: Slots) -> u64 {
        match self.block() {
            Some(_) => BLOCK_RECORDS,
            None => slots.count_ones().into(),
        }
    }

    /// The block of remembered ids that it is.
    pub(crate) fn block(&self) -> Option<u64> {
        block_of_run(self.run)
    }

    /// The first one of a run.
    pub fn first_of((entity, run): RunId) -> Self {
        let index = 0;
        Self { entity, run, index }
    }

    /// Comes behind all groups of an entity.
    pub fn first_behind(entity: Incarnation) -> Self {
        Self {
            entity,
            run: u64::MAX,
            index: usize::MAX,
        }
    }

    /// The run of its messages.
    pub fn run(&self) -> RunId {
        (self.entity, self.run)
    }
}

/// A run of an entity.
pub type RunId = (Incarnation, u64);

/// Some messages of a group: a bit for each of its slots.
pub type Slots = u128;

/// What a decision, or a due thing, needs and what is not in memory. Nothing of it was decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Messages, by group.
    pub groups: BTreeMap<Group, Slots>,
    /// Bodies: all that the decision needs, if one of them is missing. So the others are kept until then.
    pub bodies: BTreeSet<BodyLocation>,
}

impl Missing {
    /// Whether everything is there.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.bodies.is_empty()
    }

    /// Adds messages of a group.
    pub fn add(&mut self, group: Group, slots: Slots) {
        if slots != 0 {
            *self.groups.entry(group).or_default() |= slots;
        }
    }

    /// Adds the messages that something else misses.
    pub(crate) fn add_messages(&mut self, other: Self) {
        for (group, slots) in other.groups {
            self.add(group, slots);
        }
    }

    pub(crate) fn has(&self, group: Group, slots: Slots) -> bool {
        let known = self.groups.get(&group);
        known.is_some_and(|known| known & slots == slots)
    }
}
