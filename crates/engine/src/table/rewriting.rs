//! Which pages of runs are worth writing again, and what lies beside them in memory.
//!
//! A cold run keeps its page, however little of it is left and however much has changed. So a page can be much larger
//! than what is needed of it, and what lies beside pages takes memory that nothing frees. Such a run leaves its page, and
//! the next snapshot has another place for its records. A cold run is read back first, because that needs its records.
//!
//! What is found here depends on what is in memory, and changes nothing that a decision sees.

use super::paged::RecordsAt;
use super::{Live, Resident, Run, Table};
use crate::vocabulary::PageNumber;

/// What a change of a run takes, in steps of 20 ns, and a look at one with a page.
const CHANGE_STEPS: u32 = 100;
const PAGE_STEPS: u32 = 16;

/// A page is too large if it has more bytes than these, and these for each message that is left.
const PAGE_SIZE_BYTES_MIN: u64 = 256;
const MESSAGE_SIZE_BYTES: u64 = 16;

/// What a page that is too large counts for beside changes: one for so many bytes.
const BYTES_PER_CHANGE: u64 = 1024;

/// How much of the memory is taken by what lies beside pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pressure {
    /// Little of it.
    #[default]
    Low,
    /// Too much: smaller pages are worth writing, too.
    High,
}

/// What the log knows of pages.
pub trait KnownPages {
    /// The size of a page, if that is known.
    fn size_bytes(&self, page: PageNumber) -> Option<u64>;

    /// Whether a snapshot has found that no copy of a page can be read.
    fn is_unreadable(&self, page: PageNumber) -> bool;
}

/// How runs are looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looking {
    pub(crate) pressure: Pressure,
    /// The first run to look at.
    pub(crate) from: u64,
}

/// What a look at some runs has found.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// Cold runs that are to be read back, so that they can leave their pages, and how much it is worth.
    pub(crate) to_warm: Vec<(u64, u64)>,
    /// Runs in memory that are to leave their pages, or to get one.
    pub(crate) to_change: Vec<u64>,
    /// Whether a page that one of these leaves cannot be read.
    pub(crate) leaves_unreadable: bool,
    /// What lies in directories and not on pages of runs.
    pub(crate) beside: Resident,
    /// Where to continue. `None` after the last run.
    pub(crate) next: Option<u64>,
}

/// What is worth doing with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worth {
    Nothing,
    /// All of its records are needed in memory first. So much lies beside its page, or could leave it. The most if the page
    /// cannot be read: then what is lost of it can be set aside, and the rest leaves it.
    Warming(u64),
    /// It can leave its page, or get one, as it is.
    Change,
    /// The same, and its page cannot be read.
    LeaveUnreadable,
}

impl Run {
    /// Notes that a message came.
    pub(super) fn note_growth(&mut self) {
        if self.page_of > 0 {
            self.page_of = self.page_of.max(self.live_slots());
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a run has at most 1,024 messages"
    )]
    fn live_slots(&self) -> u16 {
        self.live_count as u16
    }

    /// Whether its page has much that is gone. One that was written again is not too large before half of that is gone too,
    /// however much each of its messages takes.
    ///
    /// Returns how many bytes it has too many.
    fn excess_bytes(&self, known: &dyn KnownPages, page: PageNumber) -> u64 {
        let page_of = match self.page_of {
            // Not known: it was full.
            0 => self.length.as_u64(),
            known => known.into(),
        };
        if 2 * self.live_count > page_of {
            return 0;
        }
        let most = PAGE_SIZE_BYTES_MIN + MESSAGE_SIZE_BYTES * self.live_count;
        let size_bytes = known.size_bytes(page);
        size_bytes.map_or(0, |bytes| bytes.saturating_sub(most))
    }

    /// How many changes may lie beside its page.
    fn beside_max(&self, pressure: Pressure) -> usize {
        match pressure {
            Pressure::High => self.length.changes_under_pressure_max(),
            Pressure::Low => self.length.changes_max(),
        }
    }

    /// Whether it has so many messages that it is to have a page under pressure.
    fn has_enough_for_page(&self) -> bool {
        self.live_count > self.length.changes_under_pressure_max() as u64
    }

