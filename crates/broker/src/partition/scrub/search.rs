//! Finds what has bytes in damaged records: messages and states of sessions.
//!
//! A walk over all runs, a step at a time. Records that are not in memory are asked for, a run at a time, and the walk goes
//! on once they were read. Where they cannot be read after a few tries, it passes over them: what their messages have is
//! not known. A message that meanwhile goes to an entity which the walk has passed is found by the next pass of the scrub.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use kew_engine::bus::Unread;
use kew_engine::{BodyCursor, BodyLocation, Group, Hold, Missing, NeededBody, RunId};
use kew_log::{BootTime, LogPosition};

use crate::partition::Partition;
use crate::partition::loads::Asker;

/// How many entities, runs, messages and sessions one step looks at.
const STEPS: u32 = 4096;

/// How many messages near damage wait to be read: those of some 20 of the largest batches.
const SUSPECTS_MAX: usize = 100_000;

/// How often records are tried that cannot be read.
const TRIES: u32 = 4;

/// How long after a run the next one is asked for, so that commands get their reads before: at most 125 runs a second.
const PACE_MS: u64 = 8;

/// A search for what the damaged records of one file have.
pub(super) struct HolderSearch {
    /// In order.
    damaged: Vec<Range<u64>>,
    from: BodyCursor,
    /// By place. One that several messages have, because a topic gave each of its subscriptions a copy, is read once.
    found: BTreeMap<BodyLocation, Vec<NeededBody>>,
    count: usize,
    /// The run whose records it waits for.
    run: Option<AwaitedRun>,
    not_before: BootTime,
}

struct AwaitedRun {
    id: RunId,
    failed_reads: u32,
    /// What of it is passed over.
    unread: BTreeSet<Group>,
}

impl HolderSearch {
    /// `None` if there is nothing to look for.
    pub(super) fn of(damaged: impl Iterator<Item = Range<LogPosition>>) -> Option<Self> {
        let damaged = damaged.map(|range| range.start.as_u64()..range.end.as_u64());
        let damaged: Vec<_> = damaged.filter(|range| !range.is_empty()).collect();
        (!damaged.is_empty()).then(|| Self {
            damaged,
            from: BodyCursor::default(),
            found: BTreeMap::new(),
            count: 0,
            run: None,
            not_before: BootTime::ZERO,
        })
    }

    pub(super) fn not_before(&self) -> BootTime {
        self.not_before
    }

    pub(super) fn is_pinned(&self, run: RunId) -> bool {
        self.run.as_ref().is_some_and(|it| it.id == run)
    }

    /// Keeps what it has found. Returns whether there is room for more.
    fn take(&mut self, bodies: Vec<NeededBody>) -> bool {
        for needed in bodies {
            if self.count == SUSPECTS_MAX {
                return false;
            }
            self.count += 1;
            let place = needed.body.with(Hold::Alone);
            self.found.entry(place).or_default().push(needed);
        }
        true
    }

    /// The run whose records are missing.
    fn awaited(&mut self, missing: &Missing) -> Option<&mut AwaitedRun> {
        let id = missing.groups.keys().next()?.run();
        if self.run.as_ref().is_none_or(|it| it.id != id) {
            self.run = Some(AwaitedRun {
                id,
                failed_reads: 0,
                unread: BTreeSet::new(),
            });
        }
        self.run.as_mut()
    }

    /// What waits to be read by itself, place by place.
    fn into_suspects(self) -> VecDeque<Vec<NeededBody>> {
        self.found.into_values().collect()
    }
}

impl<T> Partition<T> {
    /// Goes on with the search, if there is one. Returns whether none is left.
    pub(super) fn has_searched(&mut self) -> bool {
        let Some(search) = &self.scrub.search else {
            return true;
        };
        // Until when records cannot be read is known from the next turn on.
        let is_reading = !self.loads.has_served(Asker::Scrub) || self.loads.begins_pauses();
        if is_reading || !search.not_before.has_passed(self.now.boot) {
            return false;
        }
        self.search_step()
    }

    fn search_step(&mut self) -> bool {
        let Some(search) = &mut self.scrub.search else {
            return true;
        };
        let none = BTreeSet::new();
        let unread = search.run.as_ref().map_or(&none, |it| &it.unread);
        let found = (self.state).bodies_within(&search.damaged, unread, search.from, STEPS);
        let is_all_kept = search.take(found.bodies);
        if let Some(next) = found.next.filter(|_| is_all_kept) {
            search.from = next;
            self.await_records(&found.missing);
            return false;
        }
        if !is_all_kept {
            tracing::warn!(
                "more messages are near damage than are looked at in one pass of the scrub"
            );
            self.scrub.is_incomplete = true;
        }
        self.loads.release_walk(Asker::Scrub);
        if let Some(search) = self.scrub.search.take() {
            self.scrub.suspects.extend(search.into_suspects());
        }
        true
    }

    /// Asks for the records at which the search has stopped, if that is why. Passes over those that cannot be read.
    fn await_records(&mut self, missing: &Missing) {
        let now = self.now.boot;
        let Some(search) = &mut self.scrub.search else {
            return;
        };
        let Some(run) = search.awaited(missing) else {
            return;
        };
        let Some(until) = self.loads.ask(Asker::Scrub, missing) else {
            search.not_before = now.plus_ms(PACE_MS);
            return;
        };
        run.failed_reads += 1;
        if run.failed_reads < TRIES {
            search.not_before = until;
            return;
        }
        for group in missing.groups.keys() {
            let Some(why) = self.loads.why_failing(*group) else {
                continue;
            };
            tracing::warn!(
                ?group,
                "the scrub does not know which bodies messages have that cannot be read"
            );
            // Another pass may read them, and what was listed before still counts.
            self.scrub.is_incomplete |= why == Unread::Now;
            run.unread.insert(*group);
        }
    }

    /// Gives back what the search holds: it goes on where it is once the disk is not full any more.
    pub(super) fn suspend_search(&mut self) {
        if let Some(search) = &mut self.scrub.search
            && search.run.take().is_some()
        {
            self.loads.release_walk(Asker::Scrub);
        }
    }
}
