//! The bytes of a segment: its header, its records and the names of files. Pure, no I/O.
//!
//! `FORMAT.md` defines every byte; it changes together with this file. Decoding never panics, and uses no
//! length before the header's own check has passed.

use kew_planted::{Bug, is_planted};
use thiserror::Error;

use crate::{Epoch, LogId, LogPosition};

/// The newest version of the format that this code reads, and the one that it writes.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// The size of the header at a segment's start. Records begin after it.
pub(crate) const SEGMENT_HEADER_BLOCK_SIZE: u64 = 4096;
/// The part of the header block in use, including the checksums.
pub(crate) const SEGMENT_HEADER_SIZE: usize = 88;
/// The size of the header before each record's payload.
pub(crate) const RECORD_HEADER_SIZE: usize = 48;
/// Records begin at multiples of this.
pub(crate) const RECORD_ALIGNMENT: u64 = 8;
/// The smallest batch: a header and nothing more.
pub(crate) const BEAT_RECORD_SIZE: u64 = RECORD_HEADER_SIZE as u64;
/// A roll in full: a header and the number of the next segment.
pub(crate) const ROLL_RECORD_SIZE: u64 = RECORD_HEADER_SIZE as u64 + 8;
/// The position of a log's first record. So 0 is before everything.
pub(crate) const FIRST_POSITION: LogPosition = LogPosition::new(4096);

const SEGMENT_MAGIC: [u8; 8] = *b"KEWSEGM\0";
/// The first position of a segment that was made before it was known.
const UNKNOWN: u64 = u64::MAX;
/// The low byte of the format version.
const RECORD_VERSION: u8 = FORMAT_VERSION.to_le_bytes()[0];
/// Epochs in records have six bytes.
const EPOCH_SIZE: usize = 6;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Entries: events and bodies. It has positions, and is equal in all copies of the log.
    Batch,
    /// The last record of a full segment. The log continues in the next one. It has no position of its own.
    Roll,
}

impl RecordKind {
    const fn to_byte(self) -> u8 {
        match self {
            Self::Batch => 1,
            Self::Roll => 3,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Batch),
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
    pub(crate) log: LogId,
    pub(crate) number: u64,
    pub(crate) epoch: Epoch,
    /// The position of the first record. `None` in a segment that was made before that was known: then its
    /// records say it.
    pub(crate) first: Option<LogPosition>,
    pub(crate) capacity_bytes: u64,
    /// Random, so that no message body can contain a valid record.
    pub(crate) salt: u64,
    /// Everything before this position was on stable storage when the file got its name.
    pub(crate) durable: LogPosition,
}

impl SegmentHeader {
    pub(crate) fn seal(&self) -> Seal {
        if is_planted(Bug::OldRecordsTrusted) {
            return Seal(0);
        }
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.epoch.as_u64().to_le_bytes());
        bytes[8..].copy_from_slice(&self.salt.to_le_bytes());
        Seal(crc32c::crc32c(&bytes))
    }

    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_SIZE] {
        let first = self.first.map_or(UNKNOWN, LogPosition::as_u64);
        let mut bytes = [0; SEGMENT_HEADER_SIZE];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.log.partition.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.as_u64().to_le_bytes());
        bytes[32..40].copy_from_slice(&first.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.capacity_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.salt.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.durable.as_u64().to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..64]);
        bytes[64..68].copy_from_slice(&crc.to_le_bytes());
        bytes[68..84].copy_from_slice(&self.log.cluster.to_le_bytes());
        // It continues the first one, and does not cover it: a checksum over bytes and their checksum is a constant.
        let crc = crc32c::crc32c_append(crc, &bytes[68..84]);
        bytes[84..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER_SIZE]) -> Result<Self, FormatError> {
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(FormatError::Damaged("the segment header has no magic"));
        }
        let damaged = FormatError::Damaged("the segment header does not match its checksum");
        if read_u32(bytes, 64) != crc32c::crc32c(&bytes[..64]) {
            return Err(damaged);
        }
        check_version(read_u32(bytes, 8))?;
        let crc = crc32c::crc32c_append(read_u32(bytes, 64), &bytes[68..84]);
        if read_u32(bytes, 84) != crc {
            return Err(damaged);
        }
        let header = Self::read(bytes);
        header.check()?;
        Ok(header)
    }

    /// The fields, which may make no sense.
    pub(crate) fn read(bytes: &[u8; SEGMENT_HEADER_SIZE]) -> Self {
        let first = read_u64(bytes, 32);
        Self {
            log: LogId {
                cluster: read_u128(bytes, 68),
                partition: read_u32(bytes, 12),
            },
            number: read_u64(bytes, 16),
            epoch: Epoch::new(read_u64(bytes, 24)),
            first: (first != UNKNOWN).then_some(LogPosition::new(first)),
            capacity_bytes: read_u64(bytes, 40),
            salt: read_u64(bytes, 48),
            durable: LogPosition::new(read_u64(bytes, 56)),
        }
    }

    /// Refuses values that no Kew writes, so that arithmetic on positions, numbers and epochs cannot
    /// overflow.
    pub(crate) fn check(&self) -> Result<(), FormatError> {
        let highest = 1 << 62;
        let is_position = |position: LogPosition| {
            position.as_u64() < highest && position.as_u64().is_multiple_of(RECORD_ALIGNMENT)
        };
        let sane = self.number < highest
            && self.epoch < Epoch::LIMIT
            && self.first.is_none_or(is_position)
            && self.capacity_bytes < highest
            && self.capacity_bytes > SEGMENT_HEADER_BLOCK_SIZE
            && self.capacity_bytes.is_multiple_of(RECORD_ALIGNMENT)
            && is_position(self.durable);
        if sane {
            Ok(())
        } else {
            Err(FormatError::Damaged("the segment header makes no sense"))
        }
    }
}

