//! Disk space follows live data: when snapshots are written only to free segments, and when a segment is evacuated.
//!
//! A partition looks some time after it has appended something, and again as long as there is something to do. So an
//! idle one that is as it should be does nothing. A look takes a step for each segment and each unit in which bytes
//! are counted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use kew_log::{BootTime, LogPosition, SegmentSpan};

use super::Partition;
use super::evacuation::Evacuation;

/// How long after a change, or after the last look, the next one is.
const LOOK_INTERVAL_MS: u64 = 250;

/// A look at so many units takes a millisecond. Used to spend at most a hundredth of the time on it.
const UNITS_PER_MS: u64 = 50_000;

/// After this long without a command a partition is idle: it has time to free little space, too.
const IDLE_MS: u64 = 1000;

/// How many segments an idle partition keeps for reuse.
const RECYCLED_KEPT: usize = 1;

/// When the partition looks.
#[derive(Debug, Default)]
pub(super) struct Maintenance {
    /// Whether there was a turn. A partition looks when it has been open for a while.
    is_started: bool,
    look_at: Option<BootTime>,
    /// No snapshot is written before this time only to free segments.
    snapshot_from: BootTime,
    /// How long a look must rest.
    rest_ms: u64,
    pub(super) evacuation: Evacuation,
}

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
    /// The first positions of those that are needed for their bodies.
    live: BTreeSet<LogPosition>,
    /// What two snapshots would free.
    pub(super) freeable_bytes: u64,
}

impl Maintenance {
    /// Notes a change, so that there is a look.
    pub(super) fn look_soon(&mut self, now: BootTime) {
        let interval_ms = LOOK_INTERVAL_MS.max(self.rest_ms);
        self.look_at.get_or_insert(now.plus_ms(interval_ms));
    }

    /// Looks in the next turn.
    pub(super) fn look_now(&mut self, now: BootTime) {
        let from = now.plus_ms(self.rest_ms);
        self.look_at = Some(self.look_at.map_or(from, |at| at.min(from)));
    }

    /// When the next look or step is due.
    pub(super) fn next_wake(&self) -> Option<BootTime> {
        let step = self.evacuation.step_at();
        self.look_at.into_iter().chain(step).min()
    }
}

impl<T> Partition<T> {
    /// Looks at a segment, which took over within another one or not.
    fn see(&self, span: &SegmentSpan, own_bytes: u64, over: Option<Seen>) -> Seen {
        let records = span.records();
        let first = over.as_ref().map_or(records.start, |it| it.records.start);
        let before = |of: fn(&Seen) -> u64| over.as_ref().map_or(0, of);
        let evacuation = &self.maintenance.evacuation;
        let beyond_bytes = evacuation.beyond_bytes(span.first, own_bytes);
        Seen {
            first: span.first,
            live_bytes: self.state.live_bytes_in(first..records.end),
            beyond_bytes: before(|it| it.beyond_bytes) + beyond_bytes,
            frees_bytes: before(|it| it.frees_bytes) + used_bytes(span),
            last: *span,
            records: first..records.end,
        }
    }
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

impl<T> Partition<T> {
    /// Carries out what is due by now, if anything is.
    pub(super) fn maintain(&mut self, now: BootTime) {
        if !self.maintenance.is_started {
            self.maintenance.is_started = true;
            self.maintenance.look_at = Some(now.plus_ms(IDLE_MS));
        }
        let look_at = self.maintenance.look_at;
        if look_at.is_some_and(|at| at.has_passed(now)) {
            self.look(now);
        }
        self.evacuate(now);
    }

    fn look(&mut self, now: BootTime) {
        self.maintenance.look_at = None;
        let is_idle = self.active_at.plus_ms(IDLE_MS).has_passed(now);
        let look = self.look_at_segments();
        let is_evacuating = self.choose_victim(now, &look, is_idle);
        let is_freeing = self.free_segments(now, look, is_idle);
        let is_tidying = is_idle && !is_freeing && !is_evacuating && self.tidy();
        if is_freeing || is_evacuating || is_tidying || !is_idle {
            self.maintenance.look_soon(now);
        }
        if let Some(at) = self.maintenance.evacuation.put_off_until(now) {
            let look_at = self.maintenance.look_at;
            self.maintenance.look_at = Some(look_at.map_or(at, |before| before.min(at)));
        }
    }

    fn look_at_segments(&mut self) -> Look {
        let (mut segments, mut live) = (BTreeMap::new(), BTreeSet::new());
        let mut kept: Option<Seen> = None;
        for span in self.log.segments() {
            let own_bytes = self.state.live_bytes_in(span.records());
            if own_bytes > 0 {
                live.insert(span.first);
            }
            let over = kept.filter(|kept| span.took_over_within(&kept.last));
            let is_kept = own_bytes > 0 || over.is_some();
            let seen = self.see(&span, own_bytes, over);
            kept = is_kept.then(|| seen.clone());
            segments.insert(span.first, seen);
        }
        let units = self.log.space().used_bytes / self.state.count_unit().size_bytes();
        self.maintenance.rest_ms = 100 * units / UNITS_PER_MS;
        Look {
            freeable_bytes: self.log.freeable_bytes(&live),
            segments,
            live,
        }
    }

    /// Writes a snapshot if two more would free enough. Returns whether it is not done yet. On a full disk
    /// `make_space` does this.
    fn free_segments(&mut self, now: BootTime, look: Look, is_idle: bool) -> bool {
        if self.is_full() {
            return false;
        }
        if look.freeable_bytes <= self.worth_a_snapshot_bytes(is_idle) {
            return false;
        }
        let from = self.maintenance.snapshot_from.max(self.snapshot_retry_at);
        if self.log.snapshots().is_under_way || !from.has_passed(now) {
            return true;
        }
        // The beat makes the second snapshot differ from the first.
        if self.log.snapshots().bytes_since == 0 {
            return self.log.beat();
        }
        self.snapshot_to_free(now, look.live);
        true
    }

    fn snapshot_to_free(&mut self, now: BootTime, live: BTreeSet<LogPosition>) {
        self.measure_state();
        let interval_ms = self.writing_interval_ms();
        self.maintenance.snapshot_from = now.plus_ms(interval_ms);
        self.snapshot_with(live);
    }

    /// A purge has made the state smaller at once, and no growth is a reason to measure it.
    fn measure_state(&mut self) {
        self.measured.forget();
        self.keep_for_draining();
    }

    /// How much must be free to be worth two snapshots.
    fn worth_a_snapshot_bytes(&self, is_idle: bool) -> u64 {
        let largest_bytes = self.options.log.segment_size_max_bytes;
        let least_bytes = match is_idle {
            true => (largest_bytes / 2).max(self.state.live_bytes() / 10),
            false => 2 * largest_bytes,
        };
        least_bytes.max(self.last_snapshot_bytes)
    }

    /// Gives back what only a busy partition needs. Returns whether there was anything.
    fn tidy(&mut self) -> bool {
        let is_trimmed = self.log.trim_recycled(RECYCLED_KEPT);
        self.measure_state();
        is_trimmed || self.log.shrink_ballast()
    }
}
