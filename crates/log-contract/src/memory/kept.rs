//! What survives a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use kew_log::{BatchBuilder, Body, BodyLocation, Epoch, LogEnd, LogPosition, Sealed};

use super::snapshot::Snapshot;
use super::{Mistake, Shared, log_id};

/// The position of the first record. So 0 is before everything.
pub(crate) const FIRST_POSITION: LogPosition = LogPosition::new(4096);

/// How many snapshots are kept.
const SNAPSHOTS: usize = 2;

/// A batch, as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) epoch: Epoch,
    pub(crate) time_ms: u64,
    /// The content checksum of the batch before.
    pub(crate) previous: u32,
    pub(crate) sealed: Sealed,
}

/// What survives.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The newest epoch that has begun.
    pub(crate) epoch: Epoch,
    /// The time of the last batch.
    pub(crate) time_ms: u64,
    pub(crate) end: LogPosition,
    /// The content checksum of the last batch.
    pub(crate) chain: u32,
    /// By the positions of their records.
    pub(crate) batches: BTreeMap<LogPosition, Stored>,
    /// All batches that have gone lie before.
    pub(crate) trimmed: LogPosition,
    /// At most two, the newest one last.
    pub(crate) snapshots: Vec<Arc<Snapshot>>,
    /// The number of the next page.
    pub(crate) next_page: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            epoch: Epoch::default(),
            time_ms: 0,
            end: FIRST_POSITION,
            chain: 0,
            batches: BTreeMap::new(),
            trimmed: FIRST_POSITION,
            snapshots: Vec::new(),
            next_page: 0,
        }
    }
}

impl Kept {
    /// Refuses what an owner does whose epoch is not the newest one.
    pub(crate) fn check_owner(&self, epoch: Epoch) -> Result<(), LogEnd> {
        match self.epoch == epoch {
            true => Ok(()),
            false => Err(LogEnd::Fenced(self.epoch)),
        }
    }

    /// Keeps batches, which continue the log. Returns its end.
    pub(crate) fn put(&mut self, batches: Vec<(LogPosition, Stored)>) -> LogPosition {
        for (record, stored) in batches {
            self.end = stored.sealed.end;
            self.chain = stored.sealed.content;
            self.time_ms = stored.time_ms;
            self.batches.insert(record, stored);
        }
        self.end
    }

    pub(crate) fn put_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.snapshots.push(snapshot);
        if self.snapshots.len() > SNAPSHOTS {
            self.snapshots.remove(0);
        }
    }

    /// Removes batches for good.
    pub(crate) fn remove(&mut self, records: &[LogPosition]) {
        for record in records {
            if let Some(removed) = self.batches.remove(record) {
                self.trimmed = self.trimmed.max(removed.sealed.end);
            }
        }
    }
}

impl Shared {
    /// A body of a batch that is kept. It can be read also when the batch has gone.
    pub(crate) fn body(self: &Arc<Self>, at: BodyLocation) -> Option<Body> {
        let body = self.kept().batches.get(&at.record)?.sealed.body(at)?;
        if !self.makes(Mistake::BodyRecycled) {
            return Some(Body::of(body));
        }
        let shared = Arc::clone(self);
        Some(Body::kept(at, move || {
            let kept = shared.kept();
            let stored = kept.batches.get(&at.record);
            let other = stored.or_else(|| kept.batches.values().next_back());
            other?.sealed.body(at)
        }))
    }
}

/// A batch at the same place with half of the events: for mistakes.
pub(crate) fn halved(record: LogPosition, stored: Stored) -> Stored {
    let mut events = stored.events();
    events.truncate(events.len() / 2);
    let mut halved = stored.with_events(record, &events, stored.previous);
    halved.sealed.end = stored.sealed.end;
    halved
}

impl Stored {
    /// A batch of the same owner and time at a place, with these events. `previous` is the content checksum before it.
    pub(crate) fn with_events(
        &self,
        record: LogPosition,
        events: &[Vec<u8>],
        previous: u32,
    ) -> Self {
        let mut batch = BatchBuilder::at(record);
        batch.set_time_ms(self.time_ms);
        for event in events {
            batch.push_event(event);
        }
        Self {
            previous,
            sealed: batch.seal(log_id(), self.epoch, previous),
            ..*self
        }
    }

    /// Its events.
    pub(crate) fn events(&self) -> Vec<Vec<u8>> {
        self.sealed.events().map(<[u8]>::to_vec).collect()
    }
}
