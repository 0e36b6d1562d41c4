//! Surveys a directory of format 1: which segment covers which positions, and which snapshots there are.

use std::sync::Arc;

use crate::LogPosition;
use crate::format::names::{self, Name};
use crate::recovery::OpenError;
use crate::storage::{self, Storage, StorageFile};

use super::format::{SEGMENT_HEADER_BLOCK_SIZE, SEGMENT_HEADER_SIZE, SegmentHeader};
use super::format_error;

/// An open segment.
pub(super) struct Segment {
    pub(super) header: SegmentHeader,
    pub(super) name: String,
    pub(super) file: Arc<dyn StorageFile>,
}

impl Segment {
    pub(super) fn first(&self) -> LogPosition {
        self.header.first()
    }

    pub(super) fn offset_of(&self, position: LogPosition) -> u64 {
        position.as_u64() - self.header.base.as_u64()
    }

    /// The position after this file's last byte, or where a newer segment takes over.
    pub(super) fn end_before(&self, next: Option<&Self>) -> LogPosition {
        let own = self.header.limit().plus(SEGMENT_HEADER_BLOCK_SIZE);
        next.map_or(own, |next| own.min(next.first()))
    }
}

/// The contents of a directory.
pub(super) struct Survey {
    /// The segments that cover some positions, in order of position and of number.
    pub(super) chain: Vec<Segment>,
    /// Positions of all snapshots by name, oldest first.
    pub(super) snapshots: Vec<LogPosition>,
    /// Proven to be durable by the headers of all segments and the names of snapshots.
    pub(super) durable: LogPosition,
}

impl Survey {
    pub(super) fn of(storage: &dyn Storage) -> Result<Self, OpenError> {
        let (mut segments, mut snapshots) = (Vec::new(), Vec::new());
        for name in storage::list(storage)? {
            match names::parse(&name) {
                Name::Segment(number) => segments.push(open_segment(storage, name, number)?),
                Name::Snapshot(position) => snapshots.push(LogPosition::new(position)),
                _ => {}
            }
        }
        snapshots.sort_unstable();
        let headers = segments.iter().map(|segment| segment.header.durable);
        let durable = headers.chain(snapshots.iter().copied()).max();
        Ok(Self {
            chain: link(segments)?,
            snapshots,
            durable: durable.unwrap_or_default(),
        })
    }
}

fn open_segment(storage: &dyn Storage, name: String, number: u64) -> Result<Segment, OpenError> {
    let file = storage::open(storage, &name)?;
    let mut bytes = [0; SEGMENT_HEADER_SIZE];
    storage::read_at(&*file, &name, &mut bytes, 0)?;
    let header = SegmentHeader::decode(&bytes).map_err(|error| format_error(&name, 0, error))?;
    if header.number != number {
        let what = format!("the segment's number is {}", header.number);
        return Err(OpenError::corrupt(&name, 0, what));
    }
    let size_bytes = storage::len(&*file, &name)?;
    if size_bytes < header.capacity_bytes {
        let what = format!(
            "the file ends here, and its header speaks of {} bytes",
            header.capacity_bytes
        );
        return Err(OpenError::corrupt(&name, size_bytes, what));
    }
    Ok(Segment { header, name, file })
}

/// Determines which segment covers which positions. Where two segments overlap, the one with the higher
/// number was made by a recovery and covers everything from its first record on.
fn link(mut segments: Vec<Segment>) -> Result<Vec<Segment>, OpenError> {
    segments.sort_unstable_by_key(|segment| segment.header.number);
    let mut chain: Vec<Segment> = Vec::new();
    for segment in segments.into_iter().rev() {
        if let Some(newer) = chain.last() {
            if segment.first() >= newer.first() {
                continue;
            }
            if segment.header.epoch > newer.header.epoch {
                let what = format!(
                    "epoch {} follows epoch {} of {}",
                    newer.header.epoch, segment.header.epoch, segment.name
                );
                return Err(OpenError::corrupt(&newer.name, 0, what));
            }
        }
        chain.push(segment);
    }
    chain.reverse();
    Ok(chain)
}
