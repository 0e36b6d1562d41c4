//! Finds what has bytes in damaged records: messages and states of sessions.
//!
//! A walk over all runs, a step at a time. Records that are not in memory are asked for, a run at a time, and the search
//! goes on once they were read. Where they cannot be read after a few tries, it passes over them: what their messages have
//! is not known, and the damage of their pages is listed itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use kew_engine::{BodyCursor, BodyLocation, Group, Hold, Missing, NeededBody, RunId};
use kew_log::{BootTime, LogPosition};

use crate::partition::Partition;
use crate::partition::loads::{Asker, RETRY_INTERVAL_MS};

/// How many entities, runs, messages and sessions one step looks at: about 0.1 ms.
const STEPS: u32 = 4096;

/// How many messages near damage wait to be read: those of some 20 of the largest batches.
const SUSPECTS_MAX: usize = 100_000;

/// How often the search waits for records that cannot be read.
const FAILED_READS_MAX: u32 = 3;

/// A search for what the records of one file have.
pub(super) struct Search {
    /// In order.
    damaged: Vec<Range<LogPosition>>,
    from: BodyCursor,
    /// By place. One that several messages have, because a topic gave each of its subscriptions a copy, is read once.
    found: BTreeMap<BodyLocation, Vec<NeededBody>>,
    count: usize,
    /// The runs of the records that it has asked for.
    pins: BTreeSet<RunId>,
    failed_reads: u32,
    not_before: BootTime,
}

impl Search {
    /// `None` if there is nothing to look for.
    pub(super) fn of(damaged: Vec<Range<LogPosition>>) -> Option<Self> {
        let is_any = damaged.iter().any(|range| range.start < range.end);
        is_any.then(|| Self {
            damaged,
            from: BodyCursor::default(),
            found: BTreeMap::new(),
            count: 0,
            pins: BTreeSet::new(),
            failed_reads: 0,
            not_before: BootTime::ZERO,
        })
    }

    pub(super) fn not_before(&self) -> BootTime {
        self.not_before
    }

    pub(super) fn is_pinned(&self, run: RunId) -> bool {
        self.pins.contains(&run)
    }

    /// The positions from the first damaged record to the last one.
    fn positions(&self) -> Range<u64> {
        let first = self.damaged.first().map(|range| range.start);
        let last = self.damaged.last().map(|range| range.end);
        let position = |at: Option<LogPosition>| at.map_or(0, LogPosition::as_u64);
        position(first)..position(last)
    }

    /// Keeps what has bytes in damaged records.
    fn take(&mut self, bodies: Vec<NeededBody>) {
        for needed in bodies {
            let at = LogPosition::new(needed.body.record);
            let before = self.damaged.partition_point(|range| range.end <= at);
            let is_damaged = self.damaged.get(before).is_some_and(|it| it.contains(&at));
            if is_damaged && self.count < SUSPECTS_MAX {
                self.count += 1;
                let place = needed.body.with(Hold::Alone);
                self.found.entry(place).or_default().push(needed);
            }
        }
    }

    /// Waits until records were read, if they can be. Returns a group that the search is to pass over. The next one is passed
    /// over at once if it cannot be read either.
    fn wait(
        &mut self,
        missing: &Missing,
        put_off: Option<BootTime>,
        now: BootTime,
    ) -> Option<Group> {
        self.pins = missing.groups.keys().map(Group::run).collect();
        // The end of a pause is known from the next turn on.
        let pause = |until: BootTime| until.min(now.plus_ms(RETRY_INTERVAL_MS));
        self.not_before = put_off.map_or(BootTime::ZERO, pause);
        self.failed_reads += u32::from(put_off.is_some());
        let is_given_up = self.failed_reads > FAILED_READS_MAX;
        missing
            .groups
            .keys()
            .next()
            .copied()
            .filter(|_| is_given_up)
    }
}

impl<T> Partition<T> {
    /// Whether the records were read, as far as they can be, that the search needs next.
    pub(super) fn has_read_searched(&self) -> bool {
        self.loads.has_got(Asker::Scrub)
    }

    /// Goes on with the search. Returns whether none is left.
    pub(super) fn search_damaged(&mut self) -> bool {
        let Some(search) = &mut self.scrub.search else {
            return true;
        };
        if !self.loads.has_got(Asker::Scrub) || !search.not_before.has_passed(self.now.boot) {
            return false;
        }
        let positions = search.positions();
        let found = self.state.bodies_within(&positions, search.from, STEPS);
        search.take(found.bodies);
        if let Some(next) = found.next {
            search.from = next;
        }
        if !found.missing.is_empty() {
            let put_off = self.loads.ask(Asker::Scrub, &found.missing);
            if let Some(group) = search.wait(&found.missing, put_off, self.now.boot) {
                search.from = self.state.behind(group);
                search.not_before = BootTime::ZERO;
            }
            return false;
        }
        self.loads.release_walk(Asker::Scrub);
        search.pins.clear();
        search.failed_reads = 0;
        if found.next.is_some() {
            return false;
        }
        let found = std::mem::take(&mut search.found);
        self.scrub.search = None;
        self.scrub.suspects.extend(found.into_values());
        true
    }
}
