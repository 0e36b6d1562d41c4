//! What the decisions of the profiles stand on.

use bytes::Bytes;

use super::Turn;
use crate::bus::{self, BusFact, Format, TopicTally};
use crate::catalogue::Catalogue;
use crate::event::Fact;
use crate::storage::{self, StorageFact};
use crate::vocabulary::{BodyLocation, BodyRead, Incarnation, Timestamp};

impl storage::Ground for Turn<'_> {
    fn catalogue(&self) -> &Catalogue {
        &self.state.catalogue
    }

    fn queues(&self) -> &storage::Queues {
        &self.state.storage
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn emit(&mut self, fact: StorageFact) {
        self.emit(Fact::Storage(fact));
    }

    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.journal.store_body(body)
    }
}

impl bus::Ground for Turn<'_> {
    fn catalogue(&self) -> &Catalogue {
        &self.state.catalogue
    }

    fn queues(&self) -> &bus::Queues {
        &self.state.bus
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn due_budget(&self) -> u32 {
        self.due_budget
    }

    fn copies_at_once(&self) -> u64 {
        self.copies_at_once
    }

    fn format(&self) -> &dyn Format {
        self.format
    }

    fn is_due_done(&self) -> bool {
        self.is_due_done
    }

    fn emit(&mut self, fact: BusFact) {
        self.emit(Fact::Bus(fact));
    }

    fn emit_effect(&mut self, effect: bus::Effect) {
        self.emit_bus_effect(effect);
    }

    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.journal.store_body(body)
    }

    fn read_body(&mut self, body: BodyLocation) -> BodyRead {
        let read = self.journal.body(body);
        if read == BodyRead::Damaged {
            self.hand_out.note_damaged(body);
        }
        read
    }

    fn body_bytes(&mut self, body: BodyLocation) -> Option<Bytes> {
        self.journal.bytes(body)
    }

    fn take_matched(&mut self, topic: Incarnation) -> Option<bus::Matched> {
        let entity = self.state.bus.get_mut(&topic)?;
        entity.topic.as_mut()?.take_matched()
    }

    fn keep_matched(&mut self, topic: Incarnation, matched: bus::Matched) {
        let entity = self.state.bus.get_mut(&topic);
        if let Some(topic) = entity.and_then(|it| it.topic.as_mut()) {
            topic.keep_matched(matched);
        }
    }

    fn hand_out(&self) -> &bus::HandOut {
        &self.hand_out
    }

    fn hand_out_mut(&mut self) -> &mut bus::HandOut {
        &mut self.hand_out
    }

    fn raise_expiry(&mut self, queue: Incarnation, run: u64) {
        let (bus, catalogue) = (&mut self.state.bus, &mut self.state.catalogue);
        bus.raise_expiry(catalogue, queue, run);
        self.journal.looked(queue);
    }

    fn end_lost(&mut self, queue: Incarnation, run: u64) {
        self.end_lost(queue, run);
    }

    fn find_largest_families(&mut self, topic: Incarnation) -> u64 {
        self.state.catalogue.find_largest_families(topic)
    }

    fn keep_largest_family(&mut self, topic: Incarnation) -> u64 {
        self.state.catalogue.keep_largest_family(topic)
    }

    fn note_steps(&mut self, count: u64) {
        *self.state.catalogue.copied += count;
    }

    fn tally_topic(&mut self, topic: Incarnation, tally: &TopicTally) {
        let entity = self.state.bus.get_physical(&topic);
        if let Some(topic) = entity.and_then(|it| it.topic.as_mut()) {
            topic.tally.add(tally);
        }
    }

    fn tally_duplicate(&mut self, entity: Incarnation) {
        if let Some(entity) = self.state.bus.get_physical(&entity) {
            entity.flow.duplicates += 1;
        }
    }

    fn forget_ids(&mut self, queue: Incarnation) {
        let (bus, catalogue) = (&mut self.state.bus, &mut self.state.catalogue);
        if bus.forget_ids(catalogue, queue, self.now) {
            // These ids are missing from a snapshot: not even after a restart may an earlier time be shown.
            *self.state.last_event_at = self.now;
        }
    }
}