/// Where a segment that was made before its first position was known says it, once it has a record. In a sector of
/// its own, so that a torn write leaves the header.
pub(crate) const BEGINNING_OFFSET: u64 = 512;
pub(crate) const BEGINNING_SIZE: usize = 12;

/// The bytes at [`BEGINNING_OFFSET`].
pub(crate) fn encode_beginning(seal: Seal, first: LogPosition) -> [u8; BEGINNING_SIZE] {
    let mut bytes = [0; BEGINNING_SIZE];
    bytes[..8].copy_from_slice(&first.as_u64().to_le_bytes());
    let crc = crc32c::crc32c_append(seal.0, &bytes[..8]);
    bytes[8..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The first position in these bytes, if they are whole.
pub(crate) fn decode_beginning(seal: Seal, bytes: &[u8; BEGINNING_SIZE]) -> Option<LogPosition> {
    let first = LogPosition::new(read_u64(bytes, 0));
    let is_whole = *bytes == encode_beginning(seal, first);
    (is_whole && first.as_u64() < 1 << 62).then_some(first)
}

/// Accepts the versions that this code reads.
pub(crate) fn check_version(version: u32) -> Result<(), FormatError> {
    match version {
        FORMAT_VERSION => Ok(()),
        0 => Err(FormatError::Damaged("there is no format version 0")),
        // Its files are read by `v1` alone, and never lie among those of this format.
        1 => Err(FormatError::Damaged("it has format version 1")),
        newer => Err(FormatError::Newer(newer)),
    }
}

/// A segment's epoch and salt, folded: the start value of every local checksum in it.
///
/// Data written to another segment, or to this file before it was recycled, has another seal and is not
/// valid here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal(u32);

impl Seal {
    /// Of a record that lies in no segment.
    pub(crate) const NONE: Self = Self(0);
}

/// The header before a payload.
///
/// Its *content* checksum covers what is equal in all copies of a log: the log's identity, this header without
/// what is local, and the payload. The *local* one covers the whole header under the segment's seal, so a
/// header that validates tells the truth, and a payload is whole if the content checksum matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// The content checksum.
    pub(crate) content: u32,
    /// The content checksum of the batch before this record.
    pub(crate) previous: u32,
    pub(crate) payload_length: u32,
    /// Of a roll, where the next batch begins.
    pub(crate) position: LogPosition,
    /// The partition's time when it was appended, in milliseconds.
    pub(crate) time_ms: u64,
    /// The epoch that appended it.
    pub(crate) epoch: Epoch,
    pub(crate) kind: RecordKind,
    pub(crate) version: u8,
    /// Everything before this position was on stable storage before this record was written. Local.
    pub(crate) durable: LogPosition,
}

/// The part of a record's header that the content checksum covers.
const CONTENT: std::ops::Range<usize> = 8..40;

impl RecordHeader {
    /// How much of the file the record takes, padding included.
    pub(crate) fn record_size_bytes(&self) -> u64 {
        record_size_bytes(u64::from(self.payload_length))
    }

    /// Where the next batch begins.
    pub(crate) fn end(&self) -> LogPosition {
        match self.kind {
            RecordKind::Batch => self.position.plus(self.record_size_bytes()),
            RecordKind::Roll => self.position,
        }
    }

    /// Reads a header and accepts it only if its local checksum holds.
    ///
    /// Without the salt, no sender of a message can write one that does.
    pub(crate) fn decode(
        bytes: &[u8; RECORD_HEADER_SIZE],
        seal: Seal,
    ) -> Result<Self, FormatError> {
        let Some(kind) = RecordKind::from_byte(bytes[38]) else {
            return Err(FormatError::Damaged("no record begins here"));
        };
        let header = Self {
            content: read_u32(bytes, 4),
            previous: read_u32(bytes, 8),
            payload_length: read_u32(bytes, 12),
            position: LogPosition::new(read_u64(bytes, 16)),
            time_ms: read_u64(bytes, 24),
            epoch: Epoch::new(read_u64(bytes, 32) & ((1 << (8 * EPOCH_SIZE)) - 1)),
            kind,
            version: bytes[39],
            durable: LogPosition::new(read_u64(bytes, 40)),
        };
        // Arithmetic on positions must not overflow, whatever the bytes are.
        if read_u32(bytes, 0) != local_crc(bytes, seal) || header.position.as_u64() >= 1 << 62 {
            return Err(FormatError::Damaged(
                "the record header does not match its checksum",
            ));
        }
        Ok(header)
    }

    /// Refuses a record of a newer version, once its checksum has shown that it is whole.
    pub(crate) fn check_version(&self) -> Result<(), FormatError> {
        check_version(u32::from(self.version))
    }

    /// Whether bytes could begin a record at all. Cheap, for the search over a whole segment.
    pub(crate) fn is_possible(bytes: &[u8]) -> bool {
        bytes[39] == RECORD_VERSION && RecordKind::from_byte(bytes[38]).is_some()
    }
}

/// How much of a file a record with such a payload takes, padding included.
pub(crate) const fn record_size_bytes(payload_length: u64) -> u64 {
    (RECORD_HEADER_SIZE as u64 + payload_length).next_multiple_of(RECORD_ALIGNMENT)
}

/// What a record is sealed with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealing {
    /// Of the log: [`LogId::chain_start`].
    pub(crate) chain_start: u32,
    pub(crate) seal: Seal,
    pub(crate) kind: RecordKind,
    pub(crate) previous: u32,
    pub(crate) position: LogPosition,
    pub(crate) time_ms: u64,
    pub(crate) epoch: Epoch,
    pub(crate) durable: LogPosition,
}

