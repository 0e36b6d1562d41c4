//! A page: the records of a run as bytes, as they were at one moment. It never changes.
//!
//! Groups of 128 slots are read by themselves: their neighbours are wanted next. For now a page lies in memory, and
//! its place is its address: two pages are the same if they are one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::codec::{encoding, put_encoding};
use super::record::{DeadLetterCause, MessageState, Record, Side};
use crate::vocabulary::codec::{DecodeError, Reader, optional, put_optional, put_str, put_varint};
use crate::vocabulary::elements::{location, put_location, put_time, sequence_number, time};
use crate::vocabulary::{LeaseGeneration, SequenceNumber};

/// How many slots are read together.
pub(super) const SLOTS_PER_GROUP: usize = 128;

/// A message of a page: its slot, its record, and what few messages have.
pub(super) type Paged = (usize, Record, Side);

#[derive(Clone, Debug)]
pub(crate) struct Page {
    groups: Arc<[Box<[u8]>]>,
    /// Whether the next read fails, to show what happens then.
    fails_once: Arc<AtomicBool>,
}

impl Page {
    /// Writes messages, which come in the order of their slots.
    pub(super) fn of<'a>(
        messages: impl Iterator<Item = (usize, &'a Record, Option<&'a Side>)>,
    ) -> Self {
        let mut groups: Vec<Vec<u8>> = Vec::new();
        for (slot, record, side) in messages {
            let group = slot / SLOTS_PER_GROUP;
            if groups.len() <= group {
                groups.resize_with(group + 1, Vec::new);
            }
            if let Some(out) = groups.last_mut() {
                put_varint(out, slot as u64);
                put_record(out, record);
                put_side(out, side);
            }
        }
        Self {
            groups: groups.into_iter().map(Vec::into_boxed_slice).collect(),
            fails_once: Arc::default(),
        }
    }

    /// The same, but its first read fails.
    pub(super) fn failing_once(self) -> Self {
        self.fails_once.store(true, Ordering::Relaxed);
        self
    }

    /// Whether this read fails.
    pub(super) fn fails(&self) -> bool {
        self.fails_once.swap(false, Ordering::Relaxed)
    }

    /// Reads a group.
    pub(super) fn group(&self, index: usize) -> Result<Vec<Paged>, DecodeError> {
        let bytes = self.groups.get(index).map(AsRef::as_ref);
        let mut r = Reader::new(bytes.unwrap_or_default());
        let mut messages = Vec::new();
        while !r.is_empty() {
            let slot = r.varint_u32()? as usize;
            messages.push((slot, record(&mut r)?, side(&mut r)?));
        }
        Ok(messages)
    }

    /// How many groups there are. The last ones may be missing.
    pub(super) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Whether they are one page.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.groups, &other.groups)
    }
}

fn put_record(out: &mut Vec<u8>, record: &Record) {
    put_time(out, record.enqueued_at);
    put_time(out, record.expires_at);
    put_time(out, record.due_at);
    put_location(out, record.body);
    put_varint(out, record.generation.as_u32().into());
    put_varint(out, record.deliveries.into());
    put_varint(out, record.session.into());
    out.push(match record.state {
        MessageState::Ready => 1,
        MessageState::Locked { deferred: false } => 2,
        MessageState::Locked { deferred: true } => 3,
        MessageState::Scheduled => 4,
        MessageState::Deferred => 5,
    });
    out.push(match record.cause {
        None => 0,
        Some(DeadLetterCause::MaxDeliveryCountExceeded) => 1,
        Some(DeadLetterCause::Expired) => 2,
        Some(DeadLetterCause::MaxTransferHopCountExceeded) => 3,
        Some(DeadLetterCause::SessionIdIsNull) => 4,
        Some(DeadLetterCause::DestinationUnavailable) => 5,
        Some(DeadLetterCause::ByReceiver) => 6,
    });
    put_encoding(out, record.encoding);
    out.push(record.hops);
}

