//! The bytes of a segment: its header, its records and the names of files. Pure, no I/O.
//!
//! `FORMAT.md` defines every byte; it changes together with this file. Decoding never panics, and uses no
//! length before the header's own check has passed.

use kew_planted::{Bug, is_planted};
use thiserror::Error;

use crate::{Epoch, LogPosition};

/// The newest version of the format that this code reads, and the one that it writes.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The size of the header at a segment's start. Records begin after it.
pub(crate) const SEGMENT_HEADER_BLOCK_SIZE: u64 = 4096;
/// The part of the header block in use, including the checksum.
pub(crate) const SEGMENT_HEADER_SIZE: usize = 68;
/// The size of the header before each record's payload.
pub(crate) const RECORD_HEADER_SIZE: usize = 24;
/// Records begin at multiples of this.
pub(crate) const RECORD_ALIGNMENT: u64 = 8;
/// The unit that a disk loses at once.
pub(crate) const PAGE_SIZE: u64 = 4096;
/// The smallest mark: a header and nothing more.
pub(crate) const MARK_RECORD_SIZE: u64 = RECORD_HEADER_SIZE as u64;
/// A roll in full: a header and the number of the next segment.
pub(crate) const ROLL_RECORD_SIZE: u64 = RECORD_HEADER_SIZE as u64 + 8;

const SEGMENT_MAGIC: [u8; 8] = *b"KEWSEGM\0";
/// The low byte of the format version.
const RECORD_VERSION: u8 = FORMAT_VERSION.to_le_bytes()[0];

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Entries: events and bodies.
    Batch,
    /// A mark: everything before it is durable.
    Mark,
    /// The last record of a full segment. The log continues in the next one.
    Roll,
}

impl RecordKind {
    const fn to_byte(self) -> u8 {
        match self {
            Self::Batch => 1,
            Self::Mark => 2,
            Self::Roll => 3,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Batch),
            2 => Some(Self::Mark),
            3 => Some(Self::Roll),
            _ => None,
        }
    }
}

/// Why bytes are not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum FormatError {
    /// The bytes are damaged, or were never written.
    #[error("{0}")]
    Damaged(&'static str),
    /// The bytes are whole, but a newer Kew wrote them.
    #[error("format version {0} is newer than {FORMAT_VERSION}")]
    Newer(u32),
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) partition: u32,
    pub(crate) number: u64,
    pub(crate) epoch: Epoch,
    /// The position of the file's first byte.
    pub(crate) base: LogPosition,
    pub(crate) capacity_bytes: u64,
    /// Random, so that no message body can contain a valid record.
    pub(crate) salt: u64,
    /// Everything before this position was on stable storage when the file got its name.
    pub(crate) durable: LogPosition,
}

impl SegmentHeader {
    /// Position of the first record.
    pub(crate) const fn first(&self) -> LogPosition {
        self.base.plus(SEGMENT_HEADER_BLOCK_SIZE)
    }

    /// The position after the last byte of the file.
    pub(crate) const fn limit(&self) -> LogPosition {
        self.base.plus(self.capacity_bytes)
    }

    pub(crate) fn seal(&self) -> Seal {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.epoch.as_u64().to_le_bytes());
        bytes[8..].copy_from_slice(&self.salt.to_le_bytes());
        Seal(crc32c::crc32c(&bytes))
    }

    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_SIZE] {
        let mut bytes = [0; SEGMENT_HEADER_SIZE];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.partition.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.as_u64().to_le_bytes());
        bytes[32..40].copy_from_slice(&self.base.as_u64().to_le_bytes());
        bytes[40..48].copy_from_slice(&self.capacity_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.salt.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.durable.as_u64().to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..64]);
        bytes[64..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER_SIZE]) -> Result<Self, FormatError> {
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(FormatError::Damaged("the segment header has no magic"));
        }
        if read_u32(bytes, 64) != crc32c::crc32c(&bytes[..64]) {
            return Err(FormatError::Damaged(
                "the segment header does not match its checksum",
            ));
        }
        check_version(read_u32(bytes, 8))?;
        let header = Self {
            partition: read_u32(bytes, 12),
            number: read_u64(bytes, 16),
            epoch: Epoch::new(read_u64(bytes, 24)),
            base: LogPosition::new(read_u64(bytes, 32)),
            capacity_bytes: read_u64(bytes, 40),
            salt: read_u64(bytes, 48),
            durable: LogPosition::new(read_u64(bytes, 56)),
        };
        header.check()?;
        Ok(header)
    }

    /// Refuses values that no Kew writes, so that arithmetic on positions, numbers and epochs cannot
    /// overflow.
    pub(crate) fn check(&self) -> Result<(), FormatError> {
        let highest = 1 << 62;
        let sane = self.number < highest
            && self.epoch.as_u64() < highest
            && self.base.as_u64() < highest
            && self.base.as_u64().is_multiple_of(RECORD_ALIGNMENT)
            && self.capacity_bytes < highest
            && self.capacity_bytes > SEGMENT_HEADER_BLOCK_SIZE
            && self.capacity_bytes.is_multiple_of(RECORD_ALIGNMENT)
            && self.durable <= self.limit();
        if sane {
            Ok(())
        } else {
            Err(FormatError::Damaged("the segment header makes no sense"))
        }
    }
}

