//! What a decision needs and what is not in memory.

use std::collections::BTreeSet;

use crate::vocabulary::{BodyLocation, Incarnation};

/// Messages that are read together from a page: 128 consecutive numbers of an entity.
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

/// What a decision, or a due thing, needs and what is not in memory. Nothing of it was decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Messages.
    pub groups: BTreeSet<Group>,
    /// Bodies: all that the decision needs, if one of them is missing. So the others are kept until then.
    pub bodies: BTreeSet<BodyLocation>,
}

impl Missing {
    /// Whether everything is there.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.bodies.is_empty()
    }
}
