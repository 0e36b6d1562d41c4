//! What due work of entities has asked for: it stays in memory until that work has used it.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::{Incarnation, RunId};

/// The runs of one entity's due work. Those of ids may be of another entity.
#[derive(Default)]
struct Kept {
    runs: BTreeSet<RunId>,
    /// Some of what it has asked for could not be read: it begins anew when it asks again.
    has_failed: bool,
}

/// Those of all entities.
#[derive(Default)]
pub(super) struct DueWork {
    kept: BTreeMap<Incarnation, Kept>,
    /// For how many entities each of them is kept.
    sharing: BTreeMap<RunId, u32>,
    /// The entities for which something could not be read since the last turn.
    failed: BTreeSet<Incarnation>,
}

impl DueWork {
    /// Keeps runs for an entity, and those that it has.
    pub(super) fn keep(&mut self, entity: Incarnation, runs: impl IntoIterator<Item = RunId>) {
        let kept = self.kept.entry(entity).or_default();
        for run in runs {
            if kept.runs.insert(run) {
                *self.sharing.entry(run).or_default() += 1;
            }
        }
    }

    /// Whether a run is kept.
    pub(super) fn has(&self, run: RunId) -> bool {
        self.sharing.contains_key(&run)
    }

    /// The entities that have asked for something.
    pub(super) fn entities(&self) -> impl Iterator<Item = Incarnation> {
        self.kept.keys().copied()
    }

    /// Keeps nothing for an entity any more.
    pub(super) fn end(&mut self, entity: Incarnation) {
        let kept = self.kept.remove(&entity).unwrap_or_default();
        for run in kept.runs {
            let sharing = self.sharing.get_mut(&run);
            if sharing.is_some_and(|sharing| {
                *sharing -= 1;
                *sharing == 0
            }) {
                self.sharing.remove(&run);
            }
        }
    }

    /// Notes that something could not be read that an entity has asked for.
    pub(super) fn fail(&mut self, entity: Incarnation) {
        self.failed.insert(entity);
        self.kept.entry(entity).or_default().has_failed = true;
    }

    /// Whether that was so since it has begun.
    pub(super) fn has_failed(&self, entity: Incarnation) -> bool {
        self.kept.get(&entity).is_some_and(|it| it.has_failed)
    }

    /// The entities for which something could not be read since the last turn.
    pub(super) fn take_failed(&mut self) -> BTreeSet<Incarnation> {
        std::mem::take(&mut self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_kept_as_long_as_one_entity_has_not_used_it() {
        let [one, two, topic] = Incarnation::default().with_sub_queues();
        let mut due = DueWork::default();
        due.keep(one, [(topic, 5), (one, 0)]);
        due.keep(one, [(topic, 5)]);
        due.keep(two, [(topic, 5)]);
        due.end(one);
        assert!(due.has((topic, 5)) && !due.has((one, 0)));
        assert_eq!(due.entities().collect::<Vec<_>>(), [two]);
        due.end(two);
        due.end(two);
        assert!(!due.has((topic, 5)) && due.sharing.is_empty());
    }

    #[test]
    fn what_has_failed_begins_anew() {
        let entity = Incarnation::default();
        let mut due = DueWork::default();
        due.keep(entity, [(entity, 0)]);
        due.fail(entity);
        assert_eq!(due.take_failed(), BTreeSet::from([entity]));
        assert!(due.take_failed().is_empty() && due.has_failed(entity));
        due.end(entity);
        assert!(!due.has_failed(entity));
    }
}
