//! What of a state is in memory. No event and no decision depends on it.

use super::State;
use crate::table::{Group, GroupRead, GroupToRead, Sealing};
use crate::vocabulary::{EntityName, Incarnation};

impl State {
    /// Takes records of messages out of memory: `choose` says what becomes of each run of an entity.
    ///
    /// Nothing in the product does so yet: tests and the simulation do, to show that no decision depends on it. What is
    /// written is held in memory, in place of a file.
    pub fn seal(&mut self, mut choose: impl FnMut(Incarnation) -> Sealing) {
        *self.may_be_cold = true;
        self.storage.seal(&mut choose);
        self.bus.seal(&mut choose);
    }

    /// Whether records may be missing in memory.
    pub fn may_be_cold(&self) -> bool {
        *self.may_be_cold
    }

    /// The entity of that name, with its sub-queues.
    pub fn incarnations_of(&self, name: &EntityName) -> Vec<Incarnation> {
        match self.catalogue.find(name) {
            Some(queue) if self.bus.contains_key(&queue) => queue.with_sub_queues().into(),
            found => found.into_iter().collect(),
        }
    }

    /// What is to be read of what is missing, if it still is.
    pub fn to_read(&self, group: Group) -> Option<GroupToRead> {
        let stored = self.storage.to_read(group);
        stored.or_else(|| self.bus.to_read(group))
    }

    /// Takes records that were read. Returns false if their run is on another page by now: then they are to be read
    /// again, if they are still needed.
    pub fn take_read(&mut self, read: GroupRead) -> bool {
        if self.storage.contains_key(&read.entity()) {
            self.storage.take_read(read)
        } else {
            self.bus.take_read(read)
        }
    }
}
