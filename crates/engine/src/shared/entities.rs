//! Entities by incarnation, and how a snapshot gathers them while they change.
//!
//! A snapshot is the state at one position, and thousands of entities are too many for one step. So they are
//! gathered in steps, in order, and an entity that is about to change is gathered first. All changes come through
//! [`Entities::get_mut`], [`Entities::insert`] and [`Entities::remove`], so none can be missed. What is read into memory,
//! or taken out of it, is no change: [`Entities::get_physical`].

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use super::Mark;
use crate::vocabulary::{Incarnation, PageNumber};

/// How many incarnations share a page of heads, as a power of two.
pub(crate) const HEADS_BITS: u32 = 6;

/// The marks of pages of heads, by the incarnations that share them.
pub(crate) type HeadMarks = BTreeMap<u64, Arc<Mark>>;

/// An entity that a snapshot can share.
pub(crate) trait Share {
    /// What the snapshot has of it.
    type Shared: std::fmt::Debug;

    /// Shares it as it is now.
    fn share(&self, incarnation: Incarnation) -> Self::Shared;

    /// How long sharing took, in steps of 20 ns.
    fn steps(shared: &Self::Shared) -> u64;
}

/// All entities of a profile. Which of them were gathered is no part of the state.
#[derive(Debug)]
pub(crate) struct Entities<E: Share> {
    all: BTreeMap<Incarnation, E>,
    /// Set while a snapshot gathers them.
    gathering: Option<Gathering<E::Shared>>,
    /// How many steps it took to gather entities that were about to change.
    steps: u64,
    /// The marks of heads that did not change since a snapshot had them. A change removes one, so that what the
    /// snapshot notes later concerns nobody.
    marks: HeadMarks,
    /// The last ones that changed.
    changed: Option<u64>,
}

/// Above the number of each entity.
const ALL: u64 = u64::MAX;

/// What it takes to move an entity that was gathered early: the first one of a tree, with its value.
const EARLY_STEPS: u64 = 8;

#[derive(Debug)]
struct Gathering<S> {
    /// All entities of lower numbers were gathered.
    next: u64,
    /// From there on, those that changed since the snapshot began, as they were then. `None` if there was none.
    early: BTreeMap<Incarnation, Option<S>>,
    /// In the order of incarnations.
    gathered: Vec<S>,
    /// The marks of the heads of all that were gathered, and of those that have changed since the snapshot began: these
    /// are no longer among the marks of the entities.
    marks: HeadMarks,
}

impl<E: Share> Default for Entities<E> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            gathering: None,
            steps: 0,
            marks: HeadMarks::new(),
            changed: None,
        }
    }
}

impl<E: Share + PartialEq> PartialEq for Entities<E> {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl<E: Share + Eq> Eq for Entities<E> {}

/// Reading needs no care.
impl<E: Share> Deref for Entities<E> {
    type Target = BTreeMap<Incarnation, E>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl<E: Share> Entities<E> {
    /// An entity, to change it.
    pub(crate) fn get_mut(&mut self, incarnation: &Incarnation) -> Option<&mut E> {
        self.change(*incarnation);
        self.all.get_mut(incarnation)
    }

    /// An entity, to change what of it lies in memory and not what it is: nothing has to be gathered first, and marks stay.
    pub(crate) fn get_physical(&mut self, incarnation: &Incarnation) -> Option<&mut E> {
        self.all.get_mut(incarnation)
    }

    pub(crate) fn insert(&mut self, incarnation: Incarnation, entity: E) {
        self.change(incarnation);
        self.all.insert(incarnation, entity);
    }

    pub(crate) fn remove(&mut self, incarnation: &Incarnation) -> Option<E> {
        self.change(*incarnation);
        self.all.remove(incarnation)
    }

    /// Every entity, to change it.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Incarnation, &mut E)> {
        self.gather(&mut { u64::MAX });
        self.marks.clear();
        let all = self.all.iter_mut();
        all.map(|(incarnation, entity)| (*incarnation, entity))
    }

    pub(crate) fn into_all(self) -> BTreeMap<Incarnation, E> {
        self.all
    }

    /// Begins to gather all entities as they are now. Takes one step, whatever their number.
    pub(crate) fn begin(&mut self) {
        self.gathering = Some(Gathering {
            next: 0,
            early: BTreeMap::new(),
            // With all its room: to grow it would move everything in one step.
            gathered: Vec::with_capacity(self.all.len()),
            marks: HeadMarks::new(),
        });
        self.changed = None;
    }

    /// Notes the page of heads of a state that was restored.
    pub(crate) fn mark_heads(&mut self, group: u64, page: PageNumber) {
        self.marks.entry(group).or_default().set(page);
        self.changed = None;
    }

