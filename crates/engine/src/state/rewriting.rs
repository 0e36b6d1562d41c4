//! Pages of runs that are worth writing again: a hand goes round over the runs and finds them.

use super::State;
use super::hand::{ENTITY_STEPS, Hand};
use crate::table::{KnownPages, Looking, Missing, Pressure, Resident, RunId, block_of_run};
use crate::vocabulary::PageNumber;

/// What a piece of the hand's way has found.
#[derive(Debug, Default)]
pub struct FoundToWarm {
    /// Cold runs that are to be read back, so that they can leave their pages, and how much it is worth: the changes that
    /// lie beside the page of each, and a KiB that could leave its page counts like one of these. The most if the page
    /// cannot be read.
    pub runs: Vec<(u64, RunId)>,
    /// How many runs in memory have left their pages, or get one.
    pub changed: u64,
    /// Whether a page that one of these has left cannot be read.
    pub has_left_unreadable: bool,
    /// What lies in memory and in directories, and not on pages of runs.
    pub beside: Resident,
    /// Whether the hand has come round.
    pub is_round: bool,
}

impl State {
    /// Looks for pages of runs that are worth writing again, from where the hand is, in so many steps of 20 ns, or until it
    /// has come round. Runs of which all is in memory leave such a page at once.
    ///
    /// No snapshot may be under way.
    pub fn find_to_warm(
        &mut self,
        hand: &mut Hand,
        pressure: Pressure,
        steps: u32,
        known: &dyn KnownPages,
    ) -> FoundToWarm {
        let mut left = steps.max(ENTITY_STEPS + 1);
        let mut found = FoundToWarm::default();
        while left > 0 {
            let Some(entity) = self.entity_from(hand.from()) else {
                *hand = Hand::default();
                found.is_round = true;
                return found;
            };
            hand.come_to(entity);
            left = left.saturating_sub(ENTITY_STEPS);
            let live = &mut self.catalogue.live;
            let looking = Looking {
                pressure,
                from: hand.run,
            };
            let looked = match self.storage.contains_key(&entity) {
                true => (self.storage).look(entity, looking, &mut left, known, live),
                false => (self.bus).look(entity, looking, &mut left, known, live),
            };
            let to_warm = looked.to_warm.iter();
            let runs = to_warm.map(|(worth, run)| (*worth, (entity, *run)));
            found.runs.extend(runs);
            found.changed += looked.to_change.len() as u64;
            found.has_left_unreadable |= looked.leaves_unreadable;
            found.beside.add(looked.beside);
            hand.go_on(looked.next);
        }
        found
    }

    /// What of a run is not in memory.
    pub fn missing_of(&self, (entity, run): RunId) -> Missing {
        let table = self.table_of(entity);
        table.map_or_else(Missing::default, |table| table.missing_of(entity, run))
    }

    /// How many records of a run are not in memory.
    pub fn missing_count(&self, (entity, run): RunId) -> u64 {
        let table = self.table_of(entity);
        table.map_or(0, |table| table.missing_count(run))
    }

    /// The page that a run, or a block of ids, has.
    pub fn page_of(&self, (entity, run): RunId) -> Option<PageNumber> {
        match block_of_run(run) {
            Some(block) => self.bus.get(&entity)?.duplicates.page_of(block),
            None => self.table_of(entity)?.page_of(run),
        }
    }

    /// Whether a run can leave its page, because all of its records are in memory. `None` if it has no page, or has ended.
    pub fn can_leave_page(&self, (entity, run): RunId) -> Option<bool> {
        self.table_of(entity)?.can_leave_page(run)
    }

    /// Takes a run off its page of which all records are in memory: the next snapshot has another place for them. Under
    /// pressure that is a page, unless there are very few.
    ///
    /// No snapshot may be under way.
    pub fn leave_page(&mut self, run: RunId, pressure: Pressure) {
        let live = &mut self.catalogue.live;
        match self.storage.contains_key(&run.0) {
            true => self.storage.leave_page(run, pressure, live),
            false => self.bus.leave_page(run, pressure, live),
        }
    }
}
