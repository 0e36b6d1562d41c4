//! What due work of entities has asked for: it stays in memory until that work has used it.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::{Group, Incarnation, Missing, RunId, State, Ticked, Timestamp};
use kew_log::BootTime;

use super::{Asker, Loads, RETRY_INTERVAL_MS};
use crate::Reply;
use crate::partition::Partition;

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

/// The numbers under which due work of entities has asked for bodies: an entity has one.
#[derive(Default)]
pub(super) struct DueBodies {
    by_number: BTreeMap<u64, Incarnation>,
    by_entity: BTreeMap<Incarnation, u64>,
}

impl DueBodies {
    pub(super) fn insert(&mut self, number: u64, entity: Incarnation) {
        self.by_number.insert(number, entity);
        self.by_entity.insert(entity, number);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Incarnation> {
        let entity = self.by_number.remove(&number)?;
        self.by_entity.remove(&entity);
        Some(entity)
    }

    pub(super) fn entity(&self, number: u64) -> Option<Incarnation> {
        self.by_number.get(&number).copied()
    }

    fn number_of(&self, entity: Incarnation) -> Option<u64> {
        self.by_entity.get(&entity).copied()
    }

    fn entities(&self) -> impl Iterator<Item = Incarnation> {
        self.by_entity.keys().copied()
    }
}

impl Loads {
    /// Asks for what a tick misses. Until it is read, the tick has let these entities rest. What an entity has asked
    /// for is kept until a tick has done something of it: an id is looked up with the record and the bodies of its
    /// message, which are read before. The tick may have ended before it came to some. Returns the entities that rest
    /// for a while, because something cannot be read now.
    fn note_ticked(&mut self, ticked: &Ticked, state: &State, now: Timestamp) -> Vec<Incarnation> {
        for entity in &ticked.served {
            self.end_due(*entity);
        }
        let is_over = |entity: &Incarnation| {
            let needs_more =
                ticked.missing.contains_key(entity) || ticked.bodies.contains_key(entity);
            !needs_more && !self.rests.is_reading(*entity) && !state.is_due(*entity, now)
        };
        let over: Vec<Incarnation> = self.due.entities().filter(is_over).collect();
        for entity in over {
            self.end_due(entity);
        }
        let mut put_off = Vec::new();
        for (entity, missing) in &ticked.missing {
            let until = self.ask_for_due(*entity, missing);
            if until == Some(BootTime::NEVER) {
                // The pause begins with the next turn, and the rest with it.
                self.due.fail(*entity);
            }
            self.rests
                .await_read(*entity, until.unwrap_or(BootTime::NEVER));
            put_off.extend(until.map(|_| *entity));
        }
        put_off
    }

    /// Asks for what due work of an entity misses. Returns until when it rests, if some of that could not be read.
    fn ask_for_due(&mut self, entity: Incarnation, missing: &Missing) -> Option<BootTime> {
        if self.due.has_failed(entity) {
            self.end_due(entity);
        }
        let put_off = self.put_off_until(missing);
        if put_off.is_some() && missing.groups.keys().any(|group| !group.is_of_messages()) {
            // It can do nothing without these ids, and keeps nothing meanwhile.
            self.end_due(entity);
            return put_off;
        }
        let groups = missing.groups.keys();
        let asked = groups.filter(|group| self.failing.put_off(**group, self.now).is_none());
        self.due.keep(entity, asked.map(Group::run));
        self.ask(Asker::DueWork(entity), missing)
    }

    /// Drops what due work of an entity has asked for, and what was read of that.
    pub(super) fn end_due(&mut self, entity: Incarnation) {
        self.due.end(entity);
        self.wants.release(Asker::DueWork(entity));
    }

    /// Notes that a group cannot be read that due work of an entity has asked for. What else it has asked for is read,
    /// if it can do something with that. It rests from the next turn on.
    pub(super) fn fail_due(&mut self, entity: Incarnation, group: Group) {
        let asker = Asker::DueWork(entity);
        match group.is_of_messages() && !self.wants.is_parked(asker) {
            true => drop(self.wants.do_without(asker, group)),
            false => self.end_due(entity),
        }
        self.due.fail(entity);
    }
}

impl<T> Partition<T> {
    /// Asks for what a tick misses, and drops the bodies that no tick is going to need.
    pub(in crate::partition) fn note_ticked(
        &mut self,
        ticked: Ticked,
        replies: &mut Vec<(T, Reply)>,
    ) {
        let now = self.now.boot;
        let time = self.now.time;
        for entity in self.loads.note_ticked(&ticked, &self.state, time) {
            self.release_due_bodies(entity, replies);
        }
        let is_needless = |topic: &Incarnation| {
            !self.state.passes_on(*topic) || ticked.left_alone.contains(topic)
        };
        let asked = self.loads.due_bodies.entities();
        let needless: Vec<Incarnation> = asked.filter(is_needless).collect();
        for (topic, bodies) in ticked.bodies {
            let missing = Missing {
                bodies,
                ..Missing::default()
            };
            if self.loads.bodies.is_failing(&missing.bodies) {
                let until = now.plus_ms(RETRY_INTERVAL_MS);
                self.loads.rests.await_read(topic, until);
                self.put_off_due(topic, replies);
                continue;
            }
            // What it holds of them stays.
            let before = self.loads.due_bodies.number_of(topic);
            let id = before.unwrap_or_else(|| self.lanes.take_number());
            self.loads.due_bodies.insert(id, topic);
            self.loads.rests.await_read(topic, BootTime::NEVER);
            let ended = self.loads.bodies.ask(id, &missing);
            self.note_bodies(ended, replies);
        }
        for topic in needless {
            if self.release_due_bodies(topic, replies) {
                self.loads.rests.end_read(topic, &mut self.state);
            }
        }
        self.loads.rests.await_space(ticked.left_alone);
    }

    /// Drops what due work of an entity holds that rests for a while: nobody waits for room behind it, and it asks
    /// again.
    fn put_off_due(&mut self, entity: Incarnation, replies: &mut Vec<(T, Reply)>) {
        self.loads.end_due(entity);
        self.release_due_bodies(entity, replies);
    }

    /// Drops the bodies that due work of an entity has asked for. Whether it had asked for some: nobody ends its rest
    /// for them any more.
    pub(in crate::partition) fn release_due_bodies(
        &mut self,
        entity: Incarnation,
        replies: &mut Vec<(T, Reply)>,
    ) -> bool {
        let held = self.loads.due_bodies.number_of(entity);
        if let Some(id) = held {
            self.loads.due_bodies.remove(id);
            self.release(id, replies);
        }
        held.is_some()
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
