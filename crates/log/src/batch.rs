//! A batch: the entries that become durable together, or not at all.

use thiserror::Error;

use crate::format::{RECORD_HEADER_SIZE, RecordKind, Seal, Sealing, body_crc, seal_record};
use crate::sealed::Sealed;
use crate::{BodyLocation, Epoch, LogId, LogPosition};

const TAG_EVENT: u8 = 1;
const TAG_BODY: u8 = 2;
const BODY_CRC_SIZE: usize = 4;
/// A length in at most five groups of seven bits.
const VARINT_SIZE_MAX: usize = 5;

/// Collects entries for one append.
///
/// It is built for the position that a [`Reservation`](crate::Reservation) named, so that the
/// location of a body is known before the append. Room for the record's header is kept at the
/// front: the buffer is written as it is.
#[derive(Debug)]
pub struct BatchBuilder {
    position: LogPosition,
    time_ms: u64,
    buffer: Vec<u8>,
    has_bodies: bool,
    moved: MovedBytes,
}

/// What a batch has of bodies that only move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedBytes {
    /// What they take in the batch, with their events.
    pub written_bytes: u64,
    /// The live bytes that they count for.
    pub live_bytes: u64,
}

impl BatchBuilder {
    /// An empty batch for this position.
    pub fn at(position: LogPosition) -> Self {
        Self::with_capacity(position, 4096)
    }

    /// An empty batch for this position with memory for about `payload_bytes`.
    pub fn with_capacity(position: LogPosition, payload_bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(RECORD_HEADER_SIZE + payload_bytes + 8);
        buffer.resize(RECORD_HEADER_SIZE, 0);
        Self {
            position,
            time_ms: 0,
            buffer,
            has_bodies: false,
            moved: MovedBytes::default(),
        }
    }

    /// Says the partition's time of the batch, in milliseconds. Times in the log never go back.
    pub fn set_time_ms(&mut self, time_ms: u64) {
        self.time_ms = time_ms;
    }

    /// Says what of the batch only moves: a segment full of moved bodies is not worth moving again.
    pub fn set_moved(&mut self, moved: MovedBytes) {
        self.moved = moved;
    }

    /// What of the batch only moves.
    pub fn moved(&self) -> MovedBytes {
        self.moved
    }

    /// Adds a body, and says where it will lie.
    ///
    /// # Panics
    ///
    /// If body and batch together exceed 4 GiB.
    pub fn push_body(&mut self, body: &[u8]) -> BodyLocation {
        self.push_framed(body, |crc| crc)
    }

    /// Adds what is left of a damaged body, with a checksum that it does not match: reading it fails.
    ///
    /// # Panics
    ///
    /// If body and batch together exceed 4 GiB.
    pub fn push_damaged_body(&mut self, body: &[u8]) -> BodyLocation {
        self.push_framed(body, |crc| !crc)
    }

    fn push_framed(&mut self, body: &[u8], stated: impl FnOnce(u32) -> u32) -> BodyLocation {
        let length = u32::try_from(body.len()).expect("a body is far below 4 GiB");
        self.has_bodies = true;
        self.buffer.push(TAG_BODY);
        push_varint(&mut self.buffer, length);
        let offset =
            u32::try_from(self.len_bytes() + BODY_CRC_SIZE).expect("a batch is far below 4 GiB");
        let crc = stated(body_crc(self.position, offset, body));
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        self.buffer.extend_from_slice(body);
        BodyLocation {
            record: self.position,
            offset,
            length,
        }
    }

    /// Adds an event.
    ///
    /// # Panics
    ///
    /// If the event exceeds 4 GiB.
    pub fn push_event(&mut self, event: &[u8]) {
        let length = u32::try_from(event.len()).expect("an event is far below 4 GiB");
        self.buffer.push(TAG_EVENT);
        push_varint(&mut self.buffer, length);
        self.buffer.extend_from_slice(event);
    }