/// Accepts the versions that this code reads.
pub(crate) fn check_version(version: u32) -> Result<(), FormatError> {
    match version {
        FORMAT_VERSION => Ok(()),
        0 => Err(FormatError::Damaged("there is no format version 0")),
        newer => Err(FormatError::Newer(newer)),
    }
}

/// A segment's epoch and salt, folded: the start value of every checksum in it.
///
/// Data written to another segment, or to this file before it was recycled, has another seal and is not
/// valid here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal(u32);

impl Seal {
    fn at(self, position: LogPosition) -> u32 {
        if is_planted(Bug::OldRecordsTrusted) {
            return 0;
        }
        crc32c::crc32c_append(self.0, &position.as_u64().to_le_bytes())
    }
}

/// The header before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) crc: u32,
    pub(crate) payload_length: u32,
    /// The checksum of the record before this one.
    pub(crate) previous: u32,
    pub(crate) kind: RecordKind,
    pub(crate) version: u8,
    /// Everything before this position was on stable storage before this record was written.
    pub(crate) durable: LogPosition,
}

impl RecordHeader {
    /// How much of the log the record takes, padding included.
    pub(crate) fn record_size_bytes(&self) -> u64 {
        record_size_bytes(u64::from(self.payload_length))
    }

    /// Reads a header and accepts it only if its short check holds.
    ///
    /// The check makes the search for records in damaged space fast, even if message bodies are full of
    /// look-alikes: without the salt, no sender can write one that passes.
    pub(crate) fn decode(
        bytes: &[u8; RECORD_HEADER_SIZE],
        seal: Seal,
        position: LogPosition,
    ) -> Result<Self, FormatError> {
        let Some(kind) = RecordKind::from_byte(bytes[12]) else {
            return Err(FormatError::Damaged("no record begins here"));
        };
        if read_u16(bytes, 14) != header_check(bytes, seal, position) {
            return Err(FormatError::Damaged(
                "the record header does not match its check",
            ));
        }
        Ok(Self {
            crc: read_u32(bytes, 0),
            payload_length: read_u32(bytes, 4),
            previous: read_u32(bytes, 8),
            kind,
            version: bytes[13],
            durable: LogPosition::new(read_u64(bytes, 16)),
        })
    }

    /// Refuses a record of a newer version, once its checksum has shown that it is whole.
    pub(crate) fn check_version(&self) -> Result<(), FormatError> {
        check_version(u32::from(self.version))
    }

    /// Whether bytes could begin a record at all. Cheap, for the search over a whole segment.
    pub(crate) fn is_possible(kind: u8, version: u8) -> bool {
        RecordKind::from_byte(kind).is_some() && version == RECORD_VERSION
    }
}

/// How much of the log a record with such a payload takes, padding included.
pub(crate) const fn record_size_bytes(payload_length: u64) -> u64 {
    (RECORD_HEADER_SIZE as u64 + payload_length).next_multiple_of(RECORD_ALIGNMENT)
}

