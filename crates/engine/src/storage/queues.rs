//! The storage queues of a partition, and how facts change them.

use std::sync::Arc;

use super::{Entity, StorageFact};
use crate::catalogue::Catalogue;
use crate::queues;
use crate::vocabulary::{EntityName, Incarnation, Timestamp};

/// All storage queues.
pub(crate) type Queues = queues::Queues<Entity>;

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

    pub(crate) fn find(
        &self,
        catalogue: &Catalogue,
        name: &EntityName,
    ) -> Option<(Incarnation, &Entity)> {
        let queue = catalogue.find(name)?;
        Some((queue, self.get(&queue)?))
    }
}