    /// Gathers entities until `steps` are used up, one at least. Returns whether all are gathered.
    pub(crate) fn gather(&mut self, steps: &mut u64) -> bool {
        let Some(gathering) = &mut self.gathering else {
            return true;
        };
        if gathering.next == ALL {
            return true;
        }
        let mut all = (self.all.range(Incarnation::new(gathering.next)..)).peekable();
        loop {
            // What has changed can be gone, and is gathered in its turn all the same.
            let early = gathering.early.first_key_value().map(|(it, _)| *it);
            let there = all.peek().map(|(it, _)| **it);
            let Some(incarnation) = early.into_iter().chain(there).min() else {
                gathering.next = ALL;
                return true;
            };
            if *steps == 0 {
                gathering.next = incarnation.as_u64();
                return false;
            }
            let entity = all.next_if(|(it, _)| **it == incarnation);
            if let Some(shared) = gathering.early.remove(&incarnation) {
                *steps = steps.saturating_sub(EARLY_STEPS);
                gathering.gathered.extend(shared);
            } else if let Some((_, entity)) = entity {
                let shared = entity.share(incarnation);
                *steps = steps.saturating_sub(E::steps(&shared));
                share_mark(&mut gathering.marks, &mut self.marks, incarnation);
                gathering.gathered.push(shared);
            }
        }
    }

    /// What was gathered, in the order of incarnations, and the marks of its heads. Takes one step.
    pub(crate) fn take_gathered(&mut self) -> (Vec<E::Shared>, HeadMarks) {
        let gathering = self.gathering.take();
        gathering.map_or_else(Default::default, |it| (it.gathered, it.marks))
    }

    /// How many steps it took since the last call to gather entities that were about to change.
    pub(crate) fn take_steps(&mut self) -> u64 {
        std::mem::take(&mut self.steps)
    }

    /// An entity is about to change.
    fn change(&mut self, incarnation: Incarnation) {
        self.gather_first(incarnation);
        let group = incarnation.as_u64() >> HEADS_BITS;
        if self.changed != Some(group) {
            // What the snapshot gathers later of this group must not bring its mark back.
            if let Some(gathering) = &mut self.gathering {
                share_mark(&mut gathering.marks, &mut self.marks, incarnation);
            }
            self.marks.remove(&group);
            self.changed = Some(group);
        }
    }

