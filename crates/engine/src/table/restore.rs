//! Restores a table from a snapshot, run by run.
//!
//! A snapshot has messages in the order of their numbers. So a run is put together by itself and added whole: a
//! start takes a step in the table for each run, not several for each message.

use std::sync::Arc;

use super::cold::Cold;
use super::far::FarKnown;
use super::missing::{Group, RunId};
use super::record::size_bytes;
use super::{Live, MessageState, PagedMessage, PagedRun, Record, Run, RunLength, Side, Table};
use crate::vocabulary::{Hint, PageNumber, SequenceNumber, Timestamp};

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
        if self.runs.get(run.index()).is_some() {
            return self.merge(&run, live);
        }
        self.add_run(run, live);
        true
    }

    /// Adds a run whose place is free, and counts it.
    fn add_run(&mut self, run: Run, live: &mut Live) {
        let index = run.index();
        live.add_all(&run.spread);
        live.resident.add(run.resident());
        *self.cold_count += u64::from(run.is_cold());
        *self.aside_count += run.quarantined_count();
        self.note_far(index, FarKnown::default(), run.far_known());
        self.count += run.count();
        // A directory may say anything, and nothing else does.
        self.size_bytes = self.size_bytes.saturating_add(run.size_bytes);
        self.borrowed_bytes = self.borrowed_bytes.saturating_add(run.borrowed_bytes);
        if run.has_ready() {
            self.ready.insert(index);
        }
        if *run.expires_first != Timestamp::NEVER {
            self.expiries.insert((*run.expires_first, index));
        }
        self.runs.get_or_insert_with(index, || Arc::new(run));
    }

    /// Adds a run of which this is its directory's word and nothing of its page was read. `is_in_order` says which states
    /// are those of messages that can be received in the order of their numbers. Returns false if one of its numbers is
    /// taken, or was never given out.
    pub(crate) fn restore_cold(
        &mut self,
        paged: &PagedRun,
        page: PageNumber,
        is_in_order: impl Fn(MessageState) -> bool,
        live: &mut Live,
    ) -> bool {
        let run = Run::of_directory(self.length, paged, page, is_in_order);
        if self.runs.get(run.index()).is_some() || run.range().1 > self.next {
            return false;
        }
        self.add_run(run, live);
        true
    }

    /// Adds what could be read of the damaged page of such a run. Returns the groups that lack a message.
    pub(crate) fn add_left(
        &mut self,
        (entity, index): RunId,
        messages: Vec<PagedMessage>,
        live: &mut Live,
    ) -> Vec<Group> {
        let Some(run) = self.run_mut(index) else {
            return Vec::new();
        };
        let (before, far_before) = (run.resident(), run.far_known());
        // The restore puts them into their orders.
        run.put_copies(messages, &mut Vec::new());
        let (after, far_after) = (run.resident(), run.far_known());
        let groups = run.length().groups();
        let lost = groups.filter(|group| run.missing_in(*group) != 0);
        let group = |place| Group {
            entity,
            run: index,
            index: place,
        };
        let lost = lost.map(group).collect();
        self.recount_resident(before, after, live);
        self.note_far(index, far_before, far_after);
        lost
    }

    /// The messages of a run, each with its record if that is in memory, and with what else it has.
    pub(crate) fn known_of_run(&self, index: u64) -> Vec<(SequenceNumber, Option<KnownMessage>)> {
        let run = self.runs.get(index);
        let seen = run.map(|run| run.seen_from(run.start()));
        let seen = seen.into_iter().flatten();
        let known = seen.map(|(number, entry)| {
            let known = entry.map(|it| (*it.record, (it.overlays().len(), it.source_length())));
            (number, known)
        });
        known.collect()
    }

    /// Settles whether a restored run stays in memory. Returns false if it needs another page than its directory says: more
    /// changed than may lie beside the page of a run that is in memory.
    pub(crate) fn settle_restored(&mut self, index: u64, room: Room, live: &mut Live) -> bool {
        let Some(run) = self.run_mut(index) else {
            return true;
        };
        let before = run.resident();
        let has_too_many = run.paged.page().is_some() && !run.has_kept_page();
        match (has_too_many, room) {
            (false, _) => {}
            (true, Room::Unlimited | Room::Left) => run.paged.forget(),
            (true, Room::Used) => run.cold = Some(Box::default()),
        }
        let after = run.resident();
        self.recount_resident(before, after, live);
        if room == Room::Used {
            // Its messages stay in the order by time: a start does not know which times are far.
            self.evict(index, Timestamp::NEVER, live);
        }
        !has_too_many || room == Room::Used
    }

    /// Notes the page that a restored run has, which messages have changed since, and what its directory says of it. Returns
    /// false if the messages say something else: what was counted from them stays.
    pub(crate) fn keep_page(
        &mut self,
        paged: &PagedRun,
        page: Option<PageNumber>,
        changed_now: &[SequenceNumber],
        is_same_unit: bool,
    ) -> bool {
        let Some(run) = self.run_mut(paged.index) else {
            return false;
        };
        if let Some(page) = page {
            let mut changed = paged.changed();
            for number in changed_now {
                changed.insert(run.slot(*number));
            }
            run.set_page(page, changed);
        }
        run.expires_last = run.expires_last.max(paged.expires_last);
        // Messages that are gone count for these.
        if let Some(enqueued_first) = paged.enqueued_first {
            run.enqueued_first = run.enqueued_first.min(enqueued_first);
            run.has_special |= paged.has_special;
        }
        let number = run.start();
        // Spreads in another unit are counted anew.
        let is_as_told = (run.size_bytes, &run.ready) == (paged.size_bytes, &paged.ready)
            && (!is_same_unit || run.spread == paged.spread)
            && (!paged.is_of_this_version() || run.borrowed_bytes == paged.borrowed_bytes);
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

/// A record, the number of changes to its properties, and the length of its source.
pub(crate) type KnownMessage = (Record, (usize, Option<u32>));

/// How much memory there is for what is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// For all.
    Unlimited,
    /// For some.
    Left,
    /// Runs that have a page are to leave it.
    Used,
}

