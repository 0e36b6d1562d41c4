//! Operations for the repair of a damaged log: list every message by name, merge two states, and make
//! numbers unusable that may have been given out.
//!
//! A running partition uses none of them.

use std::collections::BTreeSet;

use crate::bus::{
    BusFact, BusQueue, BusQueueOptions, CompletedRules, KnownOfRules, Role, StoredSessionState,
};
use crate::event::{Event, Fact};
use crate::state::State;
use crate::storage::{Entity, Metadata, StorageFact};
use crate::vocabulary::token::{TokenKind, TokenPlace};
use crate::vocabulary::{
    BodyLocation, EntityName, Incarnation, LeaseGeneration, Place, SequenceNumber, Service,
    Timestamp, Token,
};

/// How many numbers may have been given out that a state does not know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Entities that were created.
    incarnations: u64,
    /// Messages of each entity.
    numbers: u64,
    /// Leases of one message.
    generations: u32,
}

impl Skip {
    /// What a gap in the log may have hidden.
    pub const GAP: Self = Self {
        incarnations: 1 << 20,
        numbers: 1 << 32,
        generations: 1 << 16,
    };

    /// What may have happened after a backup: months of work. A million messages a second in one entity for 12
    /// days, or a hundred thousand for 127. A renewal a second of one lease for 194 days.
    ///
    /// The numbers are enough for 256 restores of one history, each from the one before.
    pub const BACKUP: Self = Self {
        incarnations: 1 << 24,
        numbers: 1 << 40,
        generations: 1 << 24,
    };
}

/// A message as a state holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage<'a> {
    /// The incarnation of its queue.
    pub queue: Incarnation,
    /// The name of its queue.
    pub queue_name: &'a EntityName,
    /// Its order in the queue.
    pub sequence_number: SequenceNumber,
    /// When it was sent.
    pub inserted_at: Timestamp,
    /// The location of its body.
    pub body: BodyLocation,
    /// The locations of the changes to its properties, in a bus queue.
    pub overlays: &'a [BodyLocation],
}

impl State {
    /// Every queue with its name, sub-queues included.
    pub fn queues(&self) -> impl Iterator<Item = (Incarnation, &EntityName)> {
        let stored = self.storage.iter();
        let stored = stored.map(|(incarnation, entity)| (*incarnation, &entity.name));
        let bus = self.bus.iter();
        stored.chain(bus.map(|(incarnation, entity)| (*incarnation, &entity.name)))
    }

    /// A queue's name, if it exists.
    pub fn queue_name(&self, queue: Incarnation) -> Option<&EntityName> {
        let stored = self.storage.get(&queue).map(|entity| &entity.name);
        stored.or_else(|| self.bus.get(&queue).map(|entity| &entity.name))
    }

    /// The sequence number of a queue's next message, if the queue exists.
    pub fn next_sequence_number(&self, queue: Incarnation) -> Option<SequenceNumber> {
        let stored = self.storage.get(&queue);
        let stored = stored.map(|entity| entity.backlog.next());
        stored.or_else(|| self.bus.get(&queue).map(|entity| entity.backlog.next()))
    }

