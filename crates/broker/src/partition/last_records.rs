//! The last record with an event of each entity, for the answers that rest on them until it is durable.

use kew_engine::{Incarnation, Scope};
use kew_log::LogPosition;
use rustc_hash::FxHashMap;

use super::batch::Batch;

/// Records before this many entities are not forgotten one by one.
const KEPT_MIN: usize = 64;

/// The last record of each entity, of the catalogue, and of all: those that are durable may be missing.
#[derive(Debug, Default)]
pub(super) struct LastRecords {
    of: FxHashMap<Incarnation, LogPosition>,
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
            // The next turn has as many, most likely. After one with many more, the room for them goes.
            let mut of = std::mem::take(&mut self.of);
            of.clear();
            of.shrink_to(2 * KEPT_MIN);
            *self = Self {
                of,
                ..Self::default()
            };
        } else if self.of.len() >= 2 * self.kept.max(KEPT_MIN) {
            self.of.retain(|_, record| *record >= durable);
            self.kept = self.of.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(number: u64) -> Incarnation {
        (0..number).fold(Incarnation::default(), |it, _| it.with_sub_queues()[1])
    }

    /// A record for each of so many entities: the position of a record is the number of its entity.
    fn with_entities(count: u64) -> LastRecords {
        let mut records = LastRecords::default();
        for number in 0..count {
            let record = LogPosition::new(number);
            records.of.insert(entity(number), record);
            records.of_all = Some(record);
        }
        records
    }

    fn of(records: &LastRecords, number: u64) -> Option<u64> {
        let record = records.of(Scope::Entity(entity(number)));
        record.map(LogPosition::as_u64)
    }

    #[test]
    fn what_is_not_durable_is_kept() {
        let (durable, end) = (LogPosition::new(100), LogPosition::new(1000));
        let count = 2 * KEPT_MIN as u64;
        let mut records = with_entities(count);
        records.forget_before(durable, end);
        assert_eq!(of(&records, 99), None);
        // It begins where the log is durable up to.
        assert_eq!(of(&records, 100), Some(100));
        assert_eq!(of(&records, count - 1), Some(count - 1));
        assert_eq!(
            records.of(Scope::Everything),
            Some(LogPosition::new(count - 1))
        );
        records.forget_before(end, end);
        assert_eq!(of(&records, 100), None);
        assert_eq!(records.of(Scope::Everything), None);
    }

    #[test]
    fn few_entities_are_forgotten_together() {
        let mut records = with_entities(2 * KEPT_MIN as u64 - 1);
        records.forget_before(LogPosition::new(100), LogPosition::new(1000));
        assert_eq!(of(&records, 0), Some(0));
    }
}
