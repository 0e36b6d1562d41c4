//! The batch of one turn, as the engine's journal.

use kew_engine::bus::BusFact;
use kew_engine::{BodyLocation, Event, Fact, Incarnation, Journal};
use kew_log::{BatchBuilder, LogPosition};

use super::stirred::Stirred;

/// What a turn writes, and what it touches.
pub(super) struct Batch {
    pub(super) builder: BatchBuilder,
    pub(super) entities: Vec<Incarnation>,
    /// What there may be to receive now.
    pub(super) stirred: Vec<Stirred>,
    pub(super) touches_catalogue: bool,
}

impl Batch {
    pub(super) fn at(position: LogPosition) -> Self {
        Self {
            builder: BatchBuilder::at(position),
            entities: Vec::new(),
            stirred: Vec::new(),
            touches_catalogue: false,
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
        self.builder.push_event_with(|out| event.encode(out));
        self.touches_catalogue |= event.shows_in_catalogue();
        if let Some(entity) = event.entity()
            && self.entities.last() != Some(&entity)
        {
            self.entities.push(entity);
        }
        self.entities.extend(event.other_entity());
        match &event.fact {
            Fact::Bus(BusFact::QueueUpdated { queue, .. } | BusFact::QueueDeleted { queue }) => {
                self.stirred
                    .extend(queue.with_sub_queues().map(Stirred::Changed));
            }
            _ => self.stirred.extend(event.arrival().map(Stirred::Arrived)),
        }
    }
}