    /// Gathers an entity that is about to change, unless it was gathered.
    fn gather_first(&mut self, incarnation: Incarnation) {
        let Some(gathering) = &mut self.gathering else {
            return;
        };
        if incarnation.as_u64() < gathering.next || gathering.early.contains_key(&incarnation) {
            return;
        }
        let entity = self.all.get(&incarnation);
        let shared = entity.map(|entity| entity.share(incarnation));
        self.steps += shared.as_ref().map_or(0, E::steps);
        gathering.early.insert(incarnation, shared);
    }
}

/// Gives a snapshot the mark of an entity's heads as they are when it is gathered, or about to change.
fn share_mark(shared: &mut HeadMarks, marks: &mut HeadMarks, incarnation: Incarnation) {
    let group = incarnation.as_u64() >> HEADS_BITS;
    let mark = || Arc::clone(marks.entry(group).or_default());
    shared.entry(group).or_insert_with(mark);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Number(u64);

    impl Share for Number {
        type Shared = (Incarnation, u64);

        fn share(&self, incarnation: Incarnation) -> Self::Shared {
            (incarnation, self.0)
        }

        fn steps(_: &Self::Shared) -> u64 {
            3
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64),
        Change(u64, u64),
        Remove(u64),
        Gather(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = || 1_u64..20;
        prop_oneof![
            3 => (key(), any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
            3 => (key(), any::<u64>()).prop_map(|(key, value)| Step::Change(key, value)),
            2 => key().prop_map(Step::Remove),
            2 => (1_u64..8).prop_map(Step::Gather),
        ]
    }

    fn all(entities: &Entities<Number>) -> Vec<(Incarnation, u64)> {
        let all = entities.iter();
        all.map(|(incarnation, number)| (*incarnation, number.0))
            .collect()
    }

    fn carry_out(entities: &mut Entities<Number>, step: Step) -> bool {
        match step {
            Step::Insert(key, value) => entities.insert(Incarnation::new(key), Number(value)),
            Step::Change(key, value) => {
                if let Some(number) = entities.get_mut(&Incarnation::new(key)) {
                    number.0 = value;
                }
            }
            Step::Remove(key) => {
                entities.remove(&Incarnation::new(key));
            }
            Step::Gather(steps) => return entities.gather(&mut { steps }),
        }
        false
    }

    proptest! {
        #[test]
        fn what_is_gathered_is_what_there_was_at_the_beginning(
            before in prop::collection::vec(step(), 0..30),
            during in prop::collection::vec(step(), 0..40),
        ) {
            let mut entities = Entities::default();
            for step in before {
                carry_out(&mut entities, step);
            }
            let expected = all(&entities);
            entities.begin();
            for step in during {
                if carry_out(&mut entities, step) {
                    break;
                }
            }
            while !entities.gather(&mut 1) {}
            prop_assert_eq!(entities.take_gathered().0, expected);
        }
    }

    proptest! {
        /// Some while it is gathered, some while it is written. What a snapshot marks has not changed since it began.
        #[test]
        fn a_group_that_changes_meanwhile_gets_no_mark(
            before in prop::collection::vec(wide_step(), 0..30),
            during in prop::collection::vec(wide_step(), 0..30),
            after in prop::collection::vec(wide_step(), 0..5),
        ) {
            let mut entities = Entities::default();
            for step in before {
                carry_out(&mut entities, step);
            }
            entities.begin();
            let began = all(&entities);
            for step in during {
                carry_out(&mut entities, step);
            }
            entities.gather(&mut { u64::MAX });
            let (_, marks) = entities.take_gathered();
            for step in after {
                carry_out(&mut entities, step);
            }
            let page = PageNumber::new(7);
            marks.values().for_each(|mark| mark.set(page));
            let of = |all: &[(Incarnation, u64)], group| -> Vec<(Incarnation, u64)> {
                let of_group = all.iter().filter(|(it, _)| it.as_u64() >> HEADS_BITS == group);
                of_group.copied().collect()
            };
            let now = all(&entities);
            for (group, mark) in &entities.marks {
                let is_same = of(&began, *group) == of(&now, *group);
                prop_assert!(mark.get().is_none() || is_same, "{}", group);
            }
            prop_assert!(began.iter().all(|(it, _)| marks.contains_key(&(it.as_u64() >> HEADS_BITS))));
        }
    }

    /// Steps over entities of several groups.
    fn wide_step() -> impl Strategy<Value = Step> {
        let widened = |key: u64| key * 40;
        step().prop_map(move |step| match step {
            Step::Insert(key, value) => Step::Insert(widened(key), value),
            Step::Change(key, value) => Step::Change(widened(key), value),
            Step::Remove(key) => Step::Remove(widened(key)),
            Step::Gather(steps) => Step::Gather(steps),
        })
    }

    #[test]
    fn a_snapshot_begins_in_a_step_and_marks_what_it_gathers() {
        let mut entities = Entities::default();
        // Each has a page of heads of its own.
        (1..=10).for_each(|key| entities.insert(Incarnation::new(key << HEADS_BITS), Number(key)));
        entities.begin();
        assert_eq!(entities.marks.len(), 0);
        assert!(!entities.gather(&mut 7));
        assert_eq!(entities.marks.len(), 3);
        entities.get_mut(&Incarnation::new(2 << HEADS_BITS));
        entities.get_mut(&Incarnation::new(9 << HEADS_BITS));
        assert!(entities.gather(&mut 700));
        let (_, marks) = entities.take_gathered();
        assert_eq!((entities.marks.len(), marks.len()), (8, 10));
        marks.values().for_each(|mark| mark.set(PageNumber::new(1)));
        let marked = entities.marks.values().filter(|mark| mark.get().is_some());
        assert_eq!(marked.count(), 8);
    }

    #[test]
    fn a_step_is_bounded_and_gathers_something() {
        let mut entities = Entities::default();
        (1..=10).for_each(|key| entities.insert(Incarnation::new(key), Number(key)));
        entities.begin();
        let mut count = 1;
        while !entities.gather(&mut 7) {
            count += 1;
        }
        assert_eq!(count, 4);
        assert_eq!(entities.take_gathered().0.len(), 10);
        assert_eq!(entities.take_steps(), 0);
        entities.begin();
        entities.get_mut(&Incarnation::new(9));
        entities.get_mut(&Incarnation::new(9));
        assert_eq!(entities.take_steps(), 3);
    }

    #[test]
    fn what_is_gone_meanwhile_is_gathered_in_steps_too() {
        let mut entities = Entities::default();
        (1..=10).for_each(|key| entities.insert(Incarnation::new(key), Number(key)));
        let before = all(&entities);
        entities.begin();
        assert!(!entities.gather(&mut 1));
        for key in 3..=10 {
            entities.remove(&Incarnation::new(key));
        }
        let mut count = 1;
        while !entities.gather(&mut 1) {
            count += 1;
        }
        assert_eq!(count, 9);
        assert_eq!(entities.take_gathered().0, before);
    }
}
