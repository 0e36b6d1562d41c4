//! Operations for the repair of a damaged log: list every message by name, merge two states, and make
//! numbers unusable that may have been given out.
//!
//! A running partition uses none of them.

use crate::entity::Entity;
use crate::hint::Hint;
use crate::token::{TokenKind, TokenPlace};
use crate::{
    BodyLocation, Effect, EntityName, Event, Fact, Incarnation, LeaseGeneration, Metadata, Place,
    SequenceNumber, State, Timestamp, Token,
};

/// How many incarnations, and how many messages of each entity, a gap in the log may have hidden.
const NUMBERS_SKIPPED: u64 = 1 << 32;
const INCARNATIONS_SKIPPED: u64 = 1 << 20;
/// How many leases of one message it may have hidden.
const GENERATIONS_SKIPPED: u32 = 1 << 16;

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
        let stored = self.entities.iter();
        let stored = stored.map(|(incarnation, entity)| (*incarnation, &entity.name));
        let bus = self.bus.iter();
        stored.chain(bus.map(|(incarnation, entity)| (*incarnation, &entity.name)))
    }

    /// A queue's name, if it exists.
    pub fn queue_name(&self, queue: Incarnation) -> Option<&EntityName> {
        let stored = self.entities.get(&queue).map(|entity| &entity.name);
        stored.or_else(|| self.bus.get(&queue).map(|entity| &entity.name))
    }

    /// The sequence number of a queue's next message, if the queue exists.
    pub fn next_sequence_number(&self, queue: Incarnation) -> Option<SequenceNumber> {
        let stored = self.entities.get(&queue);
        let stored = stored.map(|entity| entity.backlog.next());
        stored.or_else(|| self.bus.get(&queue).map(|entity| entity.backlog.next()))
    }

    /// Every message, hidden and expired ones included.
    pub fn messages(&self) -> impl Iterator<Item = StoredMessage<'_>> {
        let stored = self.entities.iter().flat_map(|(queue, entity)| {
            let messages = entity.backlog.messages();
            messages.map(|(sequence_number, message)| StoredMessage {
                queue: *queue,
                queue_name: &entity.name,
                sequence_number,
                inserted_at: message.inserted_at,
                body: message.body,
                overlays: &[],
            })
        });
        stored.chain(self.bus_messages())
    }

    /// Whether a queue has a message of that number.
    pub fn holds(&self, queue: Incarnation, sequence_number: SequenceNumber) -> bool {
        let stored = self.entities.get(&queue);
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
        let cipher = self.cipher.as_ref()?;
        Some(cipher.seal(TokenKind::MessageId, place))
    }

    /// The event as it fits this state. If a gap has hidden earlier events, it may say of old messages what is
    /// not true of those here, and they would be counted wrongly.
    pub fn fit(&self, event: Event) -> Event {
        let Event { at, fact } = event;
        let Fact::Messages { effects } = fact else {
            return Event { at, fact };
        };
        let effects = effects.iter().flat_map(|effect| self.fitting(*effect));
        let effects = effects.collect();
        let fact = Fact::Messages { effects };
        Event { at, fact }
    }

    /// Applies an event as it fits this state.
    pub fn apply_fitting(&mut self, event: Event) {
        let Event { at, fact } = event;
        match fact {
            Fact::BusMessages { effects } => self.apply_fitting_bus(at, effects),
            Fact::Bus(fact) => {
                let fact = Fact::Bus(self.fitting_bus_fact(fact));
                self.apply(Event { at, fact });
            }
            Fact::Messages { .. }
            | Fact::PartitionInitialized { .. }
            | Fact::QueueCreated { .. }
            | Fact::QueueDeleted { .. }
            | Fact::QueueMetadataSet { .. }
            | Fact::QueuePoliciesSet { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. } => self.apply(self.fit(Event { at, fact })),
        }
    }

    fn fitting(&self, effect: Effect) -> Vec<Effect> {
        let Some(entity) = self.entities.get(&effect.entity()) else {
            return vec![effect];
        };
        let backlog = &entity.backlog;
        match effect {
            Effect::Arrived { .. } => vec![effect],
            Effect::Leased {
                at, lease, body, ..
            } => {
                let message = backlog.find(at.number);
                vec![message.map_or(effect, |message| message.leased(at, lease, body))]
            }
            Effect::Ended { at, .. } => {
                let message = backlog.find(at.number);
                vec![message.map_or(effect, |message| message.ended(at))]
            }
            Effect::RangeEnded { from, until, .. } if backlog.is_within(from, until) => {
                vec![effect]
            }
            Effect::RangeEnded {
                entity,
                from,
                until,
            } => {
                let messages = backlog.messages_between(from.as_u64(), until.as_u64());
                let ended =
                    messages.map(|(number, message)| message.ended(Place { entity, number }));
                ended.chain([effect]).collect()
            }
        }
    }

    /// The fact that a message is gone, if it exists.
    pub fn ended(&self, at: Place) -> Option<Fact> {
        if let Some(entity) = self.bus.get(&at.entity) {
            let effects = vec![entity.backlog.get(at.number)?.ended(at)];
            return Some(Fact::BusMessages { effects });
        }
        let message = self.entities.get(&at.entity)?.backlog.find(at.number)?;
        let effects = message.ended(at).into();
        Some(Fact::Messages { effects })
    }

    /// Creates an empty queue whose creation cannot be read.
    ///
    /// Does nothing if there is a queue of that incarnation, or if the name is taken.
    pub fn stand_in(&mut self, queue: Incarnation, name: EntityName, at: Timestamp) {
        if self.queue_name(queue).is_some() || self.catalogue.contains_key(&name) {
            return;
        }
        self.next_incarnation = self.next_incarnation.max(queue.next());
        self.insert(queue, Entity::new(name, Metadata::default(), at));
    }

    /// Adds queues and messages that another reading of the same history has found and that are missing
    /// here. Everything that both have stays as it is here. Returns the queues whose name is taken.
    pub fn absorb(&mut self, other: Self) -> Vec<EntityName> {
        let mut refused = Vec::new();
        self.last_event_at = self.last_event_at.max(other.last_event_at);
        self.next_incarnation = self.next_incarnation.max(other.next_incarnation);
        if self.cipher.is_none() {
            self.cipher = other.cipher;
        }
        // For an account in both, the keys here are the later ones.
        for (name, account) in other.accounts {
            self.accounts.entry(name).or_insert(account);
        }
        for (place, properties) in other.service_properties {
            self.service_properties.entry(place).or_insert(properties);
        }
        for (incarnation, entity) in other.entities {
            if let Some(own) = self.entities.get_mut(&incarnation) {
                own.backlog.absorb(entity.backlog);
                self.settle(incarnation);
            } else if self.catalogue.contains_key(&entity.name) {
                refused.push(entity.name);
            } else {
                let entity = Entity {
                    deadline: Hint::default(),
                    counted_bytes: 0,
                    ..entity
                };
                self.insert(incarnation, entity);
                self.settle(incarnation);
            }
        }
        refused.extend(self.absorb_bus(other.bus.into_iter()));
        refused
    }

    /// Replaces the name of a stand-in by the name that was found for the queue.
    pub fn rename(&mut self, queue: Incarnation, name: EntityName) {
        if self.catalogue.contains_key(&name) {
            return;
        }
        if let Some(entity) = self.entities.remove(&queue) {
            self.catalogue.remove(&entity.name);
            self.uncount(&entity);
            let entity = Entity {
                name,
                counted_bytes: 0,
                ..entity
            };
            self.insert(queue, entity);
            self.settle(queue);
        }
    }

    /// Skips all numbers that may have been given out by unreadable events, so that no message id and no
    /// receipt ever means two things. Receipts given out before become invalid.
    pub fn skip_numbers(&mut self) {
        let highest = (1 << Incarnation::BITS) - 1;
        let next = self.next_incarnation.as_u64() + INCARNATIONS_SKIPPED;
        self.next_incarnation = Incarnation::new(next.min(highest));
        for entity in self.entities.values_mut() {
            entity.backlog.skip_numbers(NUMBERS_SKIPPED);
            entity.backlog.skip_generations(GENERATIONS_SKIPPED);
        }
        self.skip_bus_numbers(NUMBERS_SKIPPED, GENERATIONS_SKIPPED);
    }
}

impl SequenceNumber {
    /// The numbers from this one on, up to but not including `end`.
    pub fn until(self, end: Self) -> impl Iterator<Item = Self> {
        (self.as_u64()..end.as_u64()).map(Self::new)
    }
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
