//! Reads a log of format 1, and changes nothing. The start that brings a directory to the present format needs
//! it. Frozen, and removed before 1.0.
//!
//! The rules are those that format 1 had, in FORMAT.md of that version: the newest whole snapshot, then the
//! chain of records, whose end is judged by what is proven to have been durable. Entries of batches are the
//! same in both formats.

mod format;
mod records;
mod snapshot;
mod survey;
mod walk;

use bytes::Bytes;

use crate::format::names::{self, Name};
use crate::format::{FormatError, body_crc, read_u32};
use crate::recovery::OpenError;
use crate::replay::Replay;
use crate::segment::memory_size;
use crate::storage::{self, IoFailure, Storage};
use crate::{BodyLocation, LogPosition};

use self::format::{FORMAT_VERSION, RECORD_HEADER_SIZE, SEGMENT_HEADER_BLOCK_SIZE};
use self::snapshot::ReadError;
use self::survey::{Segment, Survey};
use self::walk::Start;

/// The checksum lies right before the body.
const CRC_SIZE: u64 = 4;

/// A log of format 1 that was replayed.
pub struct FirstFormatLog {
    chain: Vec<Segment>,
    end: LogPosition,
}

/// A body of such a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstFormatBody {
    /// As it was written.
    Whole(Bytes),
    /// It does not match its checksum, or cannot be read. What lies in its place, as far as that is known, then zeros.
    Damaged(Bytes),
}

impl FirstFormatLog {
    /// Whether the files of a storage are those of such a log.
    pub fn is_in(storage: &dyn Storage) -> Result<bool, OpenError> {
        for name in storage::list(storage)? {
            if Self::has(storage, &name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a file is a segment or a snapshot of such a log.
    pub(crate) fn has(storage: &dyn Storage, name: &str) -> Result<bool, IoFailure> {
        let (Name::Segment(_) | Name::Snapshot(_)) = names::parse(name) else {
            return Ok(false);
        };
        let file = storage::open(storage, name)?;
        // Magic and version have their places in all formats.
        let mut bytes = [0; 12];
        storage::read_at(&*file, name, &mut bytes, 0)?;
        Ok(bytes.starts_with(b"KEWS") && read_u32(&bytes, 8) == FORMAT_VERSION)
    }

    /// Replays the log. Fails where a start of the version that wrote it was refused.
    pub fn read(storage: &dyn Storage, replay: &mut dyn Replay) -> Result<Self, OpenError> {
        let survey = Survey::of(storage)?;
        let start = load_snapshot(storage, &survey, replay)?;
        let is_empty = survey.chain.is_empty() && survey.snapshots.is_empty();
        let end = match is_empty {
            true => start.position,
            false => walk::walk(&survey.chain, &start, replay)?,
        };
        let chain = survey.chain;
        Ok(Self { chain, end })
    }

    /// Where the log ends.
    pub fn end(&self) -> LogPosition {
        self.end
    }

    /// Reads a body. Fails if no segment has it, or if a read fails that says nothing about what is stored there.
    pub fn body(&self, location: BodyLocation) -> Result<FirstFormatBody, OpenError> {
        let after = self
            .chain
            .partition_point(|segment| segment.first() <= location.record);
        let segment = after.checked_sub(1).map(|index| &self.chain[index]);
        let Some(segment) = segment.filter(|it| location.record < it.header.limit()) else {
            let first = self.chain.first();
            let file = first.map_or_else(String::new, |segment| segment.name.clone());
            let what = format!("no segment holds log position {}", location.record);
            return Err(OpenError::corrupt(&file, 0, what));
        };
        match read_body(segment, location) {
            // The version that wrote it did not need it for a start either.
            Err(failure) if failure.is_bad_sector() => {
                let size_bytes = memory_size(u64::from(location.length));
                Ok(FirstFormatBody::Damaged(vec![0; size_bytes].into()))
            }
            read => Ok(read?),
        }
    }
}

fn read_body(segment: &Segment, location: BodyLocation) -> Result<FirstFormatBody, IoFailure> {
    let offset = segment.offset_of(location.record) + RECORD_HEADER_SIZE as u64;
    let from = offset + u64::from(location.offset) - CRC_SIZE;
    let mut framed = vec![0; memory_size(CRC_SIZE + u64::from(location.length))];
    storage::read_at(&*segment.file, &segment.name, &mut framed, from)?;
    let is_whole = read_u32(&framed, 0) == body_crc(location.record, location.offset, &framed[4..]);
    let body = Bytes::from(framed).slice(4..);
    Ok(match is_whole {
        true => FirstFormatBody::Whole(body),
        false => FirstFormatBody::Damaged(body),
    })
}

fn load_snapshot(
    storage: &dyn Storage,
    survey: &Survey,
    replay: &mut dyn Replay,
) -> Result<Start, OpenError> {
    let mut damaged = Vec::new();
    for position in survey.snapshots.iter().rev().copied() {
        replay.begin();
        match snapshot::read(storage, position, replay) {
            Ok(header) => {
                return Ok(Start {
                    position,
                    chain: header.chain,
                    durable: survey.durable,
                    begins_anew: header.begins_anew,
                });
            }
            Err(ReadError::Damaged(error)) => damaged.push(error),
            Err(ReadError::Other(error)) => return Err(error),
        }
    }
    replay.begin();
    // With a single snapshot nothing was retired yet, so the log exists from its beginning.
    let first = survey.chain.first();
    let is_complete = first.is_some_and(|it| it.header.base == LogPosition::default());
    match damaged.len() {
        0 => {}
        1 if is_complete => {}
        _ => return Err(damaged.remove(0)),
    }
    Ok(Start {
        position: LogPosition::new(SEGMENT_HEADER_BLOCK_SIZE),
        chain: 0,
        durable: survey.durable,
        begins_anew: false,
    })
}

fn format_error(file: &str, offset: u64, error: FormatError) -> OpenError {
    match error {
        FormatError::Damaged(what) => OpenError::corrupt(file, offset, what),
        FormatError::Newer(found) => OpenError::NewerFormat {
            file: file.to_owned(),
            found,
            supported: 1,
        },
    }
}
