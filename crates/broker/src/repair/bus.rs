//! Bus queues whose history has a gap.

use std::collections::BTreeSet;

use kew_engine::bus::{BusFact, Effect, Moved, MovedOf, OwnEffect, OwnHolder};
use kew_engine::{EntityName, Fact, Incarnation, SUBSCRIPTIONS, Service, Timestamp};

use super::reading::Reading;

impl Reading {
    /// Restores what this fact, which is not about messages, implies and a gap has hidden.
    pub(super) fn prepare_bus(&mut self, at: Timestamp, fact: &BusFact) {
        match fact {
            BusFact::Messages { .. } | BusFact::BodiesMoved { .. } => {}
            BusFact::QueueCreated { name, .. } | BusFact::TopicCreated { name, .. } => {
                self.delete_bus_namesake(at, name);
            }
            BusFact::SubscriptionCreated { name, of, .. } => {
                self.delete_bus_namesake(at, name);
                self.stand_in_topic(*of, at);
            }
            BusFact::QueueDeleted { queue } => {
                for entity in queue.with_sub_queues() {
                    self.correct_service(Service::ServiceBus, entity, at);
                    self.holes.retain(|(of, _), _| *of != entity);
                    self.more_holes.remove(&entity);
                    self.stand_ins.remove(&entity);
                }
            }
            BusFact::RulesChanged {
                topic,
                subscription,
                ..
            } => self.stand_in_subscription(*topic, *subscription, at),
            // These facts are about no sub-queue.
            BusFact::QueueUpdated { queue, .. }
            | BusFact::EntityUpdated { entity: queue, .. }
            | BusFact::Used { queue }
            | BusFact::SessionLocked { queue, .. }
            | BusFact::SessionStateSet { queue, .. }
            | BusFact::SessionRenewed { queue, .. } => {
                self.first_of_queue.insert(*queue);
                self.stand_in(Service::ServiceBus, *queue, at);
            }
        }
    }

    /// Deletes an older entity of that name: its deletion was not read. The subscriptions of a topic go with it.
    fn delete_bus_namesake(&mut self, at: Timestamp, name: &EntityName) {
        let deleted = |queue| Fact::Bus(BusFact::QueueDeleted { queue });
        self.delete_namesake(at, name, deleted);
    }

    /// Restores what these effects and moves imply and a gap has hidden.
    pub(super) fn prepare_bus_messages(&mut self, now: Timestamp, fact: &BusFact, why: &str) {
        let service = Service::ServiceBus;
        let mut passed = None;
        for effect in fact.effects() {
            if let Effect::Own(OwnEffect::Passed { topic, .. }) = effect {
                passed = Some(*topic);
            }
            self.stand_in_copied(passed, effect, now);
            self.prepare_effect(service, now, effect, why, |reading, own| match own {
                OwnEffect::SessionReleasing { queue, .. }
                | OwnEffect::SessionFreed { queue, .. } => {
                    reading.stand_in(service, *queue, now);
                }
                // Lower numbers that were never read are no messages of the topic: their copies are elsewhere.
                OwnEffect::Passed { topic, .. } | OwnEffect::FannedOut { topic, .. } => {
                    reading.stand_in(service, topic.entity, now);
                    reading.state.make_topic(topic.entity);
                    reading.without_next.remove(&topic.entity);
                }
            });
        }
        for moved in fact.moves() {
            self.stand_in(service, moved.entity(), now);
        }
    }

    /// Notes the entities that are no sub-queues, as effects and moves show.
    pub(super) fn note_firsts(&mut self, fact: &BusFact) {
        let mut before = None;
        for effect in fact.effects() {
            self.note_first(effect, before);
            before = Some(effect);
        }
        fact.moves()
            .iter()
            .for_each(|moved| self.note_first_moved(moved));
    }

    /// Notes an entity that is no sub-queue, as the effect shows, with the one before it.
    fn note_first(&mut self, effect: &Effect, before: Option<&Effect>) {
        match (before, effect) {
            // Sub-queues hold dead letters alone.
            (_, Effect::Arrived { to, message }) if message.record.cause.is_none() => {
                self.first_of_queue.insert(to.entity);
            }
            (
                _,
                Effect::Own(
                    OwnEffect::SessionReleasing { queue, .. }
                    | OwnEffect::SessionFreed { queue, .. },
                ),
            ) => {
                self.first_of_queue.insert(*queue);
            }
            (
                _,
                Effect::Own(OwnEffect::Passed { topic, .. } | OwnEffect::FannedOut { topic, .. }),
            ) => {
                self.first_of_queue.insert(topic.entity);
            }
            // A message that moves to another entity than the next one was forwarded.
            (Some(Effect::Arrived { to, message }), Effect::Ended { at, bodies, .. })
                if message.record.body == bodies.sent && to.entity.before() != Some(at.entity) =>
            {
                self.first_of_queue.insert(to.entity);
            }
            (_, Effect::Arrived { .. } | Effect::Leased { .. } | Effect::Ended { .. }) => {}
        }
    }

    /// Notes an entity that is no sub-queue, as a move shows.
    fn note_first_moved(&mut self, moved: &Moved) {
        let is_first = match &moved.of {
            MovedOf::Message { message, .. } => message.record.cause.is_none(),
            MovedOf::Own(OwnHolder::State { .. }) => true,
            MovedOf::Own(OwnHolder::Change { .. }) => false,
        };
        if is_first {
            self.first_of_queue.insert(moved.entity());
        }
    }

