//! How facts change bus queues. Total: a fact that no longer fits changes nothing.

use kew_planted::{Bug, is_planted};

use super::effect::BusSession;
use super::queue::{BusQueue, Role, sub_queue_names};
use super::{BusFact, BusQueueOptions};
use crate::{BodyLocation, EntityName, Incarnation, LeaseGeneration, State, Timestamp};

impl State {
    pub(crate) fn apply_bus(&mut self, at: Timestamp, fact: BusFact) {
        match fact {
            BusFact::QueueCreated {
                queue,
                name,
                options,
            } => self.create_bus_queue(queue, &name, &options, at),
            BusFact::QueueUpdated {
                queue,
                options,
                ids_from,
            } => self.update_bus_queue(queue, &options, ids_from, at),
            BusFact::QueueDeleted { queue } => self.delete_bus_queue(queue),
            BusFact::SessionLocked {
                queue,
                session,
                generation,
                until,
            } => self.change_bus(queue, at, |entity| {
                entity.lock_session(&session, generation, until);
            }),
            BusFact::SessionRenewed {
                queue,
                session,
                until,
            } => self.change_bus(queue, at, |entity| {
                let sessions = &mut entity.backlog.sessions;
                sessions.change_named(&session, |session| session.locked_until = until);
            }),
            BusFact::SessionStateSet {
                queue,
                session,
                was,
                state,
            } => self.change_bus(queue, at, |entity| {
                entity.set_session_state(&session, was, state, at);
            }),
            // Every event sets the time of use. This one changes nothing else.
            BusFact::Used { queue } => self.change_bus(queue, at, |_| {}),
        }
    }

    fn change_bus(
        &mut self,
        queue: Incarnation,
        at: Timestamp,
        change: impl FnOnce(&mut BusQueue),
    ) {
        if let Some(entity) = self.bus.get_mut(&queue) {
            entity.used_at = at;
            change(entity);
            self.note_bus_deadline(queue);
        }
    }

    fn create_bus_queue(
        &mut self,
        queue: Incarnation,
        name: &EntityName,
        options: &BusQueueOptions,
        at: Timestamp,
    ) {
        let last = queue.next().next();
        let is_there =
            |it: Incarnation| self.bus.contains_key(&it) || self.entities.contains_key(&it);
        if queue.with_sub_queues().into_iter().any(is_there)
            || last.as_u64() >> Incarnation::BITS > 0
        {
            return;
        }
        let [dead_letters, failed_transfers] = sub_queue_names(name);
        let (second, third) = (queue.next(), queue.next().next());
        self.next_incarnation = self.next_incarnation.max(third.next());
        for (incarnation, name, role) in [
            (queue, name.clone(), Role::Queue),
            (second, dead_letters, Role::DeadLetters { of: queue }),
            (third, failed_transfers, Role::FailedTransfers { of: queue }),
        ] {
            // In a damaged history the deletion of an earlier queue of that name may be missing.
            if let Some(&earlier) = self.catalogue.get(&name) {
                self.remove_bus(earlier);
            }
            self.catalogue.insert(name.clone(), incarnation);
            let entity = BusQueue::new(name, role, options.clone(), at);
            self.bus.insert(incarnation, entity);
        }
    }

    fn update_bus_queue(
        &mut self,
        queue: Incarnation,
        options: &BusQueueOptions,
        ids_from: Timestamp,
        at: Timestamp,
    ) {
        for incarnation in queue.with_sub_queues() {
            if let Some(entity) = self.bus.get_mut(&incarnation) {
                entity.duplicates.keep_from(ids_from);
                entity.options = options.clone();
                entity.updated_at = at;
                entity.used_at = at;
            }
            self.note_bus_deadline(incarnation);
        }
    }

    fn delete_bus_queue(&mut self, queue: Incarnation) {
        for incarnation in queue.with_sub_queues() {
            if is_planted(Bug::BusDeadLettersLeft) && incarnation != queue {
                continue;
            }
            self.remove_bus(incarnation);
        }
    }

    /// Keeps the ordered set of deadlines in step with a bus queue.
    pub(crate) fn note_bus_deadline(&mut self, incarnation: Incarnation) {
        let Some(entity) = self.bus.get_mut(&incarnation) else {
            return;
        };
        let deadline = entity.next_deadline();
        if deadline != entity.deadline {
            if let Some(old) = entity.deadline {
                self.deadlines.remove(&(old, incarnation));
            }
            if let Some(new) = deadline {
                self.deadlines.insert((new, incarnation));
            }
            entity.deadline = deadline;
        }
    }
}

impl BusQueue {
    fn lock_session(
        &mut self,
        session: &BusSession,
        generation: LeaseGeneration,
        until: Timestamp,
    ) {
        let sessions = &mut self.backlog.sessions;
        let number = sessions.ensure(session);
        sessions.change(number, |session| {
            session.generation = generation;
            session.locked_until = until;
        });
    }

    fn set_session_state(
        &mut self,
        session: &BusSession,
        was: Option<BodyLocation>,
        state: Option<BodyLocation>,
        at: Timestamp,
    ) {
        let sessions = &mut self.backlog.sessions;
        let number = sessions.ensure(session);
        sessions.set_state(number, was, state, at);
    }
}
