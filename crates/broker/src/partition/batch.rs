//! The batch of one turn, as the engine's journal.

use kew_engine::bus::BusFact;
use kew_engine::{BodyLocation, Event, Fact, Incarnation, Journal};
use kew_log::{BatchBuilder, LogPosition};

use crate::Wake;

/// What a turn writes, and what it touches.
pub(super) struct Batch {
    pub(super) builder: BatchBuilder,
    pub(super) entities: Vec<Incarnation>,
    /// Who may have something to receive now.
    pub(super) wakes: Vec<Wake>,
    pub(super) touches_catalogue: bool,
    /// By how much a snapshot grows at most because of it.
    pub(super) growth_bytes: u64,
}

/// What an event adds to a snapshot at most beside its own bytes: times and counts that it implies.
const GROWTH_BYTES: u64 = 24;

impl Batch {
    pub(super) fn at(position: LogPosition) -> Self {
        Self {
            builder: BatchBuilder::at(position),
            entities: Vec::new(),
            wakes: Vec::new(),
            touches_catalogue: false,
            growth_bytes: 0,
        }
    }
}

impl Journal for Batch {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        let location = self.builder.push_body(body);
        BodyLocation {
            record: location.record.as_u64(),
            offset: location.offset,
            length: location.length,
        }
    }

    fn record(&mut self, event: &Event) {
        let before = self.builder.len_bytes();
        self.builder.push_event_with(|out| event.encode(out));
        self.growth_bytes += (self.builder.len_bytes() - before) as u64 + GROWTH_BYTES;
        self.touches_catalogue |= event.shows_in_catalogue();
        if let Some(entity) = event.entity()
            && self.entities.last() != Some(&entity)
        {
            self.entities.push(entity);
        }
        self.entities.extend(event.other_entity());
        match &event.fact {
            Fact::Bus(BusFact::QueueUpdated { queue, .. } | BusFact::QueueDeleted { queue }) => {
                self.wakes
                    .extend(queue.with_sub_queues().map(Wake::Changed));
            }
            _ => self.wakes.extend(event.makes_receivable().map(Wake::One)),
        }
    }
}
