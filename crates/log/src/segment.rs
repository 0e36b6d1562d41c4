//! A segment's file with its header, and how it is made.

use std::sync::Arc;

use crate::format::{
    BEGINNING_OFFSET, SEGMENT_HEADER_BLOCK_SIZE, Seal, SegmentHeader, encode_beginning, names,
};
use crate::storage::{self, IoFailure, Storage, StorageFile};
use crate::{Epoch, LogId, LogPosition};

/// Zeros are written in pieces of this size.
const FILL_SIZE: usize = 1024 * 1024;
/// And synced this often, so that one large sync does not hold up the commits beside it.
const FILL_SYNC_EVERY_BYTES: u64 = 8 * FILL_SIZE as u64;

/// An open segment. Its holders can read it even after it was removed. It is not reused before the last
/// holder is gone.
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) seal: Seal,
    first: LogPosition,
    pub(crate) name: String,
    pub(crate) file: Arc<dyn StorageFile>,
}

impl Segment {
    /// Position of the first record.
    pub(crate) fn first(&self) -> LogPosition {
        self.first
    }

    /// The position after the last byte of the file.
    pub(crate) fn limit(&self) -> LogPosition {
        self.first
            .plus(self.header.capacity_bytes - SEGMENT_HEADER_BLOCK_SIZE)
    }

    pub(crate) fn offset_of(&self, position: LogPosition) -> u64 {
        SEGMENT_HEADER_BLOCK_SIZE + position.as_u64() - self.first.as_u64()
    }

    /// Where the next segment goes on, or the position after this file's last byte.
    pub(crate) fn end_before(&self, next: Option<&Self>) -> LogPosition {
        let own = self.limit();
        next.map_or(own, |next| own.min(next.first()))
    }

    /// The first block of its file, once it has a record. Where its records begin lies behind the header, unless that
    /// says it.
    pub(crate) fn first_block(&self) -> Vec<u8> {
        let beginning = self.header.first.is_none().then_some(self.first);
        header_block(&self.header, beginning)
    }

    /// Whether a recovery made this segment, which goes on within an older one. The older one may have records
    /// behind that place, which do not count any more.
    pub(crate) fn took_over_within(&self, older: &Self) -> bool {
        self.header.epoch > older.header.epoch && self.first < older.limit()
    }
}

/// A segment without records, whose first position is not known yet.
pub(crate) struct Blank {
    pub(crate) header: SegmentHeader,
    pub(crate) name: String,
    pub(crate) file: Arc<dyn StorageFile>,
}

impl Blank {
    /// The segment, once it is known where its records begin.
    pub(crate) fn beginning_at(self, first: LogPosition) -> Segment {
        let Self { header, name, file } = self;
        Segment {
            header,
            seal: header.seal(),
            first,
            name,
            file,
        }
    }
}

/// The source of the blocks for a segment in preparation.
pub(crate) enum Source {
    /// A new file, filled with zeros: a sync of space that was never written costs twice as much.
    Fresh,
    /// A file that was used before. Its name is temporary, and its old records are not valid any more.
    Recycled(Recycled),
}

/// A retired segment's file, kept for reuse.
pub(crate) struct Recycled {
    pub(crate) name: String,
    pub(crate) file: Arc<dyn StorageFile>,
    pub(crate) capacity_bytes: u64,
}

/// Makes a segment with these records in it, durable in every respect.
///
/// It is built under a temporary name, so that a file with a segment's name always has a valid header. A
/// crash at any point leaves either nothing or all of it.
pub(crate) fn make(
    storage: &dyn Storage,
    header: SegmentHeader,
    source: Source,
    records: &[u8],
) -> Result<Blank, MakeError> {
    let (temporary, file) = match source {
        Source::Fresh => {
            let name = names::segment_in_preparation(header.number);
            let file = create_anew(storage, &name).map_err(MakeError::Unfinished)?;
            (name, file)
        }
        Source::Recycled(recycled) => (recycled.name, recycled.file),
    };
    let fresh = temporary == names::segment_in_preparation(header.number);
    let name = names::segment(header.number);
    let filled = fill(&*file, &temporary, &header, fresh, records)
        .and_then(|()| storage::rename(storage, &temporary, &name));
    if let Err(failure) = filled {
        // Best effort: recovery removes temporary files too, and the first failure matters more than this
        // one.
        let _ = storage::remove(storage, &temporary);
        return Err(MakeError::Unfinished(failure));
    }
    storage::sync_dir(storage).map_err(MakeError::Unsure)?;
    Ok(Blank { header, name, file })
}

