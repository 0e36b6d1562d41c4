//! Turns due things into events.

use std::collections::{BTreeMap, BTreeSet};

use super::Turn;
use crate::bus::{self, By, DueStep};
use crate::catalogue::LOOKS_PER_UNIT;
use crate::event::Fact;
use crate::state::State;
use crate::storage::{ENDED_COUNT_MAX, Effect, StorageFact};
use crate::table::Missing;
use crate::vocabulary::{BodyLocation, Incarnation};

/// The result of a tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// Whether more is due that another tick can do.
    pub more_is_due: bool,
    /// What due things of other entities need first, by the entity that rests until it is read. What it needs may
    /// belong to another one: the ids of a topic to which it forwards.
    pub missing: BTreeMap<Incarnation, Missing>,
    /// The bodies that due work is going to look at, by entity: for the rules of a topic, or for the ids of messages that
    /// are forwarded to one. They are to stay in memory until a later tick asks for others, or none of the entity's messages
    /// [waits to go on](State::passes_on).
    pub bodies: BTreeMap<Incarnation, BTreeSet<BodyLocation>>,
    /// Topics whose messages were left alone because the turn is [draining](Turn::draining).
    pub left_alone: Vec<Incarnation>,
    /// Entities of which something was done, some of them several times. They have used what was read for that.
    pub served: Vec<Incarnation>,
}

/// Reads what is missing, if it can. Returns whether it did.
type Read<'a> = &'a mut dyn FnMut(&mut State, &Missing) -> bool;

/// How many due things of an entity a tick does before those of the next one.
const IN_A_ROW: u32 = 16;

impl Turn<'_> {
    /// Turns due things into events. The budget is their number, but a message that moves with many bytes
    /// besides its body counts twice: it must be at least 2. Messages that are looked at in vain count too, 64 as one
    /// thing. A copy of a topic's message with the largest changes takes about 50.
    ///
    /// Decisions do not wait for a tick: a deadline at or before `now` has passed in any case. A tick frees
    /// memory that no command needs any more.
    ///
    /// Entities with due things are served in turn, 16 things each, or one that goes to a topic. Which entity is next is
    /// not part of the state: events say what was done, and a replay does it in their order.
    ///
    /// An entity whose next due thing needs what is not in memory rests, and the others go on: see
    /// [`State::let_rest`]. Who has read it ends the rest.
    pub fn tick(&mut self, budget: u32) -> Ticked {
        self.tick_reading(budget, &mut |_, _| false)
    }

    /// The same, but what is missing is read at once.
    pub(crate) fn tick_reading(&mut self, budget: u32, read: Read<'_>) -> Ticked {
        let mut in_batch = Vec::new();
        let mut ticked = self.do_all_due(budget, read, &mut in_batch);
        ticked.more_is_due |= !in_batch.is_empty();
        for entity in in_batch {
            self.state.let_rest(entity, false);
        }
        self.record_effects();
        ticked
    }

    /// `in_batch` gets the entities that rest until the end of the tick, because they need what it has written.
    fn do_all_due(
        &mut self,
        budget: u32,
        read: Read<'_>,
        in_batch: &mut Vec<Incarnation>,
    ) -> Ticked {
        let mut left = budget;
        let mut ticked = Ticked::default();
        while left > 0
            && let Some(entity) = self.next_entity()
        {
            // Copies, and the end of a topic with all its subscriptions, take more room than there is.
            if self.is_draining && self.state.is_topic(entity) {
                ticked.left_alone.push(entity);
                self.state.let_rest(entity, true);
                left -= 1;
                continue;
            }
            let mut in_a_row = 0;
            let mut is_served = false;
            while left > 0 && in_a_row < IN_A_ROW {
                let due = left.min(IN_A_ROW - in_a_row);
                let (needed, looks) = self.missing_for_due(entity, due);
                if !needed.is_empty() {
                    if read(self.state, &needed) {
                        continue;
                    }
                    let mut needed = needed;
                    let bodies = std::mem::take(&mut needed.bodies);
                    if !needed.is_empty() {
                        ticked.missing.insert(entity, needed);
                    }
                    if !bodies.is_empty() {
                        ticked.bodies.insert(entity, bodies);
                    }
                    self.state.let_rest(entity, true);
                    // To look takes time too.
                    left = left.saturating_sub(looks.max(u32::from(in_a_row == 0)));
                    break;
                }
                match self.do_one(entity, left) {
                    DueStep::Done(cost) => {
                        is_served = true;
                        left = left.saturating_sub(cost);
                    }
                    DueStep::Last(cost) => {
                        is_served = true;
                        left = left.saturating_sub(cost);
                        break;
                    }
                    DueStep::Nothing => {
                        left -= u32::from(in_a_row == 0);
                        break;
                    }
                    DueStep::InBatch => {
                        in_batch.push(entity);
                        self.state.let_rest(entity, true);
                        left -= u32::from(in_a_row == 0);
                        break;
                    }
                    // It is the first one in the next tick, unless others are due that were not served.
                    DueStep::TooLarge => {
                        if in_a_row > 0 {
                            ticked.served.push(entity);
                            self.state.serve(entity, self.now);
                        }
                        ticked.more_is_due = true;
                        return ticked;
                    }
                }
                in_a_row += 1;
            }
            if is_served {
                ticked.served.push(entity);
            }
            self.state.serve(entity, self.now);
        }
        ticked.more_is_due = self.next_entity().is_some();
        ticked
    }

    /// Does one due thing of an entity.
    fn do_one(&mut self, entity: Incarnation, budget: u32) -> DueStep {
        let Some(stored) = self.state.storage.get(&entity) else {
            return bus::Turn::on(self).do_next_due(entity, budget, By::Tick);
        };
        let Some(run) = stored.backlog.run_to_expire(self.now) else {
            return DueStep::Nothing;
        };
        DueStep::Done(1 + self.expire_run(entity, run) / LOOKS_PER_UNIT)
    }

    /// Removes messages of a run that have expired, as many as one event takes, and corrects the run's hint. Returns
    /// how many messages it has looked at.
    fn expire_run(&mut self, queue: Incarnation, run: u64) -> u32 {
        let backlog = self.state.storage.get(&queue).map(|it| &it.backlog);
        let Some(expired) = backlog.and_then(|backlog| backlog.expired(queue, run, self.now))
        else {
            return 0;
        };
        let mut looks = expired.looks;
        let is_more_left = expired.effects.len() == ENDED_COUNT_MAX;
        if expired.count > 0 {
            let effects = expired.effects;
            let is_completed = |effect: &&Effect| matches!(effect, Effect::Ended { .. });
            let completed = effects.iter().filter(is_completed).count() as u64;
            self.emit(Fact::Storage(StorageFact::Messages { effects }));
            self.state.expired.add(expired.count);
            // An effect does not say why a message ends.
            if let Some(stored) = self.state.storage.get_physical(&queue) {
                stored.flow.completed = stored.flow.completed.saturating_sub(completed);
            }
        }
        if !is_more_left {
            let (storage, catalogue) = (&mut self.state.storage, &mut self.state.catalogue);
            looks += storage.raise_expiry(catalogue, queue, run);
        }
        looks
    }

    /// The entity that is next to be served, if one has something due.
    fn next_entity(&self) -> Option<Incarnation> {
        let (at, entity) = self.state.catalogue.deadlines.first()?;
        at.has_passed(self.now).then_some(entity)
    }
}
