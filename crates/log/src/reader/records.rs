//! Reads a segment's records one after the other, and searches damaged space for records.

use std::ops::Range;

use crate::LogPosition;
use crate::format::{
    BEGINNING_OFFSET, BEGINNING_SIZE, FormatError, RECORD_ALIGNMENT, RECORD_HEADER_SIZE,
    RecordHeader, SEGMENT_HEADER_BLOCK_SIZE, Seal, SegmentHeader, content_crc, decode_beginning,
};
use crate::segment::{Blank, Segment, memory_size};
use crate::storage::{self, IoFailure, StorageFile};

/// How much is read ahead at once.
const WINDOW_SIZE: usize = 256 * 1024;

/// How many bytes are compared with zero at once: some vectors.
const ZEROS_AT_ONCE: usize = 256;

/// A valid record: its checksums hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) position: LogPosition,
    pub(crate) header: RecordHeader,
    /// The header as it was read.
    pub(crate) head: [u8; RECORD_HEADER_SIZE],
    pub(crate) payload: &'a [u8],
}

impl Record<'_> {
    /// Where the next batch begins.
    pub(crate) fn end(&self) -> LogPosition {
        self.header.end()
    }

    /// Where the next record of the file would begin.
    pub(crate) fn behind(&self) -> LogPosition {
        self.position.plus(self.header.record_size_bytes())
    }
}

/// Reads records of one segment. Takes memory for one record, and never more than the file's size.
pub(crate) struct RecordReader<'a> {
    header: &'a SegmentHeader,
    seal: Seal,
    chain_start: u32,
    file: &'a dyn StorageFile,
    name: &'a str,
    first: LogPosition,
    /// Nothing is read behind this offset in the file.
    end_bytes: u64,
    window: Window,
}

/// What was read of a segment, so that another reader can go on with it.
#[derive(Debug, Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    /// Offset in the file of the first byte.
    offset: u64,
}

/// The valid header of a record that lies within its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) header: RecordHeader,
    bytes: [u8; RECORD_HEADER_SIZE],
}

impl<'a> RecordReader<'a> {
    pub(crate) fn new(segment: &'a Segment) -> Self {
        Self::with(segment, Window::default())
    }

    /// Goes on with what was read of this segment.
    pub(crate) fn with(segment: &'a Segment, window: Window) -> Self {
        Self {
            header: &segment.header,
            seal: segment.seal,
            chain_start: segment.header.log.chain_start(),
            file: &*segment.file,
            name: &segment.name,
            first: segment.first(),
            end_bytes: segment.header.capacity_bytes,
            window,
        }
    }

    /// Reads nothing behind a position.
    pub(crate) fn until(segment: &'a Segment, limit: LogPosition) -> Self {
        Self {
            end_bytes: segment.offset_of(limit),
            ..Self::new(segment)
        }
    }

    /// What was read of the segment.
    pub(crate) fn into_window(self) -> Window {
        self.window
    }

    /// Where the records of a segment begin, from what it or they say. `None` if it was never written to.
    pub(crate) fn first_of(blank: &'a Blank) -> Result<Option<LogPosition>, IoFailure> {
        let seal = blank.header.seal();
        let mut bytes = [0; BEGINNING_SIZE];
        storage::read_at(&*blank.file, &blank.name, &mut bytes, BEGINNING_OFFSET)?;
        if let Some(first) = decode_beginning(seal, &bytes) {
            return Ok(Some(first));
        }
        let mut reader = Self {
            header: &blank.header,
            seal,
            chain_start: blank.header.log.chain_start(),
            file: &*blank.file,
            name: &blank.name,
            first: LogPosition::default(),
            end_bytes: blank.header.capacity_bytes,
            window: Window::default(),
        };
        let begin = SEGMENT_HEADER_BLOCK_SIZE;
        if let Ok((header, _)) = reader.header_at(begin)? {
            // The record may be torn, but its header tells the truth.
            return Ok(Some(header.position));
        }
        let mut from = begin;
        while let Some((offset, header)) = reader.find_header(from, reader.end_bytes)? {
            let into = offset - begin;
            if let Some(first) = header.position.as_u64().checked_sub(into) {
                reader.first = LogPosition::new(first);
                if reader.read(header.position)?.is_ok() {
                    return Ok(Some(reader.first));
                }
            }
            from = offset + RECORD_ALIGNMENT;
        }
        Ok(None)
    }

