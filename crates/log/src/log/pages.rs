//! The pages of the newest snapshot, for what is on them alone.

use super::SegmentLog;
use crate::PageNumber;
use crate::pages::{PagesRead, PagesToRead};

impl SegmentLog {
    /// Whether the newest snapshot names a page.
    pub fn names_page(&self, number: PageNumber) -> bool {
        self.pages.place(number).is_some()
    }

    /// The same, of a page of which both copies are whole, as far as is known. Those of a file with damage do not count,
    /// until a snapshot has them elsewhere.
    pub fn has_whole(&self, number: PageNumber) -> bool {
        self.pages.has_whole(number)
    }

    /// The size of a page that the newest snapshot names, in one of its two files.
    pub fn page_size_bytes(&self, number: PageNumber) -> Option<u64> {
        let place = self.pages.place(number)?;
        Some(place.size_bytes.into())
    }

    /// Pages of the newest snapshot, to read them on any thread. Their files stay until [`SegmentLog::end_read`].
    pub fn read_pages(&mut self, numbers: impl IntoIterator<Item = PageNumber>) -> PagesToRead {
        self.pages.read(&self.storage, numbers)
    }

    /// How many pages the newest snapshot names although both copies of them are damaged. A start that reads one may do without
    /// what is lost.
    pub fn unreadable_pages(&self) -> usize {
        self.pages.unreadable_count()
    }

    /// Whether a page is one of these.
    pub fn is_unreadable(&self, number: PageNumber) -> bool {
        self.pages.is_unreadable(number)
    }

    /// Ends a read of pages. The next snapshots have such pages elsewhere of which a copy is damaged.
    pub fn end_read(&mut self, read: PagesRead) {
        self.pages.end_read(read);
    }
}