    /// Gives those queues Service Bus of which nothing has shown to which service they belong, if others show it: a
    /// sub-queue behind it, or that all queues whose service is known are of that one.
    pub(super) fn decide_on_services(&mut self) {
        let guessed = std::mem::take(&mut self.guessed);
        let at = self.state.last_event_at();
        let known = self.state.queues();
        let known = known.filter(|(queue, _)| !guessed.contains(queue));
        let mut services = known.map(|(_, name)| name.service).peekable();
        let is_bus_alone =
            services.peek().is_some() && services.all(|it| it == Service::ServiceBus);
        drop(services);
        for queue in guessed {
            let [_, sub_queues @ ..] = queue.with_sub_queues();
            let has_sub_queue = sub_queues.iter().any(|of| {
                let stands_in = self.stand_ins.contains_key(of) && self.state.is_bus_queue(*of);
                stands_in && *of != queue && !self.first_of_queue.contains(of)
            });
            if is_bus_alone || has_sub_queue {
                self.correct_service(Service::ServiceBus, queue, at);
            }
        }
    }

    /// Completes the bus entities that stand in to whole queues. Returns the names of entities that fit
    /// nowhere.
    ///
    /// It is not always known which of a queue's three entities a stand-in was. Without any evidence it
    /// becomes the queue itself, so that its messages can be received without knowing of sub-queues.
    pub(super) fn complete_bus_queues(&mut self) -> Vec<EntityName> {
        let at = self.state.last_event_at();
        self.stand_in_topics(at);
        let renamed = self.complete_known_queues(at);
        let stand_ins = self.stand_ins.keys().copied();
        let mut open: BTreeSet<Incarnation> = stand_ins
            .filter(|queue| self.state.is_bus_queue(*queue))
            .collect();
        // These are whole.
        self.stand_ins.extend(renamed);
        let mut dropped = Vec::new();
        while let Some(one) = open.first().copied() {
            let Some(first) = self.first_of(one, &open) else {
                open.remove(&one);
                self.stand_ins.remove(&one);
                dropped.extend(self.state.drop_bus_queue(one));
                continue;
            };
            for entity in first.with_sub_queues() {
                open.remove(&entity);
                self.stand_ins.remove(&entity);
            }
            let found = self.name_of_topic(first);
            let name = found.clone().unwrap_or_else(|| self.name_of_whole(first));
            self.state.make_bus_queue(first, name.clone(), first, at);
            match found {
                Some(name) => self.found_topics.insert(first, name),
                None => self.stand_ins.insert(first, name),
            };
        }
        dropped
    }

    /// Completes the queues of which an entity is known and another one is lost. Returns those that have another name
    /// now, because a newer queue has theirs.
    fn complete_known_queues(&mut self, at: Timestamp) -> Vec<(Incarnation, EntityName)> {
        let mut renamed = Vec::new();
        let queues = self.state.queues();
        let known: Vec<_> = queues.map(|(queue, _)| queue).collect();
        for one in known {
            let own = (self.state.bus_queue_of(one)).filter(|_| !self.stand_ins.contains_key(&one));
            let Some((first, name)) = own else {
                continue;
            };
            let all = first.with_sub_queues();
            let is_lost = |entity: &Incarnation| {
                self.stand_ins.contains_key(entity) || self.state.queue_name(*entity).is_none()
            };
            if !all.iter().any(is_lost) {
                continue;
            }
            for entity in all {
                self.correct_service(Service::ServiceBus, entity, at);
                self.stand_ins.remove(&entity);
            }
            let mut others = self.state.queues();
            let is_taken = others.any(|(other, taken)| *taken == name && !all.contains(&other));
            drop(others);
            let name = match is_taken {
                true => self.free_name(Service::ServiceBus, first),
                false => name,
            };
            self.state.make_bus_queue(first, name.clone(), one, at);
            if is_taken {
                renamed.push((first, name));
            }
        }
        renamed
    }

    /// The name of a queue that stands in, or a free one. That of a subscription has the name of its topic before it.
    fn name_of_whole(&self, queue: Incarnation) -> EntityName {
        let own = self.state.queue_name(queue).cloned();
        let own = own.unwrap_or_else(|| self.free_name(Service::ServiceBus, queue));
        let topic = self.state.topic_of(queue);
        let Some(topic) = topic.and_then(|topic| self.state.queue_name(topic)) else {
            return own;
        };
        let name = EntityName {
            name: format!("{}{SUBSCRIPTIONS}{}", topic.name, own.name).into(),
            ..topic.clone()
        };
        match self.state.has_entity(&name) {
            true => own,
            false => name,
        }
    }

    /// The queue that a stand-in is or belongs to: the first of three candidates that nothing else
    /// contradicts.
    fn first_of(&self, one: Incarnation, open: &BTreeSet<Incarnation>) -> Option<Incarnation> {
        let mut candidates = std::iter::successors(Some(one), |first| first.before())
            .take(one.with_sub_queues().len())
            .filter(|first| *first == one || !self.first_of_queue.contains(&one));
        candidates.find(|first| {
            first.with_sub_queues().into_iter().all(|entity| {
                let is_free = open.contains(&entity) || self.state.queue_name(entity).is_none();
                is_free && (entity == *first || !self.first_of_queue.contains(&entity))
            })
        })
    }
}
