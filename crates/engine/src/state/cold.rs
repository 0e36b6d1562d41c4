//! What of a state is in memory. No event and no decision depends on it.

use super::State;
use crate::bus::Duplicates;
use crate::queues::Queue;
use crate::table::{
    Group, GroupRead, GroupToRead, Leaving, Resident, Run, RunId, Slots, Table, Taken,
};
use crate::vocabulary::{EntityName, Incarnation, PageNumber, Place, SequenceNumber, Timestamp};

impl State {
    /// Takes records of messages out of memory, of each run that has them on a page: `is_evicted` is asked as
    /// [`State::evict`] asks. What changed since the page was written stays.
    ///
    /// The newest durable snapshot must name the page, and the next one must not be begun yet, unless records of the run
    /// are on pages alone already.
    pub fn evict_if(
        &mut self,
        far_from: Timestamp,
        mut is_evicted: impl FnMut(RunId, PageNumber, Leaving) -> bool,
    ) {
        let live = &mut self.catalogue.live;
        self.storage.evict_if(far_from, live, &mut is_evicted);
        self.bus.evict_if(far_from, live, &mut is_evicted);
        self.bus.evict_ids_if(live, &mut is_evicted);
    }

    /// How much of the messages is in memory.
    pub fn resident(&self) -> Resident {
        self.catalogue.live.resident()
    }

    /// Whether records may be missing in memory. Without one, a decision has one phase.
    pub fn may_be_cold(&self) -> bool {
        let resident = self.resident();
        resident.cold_runs + resident.cold_blocks > 0
    }

    /// Whether a command may miss something that is not in memory.
    pub fn may_miss(&self, needs_bodies: bool) -> bool {
        needs_bodies || self.may_be_cold()
    }

    /// Whether a snapshot without pages would lose something: records that are on pages alone, or which messages were set
    /// aside.
    pub fn needs_pages(&self) -> bool {
        self.may_be_cold() || self.resident().quarantined > 0
    }

    /// Ends a restore with damaged pages of an entity, once all that is lost was set aside: sessions go that had nothing else.
    pub fn end_damaged(&mut self, entity: Incarnation) {
        if let Some(queue) = self.bus.get_mut(&entity) {
            queue.backlog.sessions.end_keeping();
            queue.settle(&mut self.catalogue, entity);
        }
    }

    /// How many steps it takes to set messages of an entity aside: it walks over those that wait for a time, and over the
    /// sessions.
    pub fn steps_to_quarantine(&self, entity: Incarnation) -> u64 {
        let stored = self.storage.get(&entity);
        let stored = stored.map(|queue| queue.backlog.timed().len() as u64);
        let of_bus = || {
            let backlog = &self.bus.get(&entity)?.backlog;
            Some(backlog.timed().len() as u64 + backlog.sessions.count())
        };
        stored.or_else(of_bus).unwrap_or(0)
    }

    /// The messages that were set aside, by entity: for each run with some, the number of the first one, and how many. Walks
    /// over all runs.
    pub fn quarantined(&self) -> impl Iterator<Item = (&EntityName, SequenceNumber, u64)> {
        let stored = self.storage.values();
        let stored = stored.map(|queue| (&queue.name, queue.backlog.table()));
        let bus = self.bus.values();
        let bus = bus.map(|queue| (&queue.name, queue.backlog.table()));
        stored.chain(bus).flat_map(|(name, table)| {
            let runs = table.quarantined();
            runs.map(move |(first, count)| (name, first, count))
        })
    }

    /// Whether a queue's message of that number was set aside. For tests.
    pub fn is_quarantined(&self, queue: Incarnation, number: SequenceNumber) -> bool {
        let stored = self.storage.get(&queue).map(|it| it.backlog.table());
        let table = stored.or_else(|| Some(self.bus.get(&queue)?.backlog.table()));
        table.is_some_and(|table| table.is_quarantined(number))
    }

    /// The messages whose records are on a page, also if they are in memory, too. For tests.
    pub fn messages_on(
        &self,
        page: PageNumber,
    ) -> impl Iterator<Item = (Incarnation, SequenceNumber)> {
        let stored = self.storage.iter();
        let stored = stored.map(|(queue, it)| (*queue, it.backlog.table()));
        let bus = self.bus.iter();
        let bus = bus.map(|(queue, it)| (*queue, it.backlog.table()));
        stored.chain(bus).flat_map(move |(queue, table)| {
            let of_page = table
                .runs()
                .filter(move |run| run.known_page() == Some(page));
            of_page.flat_map(move |run| run.numbers().map(move |number| (queue, number)))
        })
    }

    /// The pages of all cold runs and blocks of ids. Walks over all: for tests.
    pub fn cold_pages(&self) -> impl Iterator<Item = PageNumber> {
        let stored = self.storage.values().map(|entity| entity.backlog.table());
        let bus = self.bus.values().map(|queue| queue.backlog.table());
        let runs = stored.chain(bus).flat_map(Table::runs);
        let ids = self.bus.values().map(|queue| &queue.duplicates);
        let blocks = ids.flat_map(Duplicates::cold_pages);
        runs.filter_map(Run::cold_page).chain(blocks)
    }

    /// The entity of that name, with its sub-queues.
    pub fn incarnations_of(&self, name: &EntityName) -> Vec<Incarnation> {
        match self.catalogue.find(name) {
            Some(queue) if self.bus.contains_key(&queue) => queue.with_sub_queues().into(),
            found => found.into_iter().collect(),
        }
    }

    /// The run of a message.
    pub fn run_of(&self, at: Place) -> RunId {
        (
            at.entity,
            self.catalogue.run_length.run_of(at.number.as_u64()),
        )
    }

    /// What is to be read of what is missing, if it still is.
    pub fn to_read(&self, group: Group, wanted: Slots) -> Option<GroupToRead> {
        if let Some(block) = group.block() {
            let ids = &self.bus.get(&group.entity)?.duplicates;
            return Some(GroupToRead {
                group,
                wanted,
                page: ids.page_to_read(block)?,
            });
        }
        let stored = self.storage.to_read(group, wanted);
        stored.or_else(|| self.bus.to_read(group, wanted))
    }

    /// Takes records that were read.
    pub fn take_read(&mut self, read: GroupRead) -> Taken {
        let catalogue = &mut self.catalogue;
        if let Some(block) = read.group.block() {
            self.bus.take_ids(block, &read, &mut catalogue.live)
        } else if self.storage.contains_key(&read.entity()) {
            self.storage.take_read(catalogue, read)
        } else {
            self.bus.take_read(catalogue, read)
        }
    }
}
