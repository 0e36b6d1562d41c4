//! Takes records of a table's runs out of memory, a piece at a time.

use super::{Live, Run, Table, TimedKey};
use crate::vocabulary::{PageNumber, Timestamp};

/// What it takes to evict a run, in steps of 20 ns.
const EVICTION_STEPS: u32 = 100;

/// And for each message that may leave the order by time.
const TIMED_STEPS: u32 = 8;

/// What a piece came to.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// How many runs have fewer records in memory now.
    pub(crate) evicted: u64,
    /// Where to continue. `None` after the last run.
    pub(crate) next: Option<u64>,
    /// Cold runs of which all that is left is in memory and has changed: they are to leave their pages.
    pub(crate) outgrown: Vec<u64>,
    /// The places of messages that leave the order by time, because they are due much later.
    pub(crate) left: Vec<TimedKey>,
}

/// What is to leave, if it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Records leave memory, of a run that has none on its page alone.
    Records,
    /// Copies of records leave memory, of a run that has others on its page alone.
    Copies,
    /// A run leaves a page of which it needs nothing: the next snapshot has another place for its records.
    Page,
}

impl Leaving {
    /// What records of this run are that leave memory.
    pub(super) fn of(run: &Run) -> Self {
        match run.is_cold() {
            true => Self::Copies,
            false => Self::Records,
        }
    }
}

impl Table {
    /// Takes records out of memory that pages have, from a run on. Spares the first run with messages that can be received
    /// in the order of their numbers, and the last run, unless it `takes_all`. Messages that are due after `far_from` leave
    /// the order by time.
    pub(crate) fn sweep(
        &mut self,
        from: u64,
        (takes_all, far_from): (bool, Timestamp),
        steps: &mut u32,
        may: impl Fn(u64, PageNumber, Leaving) -> bool,
        live: &mut Live,
    ) -> Swept {
        let spared = match takes_all {
            true => [None, None],
            false => [self.ready.first().copied(), self.last_run()],
        };
        let (mut chosen, mut outgrown, mut next) = (Vec::new(), Vec::new(), None);
        for (index, run) in self.runs.range(from..=u64::MAX) {
            if *steps == 0 {
                next = Some(index);
                break;
            }
            *steps -= 1;
            // The cheap questions come first: whether there is something to evict looks at the records.
            if run.has_outgrown_page() {
                if let Some(page) = run.cold_page()
                    && may(index, page, Leaving::Page)
                {
                    *steps = steps.saturating_sub(EVICTION_STEPS);
                    outgrown.push(index);
                }
            } else if !spared.contains(&Some(index))
                && let Some(page) = run.page_to_evict()
                && may(index, page, Leaving::of(run))
            {
                let steps_of = EVICTION_STEPS + TIMED_STEPS * run.not_ready_count();
                *steps = steps.saturating_sub(steps_of);
                chosen.push(index);
            }
        }
        let evicted = chosen.len() as u64;
        let mut left = Vec::new();
        for index in chosen {
            left.extend(self.evict(index, far_from, live).unwrap_or_default());
        }
        Swept {
            evicted,
            next,
            outgrown,
            left,
        }
    }

    fn last_run(&self) -> Option<u64> {
        self.runs.last().map(|run| run.index())
    }
}