/// Writes a segment without records under its temporary name. Returns that name.
pub(crate) fn prepare(storage: &dyn Storage, header: SegmentHeader) -> Result<String, IoFailure> {
    let name = names::segment_in_preparation(header.number);
    let file = create_anew(storage, &name)?;
    fill(&*file, &name, &header, true, &[])?;
    Ok(name)
}

/// Why there is no new segment.
pub(crate) enum MakeError {
    /// Only a temporary file was touched.
    Unfinished(IoFailure),
    /// The file has its name. Whether the name is durable is unknown.
    Unsure(IoFailure),
}

impl MakeError {
    pub(crate) fn into_failure(self) -> IoFailure {
        match self {
            Self::Unfinished(failure) | Self::Unsure(failure) => failure,
        }
    }
}

/// Creates a temporary file. Replaces the file of an earlier attempt.
pub(crate) fn create_anew(
    storage: &dyn Storage,
    name: &str,
) -> Result<Arc<dyn StorageFile>, IoFailure> {
    match storage::create(storage, name) {
        Err(failure) if failure.source.kind() == std::io::ErrorKind::AlreadyExists => {
            storage::remove(storage, name)?;
            storage::create(storage, name)
        }
        result => result,
    }
}

fn fill(
    file: &dyn StorageFile,
    name: &str,
    header: &SegmentHeader,
    fresh: bool,
    records: &[u8],
) -> Result<(), IoFailure> {
    if fresh {
        fill_with_zeros(file, name, 0, header.capacity_bytes)?;
    }
    storage::write_all_at(file, name, records, SEGMENT_HEADER_BLOCK_SIZE)?;
    storage::write_all_at(file, name, &header_block(header, None), 0)?;
    storage::sync_data(file, name)
}

/// The first block of a segment's file. `first` is where its records begin, if there are any.
pub(crate) fn header_block(header: &SegmentHeader, first: Option<LogPosition>) -> Vec<u8> {
    let mut block = vec![0; memory_size(SEGMENT_HEADER_BLOCK_SIZE)];
    let bytes = header.encode();
    block[..bytes.len()].copy_from_slice(&bytes);
    if let Some(first) = first {
        let beginning = encode_beginning(header.seal(), first);
        let at = memory_size(BEGINNING_OFFSET);
        block[at..at + beginning.len()].copy_from_slice(&beginning);
    }
    block
}

/// Writes zeros from an offset on, up to a size.
pub(crate) fn fill_with_zeros(
    file: &dyn StorageFile,
    name: &str,
    from_bytes: u64,
    size_bytes: u64,
) -> Result<(), IoFailure> {
    let zeros = vec![0; FILL_SIZE.min(memory_size(size_bytes - from_bytes))];
    let mut done = from_bytes;
    while done < size_bytes {
        let piece = zeros.len().min(memory_size(size_bytes - done));
        storage::write_all_at(file, name, &zeros[..piece], done)?;
        done += piece as u64;
        if done.is_multiple_of(FILL_SYNC_EVERY_BYTES) {
            storage::sync_data(file, name)?;
        }
    }
    Ok(())
}

/// A size that fits in memory, as a `usize`.
pub(crate) fn memory_size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Makes salts, a different one for each number. Without the entropy they cannot be predicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Salts(u64);

impl Salts {
    pub(crate) fn new(entropy: u64) -> Self {
        Self(entropy)
    }

    /// What they are made of.
    pub(crate) fn entropy(self) -> u64 {
        self.0
    }

    /// The identity of a log that is new: the only partition of a cluster with a number of its own.
    pub(crate) fn new_log(self) -> LogId {
        let half = |which| u128::from(mix(mix(self.0 ^ which)));
        LogId {
            cluster: half(1) << 64 | half(2),
            partition: 0,
        }
    }

    pub(crate) fn of(self, epoch: Epoch, number: u64) -> u64 {
        mix(mix(mix(self.0) ^ epoch.as_u64()) ^ number)
    }
}

/// The finalizer of SplitMix64: every bit of the input changes half of the output's.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