/// Completes a record in place: `buffer` holds room for the header, then the payload.
///
/// Returns the record's content checksum, which the next record repeats.
pub(crate) fn seal_record(buffer: &mut Vec<u8>, sealing: Sealing) -> u32 {
    let (header, payload) = buffer
        .split_first_chunk_mut::<RECORD_HEADER_SIZE>()
        .expect("a buffer has room for the header");
    let payload_length =
        u32::try_from(payload.len()).expect("a batch is bounded by its segment, far below 4 GiB");
    header[8..12].copy_from_slice(&sealing.previous.to_le_bytes());
    header[12..16].copy_from_slice(&payload_length.to_le_bytes());
    header[16..24].copy_from_slice(&sealing.position.as_u64().to_le_bytes());
    header[24..32].copy_from_slice(&sealing.time_ms.to_le_bytes());
    let epoch = sealing.epoch.as_u64().to_le_bytes();
    header[32..32 + EPOCH_SIZE].copy_from_slice(&epoch[..EPOCH_SIZE]);
    header[38] = sealing.kind.to_byte();
    header[39] = RECORD_VERSION;
    let content = content_crc(header, payload, sealing.chain_start);
    header[4..8].copy_from_slice(&content.to_le_bytes());
    seal_again(header, sealing.seal, sealing.durable);
    let padded = buffer.len().next_multiple_of(8);
    buffer.resize(padded, 0);
    content
}

