//! The bus queues of a partition, with their sub-queues.

use std::ops::{Deref, DerefMut};

use super::queue::BusQueue;
use crate::catalogue::Catalogue;
use crate::shared::Entities;
use crate::vocabulary::{Hint, Incarnation, Timestamp};

/// All bus queues and sub-queues.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Queues(Entities<BusQueue>);

impl Deref for Queues {
    type Target = Entities<BusQueue>;

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
    type Item = (Incarnation, BusQueue);
    type IntoIter = std::collections::btree_map::IntoIter<Incarnation, BusQueue>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_all().into_iter()
    }
}

impl Queues {
    /// Adds an entity, and gives it its name.
    pub(crate) fn add(&mut self, catalogue: &mut Catalogue, queue: Incarnation, entity: BusQueue) {
        catalogue.name(entity.name.clone(), queue);
        let entity = BusQueue {
            deadline: Hint::default(),
            ..entity
        };
        entity.backlog.count_live(&mut catalogue.live);
        self.insert(queue, entity);
        self.note_deadline(catalogue, queue);
    }

    /// Removes an entity, and its name unless a later entity has that.
    pub(crate) fn take(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
    ) -> Option<BusQueue> {
        let entity = self.0.remove(&queue)?;
        catalogue.forget(&entity.name, queue, &entity.deadline);
        entity.backlog.uncount_live(&mut catalogue.live);
        Some(entity)
    }

    /// Notes when an entity has something due.
    pub(crate) fn note_deadline(&mut self, catalogue: &mut Catalogue, queue: Incarnation) {
        if let Some(entity) = self.get_mut(&queue) {
            entity.note_deadline(catalogue, queue);
        }
    }

    /// Looks at a run in which nothing has expired, so that it is due again when something has.
    pub(crate) fn raise_expiry(&mut self, catalogue: &mut Catalogue, queue: Incarnation, run: u64) {
        if let Some(entity) = self.get_mut(&queue) {
            entity.backlog.raise_expiry(run);
            entity.note_deadline(catalogue, queue);
        }
    }

    /// Forgets some ids of a queue that are older than its window. Returns whether it has such a window.
    pub(crate) fn forget_ids(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        now: Timestamp,
    ) -> bool {
        let Some(entity) = self.get_mut(&queue) else {
            return false;
        };
        let Some(window_ms) = entity.options.duplicate_window_ms else {
            return false;
        };
        entity.duplicates.forget(window_ms, now);
        entity.note_deadline(catalogue, queue);
        true
    }
}

impl BusQueue {
    /// Keeps the catalogue's order of deadlines in step.
    pub(super) fn note_deadline(&mut self, catalogue: &mut Catalogue, queue: Incarnation) {
        *catalogue.copied += self.backlog.take_copied() + self.duplicates.take_copied();
        let deadline = self.next_deadline();
        let deadlines = &mut catalogue.deadlines;
        deadlines.note(queue, &mut self.deadline, deadline);
    }
}
