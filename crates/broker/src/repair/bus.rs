//! Bus queues whose history has a gap.

use std::collections::BTreeSet;

use kew_engine::bus::{BusEffect, BusFact, BusMove, BusMoved};
use kew_engine::{EntityName, Event, Fact, Incarnation, SequenceNumber, Service, Timestamp};

use super::reading::Reading;

impl Reading {
    /// Restores what this fact implies and a gap has hidden.
    pub(super) fn prepare_bus(&mut self, at: Timestamp, fact: &BusFact, why: &str) {
        match fact {
            BusFact::Messages { effects } => self.prepare_bus_effects(at, effects, why),
            BusFact::BodiesMoved { moves } => {
                for moved in moves {
                    self.stand_in_bus(moved.entity(), at);
                    self.note_first_moved(moved);
                }
            }
            BusFact::QueueCreated { name, .. } => self.delete_namesake(at, name),
            BusFact::QueueDeleted { queue } => {
                for entity in queue.with_sub_queues() {
                    self.holes.retain(|(of, _), _| *of != entity);
                    self.stand_ins.remove(&entity);
                }
            }
            // These facts are about no sub-queue.
            BusFact::QueueUpdated { queue, .. }
            | BusFact::Used { queue }
            | BusFact::SessionLocked { queue, .. }
            | BusFact::SessionStateSet { queue, .. }
            | BusFact::SessionRenewed { queue, .. } => {
                self.first_of_queue.insert(*queue);
                self.stand_in_bus(*queue, at);
            }
        }
    }

    /// Restores what these effects imply and a gap has hidden.
    fn prepare_bus_effects(&mut self, at: Timestamp, effects: &[BusEffect], why: &str) {
        let mut before = None;
        for effect in effects {
            self.note_first(effect, before);
            self.prepare_bus_effect(at, effect, why);
            before = Some(effect);
        }
    }

    fn prepare_bus_effect(&mut self, at: Timestamp, effect: &BusEffect, why: &str) {
        match effect {
            BusEffect::Arrived { to, .. } => {
                self.note_arrival(to.entity, to.number, at, why);
                self.holes.remove(&(to.entity, to.number));
            }
            BusEffect::Leased { at: place, .. } => {
                self.stand_in_bus(place.entity, at);
                self.note_hole(place.entity, place.number, at, None, why);
            }
            BusEffect::Ended { at: place, .. } => {
                self.holes.remove(&(place.entity, place.number));
            }
            BusEffect::SessionReleasing { queue, .. } | BusEffect::SessionFreed { queue, .. } => {
                self.stand_in_bus(*queue, at);
            }
        }
    }

    /// Notes an entity that is no sub-queue, as the effect shows, with the one before it.
    fn note_first(&mut self, effect: &BusEffect, before: Option<&BusEffect>) {
        match (before, effect) {
            // Sub-queues hold dead letters alone.
            (_, BusEffect::Arrived { to, message }) if message.cause.is_none() => {
                self.first_of_queue.insert(to.entity);
            }
            (
                _,
                BusEffect::SessionReleasing { queue, .. } | BusEffect::SessionFreed { queue, .. },
            ) => {
                self.first_of_queue.insert(*queue);
            }
            // A message that moves to another entity than the next one was forwarded.
            (Some(BusEffect::Arrived { to, message }), BusEffect::Ended { at, bodies, .. })
                if message.bodies.sent == bodies.sent && to.entity.before() != Some(at.entity) =>
            {
                self.first_of_queue.insert(to.entity);
            }
            (_, BusEffect::Arrived { .. } | BusEffect::Leased { .. } | BusEffect::Ended { .. }) => {
            }
        }
    }

    /// Notes an entity that is no sub-queue, as a move shows.
    fn note_first_moved(&mut self, moved: &BusMove) {
        let is_first = match &moved.of {
            BusMoved::Message { message, .. } => message.cause.is_none(),
            BusMoved::State { .. } => true,
            BusMoved::Change { .. } => false,
        };
        if is_first {
            self.first_of_queue.insert(moved.entity());
        }
    }

    /// Deletes an older queue of that name: its deletion was not read.
    fn delete_namesake(&mut self, at: Timestamp, name: &EntityName) {
        let mut queues = self.state.queues();
        let old = queues.find(|(_, other)| *other == name).map(|(old, _)| old);
        drop(queues);
        if let Some(queue) = old {
            let fact = Fact::Bus(BusFact::QueueDeleted { queue });
            self.state.apply(Event { at, fact });
        }
    }

    /// Notes that a message came into an entity. Messages with lower numbers that were never read came
    /// before it.
    fn note_arrival(
        &mut self,
        queue: Incarnation,
        sequence_number: SequenceNumber,
        at: Timestamp,
        why: &str,
    ) {
        if self.stand_in_bus(queue, at) {
            return;
        }
        let next = self.state.next_sequence_number(queue);
        for missed in next.into_iter().flat_map(|n| n.until(sequence_number)) {
            self.note_hole(queue, missed, at, None, why);
        }
    }

    /// Creates a bus entity whose creation was not read. Returns whether it did.
    fn stand_in_bus(&mut self, queue: Incarnation, at: Timestamp) -> bool {
        if self.state.queue_name(queue).is_some() || self.deleted.contains(&queue) {
            return false;
        }
        let name = self.free_name(Service::ServiceBus, queue);
        self.state.stand_in_bus(queue, name.clone(), at);
        self.stand_ins.insert(queue, name);
        true
    }

    /// Completes the bus entities that stand in to whole queues. Returns the names of entities that fit
    /// nowhere.
    ///
    /// It is not always known which of a queue's three entities a stand-in was. Without any evidence it
    /// becomes the queue itself, so that its messages can be received without knowing of sub-queues.
    pub(super) fn complete_bus_queues(&mut self) -> Vec<EntityName> {
        let at = self.state.last_event_at();
        let stand_ins = self.stand_ins.keys().copied();
        let mut open: BTreeSet<Incarnation> = stand_ins
            .filter(|queue| self.state.is_bus_queue(*queue))
            .collect();
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
            let name = self.free_name_but_own(first);
            self.state.make_bus_queue(first, name.clone(), at);
            self.stand_ins.insert(first, name);
        }
        dropped
    }

    /// The name of a queue that stands in, or a free one.
    fn free_name_but_own(&self, queue: Incarnation) -> EntityName {
        let own = self.state.queue_name(queue).cloned();
        own.unwrap_or_else(|| self.free_name(Service::ServiceBus, queue))
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