/// Seals the header of a record for another segment, or with another durable position. Its content stays.
pub(crate) fn seal_again(header: &mut [u8; RECORD_HEADER_SIZE], seal: Seal, durable: LogPosition) {
    header[40..].copy_from_slice(&durable.as_u64().to_le_bytes());
    let local = local_crc(header, seal);
    header[..4].copy_from_slice(&local.to_le_bytes());
}

/// The content checksum that a record must have. It reads the payload once, and local checksums do not read it.
pub(crate) fn content_crc(
    header: &[u8; RECORD_HEADER_SIZE],
    payload: &[u8],
    chain_start: u32,
) -> u32 {
    let crc = crc32c::crc32c_append(chain_start, &header[CONTENT]);
    crc32c::crc32c_append(crc, payload)
}

/// The local checksum that a header must have.
pub(crate) fn local_crc(header: &[u8; RECORD_HEADER_SIZE], seal: Seal) -> u32 {
    crc32c::crc32c_append(seal.0, &header[4..])
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

pub(crate) fn read_u128(bytes: &[u8], at: usize) -> u128 {
    u128::from(read_u64(bytes, at)) | u128::from(read_u64(bytes, at + 8)) << 64
}

/// The names of files in a log's directory.
pub(crate) mod names {
    /// The meaning of a name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Name {
        Segment(u64),
        /// A snapshot of the state at this position.
        Snapshot(u64),
        /// A file of pages, by its number: the two of a pair have two numbers that follow each other.
        Pages(u64),
        /// Unfinished, or waiting to be reused: nothing depends on it.
        Temporary,
        /// Space reserved for a full disk.
        Ballast,
        /// What says up to where the log was durable.
        Proof,
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

    pub(crate) fn pages(number: u64) -> String {
        format!("pages-{number:020}")
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
        let kinds = ["segment-", "snapshot-", "pages-"];
        let is_ours = kinds.iter().any(|kind| name.starts_with(kind));
        is_ours.then_some(number)
    }

    pub(crate) fn parse(name: &str) -> Name {
        if name.starts_with("prepare-") || name.starts_with("recycled-") {
            return Name::Temporary;
        }
        if name == crate::ballast::NAME {
            return Name::Ballast;
        }
        if name == crate::proof::NAME {
            return Name::Proof;
        }
        if set_aside_number(name).is_some() {
            return Name::SetAside;
        }
        let parsed = name.split_once('-').and_then(|(kind, digits)| {
            let number = digits.parse().ok()?;
            match kind {
                "segment" => Some(Name::Segment(number)),
                "snapshot" => Some(Name::Snapshot(number)),
                "pages" => Some(Name::Pages(number)),
                _ => None,
            }
        });
        match parsed {
            Some(Name::Segment(number)) if segment(number) == name => Name::Segment(number),
            Some(Name::Snapshot(position)) if snapshot(position) == name => {
                Name::Snapshot(position)
            }
            // The number of a pair has 32 bits.
            Some(Name::Pages(number)) if pages(number) == name && number >> 33 == 0 => {
                Name::Pages(number)
            }
            _ => Name::Foreign,
        }
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
