//! Snapshot files: the state at a position, so that recovery need not begin at the first segment.
//!
//! Parts are opaque. Each carries the position at which it was copied, so that the parts of one snapshot may
//! later differ in age. A snapshot is written under a temporary name and renamed once it is durable. Every
//! checksum continues the one before, and the trailer closes the chain.

use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use crate::format::{
    FORMAT_VERSION, FormatError, check_version, names, read_u32, read_u64, read_u128,
};
use crate::segment::{create_anew, memory_size};
use crate::storage::{self, IoFailure, Storage, StorageFile};
use crate::{Epoch, LogId, LogPosition};

const MAGIC: [u8; 8] = *b"KEWSNAP\0";
const TRAILER_MAGIC: [u8; 4] = *b"DONE";
/// Bits in the flags of the header.
const FLAG_BEGINS_ANEW: u32 = 1;
const FLAG_HAS_PAGES: u32 = 2;
/// The bits above are the number of parts of the table of pages.
const TABLE_PARTS_SHIFT: u32 = 8;
/// It takes 68 billion pages to have more. Then nothing is told.
const TABLE_PARTS_MAX: u32 = u32::MAX >> TABLE_PARTS_SHIFT;
pub(crate) const HEADER_SIZE: usize = 76;
pub(crate) const PART_HEADER_SIZE: usize = 16;
pub(crate) const TRAILER_SIZE: usize = 16;
const WRITE_SIZE: usize = 256 * 1024;

/// The header of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotHeader {
    pub(crate) log: LogId,
    /// The state includes all records before this position, and no later ones.
    pub(crate) position: LogPosition,
    /// Content checksum of the batch before that position.
    pub(crate) chain: u32,
    /// The partition's time at that position, in milliseconds.
    pub(crate) time_ms: u64,
    /// The epoch in which it was begun.
    pub(crate) epoch: Epoch,
    pub(crate) part_count: u32,
    /// A repair made it: the log continues at its position, even if no segment holds it yet.
    pub(crate) begins_anew: bool,
    /// The first parts say which pages belong to the snapshot.
    pub(crate) has_pages: bool,
    /// How many parts the table of pages has, behind the part that says so too. 0 if this is not told.
    pub(crate) table_parts: u32,
}

impl SnapshotHeader {
    fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.log.partition.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.position.as_u64().to_le_bytes());
        bytes[24..28].copy_from_slice(&self.chain.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.part_count.to_le_bytes());
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(self.begins_anew, FLAG_BEGINS_ANEW) | flag(self.has_pages, FLAG_HAS_PAGES);
        let told = Some(self.table_parts).filter(|count| *count <= TABLE_PARTS_MAX);
        let flags = flags | (told.unwrap_or_default() << TABLE_PARTS_SHIFT);
        bytes[32..36].copy_from_slice(&flags.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..36]);
        bytes[36..40].copy_from_slice(&crc.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.log.cluster.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.time_ms.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.epoch.as_u64().to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &bytes[40..72]);
        bytes[72..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_SIZE]) -> Result<Self, FormatError> {
        if bytes[..8] != MAGIC {
            return Err(FormatError::Damaged("the snapshot has no magic"));
        }
        let damaged = FormatError::Damaged("the snapshot header does not match its checksum");
        if read_u32(bytes, 36) != crc32c::crc32c(&bytes[..36]) {
            return Err(damaged);
        }
        check_version(read_u32(bytes, 8))?;
        let crc = crc32c::crc32c_append(read_u32(bytes, 36), &bytes[40..72]);
        if read_u32(bytes, HEADER_SIZE - 4) != crc || read_u64(bytes, 64) >= Epoch::LIMIT.as_u64() {
            return Err(damaged);
        }
        Ok(Self {
            log: LogId {
                cluster: read_u128(bytes, 40),
                partition: read_u32(bytes, 12),
            },
            position: LogPosition::new(read_u64(bytes, 16)),
            chain: read_u32(bytes, 24),
            time_ms: read_u64(bytes, 56),
            epoch: Epoch::new(read_u64(bytes, 64)),
            part_count: read_u32(bytes, 28),
            begins_anew: read_u32(bytes, 32) & FLAG_BEGINS_ANEW != 0,
            has_pages: read_u32(bytes, 32) & FLAG_HAS_PAGES != 0,
            table_parts: read_u32(bytes, 32) >> TABLE_PARTS_SHIFT,
        })
    }
}

/// The parts of a snapshot's file. They are asked for one after the other, so that no more than one is in memory as
/// bytes.
pub(crate) trait Parts {
    /// How many there are.
    fn count(&self) -> usize;

