//! What a decision needs and what is not in memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::vocabulary::{BodyLocation, Incarnation};

/// Messages that lie together in a page: 128 consecutive numbers of an entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// The entity.
    pub entity: Incarnation,
    /// Its run.
    pub(crate) run: u64,
    /// The group's place in it.
    pub(crate) index: usize,
}

impl Group {
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
