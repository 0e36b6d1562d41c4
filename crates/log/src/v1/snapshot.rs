//! Reads a snapshot of format 1.

use crate::LogPosition;
use crate::format::{FormatError, names, read_u32, read_u64};
use crate::recovery::OpenError;
use crate::replay::Replay;
use crate::segment::memory_size;
use crate::storage::{self, Storage, StorageFile};

use super::format::check_version;
use super::format_error;

const MAGIC: [u8; 8] = *b"KEWSNAP\0";
const TRAILER_MAGIC: [u8; 4] = *b"DONE";
const FLAG_BEGINS_ANEW: u32 = 1;
const HEADER_SIZE: usize = 40;
const PART_HEADER_SIZE: usize = 16;
const TRAILER_SIZE: usize = 16;

/// What the header of a snapshot says.
pub(super) struct SnapshotHeader {
    /// Checksum of the record before its position.
    pub(super) chain: u32,
    /// A repair made it: the log continues at its position, even if no segment holds it yet.
    pub(super) begins_anew: bool,
}

/// Why a snapshot was not read.
pub(super) enum ReadError {
    /// It is not as it was written.
    Damaged(OpenError),
    Other(OpenError),
}

impl From<storage::IoFailure> for ReadError {
    fn from(failure: storage::IoFailure) -> Self {
        Self::Other(failure.into())
    }
}

/// Reads a snapshot and passes its parts on. Parts passed on before an error must be discarded.
pub(super) fn read(
    storage: &dyn Storage,
    position: LogPosition,
    replay: &mut dyn Replay,
) -> Result<SnapshotHeader, ReadError> {
    let name = names::snapshot(position.as_u64());
    let file = storage::open(storage, &name)?;
    let mut reader = Reader {
        size_bytes: storage::len(&*file, &name)?,
        file: &*file,
        name: &name,
        offset: 0,
    };
    let bytes: [u8; HEADER_SIZE] = reader.take()?;
    let mut crc = read_u32(&bytes, 36);
    if bytes[..8] != MAGIC || crc != crc32c::crc32c(&bytes[..36]) {
        return Err(reader.damaged(0, "the snapshot header does not match its checksum"));
    }
    check_version(read_u32(&bytes, 8))
        .map_err(|error| ReadError::Other(format_error(&name, 0, error)))?;
    if read_u64(&bytes, 16) != position.as_u64() {
        return Err(reader.damaged(0, "the snapshot's position is not that of its name"));
    }
    for _ in 0..read_u32(&bytes, 28) {
        let at = reader.offset;
        let head: [u8; PART_HEADER_SIZE] = reader.take()?;
        let length = u64::from(read_u32(&head, 8));
        if length > reader.size_bytes.saturating_sub(reader.offset) {
            return Err(reader.damaged(at, "the snapshot ends within a part"));
        }
        let mut part = vec![0; memory_size(length)];
        reader.fill(&mut part)?;
        crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &head[..12]), &part);
        if crc != read_u32(&head, 12) {
            return Err(reader.damaged(at, "a part of the snapshot does not match its checksum"));
        }
        replay
            .snapshot_part(&part)
            .map_err(|source| ReadError::Other(OpenError::Replay { position, source }))?;
    }
    let at = reader.offset;
    let trailer: [u8; TRAILER_SIZE] = reader.take()?;
    let is_whole = trailer[..4] == TRAILER_MAGIC
        && read_u64(&trailer, 4) == reader.size_bytes
        && read_u32(&trailer, 12) == crc32c::crc32c_append(crc, &trailer[..12])
        && reader.offset == reader.size_bytes;
    if !is_whole {
        return Err(reader.damaged(at, "the snapshot's trailer does not match"));
    }
    Ok(SnapshotHeader {
        chain: read_u32(&bytes, 24),
        begins_anew: read_u32(&bytes, 32) & FLAG_BEGINS_ANEW != 0,
    })
}

/// Reads forward, and takes no more memory than the file has bytes.
struct Reader<'a> {
    file: &'a dyn StorageFile,
    name: &'a str,
    offset: u64,
    size_bytes: u64,
}

impl Reader<'_> {
    fn take<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], ReadError> {
        let mut bytes = [0; SIZE];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ReadError> {
        let count = storage::read_at(self.file, self.name, bytes, self.offset)?;
        if count < bytes.len() {
            return Err(self.damaged(self.offset, "the snapshot ends too early"));
        }
        self.offset += count as u64;
        Ok(())
    }

    fn damaged(&self, offset: u64, what: &'static str) -> ReadError {
        let error = FormatError::Damaged(what);
        ReadError::Damaged(format_error(self.name, offset, error))
    }
}