    /// Appends the bytes of a part to an empty buffer.
    fn put(&self, index: usize, out: &mut Vec<u8>);
}

impl Parts for Vec<Bytes> {
    fn count(&self) -> usize {
        self.len()
    }

    fn put(&self, index: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self[index]);
    }
}

/// Writes a snapshot; when this returns it is durable under its name. Returns its size. `header` has all fields
/// but the number of parts.
pub(crate) fn write(
    storage: &dyn Storage,
    header: SnapshotHeader,
    content: &dyn Parts,
) -> Result<u64, SnapshotError> {
    let position = header.position;
    let temporary = names::snapshot_in_preparation(position.as_u64());
    let part_count = content.count();
    let header = SnapshotHeader {
        part_count: u32::try_from(part_count).expect("a snapshot has far fewer than 2^32 parts"),
        ..header
    };
    let written = create_anew(storage, &temporary)
        .and_then(|file| write_file(&*file, &temporary, header, content))
        .and_then(|size_bytes| {
            storage::rename(storage, &temporary, &names::snapshot(position.as_u64()))?;
            Ok(size_bytes)
        });
    match written {
        Ok(size_bytes) => {
            storage::sync_dir(storage).map_err(SnapshotError::Unsure)?;
            Ok(size_bytes)
        }
        Err(failure) => {
            // Best effort: recovery removes temporaries too.
            let _ = storage::remove(storage, &temporary);
            Err(SnapshotError::Unfinished(failure))
        }
    }
}

/// Why a snapshot was not written.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// There is no such snapshot: it did not get its name.
    #[error(transparent)]
    Unfinished(#[from] IoFailure),
    /// The file has its name. Whether the name is durable is unknown.
    #[error(transparent)]
    Unsure(IoFailure),
}

fn write_file(
    file: &dyn StorageFile,
    name: &str,
    header: SnapshotHeader,
    content: &dyn Parts,
) -> Result<u64, IoFailure> {
    let mut writer = Writer {
        file,
        name,
        buffer: Vec::with_capacity(WRITE_SIZE),
        offset: 0,
    };
    let bytes = header.encode();
    let mut crc = read_u32(&bytes, HEADER_SIZE - 4);
    writer.push(&bytes)?;
    let mut part = Vec::new();
    for index in 0..memory_size(header.part_count.into()) {
        part.clear();
        content.put(index, &mut part);
        let mut bytes = part_header(header.position, &part);
        crc = part_crc(crc, &bytes, &part);
        bytes[12..].copy_from_slice(&crc.to_le_bytes());
        writer.push(&bytes)?;
        writer.push(&part)?;
    }
    let size_bytes = writer.size_bytes() + TRAILER_SIZE as u64;
    writer.push(&trailer(crc, size_bytes))?;
    writer.flush()?;
    storage::sync_data(file, name)?;
    Ok(size_bytes)
}