fn record(r: &mut Reader<'_>) -> Result<Record, DecodeError> {
    Ok(Record {
        enqueued_at: time(r)?,
        expires_at: time(r)?,
        due_at: time(r)?,
        body: location(r)?,
        generation: LeaseGeneration::new(r.varint_u32()?),
        deliveries: r.varint_u32()?,
        session: r.varint_u32()?,
        state: match r.u8()? {
            1 => MessageState::Ready,
            2 => MessageState::Locked { deferred: false },
            3 => MessageState::Locked { deferred: true },
            4 => MessageState::Scheduled,
            5 => MessageState::Deferred,
            _ => return Err(r.error("state of a message that is not known")),
        },
        cause: match r.u8()? {
            0 => None,
            1 => Some(DeadLetterCause::MaxDeliveryCountExceeded),
            2 => Some(DeadLetterCause::Expired),
            3 => Some(DeadLetterCause::MaxTransferHopCountExceeded),
            4 => Some(DeadLetterCause::SessionIdIsNull),
            5 => Some(DeadLetterCause::DestinationUnavailable),
            6 => Some(DeadLetterCause::ByReceiver),
            _ => return Err(r.error("cause of a dead letter that is not known")),
        },
        encoding: encoding(r)?,
        hops: r.u8()?,
    })
}

fn put_side(out: &mut Vec<u8>, side: Option<&Side>) {
    put_optional(out, side, |out, side| {
        let number = side.first_number.map(SequenceNumber::as_u64);
        put_optional(out, number, put_varint);
        put_optional(out, side.source.as_deref(), put_str);
        put_varint(out, side.overlays.len() as u64);
        for overlay in &side.overlays {
            put_location(out, *overlay);
        }
    });
}

fn side(r: &mut Reader<'_>) -> Result<Side, DecodeError> {
    let side = optional(r, |r| {
        let first_number = optional(r, sequence_number)?;
        let source = optional(r, |r| Ok(r.str()?.into()))?;
        let mut overlays = Vec::new();
        for _ in 0..r.varint()? {
            overlays.push(location(r)?);
        }
        Ok(Side {
            first_number,
            source,
            overlays,
        })
    })?;
    Ok(side.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::{BodyLocation, Timestamp};

    #[test]
    fn a_group_has_what_was_written() {
        let at = |record| BodyLocation {
            record,
            offset: 7,
            length: 9,
        };
        let states = [
            MessageState::Ready,
            MessageState::Locked { deferred: false },
            MessageState::Locked { deferred: true },
            MessageState::Scheduled,
            MessageState::Deferred,
        ];
        let causes = [
            None,
            Some(DeadLetterCause::MaxDeliveryCountExceeded),
            Some(DeadLetterCause::Expired),
            Some(DeadLetterCause::MaxTransferHopCountExceeded),
            Some(DeadLetterCause::SessionIdIsNull),
            Some(DeadLetterCause::DestinationUnavailable),
            Some(DeadLetterCause::ByReceiver),
        ];
        let all: Vec<Paged> = (0..600)
            .step_by(7)
            .filter(|slot| !(128..384).contains(slot))
            .map(|slot| {
                let record = Record {
                    expires_at: Timestamp::from_ms(slot as u64 * 1000),
                    generation: LeaseGeneration::new(slot.try_into().unwrap()),
                    deliveries: 3,
                    session: 5,
                    state: states[slot % states.len()],
                    cause: causes[slot % causes.len()],
                    encoding: super::super::BodyEncoding::Raw,
                    hops: 4,
                    ..Record::ready(Timestamp::from_ms(42), at(slot as u64))
                };
                let side = match slot % 2 {
                    0 => Side::default(),
                    _ => Side {
                        first_number: Some(SequenceNumber::new(8)),
                        source: Some("source".into()),
                        overlays: vec![at(1), at(2)],
                    },
                };
                (slot, record, side)
            })
            .collect();
        let page = Page::of(all.iter().map(|(slot, record, side)| {
            let side = (!side.is_empty()).then_some(side);
            (*slot, record, side)
        }));
        let read = (0..page.group_count()).flat_map(|index| page.group(index).unwrap());
        assert_eq!(read.collect::<Vec<_>>(), all);
        assert_eq!(page.group(1).unwrap(), []);
        assert_eq!(page.group(9).unwrap(), []);
        assert!(page.is(&page.clone()) && !page.is(&Page::of(std::iter::empty())));
    }
}