    fn worth(&self, pressure: Pressure, known: &dyn KnownPages) -> Worth {
        let Some((page, changed)) = self.paged.page() else {
            let is_wanted = pressure == Pressure::High && self.has_enough_for_page();
            return match is_wanted && self.records_at() == RecordsAt::Directory {
                true => Worth::Change,
                false => Worth::Nothing,
            };
        };
        let beside = changed.and(&self.live).count();
        let excess_bytes = self.excess_bytes(known, page);
        let is_unreadable = known.is_unreadable(page);
        // It has got its page under pressure.
        let needs_none = self.wants_page && !self.has_enough_for_page();
        // Its page is damaged, and was not written again since that was found.
        let is_damaged = self.quarantined.is_some() && self.page_of == 0 || is_unreadable;
        let is_worth = beside > self.beside_max(pressure) || excess_bytes > 0;
        match is_worth || needs_none || is_damaged {
            false => Worth::Nothing,
            true if self.is_cold() && !self.is_whole_again() => {
                Worth::Warming(match is_unreadable {
                    true => u64::MAX,
                    false => beside as u64 + excess_bytes / BYTES_PER_CHANGE,
                })
            }
            // The next snapshot writes another page in any case.
            true if !self.can_be_cold() => Worth::Nothing,
            true if is_unreadable => Worth::LeaveUnreadable,
            true => Worth::Change,
        }
    }

    /// What of it lies in its directory, as far as it is in memory.
    fn beside(&self) -> Resident {
        let (records, patches) = match self.records_at() {
            RecordsAt::Directory => (self.live_count, 0),
            RecordsAt::Page(_, changed) => {
                let patches = self.patch_count();
                ((changed.count() as u64).saturating_sub(patches), patches)
            }
            RecordsAt::NewPage => (0, 0),
        };
        Resident {
            records,
            patches,
            ..Resident::default()
        }
    }

    /// Whether all of its records are in memory.
    fn is_whole(&self) -> bool {
        !self.is_cold() || self.is_whole_again()
    }

    /// Takes a run off its page, all of whose records are in memory: the next snapshot has another place for them. Under
    /// pressure that is a page, unless there are very few.
    pub(super) fn leave_page(&mut self, pressure: Pressure) {
        debug_assert_eq!(self.far_count(), 0, "all is in memory, and in the orders");
        self.cold = None;
        self.paged.forget();
        self.wants_page =
            (pressure == Pressure::High || self.wants_page) && self.has_enough_for_page();
        self.page_of = self.live_slots();
    }
}

impl Table {
    /// Looks at runs: which of them are worth writing again, and what lies beside their pages.
    pub(crate) fn look(&self, looking: Looking, steps: &mut u32, known: &dyn KnownPages) -> Looked {
        let mut looked = Looked::default();
        for (index, run) in self.runs.range(looking.from..=u64::MAX) {
            if *steps == 0 {
                looked.next = Some(index);
                break;
            }
            let has_page = run.paged.page().is_some();
            *steps = steps.saturating_sub(if has_page { PAGE_STEPS } else { 1 });
            looked.beside.add(run.beside());
            match run.worth(looking.pressure, known) {
                Worth::Nothing => continue,
                Worth::Warming(worth) => looked.to_warm.push((worth, index)),
                Worth::Change => looked.to_change.push(index),
                Worth::LeaveUnreadable => {
                    looked.to_change.push(index);
                    looked.leaves_unreadable = true;
                }
            }
            *steps = steps.saturating_sub(CHANGE_STEPS);
        }
        looked
    }

    /// Whether all records of a run are in memory.
    pub(crate) fn has_whole(&self, index: u64) -> bool {
        self.run(index).is_some_and(Run::is_whole)
    }

    /// How many records of a run are not in memory.
    pub(crate) fn missing_count(&self, index: u64) -> u64 {
        let run = self.run(index);
        run.map_or(0, |run| run.live_count.saturating_sub(run.records_here()))
    }

    /// The page that a run has.
    pub(crate) fn page_of(&self, index: u64) -> Option<PageNumber> {
        self.run(index)?.paged.page().map(|(page, _)| page)
    }

    /// Whether a run has a page, and can leave it: all of its records are in memory. `None` if there is no such run.
    pub(crate) fn can_leave_page(&self, index: u64) -> Option<bool> {
        let run = self.run(index)?;
        run.paged.page()?;
        Some(run.is_whole())
    }

    /// Takes a run off its page of which all records are in memory, or lets one get a page that has none. Unlike a read, this
    /// is a change of what a snapshot has.
    pub(crate) fn leave_page(&mut self, index: u64, pressure: Pressure, live: &mut Live) {
        let Some(run) = self.run_mut(index) else {
            return;
        };
        let before = run.resident();
        run.leave_page(pressure);
        let after = run.resident();
        self.recount_resident(before, after, live);
    }
}
