//! Reads a body, from memory if it was written recently and from its segment otherwise.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use crate::format::{RECORD_HEADER_SIZE, body_crc, read_u32};
use crate::segment::{Segment, memory_size};
use crate::storage::{self, IoFailure};
use crate::{BodyLocation, LogPosition};

/// The checksum lies right before the body: one read gets both.
pub(super) const CRC_SIZE: u64 = 4;

/// A body that can be read from any thread. It keeps its file from being reused.
#[derive(Clone)]
pub struct Body(pub(super) Place);

#[derive(Clone)]
pub(super) enum Place {
    Memory(Bytes),
    File {
        segment: Arc<Segment>,
        location: BodyLocation,
    },
    /// No segment holds it.
    Gone(BodyLocation),
    /// A log without files looks it up when it is read.
    Kept {
        location: BodyLocation,
        find: Arc<dyn Fn() -> Option<Bytes> + Send + Sync>,
    },
}

impl Body {
    /// A body that no segment holds: [`SegmentLog::body`](crate::SegmentLog::body) has none. Reading it fails.
    pub fn gone(location: BodyLocation) -> Self {
        Self(Place::Gone(location))
    }

    /// A body that is in memory.
    pub fn of(bytes: Bytes) -> Self {
        Self(Place::Memory(bytes))
    }

    /// A body that a log of another crate finds when it is read. What is not found is gone.
    pub fn kept(
        location: BodyLocation,
        find: impl Fn() -> Option<Bytes> + Send + Sync + 'static,
    ) -> Self {
        Self(Place::Kept {
            location,
            find: Arc::new(find),
        })
    }

    pub(crate) fn in_segment(segment: Arc<Segment>, location: BodyLocation) -> Option<Self> {
        let offset = body_offset(&segment, location);
        let end = offset + u64::from(location.length);
        (end <= segment.header.capacity_bytes).then_some(Self(Place::File { segment, location }))
    }

    /// The bytes, if they are in memory: without a copy and without I/O.
    pub fn in_memory(&self) -> Option<Bytes> {
        match &self.0 {
            Place::Memory(bytes) => Some(bytes.clone()),
            Place::File { .. } | Place::Gone(_) | Place::Kept { .. } => None,
        }
    }

    /// Whether the bytes must be read from a file, which may fail.
    pub fn is_in_file(&self) -> bool {
        !matches!(self.0, Place::Memory(_))
    }

    /// Size of the body.
    pub fn len_bytes(&self) -> u64 {
        match &self.0 {
            Place::Memory(bytes) => bytes.len() as u64,
            Place::File { location, .. } | Place::Gone(location) | Place::Kept { location, .. } => {
                u64::from(location.length)
            }
        }
    }

    /// The bytes. Blocks if they must be read from a file, and then checks them.
    pub fn read(&self) -> Result<Bytes, BodyError> {
        match &self.0 {
            Place::Memory(bytes) => Ok(bytes.clone()),
            Place::File { segment, location } => read(segment, *location),
            Place::Gone(location) => Err(BodyError::Gone(location.record)),
            Place::Kept { location, find } => find().ok_or(BodyError::Gone(location.record)),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Memory(bytes) => write!(f, "Body({} bytes in memory)", bytes.len()),
            Place::File { segment, location } => {
                write!(f, "Body({location:?} in {})", segment.name)
            }
            Place::Gone(location) => write!(f, "Body({location:?} in no segment)"),
            Place::Kept { location, .. } => write!(f, "Body({location:?} in no file)"),
        }
    }
}

/// Where its bytes begin.
pub(super) fn body_offset(segment: &Segment, location: BodyLocation) -> u64 {
    segment.offset_of(location.record) + RECORD_HEADER_SIZE as u64 + u64::from(location.offset)
}

fn read(segment: &Segment, location: BodyLocation) -> Result<Bytes, BodyError> {
    let offset = body_offset(segment, location);
    let mut buffer = vec![0; memory_size(CRC_SIZE + u64::from(location.length))];
    let from = offset - CRC_SIZE;
    let count = storage::read_at(&*segment.file, &segment.name, &mut buffer, from)?;
    let is_whole = count == buffer.len() && has_its_checksum(&buffer, location);
    if !is_whole {
        return Err(BodyError::Damaged {
            file: segment.name.clone(),
            offset,
        });
    }
    Ok(Bytes::from(buffer).slice(4..))
}

/// Whether a body is what was written, from its checksum on.
pub(super) fn has_its_checksum(framed: &[u8], location: BodyLocation) -> bool {
    read_u32(framed, 0) == body_crc(location.record, location.offset, &framed[4..])
}

/// Why a body could not be read.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The storage failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
    /// No segment holds the body: the one that did was lost.
    #[error("no segment of the log holds the body at log position {0}")]
    Gone(LogPosition),
    /// The bytes in the file are not the bytes that were written.
    #[error("the body in {file} at byte {offset} does not match its checksum")]
    Damaged {
        /// The segment's file.
        file: String,
        /// Where in the file the body begins.
        offset: u64,
    },
}

/// The most recent batches, in the buffers they were written from.
#[derive(Debug)]
pub(crate) struct RecentBatches {
    batches: VecDeque<(LogPosition, Bytes, usize)>,
    held_bytes: usize,
    held_bytes_max: usize,
}

impl RecentBatches {
    pub(crate) fn new(held_bytes_max: usize) -> Self {
        Self {
            batches: VecDeque::new(),
            held_bytes: 0,
            held_bytes_max,
        }
    }

    /// Keeps a batch. `held_bytes` is the size of its buffer, which may be more than its contents.
    pub(crate) fn push(&mut self, position: LogPosition, record: Bytes, held_bytes: usize) {
        self.held_bytes += held_bytes;
        self.batches.push_back((position, record, held_bytes));
    }

    /// Drops the oldest batches above the bound. Batches that may not be in a file yet stay.
    pub(crate) fn trim(&mut self, durable: LogPosition) {
        while self.held_bytes > self.held_bytes_max {
            match self.batches.front() {
                Some((position, ..)) if *position < durable => {}
                _ => return,
            }
            if let Some((_, _, held)) = self.batches.pop_front() {
                self.held_bytes -= held;
            }
        }
    }

    pub(crate) fn body(&self, location: BodyLocation) -> Option<Body> {
        let index = self
            .batches
            .binary_search_by_key(&location.record, |(position, ..)| *position)
            .ok()?;
        let (_, record, _) = &self.batches[index];
        let begin = RECORD_HEADER_SIZE + location.offset as usize;
        let end = begin + location.length as usize;
        (end <= record.len()).then(|| Body(Place::Memory(record.slice(begin..end))))
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}
