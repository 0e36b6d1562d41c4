//! A snapshot that is kept, with its pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kew_log::{Epoch, LogEnd, LogPosition, PageContent, PageNumber, SnapshotContent};

use super::Shared;

/// The state at a position. Pages are shared with the snapshot before.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) at: LogPosition,
    pub(super) time_ms: u64,
    pub(super) parts: Vec<Bytes>,
    /// In the order of their pieces.
    pub(super) order: Vec<PageNumber>,
    pub(super) pages: BTreeMap<PageNumber, Arc<PageContent>>,
    /// What was written for it.
    pub(super) written_bytes: u64,
}

/// What a job needs to write one.
pub(super) struct WriteSnapshot {
    pub(super) epoch: Epoch,
    pub(super) at: LogPosition,
    pub(super) time_ms: u64,
    /// The one before.
    pub(super) newest: Option<Arc<Snapshot>>,
    pub(super) content: Box<dyn SnapshotContent>,
}

impl WriteSnapshot {
    /// Writes it, and gives the content its pages.
    pub(super) fn run(mut self, shared: &Shared) -> Result<Arc<Snapshot>, LogEnd> {
        let planned = self.content.plan();
        let mut snapshot = Snapshot {
            at: self.at,
            time_ms: self.time_ms,
            ..Snapshot::default()
        };
        for index in 0..planned.parts {
            let mut part = Vec::new();
            self.content.put_part(index, &mut part);
            snapshot.written_bytes += part.len() as u64;
            snapshot.parts.push(part.into());
        }
        let first_new = {
            let mut kept = shared.kept();
            let first_new = kept.next_page;
            kept.next_page += planned.pages as u64;
            first_new
        };
        for (index, number) in (0..planned.pages).zip(first_new..) {
            self.put_page(index, PageNumber::new(number), &mut snapshot);
        }
        let snapshot = Arc::new(snapshot);
        {
            let mut kept = shared.kept();
            kept.check_owner(self.epoch)?;
            kept.put_snapshot(Arc::clone(&snapshot));
        }
        for (index, number) in snapshot.order.iter().enumerate() {
            self.content.keep(index, *number);
        }
        Ok(snapshot)
    }

    /// Names the page that has the content, or makes one.
    fn put_page(&self, index: usize, number: PageNumber, snapshot: &mut Snapshot) {
        let named = self.content.page(index).and_then(|number| {
            let page = self.newest.as_ref()?.pages.get(&number)?;
            Some((number, Arc::clone(page)))
        });
        let (number, page) = named.unwrap_or_else(|| {
            let mut page = PageContent::default();
            self.content.put_page(index, &mut page);
            snapshot.written_bytes += page.size_bytes() as u64;
            (number, Arc::new(page))
        });
        snapshot.order.push(number);
        snapshot.pages.insert(number, page);
    }
}
