//! What the log sees when it looks at its segments.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::{SegmentLog, SegmentSpan};
use crate::{LiveBytes, LogPosition};

/// A look at so many units takes a millisecond. Used to spend at most a hundredth of the time on it.
const UNITS_PER_MS: u64 = 50_000;

/// A segment as a look has seen it. One that took over within another one stays as long as that does. So a segment is
/// seen together with those before it that keep it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) first: LogPosition,
    /// The positions of its records and of those before it.
    pub(super) records: Range<u64>,
    /// The live bytes in the units that these touch.
    pub(super) live_bytes: u64,
    /// What the same bodies would take beyond that when they have moved.
    pub(super) beyond_bytes: u64,
    /// What would go if all of these bodies moved.
    pub(super) frees_bytes: u64,
    /// The segment itself.
    last: SegmentSpan,
}

/// What a look has seen.
pub(super) struct Look {
    /// The segments by first position.
    pub(super) segments: BTreeMap<LogPosition, Seen>,
    /// What two snapshots would free.
    pub(super) freeable_bytes: u64,
    /// The size of all segments in use.
    pub(super) used_bytes: u64,
}

impl SegmentLog {
    pub(super) fn look_at_segments(&mut self, live: &dyn LiveBytes) -> Look {
        let (mut segments, mut kept_for_bodies) = (BTreeMap::new(), BTreeSet::new());
        let mut kept: Option<Seen> = None;
        for span in self.segments() {
            let own_bytes = live.bytes_in(positions(&span.records()));
            if own_bytes > 0 {
                kept_for_bodies.insert(span.first);
            }
            let over = kept.filter(|kept| span.took_over_within(&kept.last));
            let is_kept = own_bytes > 0 || over.is_some();
            let seen = self.see(live, &span, own_bytes, over);
            kept = is_kept.then(|| seen.clone());
            segments.insert(span.first, seen);
        }
        let used_bytes = self.used_bytes();
        self.tidying.rest_ms = 100 * (used_bytes / live.unit_bytes()) / UNITS_PER_MS;
        Look {
            freeable_bytes: self.freeable_bytes(&kept_for_bodies),
            segments,
            used_bytes,
        }
    }

    /// Looks at a segment, which took over within another one or not.
    fn see(
        &self,
        live: &dyn LiveBytes,
        span: &SegmentSpan,
        own_bytes: u64,
        over: Option<Seen>,
    ) -> Seen {
        let records = span.records();
        let first = over.as_ref().map_or(records.start, |it| it.records.start);
        let before = |of: fn(&Seen) -> u64| over.as_ref().map_or(0, of);
        let records = first..records.end;
        let beyond_bytes = self.tidying.victims.beyond_bytes(span.first, own_bytes);
        Seen {
            first: span.first,
            live_bytes: live.bytes_in(positions(&records)),
            beyond_bytes: before(|it| it.beyond_bytes) + beyond_bytes,
            frees_bytes: before(|it| it.frees_bytes) + used_bytes(span),
            last: *span,
            records,
        }
    }

    /// The first positions of the segments with bodies that are still needed. A unit in which bytes are counted may lie
    /// in two segments: then it keeps both.
    pub(in crate::log) fn live_segments(&self, live: &dyn LiveBytes) -> BTreeSet<LogPosition> {
        let segments = self.segments();
        let live = segments.filter(|span| live.is_any_in(positions(&span.records())));
        live.map(|span| span.first).collect()
    }
}

pub(super) fn positions(range: &Range<u64>) -> Range<LogPosition> {
    LogPosition::new(range.start)..LogPosition::new(range.end)
}

/// What a segment's records take, or its whole size if a start has ended it early: then most of it was never used.
fn used_bytes(span: &SegmentSpan) -> u64 {
    let records = span.records();
    let used_bytes = records.end.saturating_sub(records.start);
    match used_bytes < span.size_bytes / 2 {
        true => span.size_bytes,
        false => used_bytes,
    }
}
