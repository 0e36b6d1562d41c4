//! How facts change bus queues. Total: a fact that no longer fits changes nothing.

use kew_planted::{Bug, is_planted};

use super::queue::{BusQueue, sub_queue_names};
use super::queues::Queues;
use super::role::Role;
use super::rules::RulesChange;
use super::{BusFact, BusQueueOptions};
use crate::catalogue::Catalogue;
use crate::effect::BusSession;
use crate::queues::Queue;
use crate::vocabulary::{BodyLocation, EntityName, Incarnation, LeaseGeneration, Timestamp};

impl Queues {
    pub(crate) fn apply(&mut self, catalogue: &mut Catalogue, at: Timestamp, fact: BusFact) {
        match fact {
            BusFact::Messages { effects } => self.apply_effects(catalogue, at, &effects),
            BusFact::BodiesMoved { moves } => self.move_bodies(catalogue, &moves),
            BusFact::QueueCreated {
                queue,
                name,
                options,
            } => {
                self.create(catalogue, queue, Role::Queue, &name, &options, at);
            }
            BusFact::TopicCreated {
                topic,
                name,
                options,
            } => {
                self.create(catalogue, topic, Role::Topic, &name, &options, at);
            }
            BusFact::SubscriptionCreated {
                subscription,
                name,
                options,
                of,
            } => {
                let role = Role::Subscription { of };
                if self.create(catalogue, subscription, role, &name, &options, at) {
                    self.give_default_rule(catalogue, subscription, of);
                    // It is a use of the topic.
                    self.change(catalogue, of, at, |_| {});
                }
            }
            BusFact::QueueUpdated {
                queue,
                options,
                ids_from,
            } => self.update(catalogue, queue, &options, ids_from, at),
            BusFact::EntityUpdated {
                entity,
                options,
                ids_from,
            } => self.update(catalogue, entity, &options, ids_from, at),
            BusFact::RulesChanged {
                topic,
                subscription,
                from,
                retired,
                added,
            } => {
                let change = RulesChange {
                    topic,
                    subscription,
                    from,
                    retired,
                    added,
                };
                self.change_rules(catalogue, at, change);
            }
            BusFact::QueueDeleted { queue } => self.delete(catalogue, queue),
            BusFact::SessionLocked {
                queue,
                session,
                generation,
                until,
            } => self.change(catalogue, queue, at, |entity| {
                entity.lock_session(&session, generation, until);
            }),
            BusFact::SessionRenewed {
                queue,
                session,
                until,
            } => self.change(catalogue, queue, at, |entity| {
                let sessions = &mut entity.backlog.sessions;
                sessions.change_named(&session, |session| session.locked_until = until);
            }),
            BusFact::SessionStateSet {
                queue,
                session,
                was,
                state,
            } => self.set_session_state(catalogue, queue, at, &session, (was, state)),
            // Every event sets the time of use. This one changes nothing else.
            BusFact::Used { queue } => self.change(catalogue, queue, at, |_| {}),
        }
    }

    fn change(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        at: Timestamp,
        change: impl FnOnce(&mut BusQueue),
    ) {
        if let Some(entity) = self.get_mut(&queue) {
            entity.used_at = at;
            change(entity);
            entity.settle(catalogue, queue);
        }
    }

    /// Creates the three entities of a queue, topic or subscription. Returns whether it did.
    fn create(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        role: Role,
        name: &EntityName,
        options: &BusQueueOptions,
        at: Timestamp,
    ) -> bool {
        let [_, second, third] = queue.with_sub_queues();
        let is_there = |it: &Incarnation| self.contains_key(it);
        if [queue, second, third].iter().any(is_there) || second == third {
            return false;
        }
        let [dead_letters, failed_transfers] = sub_queue_names(name);
        catalogue.use_incarnation(third);
        for (incarnation, name, role) in [
            (queue, name.clone(), role),
            (second, dead_letters, Role::DeadLetters { of: queue }),
            (third, failed_transfers, Role::FailedTransfers { of: queue }),
        ] {
            // In a damaged history the deletion of an earlier queue of that name may be missing.
            if let Some(earlier) = catalogue.find(&name) {
                self.forget_rules(catalogue, earlier);
                self.take(catalogue, earlier);
            }
            let options = role.options(options);
            let entity = BusQueue::new(name, role, options, at, catalogue.run_length);
            self.add(catalogue, incarnation, entity);
        }
        true
    }

    fn update(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        options: &BusQueueOptions,
        ids_from: Timestamp,
        at: Timestamp,
    ) {
        for incarnation in queue.with_sub_queues() {
            if let Some(entity) = self.get_mut(&incarnation) {
                entity.duplicates.keep_from(ids_from);
                entity.options = entity.role.options(options);
                entity.updated_at = at;
                entity.used_at = at;
                entity.settle(catalogue, incarnation);
            }
        }
    }

    fn delete(&mut self, catalogue: &mut Catalogue, queue: Incarnation) {
        // Events before or behind this one are about the subscriptions of a topic.
        let left: Vec<_> = catalogue.subscriptions_of(queue).collect();
        for subscription in left {
            self.delete_three(catalogue, subscription);
        }
        // A topic's rules go with it as a whole.
        self.forget_rules(catalogue, queue);
        self.delete_three(catalogue, queue);
    }

    fn delete_three(&mut self, catalogue: &mut Catalogue, queue: Incarnation) {
        for incarnation in queue.with_sub_queues() {
            if is_planted(Bug::BusDeadLettersLeft) && incarnation != queue {
                continue;
            }
            if let Some(gone) = self.take(catalogue, incarnation) {
                catalogue.waste.push(gone);
            }
        }
    }
}

impl Queues {
    /// Replaces a session's state, which was the first location until now, by the second one.
    fn set_session_state(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        at: Timestamp,
        session: &BusSession,
        (was, state): (Option<BodyLocation>, Option<BodyLocation>),
    ) {
        if let Some(entity) = self.get_mut(&queue) {
            entity.used_at = at;
            let sessions = &mut entity.backlog.sessions;
            let number = sessions.ensure(session.as_of_message());
            sessions.set_state(number, was, state, at, &mut catalogue.live);
            entity.settle(catalogue, queue);
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
        let number = sessions.ensure(session.as_of_message());
        sessions.change(number, |session| {
            session.generation = generation;
            session.locked_until = until;
        });
    }
}
