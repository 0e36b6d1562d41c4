//! The last record with an event of each entity, for the answers that rest on them until it is durable.

use std::collections::HashMap;

use kew_engine::{Incarnation, Scope};
use kew_log::LogPosition;

use super::batch::Batch;

/// Records before this many entities are not forgotten one by one.
const KEPT_MIN: usize = 64;

/// The last record of each entity, of the catalogue, and of all: those that are durable may be missing.
#[derive(Debug, Default)]
pub(super) struct LastRecords {
    of: HashMap<Incarnation, LogPosition>,
    of_catalogue: Option<LogPosition>,
    of_all: Option<LogPosition>,
    /// How many entities there were when the durable ones were last forgotten.
    kept: usize,
}

impl LastRecords {
    /// Notes which entities the events of a batch touch.
    pub(super) fn note(&mut self, record: LogPosition, batch: &Batch) {
        for entity in &batch.entities {
            self.of.insert(*entity, record);
        }
        if batch.touches_catalogue {
            self.of_catalogue = Some(record);
        }
        if batch.touches_catalogue || !batch.entities.is_empty() {
            self.of_all = Some(record);
        }
    }

    /// The last record of what an answer rests on.
    pub(super) fn of(&self, scope: Scope) -> Option<LogPosition> {
        match scope {
            Scope::Entity(entity) => self.of.get(&entity).copied(),
            Scope::BusQueue(queue) => {
                let queues = queue.with_sub_queues().into_iter();
                let records = queues.filter_map(|entity| self.of.get(&entity).copied());
                records.chain(self.of_catalogue).max()
            }
            Scope::Catalogue => self.of_catalogue,
            Scope::Everything => self.of_all,
        }
    }

    /// Forgets what is durable: all at once if the log is, otherwise whenever there is twice as much as was kept.
    pub(super) fn forget_before(&mut self, durable: LogPosition, end: LogPosition) {
        if durable == end {
            *self = Self::default();
        } else if self.of.len() >= 2 * self.kept.max(KEPT_MIN) {
            self.of.retain(|_, record| *record >= durable);
            self.kept = self.of.len();
        }
    }
}
