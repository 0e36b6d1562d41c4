//! Storage queues in the repair of a damaged log.

use super::{Entity, Queues, StorageFact};
use crate::catalogue::Catalogue;
use crate::vocabulary::{EntityName, Incarnation, Timestamp};

impl Queues {
    /// Applies a fact as it fits these queues: it may say of a message what is not true here.
    pub(crate) fn apply_fitting(
        &mut self,
        catalogue: &mut Catalogue,
        at: Timestamp,
        fact: StorageFact,
    ) {
        match fact {
            StorageFact::Messages { effects } => {
                self.apply_fitting_effects(catalogue, at, Vec::from(effects));
            }
            StorageFact::BodiesMoved { moves } => self.move_bodies_fitting(catalogue, &moves),
            StorageFact::QueueCreated { .. }
            | StorageFact::QueueDeleted { .. }
            | StorageFact::QueueMetadataSet { .. }
            | StorageFact::QueuePoliciesSet { .. } => self.apply(catalogue, at, fact),
        }
    }

    /// Gives a queue another name.
    pub(crate) fn rename(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        name: EntityName,
    ) {
        if let Some(entity) = self.take(catalogue, queue) {
            self.add(catalogue, queue, Entity { name, ..entity });
        }
    }

    /// Skips all numbers that may have been given out. Receipts given out before become invalid.
    pub(crate) fn skip_numbers(&mut self, numbers: u64, generations: u32) {
        for (_, entity) in self.iter_mut() {
            entity.backlog.skip_numbers(numbers);
            entity.backlog.skip_generations(generations);
        }
    }
}
