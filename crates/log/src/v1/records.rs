//! Reads a segment's records one after the other, and searches damaged space for records.

use crate::LogPosition;
use crate::format::FormatError;
use crate::segment::memory_size;
use crate::storage::{self, IoFailure};

use super::format::{
    RECORD_ALIGNMENT, RECORD_HEADER_SIZE, RecordHeader, SEGMENT_HEADER_BLOCK_SIZE, record_crc,
};
use super::survey::Segment;

/// How much is read ahead at once.
const WINDOW_SIZE: usize = 256 * 1024;

/// A valid record: its checksum holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) position: LogPosition,
    pub(super) header: RecordHeader,
    pub(super) payload: &'a [u8],
}

impl Record<'_> {
    pub(super) fn end(&self) -> LogPosition {
        self.position.plus(self.header.record_size_bytes())
    }
}

/// Reads records of one segment. Takes memory for one record, and never more than the file's size.
pub(super) struct RecordReader<'a> {
    segment: &'a Segment,
    window: Vec<u8>,
    /// Offset in the file of the window's first byte.
    window_offset: u64,
}

impl<'a> RecordReader<'a> {
    pub(super) fn new(segment: &'a Segment) -> Self {
        Self {
            segment,
            window: Vec::new(),
            window_offset: 0,
        }
    }

    /// The record at a position, or why there is none.
    pub(super) fn read(
        &mut self,
        position: LogPosition,
    ) -> Result<Result<Record<'_>, FormatError>, IoFailure> {
        let offset = self.segment.offset_of(position);
        let seal = self.segment.header.seal();
        let Some(bytes) = self.bytes(offset, RECORD_HEADER_SIZE)?.first_chunk() else {
            return Ok(Err(FormatError::Damaged("the segment ends here")));
        };
        let bytes: [u8; RECORD_HEADER_SIZE] = *bytes;
        let header = match RecordHeader::decode(&bytes, seal, position) {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        let size = header.record_size_bytes();
        if size > self.segment.header.capacity_bytes - offset {
            return Ok(Err(FormatError::Damaged(
                "the record reaches beyond its segment",
            )));
        }
        let payload_length = header.payload_length as usize;
        let record = self.bytes(offset, RECORD_HEADER_SIZE + payload_length)?;
        let Some(payload) = record.get(RECORD_HEADER_SIZE..RECORD_HEADER_SIZE + payload_length)
        else {
            return Ok(Err(FormatError::Damaged("the file ends within the record")));
        };
        if record_crc(&bytes, payload, seal, position) != header.crc {
            return Ok(Err(FormatError::Damaged(
                "the record does not match its checksum",
            )));
        }
        Ok(header.check_version().map(|()| Record {
            position,
            header,
            payload,
        }))
    }

    /// The first valid record at or after a position, wherever it begins.
    ///
    /// A record inside a message body is never valid: its author does not know the salt.
    pub(super) fn find_from(
        &mut self,
        position: LogPosition,
    ) -> Result<Option<LogPosition>, IoFailure> {
        let mut offset = self
            .segment
            .offset_of(position)
            .max(SEGMENT_HEADER_BLOCK_SIZE)
            .next_multiple_of(RECORD_ALIGNMENT);
        let base = self.segment.header.base;
        // Candidates are read through a window of their own, so that this one can continue.
        let mut candidates = Self::new(self.segment);
        while offset < self.segment.header.capacity_bytes {
            let window = self.bytes(offset, WINDOW_SIZE)?;
            if window.len() < RECORD_HEADER_SIZE {
                return Ok(None);
            }
            let last = window.len() - RECORD_HEADER_SIZE;
            for at in (0..=last).step_by(memory_size(RECORD_ALIGNMENT)) {
                if !RecordHeader::is_possible(window[at + 12], window[at + 13]) {
                    continue;
                }
                let candidate = base.plus(offset + at as u64);
                if candidates.read(candidate)?.is_ok() {
                    return Ok(Some(candidate));
                }
            }
            offset += (last as u64 + 1).next_multiple_of(RECORD_ALIGNMENT);
        }
        Ok(None)
    }

    /// The bytes from `offset` on: `count` of them unless the segment ends before.
    fn bytes(&mut self, offset: u64, count: usize) -> Result<&[u8], IoFailure> {
        let rest = memory_size(self.segment.header.capacity_bytes.saturating_sub(offset));
        let count = count.min(rest);
        let held = offset
            .checked_sub(self.window_offset)
            .map(memory_size)
            .filter(|at| at.saturating_add(count) <= self.window.len());
        if let Some(at) = held {
            return Ok(&self.window[at..at + count]);
        }
        self.window.resize(count.max(WINDOW_SIZE.min(rest)), 0);
        let segment = self.segment;
        let read = storage::read_at(&*segment.file, &segment.name, &mut self.window, offset);
        // After a failed read, the contents of the window are unknown.
        self.window.truncate(*read.as_ref().unwrap_or(&0));
        self.window_offset = offset;
        let read = read?;
        Ok(&self.window[..count.min(read)])
    }
}
