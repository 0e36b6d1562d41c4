//! Messages of queues whose records are lost are set aside, so that the others can be served.

use super::{Backlog, Profile, Queue, Queues};
use crate::catalogue::Catalogue;
use crate::table::{Group, Live, Slots, numbers_of};
use crate::vocabulary::{Incarnation, PageNumber, SequenceNumber};

impl<P: Profile> Backlog<P> {
    /// Which messages of a group can be set aside, because there is no record of them.
    pub(crate) fn lost_in(
        &self,
        group: Group,
        page: PageNumber,
    ) -> Option<(SequenceNumber, Slots)> {
        self.table().lost_in(group, page, P::COUNTS_STATES)
    }

    /// Sets messages aside. Those that are not there change nothing.
    fn quarantine(&mut self, first: SequenceNumber, messages: Slots, live: &mut Live) {
        let numbers = numbers_of(first, messages);
        let aside = self.table_mut().quarantine(numbers, live);
        // Those that were far are in no order.
        if !aside.not_ready.is_empty() {
            self.timed_mut().remove_all(&aside.not_ready);
        }
        if aside.has_special {
            self.set_aside(&aside.numbers);
        }
        aside.states.iter().for_each(|state| self.uncount(*state));
        self.left_plain(aside.numbers.len() as u64);
    }
}

impl<Q: Queue> Queues<Q> {
    /// Sets messages of a queue aside.
    pub(crate) fn quarantine(
        &mut self,
        catalogue: &mut Catalogue,
        entity: Incarnation,
        (first, messages): (SequenceNumber, Slots),
    ) {
        if let Some(queue) = self.get_mut(&entity) {
            let backlog = queue.backlog_mut();
            backlog.quarantine(first, messages, &mut catalogue.live);
            queue.note_set_aside(first, messages);
            queue.settle(catalogue, entity);
        }
    }

    /// Ends a run in which nothing is left but messages that were set aside.
    pub(crate) fn end_lost(
        &mut self,
        catalogue: &mut Catalogue,
        entity: Incarnation,
        number: SequenceNumber,
    ) {
        if let Some(queue) = self.get_mut(&entity) {
            let table = queue.backlog_mut().table_mut();
            table.end_lost(number, &mut catalogue.live);
            queue.settle(catalogue, entity);
        }
    }

    /// Whether all of these messages are there.
    pub(crate) fn has_all(
        &self,
        entity: Incarnation,
        (first, messages): (SequenceNumber, Slots),
    ) -> bool {
        let queue = self.get(&entity);
        queue.is_some_and(|queue| {
            let table = queue.backlog().table();
            numbers_of(first, messages).all(|number| table.contains(number))
        })
    }

    /// Whether nothing is left of a number's run but messages that were set aside.
    pub(crate) fn is_lost(&self, entity: Incarnation, number: SequenceNumber) -> bool {
        let queue = self.get(&entity);
        queue.is_some_and(|queue| queue.backlog().table().is_lost(number))
    }
}
