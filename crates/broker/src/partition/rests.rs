//! Entities of which nothing that is due is done for a while. Due work of the others goes on.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::{Incarnation, State};
use kew_log::BootTime;

/// The entities that rest, and why.
#[derive(Default)]
pub(super) struct Rests {
    /// What is due needs a read: until that is done ([`BootTime::NEVER`]), or tried again.
    reading: BTreeMap<Incarnation, BootTime>,
    /// No read is tried again before this time.
    retry_at: Option<BootTime>,
    /// A command that was tried too often needs the entity as it is.
    late: BTreeSet<Incarnation>,
    /// Topics whose messages wait for their copies until the disk has room.
    full: BTreeSet<Incarnation>,
}

impl Rests {
    /// Notes that an entity rests until a read is done, or is to be tried again. The tick has let it rest.
    pub(super) fn await_read(&mut self, entity: Incarnation, until: BootTime) {
        let rests = self.reading.entry(entity).or_insert(until);
        *rests = until.min(*rests);
        if until != BootTime::NEVER {
            self.retry_at = Some(until.min(self.retry_at.unwrap_or(until)));
        }
    }

    /// Whether an entity rests until a read is done, or tried again.
    pub(super) fn is_any_reading(&self) -> bool {
        !self.reading.is_empty()
    }

    /// Whether this entity does.
    pub(super) fn is_reading(&self, entity: Incarnation) -> bool {
        self.reading.contains_key(&entity)
    }

    /// Whether an entity rests for the sake of a late command.
    pub(super) fn is_any_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// When a read is tried again.
    pub(super) fn retry_at(&self) -> Option<BootTime> {
        self.retry_at
    }

    /// Whether an entity of these rests until a read is tried again.
    pub(super) fn is_any_put_off(&self, is_one: impl Fn(Incarnation) -> bool) -> bool {
        let mut reading = self.reading.iter();
        self.retry_at.is_some()
            && reading.any(|(entity, until)| *until != BootTime::NEVER && is_one(*entity))
    }

    /// Notes that something of an entity was read.
    pub(super) fn end_read(&mut self, entity: Incarnation, state: &mut State) {
        if self.reading.remove(&entity).is_some() && !self.rests(entity) {
            state.let_rest(entity, false);
        }
    }

    /// Notes that nothing is read any more, and that all may ask again.
    pub(super) fn end_reads(&mut self, state: &mut State) {
        self.retry_at = None;
        for entity in std::mem::take(&mut self.reading).into_keys() {
            if !self.rests(entity) {
                state.let_rest(entity, false);
            }
        }
    }

    fn rests(&self, entity: Incarnation) -> bool {
        self.late.contains(&entity)
            || self.reading.contains_key(&entity)
            || self.full.contains(&entity)
    }

    /// Notes topics that rest until the disk has room. The tick has let them rest.
    pub(super) fn await_space(&mut self, topics: Vec<Incarnation>) {
        self.full.extend(topics);
    }

    /// Notes that the disk has room.
    pub(super) fn end_full(&mut self, state: &mut State) {
        for topic in std::mem::take(&mut self.full) {
            if !self.rests(topic) {
                state.let_rest(topic, false);
            }
        }
    }

    /// Notes that something of an entity could not be read.
    pub(super) fn put_off(&mut self, entity: Incarnation, until: BootTime) {
        if self.reading.remove(&entity).is_some() {
            self.await_read(entity, until);
        }
    }

    /// Ends the rests that were until this time, and sets those for the sake of late commands.
    pub(super) fn begin_turn(
        &mut self,
        now: BootTime,
        late: BTreeSet<Incarnation>,
        state: &mut State,
    ) {
        if self.retry_at.is_some_and(|at| at.has_passed(now)) {
            let over = self.reading.iter().filter(|(_, at)| at.has_passed(now));
            let over: Vec<Incarnation> = over.map(|(entity, _)| *entity).collect();
            for entity in over {
                self.end_read(entity, state);
            }
            let retries = self.reading.values().copied();
            self.retry_at = retries.filter(|at| *at != BootTime::NEVER).min();
        }
        if late == self.late {
            return;
        }
        for entity in late.symmetric_difference(&self.late) {
            let rests = late.contains(entity)
                || self.reading.contains_key(entity)
                || self.full.contains(entity);
            state.let_rest(*entity, rests);
        }
        self.late = late;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those who send to a topic wait for its copies, unless a topic is put off. Other entities do not count.
    #[test]
    fn only_what_is_tried_again_later_is_put_off() {
        let [reading, other, _] = Incarnation::default().with_sub_queues();
        let at = |ms: u64| BootTime::from_us(1000 * ms);
        let mut rests = Rests::default();
        rests.await_read(reading, BootTime::NEVER);
        assert!(!rests.is_any_put_off(|_| true));
        rests.await_read(other, at(5));
        assert!(rests.is_any_put_off(|it| it == other));
        assert!(!rests.is_any_put_off(|it| it == reading));
        rests.begin_turn(at(6), BTreeSet::new(), &mut State::new());
        assert!(!rests.is_any_put_off(|_| true));
        assert!(rests.is_reading(reading) && !rests.is_reading(other));
    }
}
