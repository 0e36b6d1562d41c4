//! Which page has the records of a run, and which of them changed since it was written.
//!
//! A run with few messages lies in its directory page alone, unless it is to have a page. Another one has a page, and
//! keeps it through small changes: these lie in the directory page. A cold run keeps its page, however much changed.
//! None of this is part of the state.

use super::Run;
use super::bits::Bits;
use crate::shared::Mark;
use crate::vocabulary::PageNumber;

/// The page of a run's records.
///
/// Invariant: a live record that is not noted as changed is that of the page.
#[derive(Clone, Debug, Default)]
pub(super) struct Paged {
    /// The page of exactly these records, and of some that are gone.
    mark: Mark,
    /// The page of which some records changed, unless there is a mark.
    older: Option<Box<Older>>,
}

#[derive(Clone, Debug)]
struct Older {
    page: PageNumber,
    changed: Bits,
}

impl Paged {
    /// Notes that a record is not the one of the page any more.
    pub(super) fn note(&mut self, slot: usize) {
        if let Some(page) = self.mark.take() {
            let changed = Bits::default();
            self.older = Some(Box::new(Older { page, changed }));
        }
        if let Some(older) = &mut self.older {
            older.changed.insert(slot);
        }
    }

    /// Notes that all records changed.
    pub(super) fn forget(&mut self) {
        self.mark.take();
        self.older = None;
    }

    /// The page, and the slots that changed since.
    pub(super) fn page(&self) -> Option<(PageNumber, Bits)> {
        match (self.mark.get(), &self.older) {
            (Some(page), _) => Some((page, Bits::default())),
            (None, Some(older)) => Some((older.page, older.changed)),
            (None, None) => None,
        }
    }
}

/// Where a snapshot has the records of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordsAt {
    /// In the directory page.
    Directory,
    /// In a page that is there, and those that changed in the directory page.
    Page(PageNumber, Bits),
    /// In a page that is to be written.
    NewPage,
}

impl Run {
    /// Where a snapshot has its records.
    pub(crate) fn records_at(&self) -> RecordsAt {
        match self.paged.page() {
            Some((page, changed)) if self.can_be_cold() => {
                RecordsAt::Page(page, changed.and(&self.live))
            }
            Some(_) | None if self.has_few() && !self.wants_page => RecordsAt::Directory,
            Some(_) | None => RecordsAt::NewPage,
        }
    }

    /// Whether so few messages are left that the directory page has room for them.
    pub(super) fn has_few(&self) -> bool {
        self.live_count() <= self.length.changes_max() as u64
    }

    /// Whether it has a page, and so few changes beside it that it keeps it.
    pub(super) fn has_kept_page(&self) -> bool {
        self.paged.page().is_some_and(|(_, changed)| {
            let changed = changed.and(&self.live);
            changed.count() <= self.length.changes_max()
        })
    }

    /// Notes the page that has its records, with those in the directory page.
    pub(crate) fn keep_page(&self, page: PageNumber) {
        let known = self.paged.page().map(|(known, _)| known);
        if known != Some(page) {
            self.paged.mark.set(page);
        }
    }

    /// Notes the page that a restored run has, and what changed since.
    pub(super) fn set_page(&mut self, page: PageNumber, changed: Bits) {
        self.paged.mark.set(page);
        for slot in changed.iter_from(0) {
            self.paged.note(slot);
        }
    }
}
