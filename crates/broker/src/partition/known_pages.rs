//! Pages of the newest snapshot, as the engine names them and asks for them.

use kew_engine::{KnownPages, PageNumber};
use kew_log::LocalLog;

/// What a log knows of pages.
pub(super) struct PagesOfLog<'a>(pub(super) &'a dyn LocalLog);

impl KnownPages for PagesOfLog<'_> {
    fn size_bytes(&self, page: PageNumber) -> Option<u64> {
        self.0.page_size_bytes(page_to_log(page))
    }

    fn is_unreadable(&self, page: PageNumber) -> bool {
        let files = self.0.files();
        files.is_some_and(|files| files.is_unreadable(page_to_log(page)))
    }
}

pub(super) fn page_to_log(page: PageNumber) -> kew_log::PageNumber {
    kew_log::PageNumber::new(page.as_u64())
}