    /// Adds an event that `encode` appends to the buffer; it must leave what is there already.
    ///
    /// # Panics
    ///
    /// If the event exceeds 4 GiB.
    pub fn push_event_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.buffer.extend_from_slice(&[TAG_EVENT, 0]);
        let start = self.buffer.len();
        encode(&mut self.buffer);
        let length = u32::try_from(self.buffer.len() - start).expect("an event is far below 4 GiB");
        // Nearly every event is shorter than 128 bytes, so its length takes the one byte kept.
        if length < 0x80 {
            self.buffer[start - 1] = length.to_le_bytes()[0];
        } else {
            let (varint, size) = encode_varint(length);
            self.buffer
                .splice(start - 1..start, varint[..size].iter().copied());
        }
    }

    /// The position that the batch was built for.
    pub fn position(&self) -> LogPosition {
        self.position
    }

    /// Size of the payload so far; a reservation's `room_bytes` bounds it.
    pub fn len_bytes(&self) -> usize {
        self.buffer.len() - RECORD_HEADER_SIZE
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// The most that an event of `length` bytes adds to [`len_bytes`](Self::len_bytes).
    pub const fn event_size_bytes_max(length: usize) -> usize {
        1 + VARINT_SIZE_MAX + length
    }

    /// The most that a body of `length` bytes adds to [`len_bytes`](Self::len_bytes).
    pub const fn body_size_bytes_max(length: usize) -> usize {
        1 + VARINT_SIZE_MAX + BODY_CRC_SIZE + length
    }

    /// The partition's time of the batch, in milliseconds.
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Whether a body was added.
    pub(crate) fn has_bodies(&self) -> bool {
        self.has_bodies
    }

    /// Completes the batch for a log that is not one of segments. `previous` is the content checksum of the batch before.
    ///
    /// Without entries it is a beat.
    pub fn seal(self, log: LogId, epoch: Epoch, previous: u32) -> Sealed {
        let position = self.position;
        let mut record = self.buffer;
        let payload_end = record.len();
        let sealing = Sealing {
            chain_start: log.chain_start(),
            seal: Seal::NONE,
            kind: RecordKind::Batch,
            previous,
            position,
            time_ms: self.time_ms,
            epoch,
            durable: LogPosition::default(),
        };
        let content = seal_record(&mut record, sealing);
        Sealed {
            end: position.plus(record.len() as u64),
            record: record.into(),
            content,
            payload_end,
        }
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}

/// One entry of a batch, as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Event(&'a [u8]),
    Body {
        /// Where in the payload the body begins.
        offset: u32,
        crc: u32,
        body: &'a [u8],
    },
}

/// A payload that no builder makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a batch entry {what}")]
pub(crate) struct MalformedEntry {
    /// Where in the payload the entry begins.
    pub(crate) offset: usize,
    what: &'static str,
}

/// Reads a batch's payload entry by entry; ends after the first malformed one.
pub(crate) struct Entries<'a> {
    payload: &'a [u8],
    offset: usize,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        Self { payload, offset: 0 }
    }

    /// Whether nothing follows.
    fn is_at_end(&self) -> bool {
        self.offset == self.payload.len()
    }

    fn read(&mut self) -> Result<Entry<'a>, &'static str> {
        let tag = self.take(1)?[0];
        let length = self.take_varint()?;
        match tag {
            TAG_EVENT => Ok(Entry::Event(self.take(length as usize)?)),
            TAG_BODY => {
                let crc = self.take(BODY_CRC_SIZE)?;
                let crc = u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]]);
                let offset =
                    u32::try_from(self.offset).map_err(|_| "lies beyond the first 4 GiB")?;
                let body = self.take(length as usize)?;
                Ok(Entry::Body { offset, crc, body })
            }
            _ => Err("has an unknown tag"),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let rest = &self.payload[self.offset..];
        let taken = rest.get(..count).ok_or("reaches beyond its batch")?;
        self.offset += count;
        Ok(taken)
    }

    fn take_varint(&mut self) -> Result<u32, &'static str> {
        let mut value: u64 = 0;
        for group in 0..VARINT_SIZE_MAX {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << (7 * group);
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| "has a length above 4 GiB");
            }
        }
        Err("has a length in more than five bytes")
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, MalformedEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_at_end() {
            return None;
        }
        let begin = self.offset;
        Some(self.read().map_err(|what| {
            self.offset = self.payload.len();
            MalformedEntry {
                offset: begin,
                what,
            }
        }))
    }
}

fn push_varint(buffer: &mut Vec<u8>, value: u32) {
    let (bytes, size) = encode_varint(value);
    buffer.extend_from_slice(&bytes[..size]);
}

fn encode_varint(mut value: u32) -> ([u8; VARINT_SIZE_MAX], usize) {
    let mut bytes = [0; VARINT_SIZE_MAX];
    let mut size = 0;
    loop {
        let group = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        bytes[size] = if value == 0 { group } else { group | 0x80 };
        size += 1;
        if value == 0 {
            return (bytes, size);
        }
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
