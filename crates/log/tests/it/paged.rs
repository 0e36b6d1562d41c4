//! The owner's state as pieces of a snapshot: a part for the count, and a page for each live message.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use kew_log::{
    BodyLocation, PageContent, PageNumber, PageOptions, PlannedSnapshot, SnapshotContent,
};

use crate::node::encode;

/// Files end after a few snapshots.
pub(crate) const PAGES: PageOptions = PageOptions {
    file_size_bytes: 12 << 10,
    copied_bytes_max: 300,
    pairs_max: 3,
};

/// Which pages have which messages. That is no part of the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks(Arc<Mutex<BTreeMap<u64, PageNumber>>>);

impl PartialEq for Marks {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Marks {}

impl Marks {
    pub(crate) fn set(&self, id: u64, page: PageNumber) {
        self.0.lock().unwrap().insert(id, page);
    }
}

/// A snapshot on its way to the disk.
pub(crate) struct Content {
    pub(crate) count: u64,
    pub(crate) live: Vec<(u64, BodyLocation)>,
    pub(crate) marks: Marks,
}

impl SnapshotContent for Content {
    fn plan(&mut self) -> PlannedSnapshot {
        PlannedSnapshot {
            parts: 1,
            pages: self.live.len(),
        }
    }

    fn put_part(&self, index: usize, out: &mut Vec<u8>) {
        match index.checked_sub(1) {
            None => out.extend(self.count.to_le_bytes()),
            Some(index) => {
                let (id, at) = self.live[index];
                out.extend(encode(id, at));
            }
        }
    }

    fn page(&self, index: usize) -> Option<PageNumber> {
        let (id, _) = self.live[index];
        self.marks.0.lock().unwrap().get(&id).copied()
    }

    fn put_page(&self, index: usize, page: &mut PageContent) {
        let (id, at) = self.live[index];
        page.begin(1);
        page.add_group(|out| out.extend(encode(id, at)));
    }

    fn keep(&self, index: usize, page: PageNumber) {
        self.marks.set(self.live[index].0, page);
    }
}
