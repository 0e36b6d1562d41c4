//! Bus queues whose history has a gap.

use std::collections::BTreeSet;

use kew_engine::bus::BusFact;
use kew_engine::{EntityName, Event, Fact, Incarnation, SequenceNumber, Service, Timestamp};

use super::reading::Reading;

impl Reading {
    /// Restores what this event implies and a gap has hidden.
    pub(super) fn prepare_bus(&mut self, at: Timestamp, fact: &BusFact, why: &str) {
        self.note_first(fact);
        match fact {
            BusFact::QueueCreated { name, .. } => self.delete_namesake(at, name),
            BusFact::QueueDeleted { queue } => {
                for entity in queue.with_sub_queues() {
                    self.holes.retain(|(of, _), _| *of != entity);
                    self.stand_ins.remove(&entity);
                }
            }
            BusFact::Sent {
                queue,
                sequence_number,
                ..
            }
            | BusFact::Resubmitted {
                to: queue,
                to_sequence_number: sequence_number,
                ..
            } => self.note_arrival(*queue, *sequence_number, at, why),
            BusFact::Activated {
                queue,
                scheduled,
                sequence_number,
                ..
            } => {
                self.note_arrival(*queue, *sequence_number, at, why);
                if !self.state.holds(*queue, *scheduled) {
                    let hole = self.holes.remove(&(*queue, *scheduled));
                    let size_bytes = hole.and_then(|hole| hole.size_bytes);
                    self.note_hole(*queue, *sequence_number, at, size_bytes, why);
                }
            }
            BusFact::Moved {
                queue,
                sequence_number,
                to,
                to_sequence_number,
                ..
            } => {
                self.stand_in_bus(*queue, at);
                self.note_arrival(*to, *to_sequence_number, at, why);
                if !self.state.holds(*queue, *sequence_number) {
                    let hole = self.holes.remove(&(*queue, *sequence_number));
                    let size_bytes = hole.and_then(|hole| hole.size_bytes);
                    self.note_hole(*to, *to_sequence_number, at, size_bytes, why);
                }
            }
            BusFact::Locked {
                queue,
                sequence_number,
                ..
            }
            | BusFact::LockRenewed {
                queue,
                sequence_number,
                ..
            }
            | BusFact::Released {
                queue,
                sequence_number,
                ..
            } => {
                self.stand_in_bus(*queue, at);
                self.note_hole(*queue, *sequence_number, at, None, why);
            }
            BusFact::Removed {
                queue,
                sequence_number,
            } => {
                self.holes.remove(&(*queue, *sequence_number));
            }
            BusFact::QueueUpdated { queue, .. }
            | BusFact::Used { queue }
            | BusFact::SessionLocked { queue, .. }
            | BusFact::SessionRenewed { queue, .. }
            | BusFact::SessionReleased { queue, .. }
            | BusFact::SessionStateSet { queue, .. } => {
                self.stand_in_bus(*queue, at);
            }
        }
    }

    /// Turns a resubmission into an arrival if a gap has hidden where the message came from. The event holds
    /// all of the message.
    pub(super) fn as_arrival(&mut self, event: Event) -> Event {
        let Event { at, fact } = event;
        let Fact::Bus(fact) = fact else {
            return Event { at, fact };
        };
        let fact = Fact::Bus(self.as_bus_arrival(at, fact));
        Event { at, fact }
    }

    fn as_bus_arrival(&mut self, at: Timestamp, fact: BusFact) -> BusFact {
        let BusFact::Resubmitted {
            queue,
            sequence_number,
            ..
        } = fact
        else {
            return fact;
        };
        if self.state.holds(queue, sequence_number) {
            return fact;
        }
        self.holes.remove(&(queue, sequence_number));
        self.stand_in_bus(queue, at);
        fact.into_arrival()
    }

    /// Notes an entity that is no sub-queue, as the fact shows.
    fn note_first(&mut self, fact: &BusFact) {
        match fact {
            BusFact::Sent { queue, .. }
            | BusFact::Activated { queue, .. }
            | BusFact::QueueUpdated { queue, .. }
            | BusFact::Used { queue }
            | BusFact::SessionLocked { queue, .. }
            | BusFact::SessionStateSet { queue, .. } => {
                self.first_of_queue.insert(*queue);
            }
            // Only a queue takes messages that are forwarded or resubmitted.
            BusFact::Moved {
                to, cause: None, ..
            }
            | BusFact::Resubmitted { to, .. } => {
                self.first_of_queue.insert(*to);
            }
            BusFact::Moved { cause: Some(_), .. }
            | BusFact::QueueCreated { .. }
            | BusFact::QueueDeleted { .. }
            | BusFact::Locked { .. }
            | BusFact::LockRenewed { .. }
            | BusFact::Released { .. }
            | BusFact::Removed { .. }
            | BusFact::SessionRenewed { .. }
            | BusFact::SessionReleased { .. } => {}
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
