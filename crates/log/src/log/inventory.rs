//! The contents of the log: segments, the bodies in them, and counts of both.

use std::ops::Range;
use std::sync::Arc;

use crate::format::SEGMENT_HEADER_BLOCK_SIZE;
use crate::reader::body::Body;
use crate::segment::Segment;
use crate::{BodyLocation, Epoch, LogPosition};

use super::SegmentLog;
use super::prepare::Successor;

/// A segment and the positions it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSpan {
    /// Its number, which is part of its file's name.
    pub number: u64,
    /// The epoch that made it.
    pub epoch: Epoch,
    /// Position of its first record. It identifies the segment among those in use.
    pub first: LogPosition,
    /// The next position belongs to another segment, or to no record yet.
    pub end: LogPosition,
    /// Size of its file.
    pub size_bytes: u64,
}

/// Counts for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSpace {
    /// Segments in use, including the active one.
    pub segments: usize,
    /// Whether the next segment is ready.
    pub is_prepared: bool,
    /// Whether the next segment could not be made because the disk is full.
    pub is_full: bool,
    /// Retired segments that are kept to be reused.
    pub recycled: usize,
    /// Whether space is reserved for a full disk.
    pub has_ballast: bool,
    /// Size of all segments.
    pub size_bytes: u64,
    /// Size of all segments in use and of the prepared one.
    pub used_bytes: u64,
    /// Size of all page files.
    pub pages_bytes: u64,
    /// Size of all files: segments, snapshots, pages, and what is reserved for a full disk.
    pub disk_bytes: u64,
    /// The most that a snapshot takes on a full disk, as far as the size of the state is known.
    pub snapshot_bytes_max: u64,
    /// What the last snapshot since the open has written, with its pages.
    pub snapshot_size_bytes: Option<u64>,
    /// The room in the active segment.
    pub active_room_bytes: u64,
    /// Memory held for readers of recent bodies.
    pub recent_bytes: usize,
}

impl SegmentSpan {
    /// The positions at which its records can begin.
    pub fn records(&self) -> Range<u64> {
        self.first.as_u64()..self.end.as_u64()
    }

    /// Whether a recovery made this segment, which goes on within an older one. It stays as long as that one does.
    pub fn took_over_within(&self, older: &Self) -> bool {
        self.epoch > older.epoch && self.first < older.limit()
    }

    /// The position after the last byte of its file.
    pub fn limit(&self) -> LogPosition {
        self.first.plus(self.size_bytes - SEGMENT_HEADER_BLOCK_SIZE)
    }
}

impl SegmentLog {
    /// A body, from memory or a segment. `None` if no segment covers its position any more. Does no I/O.
    ///
    /// It can be read as soon as it is appended. Do not show it to a client before it is durable.
    pub fn body(&self, location: BodyLocation) -> Option<Body> {
        self.recent.body(location).or_else(|| {
            let segment = self.segment_at(location.record)?;
            Body::in_segment(Arc::clone(segment), location)
        })
    }

    /// A body in its segment, also if it is in memory.
    pub fn body_in_file(&self, location: BodyLocation) -> Option<Body> {
        let segment = self.segment_at(location.record)?;
        Body::in_segment(Arc::clone(segment), location)
    }

    /// The segments in use, in order of position.
    pub fn segments(&self) -> impl Iterator<Item = SegmentSpan> + '_ {
        self.segments.values().map(|segment| self.span(segment))
    }

    /// The segment that holds the record at a position.
    pub fn segment_of(&self, record: LogPosition) -> Option<SegmentSpan> {
        self.segment_at(record).map(|segment| self.span(segment))
    }

    /// Counts of the log, for metrics.
    pub fn space(&self) -> LogSpace {
        let recycled = self.recycled.iter();
        let used_bytes = self.used_bytes();
        let size_bytes = used_bytes + recycled.map(|r| r.capacity_bytes).sum::<u64>();
        let pages_bytes = self.pages.size_bytes();
        let others_bytes = self.reclaim.snapshots_size_bytes() + pages_bytes + self.ballast_bytes();
        LogSpace {
            segments: self.segments.len(),
            is_prepared: self.prepared_bytes() > 0,
            is_full: self.is_draining(),
            recycled: self.recycled.len(),
            has_ballast: self.ballast_bytes() > 0 && self.is_ballast_whole(),
            size_bytes,
            used_bytes,
            pages_bytes,
            disk_bytes: size_bytes + others_bytes,
            snapshot_bytes_max: self.drained_snapshot_bytes_max(),
            snapshot_size_bytes: self.reclaim.snapshot_size_bytes,
            active_room_bytes: self.active_room_bytes(),
            recent_bytes: self.recent.held_bytes(),
        }
    }

    /// The size of all segments in use and of the prepared one.
    pub(super) fn used_bytes(&self) -> u64 {
        let segments = self.segments.values().chain(&self.passed);
        let sizes = segments.map(|segment| segment.header.capacity_bytes);
        sizes.sum::<u64>() + self.prepared_bytes()
    }

    fn prepared_bytes(&self) -> u64 {
        match &self.successor {
            Successor::Ready(segment) => segment.header.capacity_bytes,
            Successor::Wanted | Successor::Preparing { .. } | Successor::NoSpace => 0,
        }
    }

    fn segment_at(&self, record: LogPosition) -> Option<&Arc<Segment>> {
        let mut older = self.segments.range(..=record);
        let (_, segment) = older.next_back()?;
        (record < segment.limit()).then_some(segment)
    }

    fn span(&self, segment: &Arc<Segment>) -> SegmentSpan {
        use std::ops::Bound::{Excluded, Unbounded};
        let mut newer = self.segments.range((Excluded(segment.first()), Unbounded));
        let end = match newer.next() {
            Some((_, next)) => segment.end_before(Some(next)),
            None => self.end,
        };
        SegmentSpan {
            number: segment.header.number,
            epoch: segment.header.epoch,
            first: segment.first(),
            end,
            size_bytes: segment.header.capacity_bytes,
        }
    }
}