/// Completes a record in place: `buffer` holds room for the header, then the payload.
///
/// Returns the record's checksum, which the next record repeats.
pub(crate) fn seal_record(
    buffer: &mut Vec<u8>,
    seal: Seal,
    position: LogPosition,
    kind: RecordKind,
    previous: u32,
    durable: LogPosition,
) -> u32 {
    let payload_length = u32::try_from(buffer.len() - RECORD_HEADER_SIZE)
        .expect("a batch is bounded by its segment, far below 4 GiB");
    buffer[4..8].copy_from_slice(&payload_length.to_le_bytes());
    buffer[8..12].copy_from_slice(&previous.to_le_bytes());
    buffer[12] = kind.to_byte();
    buffer[13] = RECORD_VERSION;
    buffer[16..24].copy_from_slice(&durable.as_u64().to_le_bytes());
    let check = header_check(buffer, seal, position);
    buffer[14..16].copy_from_slice(&check.to_le_bytes());
    let crc = crc32c::crc32c_append(seal.at(position), &buffer[4..]);
    buffer[..4].copy_from_slice(&crc.to_le_bytes());
    let padded = buffer.len().next_multiple_of(8);
    buffer.resize(padded, 0);
    crc
}

/// The checksum that a record must have, from its header as it was read and its payload.
pub(crate) fn record_crc(
    header: &[u8; RECORD_HEADER_SIZE],
    payload: &[u8],
    seal: Seal,
    position: LogPosition,
) -> u32 {
    let crc = crc32c::crc32c_append(seal.at(position), &header[4..]);
    crc32c::crc32c_append(crc, payload)
}

/// Sixteen bits over all of the header but its two checks. `bytes` holds at least a header.
fn header_check(bytes: &[u8], seal: Seal, position: LogPosition) -> u16 {
    let crc = crc32c::crc32c_append(seal.at(position), &bytes[4..14]);
    let crc = crc32c::crc32c_append(crc, &bytes[16..RECORD_HEADER_SIZE]);
    let [low, high, ..] = crc.to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// The checksum before a body. It covers the body's place, so that a stale or misdirected block is noticed
/// even if it holds a body that was once whole.
pub(crate) fn body_crc(record: LogPosition, offset: u32, body: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&record.as_u64().to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &offset.to_le_bytes());
    crc32c::crc32c_append(crc, body)
}

pub(crate) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from(read_u32(bytes, at)) | u64::from(read_u32(bytes, at + 4)) << 32
}

/// The names of files in a log's directory.
pub(crate) mod names {
    /// The meaning of a name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Name {
        Segment(u64),
        /// A snapshot of the state at this position.
        Snapshot(u64),
        /// Unfinished, or waiting to be reused: nothing depends on it.
        Temporary,
        /// Space reserved for a full disk.
        Ballast,
        /// A file that a repair set aside.
        SetAside,
        Foreign,
    }

    pub(crate) fn segment(number: u64) -> String {
        format!("segment-{number:020}")
    }

    pub(crate) fn segment_in_preparation(number: u64) -> String {
        format!("prepare-segment-{number:020}")
    }

    pub(crate) fn recycled(number: u64) -> String {
        format!("recycled-{number:020}")
    }

    pub(crate) fn snapshot(position: u64) -> String {
        format!("snapshot-{position:020}")
    }

    pub(crate) fn snapshot_in_preparation(position: u64) -> String {
        format!("prepare-snapshot-{position:020}")
    }

    /// The name of a file that the repair of this number sets aside.
    pub(crate) fn set_aside(repair: u64, name: &str) -> String {
        format!("damaged-{repair}-{name}")
    }

    /// The number of the repair that set a file aside.
    pub(crate) fn set_aside_number(name: &str) -> Option<u64> {
        let (number, name) = name.strip_prefix("damaged-")?.split_once('-')?;
        let number = number.parse().ok()?;
        let is_ours = name.starts_with("segment-") || name.starts_with("snapshot-");
        is_ours.then_some(number)
    }

    pub(crate) fn parse(name: &str) -> Name {
        if name.starts_with("prepare-") || name.starts_with("recycled-") {
            return Name::Temporary;
        }
        if name == crate::ballast::NAME {
            return Name::Ballast;
        }
        if set_aside_number(name).is_some() {
            return Name::SetAside;
        }
        let parsed = name.split_once('-').and_then(|(kind, digits)| {
            let number = digits.parse().ok()?;
            match kind {
                "segment" => Some(Name::Segment(number)),
                "snapshot" => Some(Name::Snapshot(number)),
                _ => None,
            }
        });
        match parsed {
            Some(Name::Segment(number)) if segment(number) == name => Name::Segment(number),
            Some(Name::Snapshot(position)) if snapshot(position) == name => {
                Name::Snapshot(position)
            }
            _ => Name::Foreign,
        }
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
