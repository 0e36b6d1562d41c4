//! The storage queues of a partition, and how facts change them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::{Entity, StorageFact};
use crate::catalogue::Catalogue;
use crate::shared::Entities;
use crate::vocabulary::{EntityName, Incarnation, Timestamp};

/// All storage queues.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Queues(Entities<Entity>);

impl Deref for Queues {
    type Target = Entities<Entity>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Queues {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl IntoIterator for Queues {
    type Item = (Incarnation, Entity);
    type IntoIter = std::collections::btree_map::IntoIter<Incarnation, Entity>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_all().into_iter()
    }
}

impl Queues {
    /// Total: a fact that no longer fits changes nothing.
    pub(crate) fn apply(&mut self, catalogue: &mut Catalogue, at: Timestamp, fact: StorageFact) {
        match fact {
            StorageFact::QueueCreated {
                queue,
                name,
                metadata,
            } => {
                let entity = Entity::new(name, metadata, at, catalogue.run_length);
                self.create(catalogue, queue, entity);
            }
            StorageFact::QueueDeleted { queue } => self.delete(catalogue, queue),
            StorageFact::QueueMetadataSet { queue, metadata } => {
                if let Some(entity) = self.get_mut(&queue) {
                    entity.metadata = metadata;
                }
            }
            StorageFact::Messages { effects } => self.apply_effects(catalogue, at, &effects),
            StorageFact::BodiesMoved { moves } => self.move_bodies(catalogue, &moves),
            StorageFact::QueuePoliciesSet { queue, policies } => {
                if let Some(entity) = self.get_mut(&queue) {
                    entity.policies = policies;
                }
            }
        }
    }

    /// Nothing happens if there is a queue of that incarnation. A lower incarnation than the next one may be
    /// new: in a replay, the next one can come from a later time than the queues.
    fn create(&mut self, catalogue: &mut Catalogue, queue: Incarnation, entity: Entity) {
        if !self.contains_key(&queue) {
            catalogue.use_incarnation(queue);
            self.add(catalogue, queue, entity);
        }
    }

    /// Adds a queue that has no deadline yet and is not counted in its account's usage.
    pub(crate) fn add(&mut self, catalogue: &mut Catalogue, queue: Incarnation, entity: Entity) {
        catalogue.count_queue(&entity.name.account);
        entity.backlog.count_live(&mut catalogue.live);
        catalogue.name(entity.name.clone(), queue);
        self.insert(queue, entity);
    }

    /// Removes a queue from here and from the catalogue.
    pub(crate) fn take(&mut self, catalogue: &mut Catalogue, queue: Incarnation) -> Option<Entity> {
        let entity = self.0.remove(&queue)?;
        catalogue.forget(&entity.name, queue, &entity.deadline);
        entity.backlog.uncount_live(&mut catalogue.live);
        catalogue.uncount_queue(&entity.name.account, entity.counted_bytes);
        Some(entity)
    }

    pub(crate) fn delete(&mut self, catalogue: &mut Catalogue, queue: Incarnation) {
        if let Some(gone) = self.take(catalogue, queue) {
            catalogue.waste.push(gone);
        }
    }

    /// Deletes all queues of an account.
    pub(crate) fn delete_all_of(&mut self, catalogue: &mut Catalogue, account: &Arc<str>) {
        let of_account = |(_, entity): &(&Incarnation, &Entity)| entity.name.account == *account;
        let queues: Vec<Incarnation> = self
            .iter()
            .filter(of_account)
            .map(|(queue, _)| *queue)
            .collect();
        for queue in queues {
            self.delete(catalogue, queue);
        }
    }

    /// Updates the usage and the deadline of a queue.
    pub(crate) fn settle(&mut self, catalogue: &mut Catalogue, queue: Incarnation) {
        if let Some(entity) = self.get_mut(&queue) {
            entity.settle(catalogue, queue);
        }
    }

    /// Looks at a run that had a message to expire, so that it is due again when it has another. Returns how many
    /// messages that are.
    pub(crate) fn raise_expiry(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        run: u64,
    ) -> u32 {
        let Some(entity) = self.get_mut(&queue) else {
            return 0;
        };
        let looks = entity.backlog.raise_expiry(run);
        entity.settle(catalogue, queue);
        looks
    }

    pub(crate) fn find(
        &self,
        catalogue: &Catalogue,
        name: &EntityName,
    ) -> Option<(Incarnation, &Entity)> {
        let queue = catalogue.find(name)?;
        Some((queue, self.get(&queue)?))
    }
}

impl Entity {
    /// Updates the usage and the deadline after the backlog has changed.
    pub(super) fn settle(&mut self, catalogue: &mut Catalogue, queue: Incarnation) {
        *catalogue.copied += self.backlog.take_copied();
        catalogue.waste.append(self.backlog.waste());
        let deadline = self.backlog.next_expiry();
        let deadlines = &mut catalogue.deadlines;
        deadlines.note(queue, &mut self.deadline, deadline);
        let size_bytes = self.backlog.size_bytes();
        catalogue.count_bytes(&self.name.account, self.counted_bytes, size_bytes);
        self.counted_bytes = size_bytes;
    }
}
