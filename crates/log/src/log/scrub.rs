//! Which files a scrub reads, in order.

use std::ops::Bound;
use std::sync::Arc;

use kew_planted::{Bug, is_planted};

use super::SegmentLog;
use crate::format::names::{self, Name};
use crate::scrub::{Scrub, ScrubCursor, ScrubLimit};
use crate::segment::Segment;
use crate::{LogPosition, PagePlace};

impl SegmentLog {
    /// The next file of a pass: the snapshots that are kept, then the segments, of which what is durable is read.
    /// `None` at the end of the pass.
    pub fn next_scrub(&self, cursor: ScrubCursor) -> Option<Scrub> {
        let cursor = ScrubCursor {
            limit: cursor.limit.or_else(|| Some(self.scrub_limit())),
            ..cursor
        };
        let snapshot = self.next_snapshot_to_scrub(cursor);
        if let Some(position) = snapshot.filter(|_| cursor.segment.is_none()) {
            return Some(Scrub::of_snapshot(self.storage.clone(), position, cursor));
        }
        let from = cursor.segment.map_or(Bound::Unbounded, Bound::Excluded);
        let mut segments = self.segments.range((from, Bound::Unbounded));
        if is_planted(Bug::SegmentNotScrubbed) {
            segments.next();
        }
        let (first, segment) = segments.next()?;
        if cursor.limit.is_some_and(|limit| *first >= limit.end) {
            return None;
        }
        let next = segments.next().map(|(_, next)| next);
        let end = segment.end_before(next.map(|next| &**next));
        let (storage, segment) = (self.storage.clone(), Arc::clone(segment));
        // The roll that leads from one segment to the next may not be written yet.
        let is_left = |(_, left): &(_, Arc<Segment>)| Arc::ptr_eq(left, &segment);
        match next {
            Some(next) if end <= self.durable && !self.left.iter().any(is_left) => {
                // A log that was rebuilt begins far behind the segments that it has kept.
                let taken_over = (end == next.first()).then_some(end);
                let scrub = Scrub::of_segment(storage, segment, end, taken_over, cursor);
                Some(scrub)
            }
            _ => {
                let limit = end.min(self.durable);
                (*first < limit).then(|| Scrub::of_open(storage, segment, limit, cursor))
            }
        }
    }

    /// One that was kept when the pass began, or the newest one if such a one was removed before it was read.
    fn next_snapshot_to_scrub(&self, cursor: ScrubCursor) -> Option<LogPosition> {
        let limit = cursor.limit.map(|limit| limit.snapshot);
        let is_next = |position: &LogPosition| Some(*position) > cursor.snapshot;
        let mut of_pass = self.kept_snapshots().filter(is_next);
        let of_pass = of_pass.find(|position| Some(*position) <= limit);
        let newest = self.kept_snapshots().next_back();
        let has_missed = cursor.has_pages_left || cursor.snapshot < limit;
        let newest = newest.filter(|newest| has_missed && is_next(newest));
        of_pass.or(newest)
    }

    fn scrub_limit(&self) -> ScrubLimit {
        let ends = self.kept_snapshots().filter_map(|position| {
            let named = self.pages.named_by(position);
            let (pair, named) = named.last_key_value()?;
            Some(PagePlace {
                pair: *pair,
                // Files have less than 4 GiB.
                offset: u32::try_from(named.end).unwrap_or(u32::MAX),
                size_bytes: 0,
            })
        });
        ScrubLimit {
            page: ends.max(),
            end: self.durable,
            snapshot: self.kept_snapshots().next_back().unwrap_or_default(),
        }
    }

    /// The older of the two newest snapshots: every start replays from there or later, so everything before it is
    /// needed for bodies alone. `None` if there are fewer than two.
    pub fn replays_from(&self) -> Option<LogPosition> {
        let mut newest_first = self.kept_snapshots().rev();
        newest_first.nth(1)
    }

    /// Notes that the file of a snapshot, or of pages, is damaged. Such a snapshot does not count as one of the two
    /// that are kept any more. The next snapshots have such pages elsewhere. Returns the position before which no start
    /// may begin, so that none needs what is damaged.
    pub fn note_damaged_file(&mut self, file: &str) -> LogPosition {
        let beginning = LogPosition::new(0);
        match names::parse(file) {
            Name::Snapshot(position) => {
                self.reclaim.forget_damaged(LogPosition::new(position));
                beginning
            }
            Name::Pages(_) => {
                self.pages.note_damage(file);
                // One that is being written may name it, too.
                let last = self.pending_snapshot().or(self.last_snapshot());
                last.map_or(beginning, |last| last.plus(1))
            }
            Name::Segment(_)
            | Name::Temporary
            | Name::Ballast
            | Name::Proof
            | Name::SetAside
            | Name::Foreign => beginning,
        }
    }

    /// Whether a snapshot, a file of pages or a segment of that name is one of the log's.
    pub fn has_file(&self, name: &str) -> bool {
        match names::parse(name) {
            Name::Snapshot(position) => self.reclaim.knows_snapshot(LogPosition::new(position)),
            Name::Pages(_) => self.pages.has_file(name),
            Name::Segment(number) => {
                let mut segments = self.segments.values();
                segments.any(|segment| segment.header.number == number)
            }
            Name::Temporary | Name::Ballast | Name::Proof | Name::SetAside | Name::Foreign => false,
        }
    }
}