    fn offset_of(&self, position: LogPosition) -> u64 {
        SEGMENT_HEADER_BLOCK_SIZE + position.as_u64() - self.first.as_u64()
    }

    /// The record at a position, or why there is none.
    pub(crate) fn read(
        &mut self,
        position: LogPosition,
    ) -> Result<Result<Record<'_>, FormatError>, IoFailure> {
        match self.head(position)? {
            Ok(head) => self.record(head),
            Err(error) => Ok(Err(error)),
        }
    }

    /// The header of the record at a position, or why there is no record.
    pub(crate) fn head(
        &mut self,
        position: LogPosition,
    ) -> Result<Result<Head, FormatError>, IoFailure> {
        let offset = self.offset_of(position);
        let (header, bytes) = match self.header_at(offset)? {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        if header.position != position {
            return Ok(Err(FormatError::Damaged(
                "the record belongs to another position",
            )));
        }
        if header.record_size_bytes() > self.header.capacity_bytes - offset {
            return Ok(Err(FormatError::Damaged(
                "the record reaches beyond its segment",
            )));
        }
        Ok(Ok(Head { header, bytes }))
    }

    /// The record that has this header, or why it does not count.
    pub(crate) fn record(
        &mut self,
        head: Head,
    ) -> Result<Result<Record<'_>, FormatError>, IoFailure> {
        let Head {
            header,
            bytes: head,
        } = head;
        let position = header.position;
        let offset = self.offset_of(position);
        let chain_start = self.chain_start;
        let payload_length = header.payload_length as usize;
        let record = self.bytes(offset, RECORD_HEADER_SIZE + payload_length)?;
        let Some(payload) = record.get(RECORD_HEADER_SIZE..RECORD_HEADER_SIZE + payload_length)
        else {
            return Ok(Err(FormatError::Damaged("the file ends within the record")));
        };
        if content_crc(&head, payload, chain_start) != header.content {
            return Ok(Err(FormatError::Damaged(
                "the record does not match its checksum",
            )));
        }
        Ok(header.check_version().map(|()| Record {
            position,
            header,
            head,
            payload,
        }))
    }

    fn header_at(
        &mut self,
        offset: u64,
    ) -> Result<Result<(RecordHeader, [u8; RECORD_HEADER_SIZE]), FormatError>, IoFailure> {
        let seal = self.seal;
        let Some(head) = self.bytes(offset, RECORD_HEADER_SIZE)?.first_chunk() else {
            return Ok(Err(FormatError::Damaged("the segment ends here")));
        };
        Ok(RecordHeader::decode(head, seal).map(|header| (header, *head)))
    }

    /// The end of a record that was begun at a position, if its header is valid.
    pub(crate) fn begun_until(
        &mut self,
        position: LogPosition,
    ) -> Result<Option<LogPosition>, IoFailure> {
        let offset = self.offset_of(position);
        let limit = self
            .first
            .plus(self.header.capacity_bytes - SEGMENT_HEADER_BLOCK_SIZE);
        let begun = self.header_at(offset)?.ok();
        let begun = begun.filter(|(header, _)| header.position == position);
        Ok(begun.map(|(header, _)| position.plus(header.record_size_bytes()).min(limit)))
    }

    /// The first valid record at or after a position, wherever it begins.
    ///
    /// A record inside a message body is never valid: its author does not know the salt.
    pub(crate) fn find_from(
        &mut self,
        position: LogPosition,
    ) -> Result<Option<LogPosition>, IoFailure> {
        self.find_until(self.offset_of(position), self.end_bytes)
    }

    /// The first valid record that begins in a range.
    pub(crate) fn find_in(
        &mut self,
        range: Range<LogPosition>,
    ) -> Result<Option<LogPosition>, IoFailure> {
        self.find_until(self.offset_of(range.start), self.offset_of(range.end))
    }

    /// The first valid record that begins between two offsets in the file.
    fn find_until(&mut self, mut from: u64, until: u64) -> Result<Option<LogPosition>, IoFailure> {
        // Candidates are read through a window of their own, so that this one can continue.
        let mut candidates = Self {
            window: Window::default(),
            ..*self
        };
        while let Some((offset, header)) = self.find_header(from, until)? {
            let position = self.first.plus(offset - SEGMENT_HEADER_BLOCK_SIZE);
            if header.position == position && candidates.read(position)?.is_ok() {
                return Ok(Some(position));
            }
            from = offset + RECORD_ALIGNMENT;
        }
        Ok(None)
    }

    /// The first valid header that begins between two offsets in the file.
    fn find_header(
        &mut self,
        from: u64,
        until: u64,
    ) -> Result<Option<(u64, RecordHeader)>, IoFailure> {
        let seal = self.seal;
        let mut offset = from
            .max(SEGMENT_HEADER_BLOCK_SIZE)
            .next_multiple_of(RECORD_ALIGNMENT);
        while offset < until {
            // A header that begins before the end of the range may reach behind it.
            let wanted = memory_size(until - offset).saturating_add(RECORD_HEADER_SIZE - 1);
            let window = self.bytes(offset, wanted.min(WINDOW_SIZE))?;
            let Some(last) = window.len().checked_sub(RECORD_HEADER_SIZE) else {
                return Ok(None);
            };
            let mut at = 0;
            while let Some(head) = window[at..].first_chunk() {
                if RecordHeader::is_possible(head)
                    && let Ok(header) = RecordHeader::decode(head, seal)
                {
                    return Ok(Some((offset + at as u64, header)));
                }
                at += memory_size(RECORD_ALIGNMENT).max(without_header(&window[at..]));
                if at > last {
                    break;
                }
            }
            offset += (last as u64 + 1).next_multiple_of(RECORD_ALIGNMENT);
        }
        Ok(None)
    }

    /// The bytes from `offset` on: `count` of them unless what may be read ends before.
    fn bytes(&mut self, offset: u64, count: usize) -> Result<&[u8], IoFailure> {
        let rest = memory_size(self.end_bytes.saturating_sub(offset));
        let count = count.min(rest);
        let held = offset
            .checked_sub(self.window.offset)
            .map(memory_size)
            .filter(|at| at.saturating_add(count) <= self.window.bytes.len());
        if let Some(at) = held {
            return Ok(&self.window.bytes[at..at + count]);
        }
        let bytes = &mut self.window.bytes;
        bytes.resize(count.max(WINDOW_SIZE.min(rest)), 0);
        let read = storage::read_at(self.file, self.name, bytes, offset);
        // After a failed read, the contents of the window are unknown.
        bytes.truncate(*read.as_ref().unwrap_or(&0));
        self.window.offset = offset;
        let read = read?;
        Ok(&bytes[..count.min(read)])
    }
}

/// At how many bytes no header begins, because all of it would be zero: a segment is full of zeros where it was never
/// written to.
fn without_header(bytes: &[u8]) -> usize {
    if !bytes.starts_with(&[0; 8]) {
        return 0;
    }
    let blocks = bytes.chunks_exact(ZEROS_AT_ONCE);
    let zero = blocks.take_while(|block| block.iter().fold(0, |or, byte| or | byte) == 0);
    let zero_bytes = zero.count() * ZEROS_AT_ONCE;
    zero_bytes.saturating_sub(RECORD_HEADER_SIZE)
}
