//! The batch of one turn, as the engine's journal.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use bytes::Bytes;
use kew_engine::{BodyLocation, BodyRead, Event, Incarnation, Journal, Timestamp};
use kew_log::{BatchBuilder, LocalLog, LogPosition};
use kew_planted::{Seam, pass_ref};

use super::bodies::Bodies;
use super::stirred::Stirred;
use super::to_log;

/// The events and bodies that a turn writes, and the entities they touch.
pub(super) struct Batch {
    pub(super) builder: BatchBuilder,
    pub(super) position: LogPosition,
    /// Bodies that this turn's answers need. The log may drop them from memory in the meantime.
    pub(super) pinned: HashMap<BodyLocation, Bytes>,
    pub(super) entities: Vec<Incarnation>,
    /// Bus queues that have changed without an event, and those that changed with another one.
    pub(super) looked: Vec<Incarnation>,
    /// Changes that may concern waiting receivers.
    pub(super) stirred: Vec<Stirred>,
    pub(super) touches_catalogue: bool,
    /// By how much pages grow at most because of the events of this batch.
    pub(super) growth_bytes: u64,
    /// Whether an entity forwards messages from now on.
    pub(super) sets_forwards: bool,
    /// How many effects its events have.
    pub(super) effect_count: u64,
}

/// For how many bytes a batch has room at first.
const ROOM_BYTES: RangeInclusive<usize> = 4096..=64 * 1024;

impl Batch {
    /// A batch for a position, with the time of its turn. It is likely to have so many bytes.
    pub(super) fn at(position: LogPosition, now: Timestamp, likely_bytes: usize) -> Self {
        let room_bytes = likely_bytes.clamp(*ROOM_BYTES.start(), *ROOM_BYTES.end());
        let mut builder = BatchBuilder::with_capacity(position, room_bytes);
        builder.set_time_ms(now.as_ms());
        Self {
            builder,
            position,
            pinned: HashMap::new(),
            entities: Vec::new(),
            looked: Vec::new(),
            stirred: Vec::new(),
            touches_catalogue: false,
            sets_forwards: false,
            growth_bytes: 0,
            effect_count: 0,
        }
    }
}

/// A batch, with the log it will be appended to.
pub(super) struct Writing<'a> {
    pub(super) batch: &'a mut Batch,
    pub(super) log: &'a dyn LocalLog,
    /// What was read for commands and ticks that waited. `None` for moves and the opening, which need no bodies.
    pub(super) bodies: Option<&'a Bodies>,
}

impl Journal for Writing<'_> {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.batch.store_body(body)
    }

    fn record(&mut self, event: &Event) {
        pass_ref(Seam::Recorded, event, |event| self.batch.record(event));
    }

    fn looked(&mut self, queue: Incarnation) {
        if self.batch.looked.last() != Some(&queue) {
            self.batch.looked.push(queue);
        }
    }

    fn body(&mut self, body: BodyLocation) -> BodyRead {
        // A body of this batch is not in the log yet.
        if body.record >= self.batch.position.as_u64() {
            return BodyRead::Whole;
        }
        let read = self.bodies.and_then(|bodies| bodies.get(body));
        let bytes = match read {
            Some(Some(bytes)) => Some(bytes.clone()),
            Some(None) => return BodyRead::Damaged,
            None => {
                let found = self.log.body(to_log(body));
                found.and_then(|found| found.in_memory())
            }
        };
        match bytes {
            Some(bytes) => {
                self.batch.pinned.insert(body, bytes);
                BodyRead::Whole
            }
            None => BodyRead::Missing,
        }
    }

    fn bytes(&mut self, body: BodyLocation) -> Option<Bytes> {
        // What is whole was pinned.
        self.batch.pinned.get(&body).cloned()
    }
}

impl Batch {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        let location = self.builder.push_body(body);
        BodyLocation::new(location.record.as_u64(), location.offset, location.length)
    }

    fn record(&mut self, event: &Event) {
        let before = self.builder.len_bytes();
        self.builder.push_event_with(|out| event.encode(out));
        self.effect_count += event.effect_count() as u64;
        let written_bytes = self.builder.len_bytes() - before;
        self.growth_bytes += event.growth_bytes(written_bytes as u64);
        self.touches_catalogue |= event.shows_in_catalogue();
        self.sets_forwards |= event.sets_forwards();
        for entity in event.entities() {
            if self.entities.last() != Some(&entity) {
                self.entities.push(entity);
            }
        }
        self.stirred.extend(event.arrivals().map(Stirred::Arrived));
        if let Some(queue) = event.changed_bus_queue() {
            let changed = queue.with_sub_queues().map(Stirred::Changed);
            self.stirred.extend(changed);
            self.looked.extend(queue.with_sub_queues());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Growth of a batch with this message of a session of 200 bytes, and with so many copies of it.
    fn growth_bytes(copies: usize) -> u64 {
        let session = "s".repeat(200);
        let bytes = [
            b"R\x01\xe9\x07\x51\x06\x03\x05\xd0\x0f\x80\x20\x0a\xac\x02\x01\xc8\x01",
            session.as_bytes(),
            b"\xcb\x01",
            &b"\x06\x06\x00".repeat(copies),
        ];
        let event = Event::decode(&bytes.concat()).unwrap();
        assert_eq!(event.effect_count(), 1 + copies);
        let mut batch = Batch::at(LogPosition::new(4096), Timestamp::from_ms(1000), 0);
        batch.record(&event);
        batch.growth_bytes
    }

    #[test]
    fn a_copy_counts_for_the_next_snapshot_as_if_it_were_written_in_full() {
        let (one, all) = (growth_bytes(0), growth_bytes(63));
        assert!(one > 72 + 200);
        assert!(all >= 64 * one, "{all}, {one}");
    }
}