    /// Every message, hidden and expired ones included.
    pub fn messages(&self) -> impl Iterator<Item = StoredMessage<'_>> {
        let stored = self.storage.iter().flat_map(|(queue, entity)| {
            let messages = entity.backlog.messages();
            messages.map(|(sequence_number, message)| StoredMessage {
                queue: *queue,
                queue_name: &entity.name,
                sequence_number,
                inserted_at: message.enqueued_at,
                body: message.body,
                overlays: &[],
            })
        });
        let bus = self.bus.iter().flat_map(|(queue, entity)| {
            let messages = entity.backlog.messages();
            messages.map(|message| StoredMessage {
                queue: *queue,
                queue_name: &entity.name,
                sequence_number: message.number(),
                inserted_at: message.enqueued_at,
                body: message.body,
                overlays: message.overlays(),
            })
        });
        stored.chain(bus)
    }

    /// Whether a queue has a message of that number.
    pub fn holds(&self, queue: Incarnation, sequence_number: SequenceNumber) -> bool {
        let stored = self.storage.get(&queue);
        let bus = self.bus.get(&queue);
        stored.is_some_and(|entity| entity.backlog.holds(sequence_number))
            || bus.is_some_and(|entity| entity.backlog.get(sequence_number).is_some())
    }

    /// The id that a message has, or had; `None` if the partition's secret is not known.
    pub fn id_of(&self, queue: Incarnation, sequence_number: SequenceNumber) -> Option<Token> {
        let place = TokenPlace {
            incarnation: queue,
            sequence_number,
            generation: LeaseGeneration::default(),
        };
        let cipher = self.catalogue.cipher.as_ref()?;
        Some(cipher.seal(TokenKind::MessageId, place))
    }

    /// The states of all sessions that have one.
    pub fn session_states(&self) -> impl Iterator<Item = StoredSessionState> + '_ {
        self.bus.session_states()
    }

    /// Applies an event as it fits this state. If a gap has hidden earlier events, it may say of old messages and
    /// sessions what is not true of those here, and they would be counted wrongly.
    pub fn apply_fitting(&mut self, event: Event) {
        let Event { at, fact } = event;
        match fact {
            // Another kind of queue has the incarnation of a new one: `apply` knows what that means.
            Fact::Bus(
                BusFact::QueueCreated { .. }
                | BusFact::TopicCreated { .. }
                | BusFact::SubscriptionCreated { .. },
            )
            | Fact::Storage(StorageFact::QueueCreated { .. })
            | Fact::PartitionInitialized { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. }
            // They say nothing of what a message counted for.
            | Fact::Quarantined { .. }
            | Fact::RunLost { .. } => return self.apply(Event { at, fact }),
            Fact::Storage(fact) => self.storage.apply_fitting(&mut self.catalogue, at, fact),
            Fact::Bus(fact) => self.bus.apply_fitting(&mut self.catalogue, at, fact),
        }
        *self.last_event_at = self.last_event_at().max(at);
    }

    /// The fact that a message is gone, if it exists.
    pub fn ended(&self, at: Place) -> Option<Fact> {
        if let Some(queue) = self.bus.get(&at.entity) {
            let effects = queue.backlog.ended(at)?.into();
            return Some(Fact::Bus(BusFact::Messages { effects }));
        }
        let effects = self.storage.get(&at.entity)?.backlog.ended(at)?.into();
        Some(Fact::Storage(StorageFact::Messages { effects }))
    }

    /// Creates an empty queue whose creation cannot be read, of the service that its name tells. One of Service Bus
    /// stands in for any of a queue's entities: [`State::make_bus_queue`] later makes a whole queue of it.
    ///
    /// Does nothing if there is an entity of that incarnation, or if the name is taken.
    pub fn stand_in(&mut self, queue: Incarnation, name: EntityName, at: Timestamp) {
        if self.has_incarnation(queue) || self.has_entity(&name) {
            return;
        }
        let catalogue = &mut self.catalogue;
        let length = catalogue.run_length;
        catalogue.use_incarnation(queue);
        match name.service {
            Service::QueueStorage => {
                let entity = Entity::new(name, Metadata::default(), at, length);
                self.storage.add(catalogue, queue, entity);
            }
            Service::ServiceBus => {
                let entity =
                    BusQueue::new(name, Role::Queue, BusQueueOptions::default(), at, length);
                self.bus.add(catalogue, queue, entity);
            }
        }
    }

    /// Gives a queue that stands in another name, of the other service: what was known of it did not show that it is one
    /// of that.
    pub fn change_service(&mut self, queue: Incarnation, name: EntityName, at: Timestamp) {
        if self.has_entity(&name) {
            return;
        }
        let (catalogue, service) = (&mut self.catalogue, name.service);
        let messages = match service {
            Service::QueueStorage => self.bus.take_messages(catalogue, queue),
            Service::ServiceBus => self.storage.take_messages(catalogue, queue),
        };
        self.stand_in(queue, name, at);
        let catalogue = &mut self.catalogue;
        match service {
            Service::QueueStorage => self.storage.restore_left(catalogue, queue, messages),
            Service::ServiceBus => self.bus.restore_left(catalogue, queue, messages),
        }
    }

    /// The bus queue that an entity is, or is a sub-queue of, and that queue's name. `None` if there is no such entity.
    pub fn bus_queue_of(&self, entity: Incarnation) -> Option<(Incarnation, EntityName)> {
        Some(self.bus.get(&entity)?.whole(entity))
    }

    /// Makes a whole queue of that name. Existing entities keep their messages, and missing ones are empty.
    /// The queue takes its settings from the entity `like`, if that is there.
    pub fn make_bus_queue(
        &mut self,
        queue: Incarnation,
        name: EntityName,
        like: Incarnation,
        at: Timestamp,
    ) {
        let catalogue = &mut self.catalogue;
        self.bus.make_queue(catalogue, queue, (name, like), at);
    }

    /// Removes an entity that cannot be part of a queue. Returns its name if it existed.
    pub fn drop_bus_queue(&mut self, queue: Incarnation) -> Option<EntityName> {
        let entity = self.bus.take(&mut self.catalogue, queue)?;
        Some(entity.name)
    }

    /// Makes a bus queue that stands in a topic. Does nothing to another entity.
    pub fn make_topic(&mut self, queue: Incarnation) {
        let catalogue = &mut self.catalogue;
        self.bus.correct_role(catalogue, queue, Role::Topic);
    }

    /// Makes a bus queue that stands in a subscription of that topic. Does nothing to another entity.
    pub fn make_subscription(&mut self, queue: Incarnation, of: Incarnation) {
        let (catalogue, role) = (&mut self.catalogue, Role::Subscription { of });
        self.bus.correct_role(catalogue, queue, role);
    }

    /// The topic of a subscription.
    pub fn topic_of(&self, subscription: Incarnation) -> Option<Incarnation> {
        self.bus.get(&subscription)?.role.topic()
    }

    /// The subscriptions of a topic, also of one that is missing.
    pub fn subscriptions_of(&self, topic: Incarnation) -> impl Iterator<Item = Incarnation> + '_ {
        self.catalogue.subscriptions_of(topic)
    }

    /// The topics of all subscriptions. Some may be missing.
    pub fn topics_of_subscriptions(&self) -> BTreeSet<Incarnation> {
        let topics = self.bus.values().filter_map(|it| it.role.topic());
        topics.collect()
    }

    /// Gives a bus queue that stands in the role that it has in another reading.
    pub fn adopt_role(&mut self, queue: Incarnation, other: &Self) {
        let role = other.bus.get(&queue).map(|it| it.role);
        if let Some(role @ (Role::Topic | Role::Subscription { .. })) = role {
            self.bus.correct_role(&mut self.catalogue, queue, role);
        }
    }

    /// Retires the rules that a fact retires which another reading of the same history has read.
    pub fn retire_rules(&mut self, fact: &BusFact) {
        self.bus.retire_rules(&mut self.catalogue, fact);
    }

    /// Makes the rules of all topics fit their subscriptions, when everything was read and all entities are whole.
    /// Returns what it has done, for each topic with subscriptions.
    pub fn complete_rules(&mut self, known: KnownOfRules<'_>) -> Vec<CompletedRules> {
        self.bus.complete_rules(&mut self.catalogue, known)
    }

    /// Makes sure that a message counts each body that several have, when everything was read: the one that did may be
    /// lost.
    pub fn complete_holds(&mut self) {
        self.bus.complete_holds(&mut self.catalogue);
    }

    /// Gives a stand-in the name, role and settings that another reading has found.
    pub fn adopt_bus_queue(&mut self, queue: Incarnation, other: &Self) {
        self.bus.adopt(&mut self.catalogue, queue, &other.bus);
    }

    /// Adds queues and messages that another reading of the same history has found and that are missing
    /// here. Everything that both have stays as it is here. Returns the queues whose name is taken.
    pub fn absorb(&mut self, other: Self) -> Vec<EntityName> {
        *self.last_event_at = self.last_event_at().max(other.last_event_at());
        self.catalogue.absorb(other.catalogue);
        let mut refused = self.storage.absorb(&mut self.catalogue, other.storage);
        refused.extend(self.bus.absorb(&mut self.catalogue, other.bus));
        refused
    }

    /// Replaces the name of a stand-in by the name that was found for the queue.
    pub fn rename(&mut self, queue: Incarnation, name: EntityName) {
        if !self.has_entity(&name) {
            self.storage.rename(&mut self.catalogue, queue, name);
        }
    }

    /// Skips all numbers that may have been given out by events that are not in this state, so that no message id
    /// and no receipt ever means two things. Receipts given out before become invalid.
    pub fn skip_numbers(&mut self, skip: Skip) {
        self.catalogue.skip_incarnations(skip.incarnations);
        self.storage.skip_numbers(skip.numbers, skip.generations);
        self.bus
            .skip_numbers(&mut self.catalogue, skip.numbers, skip.generations);
    }
}

impl SequenceNumber {
    /// The numbers from this one on, up to but not including `end`.
    pub fn until(self, end: Self) -> impl Iterator<Item = Self> {
        (self.as_u64()..end.as_u64()).map(Self::new)
    }
}

#[cfg(test)]
mod tests;