impl Run {
    /// A run whose page is not read, as its directory says it is.
    fn of_directory(
        length: RunLength,
        paged: &PagedRun,
        page: PageNumber,
        is_in_order: impl Fn(MessageState) -> bool,
    ) -> Self {
        let live = paged.live();
        let waiting = paged.waiting(length);
        let cold = Cold {
            patches: paged.patches().clone(),
            waiting: waiting.map(Box::new),
            far: waiting.and_then(|it| it.far()),
        };
        let mut run = Self {
            live,
            ready: live.without(&paged.untold()),
            live_count: live.count() as u64,
            size_bytes: paged.size_bytes,
            borrowed_bytes: paged.borrowed_bytes,
            spread: paged.spread.clone(),
            expires_first: Hint::new(paged.expires_first),
            expires_last: paged.expires_last,
            enqueued_first: paged.enqueued_first.unwrap_or(Timestamp::ZERO),
            quarantined: paged.quarantined().map(|it| Box::new(*it)),
            has_special: paged.has_special,
            cold: Some(Box::new(cold)),
            ..Self::new(length, paged.index)
        };
        for (number, state, _) in paged.told_states(length) {
            // Nothing tells here which of them have sessions.
            let may_be = !paged.has_special || paged.ready.contains(run.slot(number));
            run.set_ready(number, may_be && is_in_order(state));
        }
        for (slot, record, side) in paged.here() {
            run.records.put(*slot, *record, length);
            let side = side.as_deref().cloned().unwrap_or_default();
            let side = run.without_first(*slot, side);
            if !side.is_empty() {
                run.sides.insert(*slot, side);
            }
        }
        run.set_page(page, paged.changed());
        run
    }

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
