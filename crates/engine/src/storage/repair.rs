//! Storage queues in the repair of a damaged log.

use super::{Effect, Effects, Entity, Metadata, Queues, StorageFact};
use crate::catalogue::Catalogue;
use crate::vocabulary::{EntityName, Hint, Incarnation, Place, Timestamp};

impl Queues {
    /// The fact as it fits these queues. If a gap has hidden earlier events, it may say of old messages what is
    /// not true of those here, and they would be counted wrongly.
    pub(crate) fn fit(&self, fact: StorageFact) -> StorageFact {
        match fact {
            StorageFact::Messages { effects } => {
                let effects = effects.iter().flat_map(|effect| self.fitting(*effect));
                StorageFact::Messages {
                    effects: effects.collect(),
                }
            }
            StorageFact::QueueCreated { .. }
            | StorageFact::QueueDeleted { .. }
            | StorageFact::QueueMetadataSet { .. }
            | StorageFact::QueuePoliciesSet { .. }
            | StorageFact::BodiesMoved { .. } => fact,
        }
    }

    fn fitting(&self, effect: Effect) -> Vec<Effect> {
        let Some(entity) = self.get(&effect.entity()) else {
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

    /// The effect that ends a message, if it exists.
    pub(crate) fn ended(&self, at: Place) -> Option<Effects> {
        let message = self.get(&at.entity)?.backlog.find(at.number)?;
        Some(message.ended(at).into())
    }

    /// Creates an empty queue whose creation cannot be read.
    pub(crate) fn stand_in(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        name: EntityName,
        at: Timestamp,
    ) {
        catalogue.use_incarnation(queue);
        let entity = Entity::new(name, Metadata::default(), at, catalogue.run_length);
        self.add(catalogue, queue, entity);
    }

    /// Adds the queues and messages that another reading has found. Returns the names of queues whose name is
    /// taken.
    pub(crate) fn absorb(&mut self, catalogue: &mut Catalogue, other: Self) -> Vec<EntityName> {
        let mut refused = Vec::new();
        for (queue, entity) in other {
            if let Some(own) = self.get_mut(&queue) {
                own.backlog.absorb(&entity.backlog, &mut catalogue.live);
                own.settle(catalogue, queue);
            } else if catalogue.find(&entity.name).is_some() {
                refused.push(entity.name);
            } else {
                self.add_again(catalogue, queue, entity);
            }
        }
        refused
    }

    /// Gives a queue another name.
    pub(crate) fn rename(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        name: EntityName,
    ) {
        if let Some(entity) = self.take(catalogue, queue) {
            self.add_again(catalogue, queue, Entity { name, ..entity });
        }
    }

    /// Adds a queue that was counted elsewhere.
    fn add_again(&mut self, catalogue: &mut Catalogue, queue: Incarnation, entity: Entity) {
        let entity = Entity {
            deadline: Hint::default(),
            counted_bytes: 0,
            ..entity
        };
        self.add(catalogue, queue, entity);
        self.settle(catalogue, queue);
    }

    /// Skips all numbers that may have been given out. Receipts given out before become invalid.
    pub(crate) fn skip_numbers(&mut self, numbers: u64, generations: u32) {
        for (_, entity) in self.iter_mut() {
            entity.backlog.skip_numbers(numbers);
            entity.backlog.skip_generations(generations);
        }
    }
}
