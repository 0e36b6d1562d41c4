//! The operations of a repair.

use super::Backlog;
use crate::table::Live;
use crate::vocabulary::LeaseGeneration;

impl Backlog {
    /// Adds messages of another backlog that are missing here.
    pub(crate) fn absorb(&mut self, other: &Self, live: &mut Live) {
        let next = self.next().max(other.next());
        for (number, message) in other.messages() {
            self.insert(number, message, live);
        }
        self.set_next(next);
    }

    /// Leaves out the next `count` sequence numbers.
    pub(crate) fn skip_numbers(&mut self, count: u64) {
        self.table.skip_numbers(count);
    }

    /// Leaves out the next `count` lease generations of every message.
    pub(crate) fn skip_generations(&mut self, count: u32) {
        self.table.change_all(|record| {
            let generation = record.generation.as_u32().wrapping_add(count);
            record.generation = LeaseGeneration::new(generation);
        });
    }
}
