//! Restores a table from a snapshot, run by run.
//!
//! A snapshot has messages in the order of their numbers. So a run is put together by itself and added whole: a
//! start takes a step in the table for each run, not several for each message.

use std::sync::Arc;

use super::record::size_bytes;
use super::{Live, PagedRun, Record, Run, Side, Table};
use crate::vocabulary::{PageNumber, SequenceNumber, Timestamp};

/// The run that is being put together. It becomes part of the table, and counts, with [`Table::add_restored`].
#[derive(Debug, Default)]
pub(crate) struct Restoring(Option<Run>);

impl Table {
    /// Adds a message of a snapshot to its run. `expiry` is when it expires if nothing else happens first. Returns
    /// false if its number is taken.
    pub(crate) fn restore(
        &mut self,
        restoring: &mut Restoring,
        (number, record, side): (SequenceNumber, Record, Side),
        is_ready: bool,
        expiry: Timestamp,
        live: &mut Live,
    ) -> bool {
        let index = self.length.run_of(number.as_u64());
        if restoring.0.as_ref().is_none_or(|run| run.index() != index) {
            if !self.add_restored(restoring, live) {
                return false;
            }
            restoring.0 = Some(Run::new(self.length, index));
        }
        let run = restoring.0.as_mut();
        run.is_some_and(|run| run.restore((number, record, side), is_ready, expiry, live))
    }

    /// Adds the run that was put together, if there is one. Returns false if a number in it is taken.
    pub(crate) fn add_restored(&mut self, restoring: &mut Restoring, live: &mut Live) -> bool {
        let Some(run) = restoring.0.take() else {
            return true;
        };
        let index = run.index();
        if self.runs.get(index).is_some() {
            return self.merge(&run, live);
        }
        live.add_all(&run.spread);
        live.resident.add(run.resident());
        self.count += run.live_count();
        self.size_bytes += run.size_bytes;
        self.borrowed_bytes += run.borrowed_bytes;
        if run.has_ready() {
            self.ready.insert(index);
        }
        if *run.expires_first != Timestamp::NEVER {
            self.expiries.insert((*run.expires_first, index));
        }
        self.runs.get_or_insert_with(index, || Arc::new(run));
        true
    }

    /// Notes the page that a restored run has, and what its directory says of it. Returns false if the messages say
    /// something else: what was counted from them stays.
    pub(crate) fn keep_page(
        &mut self,
        paged: &PagedRun,
        page: Option<PageNumber>,
        is_same_unit: bool,
    ) -> bool {
        let Some(run) = self.run_mut(paged.index) else {
            return false;
        };
        if let Some(page) = page {
            run.set_page(page, paged.changed());
        }
        run.expires_last = run.expires_last.max(paged.expires_last);
        let number = run.start();
        // Spreads in another unit are counted anew.
        let is_as_told = (run.size_bytes, &run.ready) == (paged.size_bytes, &paged.ready)
            && (!is_same_unit || run.spread == paged.spread);
        self.lower_expiry(number, paged.expires_first);
        is_as_told
    }

    /// Whether these are runs of one directory page, and the first ones of theirs.
    pub(crate) fn is_new_directory(&self, runs: &[PagedRun]) -> bool {
        let (first, last) = (runs.first(), runs.last());
        first
            .zip(last)
            .is_some_and(|(first, last)| self.runs.is_new_chunk(first.index, last.index))
    }

    /// Notes the page of the directory with a run.
    pub(crate) fn keep_directory(&self, index: u64, page: PageNumber) {
        if let Some(mark) = self.runs.mark_of(index) {
            mark.set(page);
        }
    }

    /// Adds the messages of a run of which there is a part already: parts of a snapshot of an earlier version end
    /// anywhere.
    fn merge(&mut self, run: &Run, live: &mut Live) -> bool {
        let mut all_are_new = true;
        for entry in run.entries() {
            let side = entry.whole_side();
            let is_ready = run.is_ready(entry.number);
            // The others are added too, if one is there twice.
            all_are_new &= self.insert(entry.number, *entry.record, side, is_ready, live);
        }
        if let Some(number) = run.last() {
            self.lower_expiry(number, *run.expires_first);
        }
        all_are_new
    }
}

impl Run {
    fn restore(
        &mut self,
        (number, record, side): (SequenceNumber, Record, Side),
        is_ready: bool,
        expiry: Timestamp,
        live: &Live,
    ) -> bool {
        let size_bytes = size_bytes(record.body, &side.overlays);
        if !self.put(number, record, side, |spread, body| {
            live.add_apart(spread, body)
        }) {
            return false;
        }
        self.size_bytes += size_bytes;
        self.borrowed_bytes += record.body.borrowed_bytes();
        self.set_ready(number, is_ready);
        *self.expires_first = expiry.min(*self.expires_first);
        true
    }
}
