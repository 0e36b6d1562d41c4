//! The bytes of format 1, as far as a reader needs them. Frozen: nothing writes them any more.

use crate::LogPosition;
use crate::format::{FormatError, read_u16, read_u32, read_u64};

pub(super) const FORMAT_VERSION: u32 = 1;

/// The size of the header at a segment's start. Records begin after it.
pub(super) const SEGMENT_HEADER_BLOCK_SIZE: u64 = 4096;
/// The part of the header block in use, including the checksum.
pub(super) const SEGMENT_HEADER_SIZE: usize = 68;
/// The size of the header before each record's payload.
pub(super) const RECORD_HEADER_SIZE: usize = 24;
/// Records begin at multiples of this.
pub(super) const RECORD_ALIGNMENT: u64 = 8;

const SEGMENT_MAGIC: [u8; 8] = *b"KEWSEGM\0";

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    Batch,
    Mark,
    Roll,
}

impl RecordKind {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Batch),
            2 => Some(Self::Mark),
            3 => Some(Self::Roll),
            _ => None,
        }
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) number: u64,
    pub(super) epoch: u64,
    /// The position of the file's first byte.
    pub(super) base: LogPosition,
    pub(super) capacity_bytes: u64,
    salt: u64,
    /// Everything before this position was on stable storage when the file got its name.
    pub(super) durable: LogPosition,
}

impl SegmentHeader {
    /// Position of the first record.
    pub(super) const fn first(&self) -> LogPosition {
        self.base.plus(SEGMENT_HEADER_BLOCK_SIZE)
    }

    /// The position after the last byte of the file.
    pub(super) const fn limit(&self) -> LogPosition {
        self.base.plus(self.capacity_bytes)
    }

    pub(super) fn seal(&self) -> Seal {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[8..].copy_from_slice(&self.salt.to_le_bytes());
        Seal(crc32c::crc32c(&bytes))
    }

    pub(super) fn decode(bytes: &[u8; SEGMENT_HEADER_SIZE]) -> Result<Self, FormatError> {
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
            number: read_u64(bytes, 16),
            epoch: read_u64(bytes, 24),
            base: LogPosition::new(read_u64(bytes, 32)),
            capacity_bytes: read_u64(bytes, 40),
            salt: read_u64(bytes, 48),
            durable: LogPosition::new(read_u64(bytes, 56)),
        };
        header.check()?;
        Ok(header)
    }

    /// Refuses values that no Kew wrote, so that arithmetic on positions cannot overflow.
    fn check(&self) -> Result<(), FormatError> {
        let highest = 1 << 62;
        let sane = self.number < highest
            && self.epoch < highest
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

/// Accepts this format alone.
pub(super) fn check_version(version: u32) -> Result<(), FormatError> {
    match version {
        FORMAT_VERSION => Ok(()),
        0 => Err(FormatError::Damaged("there is no format version 0")),
        newer => Err(FormatError::Newer(newer)),
    }
}

/// A segment's epoch and salt, folded: the start value of every checksum in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal(u32);

impl Seal {
    fn at(self, position: LogPosition) -> u32 {
        crc32c::crc32c_append(self.0, &position.as_u64().to_le_bytes())
    }
}

/// The header before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) crc: u32,
    pub(super) payload_length: u32,
    /// The checksum of the record before this one.
    pub(super) previous: u32,
    pub(super) kind: RecordKind,
    version: u8,
    /// Everything before this position was on stable storage before this record was written.
    pub(super) durable: LogPosition,
}

impl RecordHeader {
    /// How much of the log the record takes, padding included.
    pub(super) fn record_size_bytes(&self) -> u64 {
        let size = RECORD_HEADER_SIZE as u64 + u64::from(self.payload_length);
        size.next_multiple_of(RECORD_ALIGNMENT)
    }

    /// Reads a header and accepts it only if its short check holds.
    pub(super) fn decode(
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
    pub(super) fn check_version(&self) -> Result<(), FormatError> {
        check_version(u32::from(self.version))
    }

    /// Whether bytes could begin a record at all. Cheap, for the search over a whole segment.
    pub(super) fn is_possible(kind: u8, version: u8) -> bool {
        RecordKind::from_byte(kind).is_some() && u32::from(version) == FORMAT_VERSION
    }
}

/// The checksum that a record must have, from its header as it was read and its payload.
pub(super) fn record_crc(
    header: &[u8; RECORD_HEADER_SIZE],
    payload: &[u8],
    seal: Seal,
    position: LogPosition,
) -> u32 {
    let crc = crc32c::crc32c_append(seal.at(position), &header[4..]);
    crc32c::crc32c_append(crc, payload)
}

/// Sixteen bits over all of the header but its two checks.
fn header_check(bytes: &[u8], seal: Seal, position: LogPosition) -> u16 {
    let crc = crc32c::crc32c_append(seal.at(position), &bytes[4..14]);
    let crc = crc32c::crc32c_append(crc, &bytes[16..RECORD_HEADER_SIZE]);
    let [low, high, ..] = crc.to_le_bytes();
    u16::from_le_bytes([low, high])
}
