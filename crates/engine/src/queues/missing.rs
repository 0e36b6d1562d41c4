//! What of the queues is in memory.

use super::{Backlog, Profile, Queue, Queues};
use crate::catalogue::Catalogue;
use crate::table::{
    Group, GroupRead, GroupToRead, KnownPages, Leaving, Live, Looked, Looking, Missing, Pressure,
    RunId, Seen, Slots, Swept, Taken,
};
use crate::vocabulary::{Incarnation, PageNumber, Place, SequenceNumber, Timestamp};

/// A walk over messages that a decision is going to take, as far as they are in memory.
///
/// It asks for as many as are wanted, and for as many more as it has passed over: so for twice as many each time that
/// what was read is not wanted.
pub(crate) struct Walk {
    wanted: usize,
    taken: usize,
    passed: usize,
    asked: usize,
    /// Whether its messages are in the order of their numbers, so that those near one that is needed are needed next.
    is_in_order: bool,
}

impl Walk {
    pub(crate) fn for_count(wanted: usize) -> Self {
        Self {
            wanted,
            taken: 0,
            passed: 0,
            asked: 0,
            is_in_order: true,
        }
    }

    /// Over messages that may lie anywhere: it asks for each alone.
    pub(crate) fn scattered(self) -> Self {
        Self {
            is_in_order: false,
            ..self
        }
    }

    /// Whether the next message is looked at.
    pub(crate) fn goes_on(&self) -> bool {
        let more = if self.asked > 0 { self.passed } else { 0 };
        self.taken + self.asked < self.wanted.saturating_add(more)
    }

    /// Notes a message that is in memory, and whether the decision would take it.
    pub(crate) fn sees(&mut self, is_taken: bool) {
        if is_taken {
            self.taken += 1;
        } else {
            self.passed += 1;
        }
    }

    /// Walks over messages, and asks for those that are not in memory. `is_taken` says whether the decision would take
    /// one; `None` if it would end there. Returns whether it would take more than there are.
    pub(crate) fn ask<'a, P: Profile>(
        mut self,
        backlog: &Backlog<P>,
        entity: Incarnation,
        messages: impl Iterator<Item = Seen<'a>>,
        missing: &mut Missing,
        mut is_taken: impl FnMut(&Seen<'a>) -> Option<bool>,
    ) -> bool {
        let mut messages = messages;
        while self.goes_on()
            && let Some(message) = messages.next()
        {
            if message.1.is_none() {
                self.asked += 1;
                match self.is_in_order {
                    true => backlog.table().ask_near(entity, message.0, missing),
                    false => backlog.ask(entity, message.0, missing),
                }
            } else if let Some(is_taken) = is_taken(&message) {
                self.sees(is_taken);
            } else {
                return false;
            }
        }
        self.goes_on()
    }
}

impl<P: Profile> Backlog<P> {
    /// Asks for a message's record, if it is not in memory.
    pub(crate) fn ask(&self, entity: Incarnation, number: SequenceNumber, missing: &mut Missing) {
        self.table().ask(entity, number, missing);
    }

    /// Asks for messages whose times are on pages alone, if one of them may be due next. Returns whether it did.
    pub(crate) fn ask_if_far_is_due(
        &self,
        entity: Incarnation,
        now: Timestamp,
        missing: &mut Missing,
    ) -> bool {
        let first = self.timed().first().map(|key| self.table().far_key(*key));
        let next = first.map_or((now, u64::MAX), |first| first.min((now, u64::MAX)));
        let is_due = self.table().far_first().is_some_and(|far| far <= next);
        if is_due {
            self.table().ask_far(entity, next, missing);
        }
        is_due
    }
}

impl<Q: Queue> Queues<Q> {
    /// Asks for a message's record, if it is not in memory.
    pub(crate) fn ask(&self, at: Place, missing: &mut Missing) {
        if let Some(queue) = self.get(&at.entity) {
            queue.backlog().ask(at.entity, at.number, missing);
        }
    }

    /// What is to be read, if it still is on a page.
    pub(crate) fn to_read(&self, group: Group, wanted: Slots) -> Option<GroupToRead> {
        let queue = self.get(&group.entity)?;
        queue.backlog().table().to_read(group, wanted)
    }

    /// Takes records that were read.
    pub(crate) fn take_read(&mut self, catalogue: &mut Catalogue, read: GroupRead) -> Taken {
        let entity = read.entity();
        let Some(queue) = self.get_physical(&entity) else {
            return Taken::Replaced;
        };
        let taken = queue.backlog_mut().take_read(read, &mut catalogue.live);
        // Messages that have entered the order by time may be due later than their run has said.
        let deadline = queue.next_deadline();
        catalogue.deadlines.note(entity, queue.deadline(), deadline);
        taken
    }

    /// Takes records of a queue out of memory: see [`Table::sweep`](crate::table::Table::sweep).
    pub(crate) fn sweep(
        &mut self,
        entity: Incarnation,
        (from, takes_all, far_from): (u64, bool, Timestamp),
        steps: &mut u32,
        may: impl Fn(u64, PageNumber, Leaving) -> bool,
        live: &mut Live,
    ) -> Option<Swept> {
        let queue = self.get_physical(&entity)?;
        let backlog = queue.backlog_mut();
        let table = backlog.table_mut();
        let swept = table.sweep(from, (takes_all, far_from), steps, may, live);
        backlog.leave_order(&swept.left);
        for run in &swept.outgrown {
            if let Some(queue) = self.get_mut(&entity) {
                let table = queue.backlog_mut().table_mut();
                table.leave_page(*run, Pressure::Low, live);
            }
        }
        Some(swept)
    }

    /// Looks at runs of a queue: see [`Table::look`](crate::table::Table::look). Those in memory that are worth it leave
    /// their pages, or get one.
    pub(crate) fn look(
        &mut self,
        entity: Incarnation,
        looking: Looking,
        steps: &mut u32,
        known: &dyn KnownPages,
        live: &mut Live,
    ) -> Looked {
        let Some(queue) = self.get(&entity) else {
            return Looked::default();
        };
        let looked = queue.backlog().table().look(looking, steps, known);
        for run in &looked.to_change {
            self.leave_page((entity, *run), looking.pressure, live);
        }
        looked
    }

    /// Takes a run off its page, or lets it get one: see [`Table::leave_page`](crate::table::Table::leave_page).
    pub(crate) fn leave_page(&mut self, (entity, run): RunId, pressure: Pressure, live: &mut Live) {
        // To change nothing changes no page of a snapshot either.
        let has_whole = self
            .get(&entity)
            .is_some_and(|queue| queue.backlog().table().has_whole(run));
        if has_whole && let Some(queue) = self.get_mut(&entity) {
            let table = queue.backlog_mut().table_mut();
            table.leave_page(run, pressure, live);
        }
    }

    /// Takes records out of memory, of each run that has them on a page and of which `is_evicted` says so.
    pub(crate) fn evict_if(
        &mut self,
        far_from: Timestamp,
        live: &mut Live,
        is_evicted: &mut impl FnMut(RunId, PageNumber, Leaving) -> bool,
    ) {
        let all: Vec<Incarnation> = self.keys().copied().collect();
        for entity in all {
            let Some(queue) = self.get_physical(&entity) else {
                continue;
            };
            let backlog = queue.backlog_mut();
            let mut evicted: Vec<(u64, PageNumber, Leaving)> =
                backlog.table().evictable().collect();
            evicted.retain(|(run, page, leaving)| is_evicted((entity, *run), *page, *leaving));
            for (run, ..) in evicted {
                backlog.evict(run, far_from, live);
            }
        }
    }
}