fn part_header(position: LogPosition, part: &[u8]) -> [u8; PART_HEADER_SIZE] {
    let length = u32::try_from(part.len()).expect("a part of a snapshot is below 4 GiB");
    let mut bytes = [0; PART_HEADER_SIZE];
    bytes[..8].copy_from_slice(&position.as_u64().to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes
}

pub(crate) fn part_crc(previous: u32, header: &[u8; PART_HEADER_SIZE], part: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(previous, &header[..12]);
    crc32c::crc32c_append(crc, part)
}

fn trailer(previous: u32, size_bytes: u64) -> [u8; TRAILER_SIZE] {
    let mut bytes = [0; TRAILER_SIZE];
    bytes[..4].copy_from_slice(&TRAILER_MAGIC);
    bytes[4..12].copy_from_slice(&size_bytes.to_le_bytes());
    let crc = crc32c::crc32c_append(previous, &bytes[..12]);
    bytes[12..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Gathers small pieces into large writes.
struct Writer<'a> {
    file: &'a dyn StorageFile,
    name: &'a str,
    buffer: Vec<u8>,
    offset: u64,
}

impl Writer<'_> {
    fn push(&mut self, bytes: &[u8]) -> Result<(), IoFailure> {
        if self.buffer.len() + bytes.len() > WRITE_SIZE {
            self.flush()?;
        }
        if bytes.len() > WRITE_SIZE {
            storage::write_all_at(self.file, self.name, bytes, self.offset)?;
            self.offset += bytes.len() as u64;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoFailure> {
        storage::write_all_at(self.file, self.name, &self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.offset + self.buffer.len() as u64
    }
}

/// Why the file of a snapshot could not be read to its end.
pub(crate) enum ReadError {
    Io(IoFailure),
    /// The offset in the file, and the damage.
    Format(u64, FormatError),
}

impl From<IoFailure> for ReadError {
    fn from(failure: IoFailure) -> Self {
        Self::Io(failure)
    }
}

/// The header of a snapshot, if it is whole. `None` too if a running server has removed it since it was listed.
pub(crate) fn header_of(
    storage: &dyn Storage,
    position: LogPosition,
) -> Result<Option<SnapshotHeader>, IoFailure> {
    match PartReader::open(storage, position) {
        Ok(parts) => Ok(Some(parts.header)),
        Err(ReadError::Io(failure)) if failure.source.kind() != std::io::ErrorKind::NotFound => {
            Err(failure)
        }
        Err(_) => Ok(None),
    }
}

/// Reads a snapshot part by part.
pub(crate) struct PartReader {
    reader: Reader,
    header: SnapshotHeader,
    /// The checksum of all that was read.
    crc: u32,
    parts_left: u32,
    part: Vec<u8>,
}

impl PartReader {
    pub(crate) fn open(storage: &dyn Storage, position: LogPosition) -> Result<Self, ReadError> {
        let name = names::snapshot(position.as_u64());
        let file = storage::open(storage, &name)?;
        let size_bytes = storage::len(&*file, &name)?;
        let mut reader = Reader {
            file,
            name,
            offset: 0,
            size_bytes,
        };
        let bytes: [u8; HEADER_SIZE] = reader.take()?;
        let header = SnapshotHeader::decode(&bytes).map_err(|error| ReadError::Format(0, error))?;
        if header.position != position {
            return Err(damaged(
                0,
                "the snapshot's position is not that of its name",
            ));
        }
        Ok(Self {
            reader,
            header,
            crc: read_u32(&bytes, HEADER_SIZE - 4),
            parts_left: header.part_count,
            part: Vec::new(),
        })
    }

    /// The next part. `None` after the last one: then the snapshot is whole.
    pub(crate) fn next_part(&mut self) -> Result<Option<&[u8]>, ReadError> {
        let reader = &mut self.reader;
        let at = reader.offset;
        let Some(parts_left) = self.parts_left.checked_sub(1) else {
            let bytes: [u8; TRAILER_SIZE] = reader.take()?;
            if bytes != trailer(self.crc, reader.size_bytes) || reader.offset != reader.size_bytes {
                return Err(damaged(at, "the snapshot's trailer does not match"));
            }
            return Ok(None);
        };
        let bytes: [u8; PART_HEADER_SIZE] = reader.take()?;
        reader.take_into(&mut self.part, read_u32(&bytes, 8), at)?;
        self.crc = part_crc(self.crc, &bytes, &self.part);
        if self.crc != read_u32(&bytes, 12) {
            return Err(damaged(
                at,
                "a part of the snapshot does not match its checksum",
            ));
        }
        self.parts_left = parts_left;
        Ok(Some(&self.part))
    }

    /// Where the next part begins.
    pub(crate) fn offset(&self) -> u64 {
        self.reader.offset
    }

    pub(crate) fn header(&self) -> SnapshotHeader {
        self.header
    }

    /// Lets the next bytes be read from the disk.
    pub(crate) fn forget_cached(&self, size_bytes: u64) {
        self.reader
            .file
            .forget_cached(self.reader.offset, size_bytes);
    }
}

fn damaged(offset: u64, what: &'static str) -> ReadError {
    ReadError::Format(offset, FormatError::Damaged(what))
}

/// Reads forward, and takes no more memory than the file has bytes.
struct Reader {
    file: Arc<dyn StorageFile>,
    name: String,
    offset: u64,
    size_bytes: u64,
}

impl Reader {
    fn take<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], ReadError> {
        let mut bytes = [0; SIZE];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Takes the part that begins at `at` with its header.
    fn take_into(&mut self, part: &mut Vec<u8>, length: u32, at: u64) -> Result<(), ReadError> {
        let length = u64::from(length);
        if length > self.size_bytes - self.offset {
            return Err(damaged(at, "the snapshot ends within a part"));
        }
        part.resize(memory_size(length), 0);
        self.fill(part)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ReadError> {
        let count = storage::read_at(&*self.file, &self.name, bytes, self.offset)?;
        if count < bytes.len() {
            return Err(damaged(self.offset, "the snapshot ends too early"));
        }
        self.offset += count as u64;
        Ok(())
    }
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
