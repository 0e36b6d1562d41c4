//! The messages of an entity of either service, by sequence number.
//!
//! Messages lie in *runs* of consecutive numbers, dense and cheap. The order by number is a bit for each message
//! and an entry for each run: whatever can be received in that order needs no entry of its own. A run also
//! carries the counts of its messages and bounds of their expiries.
//!
//! The table knows records, runs, and these two orders. What a state means, which messages are in an order, and
//! what else orders them is for the profiles to say (`queues/profile.rs`).
//!
//! Changes come from effects, which bring what the old message counted for. So a change asks only whether the
//! message is there, and never reads what it replaces.
//!
//! Invariants: no run is empty; `ready` names the runs with a message in the order by number; counts and sizes
//! are sums over the runs, and each run's over its messages, also of what other messages count of their bodies; a
//! run's bound of expiry has an entry in `expiries` unless it is [`Timestamp::NEVER`]; each run's spread is that of its
//! messages' bodies, and counted in [`Live`].

mod ahead;
mod ask;
mod bits;
pub(crate) mod codec;
mod cold;
mod expiry;
mod far;
mod length;
mod missing;
mod page;
mod paged;
mod patch;
mod quarantine;
mod record;
mod records;
mod resident;
mod restore;
mod rewriting;
mod run;
mod spread;
mod sweep;
mod timed;

use std::collections::BTreeSet;
use std::sync::Arc;

use kew_planted::{Bug, is_planted};

pub use self::ahead::GroupAhead;
pub(crate) use self::ask::Seen;
pub(crate) use self::cold::ReadOf;
pub use self::cold::{GroupRead, GroupToRead, Taken};
use self::far::FarKnown;
pub(crate) use self::far::is_timed;
pub use self::length::RunLength;
pub(crate) use self::missing::{ALL_SLOTS, block_of_run, run_of_block};
pub use self::missing::{Group, Missing, RunId, Slots};
pub(crate) use self::page::Paged as PagedMessage;
pub(crate) use self::page::directory::{
    DIRECTORY_VERSION, PageHead, directory, put_directory, run_of_page, run_page,
};
pub(crate) use self::page::paged_run::{Numbered as NumberedMessage, PagedRun, without_directory};
pub(crate) use self::paged::RecordsAt;
pub(crate) use self::quarantine::numbers_of;
pub(crate) use self::record::Leased;
pub(crate) use self::record::size_bytes;
pub use self::record::{
    BodyEncoding, DeadLetterCause, MESSAGE_OVERHEAD_BYTES, MessageState, Placed, Record, Side,
};
pub use self::resident::Resident;
pub(crate) use self::restore::{Restoring, Room};
pub use self::rewriting::{KnownPages, Pressure};
pub(crate) use self::rewriting::{Looked, Looking};
pub(crate) use self::run::Run;
pub use self::spread::{CountUnit, LIVE_OVERHEAD_BYTES};
pub(crate) use self::spread::{Live, Spread};
pub use self::sweep::Leaving;
pub(crate) use self::sweep::Swept;
pub(crate) use self::timed::{Timed, TimedKey};
use crate::shared::{Chunk, SharedMap, Waste, own};
use crate::vocabulary::{BodyLocation, BodyMove, Hint, SequenceNumber, Timestamp};

/// Runs of a table, as a snapshot shares them.
pub(crate) type SharedRuns = Vec<Arc<Chunk<Arc<Run>>>>;

/// A message in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) number: SequenceNumber,
    pub(crate) record: &'a Record,
    /// Its first number, if that is not in `side`.
    pub(crate) first_number: Option<SequenceNumber>,
    pub(crate) side: Option<&'a Side>,
}

/// Where a first number is depends on those that came before it.
impl PartialEq for Entry<'_> {
    fn eq(&self, other: &Self) -> bool {
        let source = |of: &Self| of.side.and_then(|side| side.source.clone());
        (self.number, self.record) == (other.number, other.record)
            && self.first_number() == other.first_number()
            && self.overlays() == other.overlays()
            && source(self) == source(other)
    }
}

impl Eq for Entry<'_> {}

impl<'a> Entry<'a> {
    /// Its number in the queue or topic that it was first sent to, if that is another one.
    pub(crate) fn first_number(&self) -> Option<SequenceNumber> {
        self.first_number.or_else(|| self.side?.first_number)
    }

    /// All that few messages have of it.
    pub(crate) fn whole_side(&self) -> Side {
        Side {
            first_number: self.first_number(),
            ..self.side.cloned().unwrap_or_default()
        }
    }

    /// Changes to its application properties, oldest first.
    pub(crate) fn overlays(&self) -> &'a [BodyLocation] {
        self.side.map_or(&[], |side| &side.overlays)
    }

    /// The length of its source's name, if it has a source.
    pub(crate) fn source_length(&self) -> Option<u32> {
        self.side?.source_length()
    }

    /// The locations of its bytes: the body, then the changes to its properties.
    pub(crate) fn bodies(self) -> impl Iterator<Item = BodyLocation> + 'a {
        std::iter::once(self.record.body).chain(self.overlays().iter().copied())
    }

    /// What it counts for.
    pub(crate) fn size_bytes(&self) -> u64 {
        size_bytes(self.record.body, self.overlays())
    }

    /// What of that other messages count.
    pub(crate) fn borrowed_bytes(&self) -> u64 {
        self.record.body.borrowed_bytes()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    length: RunLength,
    runs: SharedMap<Arc<Run>>,
    next: SequenceNumber,
    ready: BTreeSet<u64>,
    expiries: Hint<BTreeSet<(Timestamp, u64)>>,
    count: u64,
    size_bytes: u64,
    borrowed_bytes: u64,
    /// How many runs are cold.
    cold_count: Hint<u64>,
    /// How many messages were set aside.
    aside_count: Hint<u64>,
    /// Runs with messages that wait for a time that only their pages have, by when the first of these may be due.
    far: Hint<BTreeSet<(Timestamp, u64)>>,
    /// How many such messages there are.
    far_count: Hint<u64>,
    /// How many records were copied because a snapshot had their runs.
    copied: Hint<u64>,
    /// Runs that ended as a whole, to be freed elsewhere.
    waste: Hint<Waste>,
}

impl Table {
    /// An empty table whose next message has this number.
    pub(crate) fn new(length: RunLength, next: SequenceNumber) -> Self {
        Self {
            length,
            runs: SharedMap::new(length.as_u64()),
            next,
            ready: BTreeSet::new(),
            expiries: Hint::default(),
            count: 0,
            size_bytes: 0,
            borrowed_bytes: 0,
            cold_count: Hint::default(),
            aside_count: Hint::default(),
            far: Hint::default(),
            far_count: Hint::default(),
            copied: Hint::default(),
            waste: Hint::default(),
        }
    }

    /// The runs, for a snapshot.
    pub(crate) fn share(&self) -> SharedRuns {
        self.runs.share()
    }

    /// How many records, and references to runs, were copied since the last call because a snapshot had them.
    pub(crate) fn take_copied(&mut self) -> u64 {
        std::mem::take(&mut *self.copied) + self.runs.take_copied()
    }

    /// What has left the table since the last call and takes long to free.
    pub(crate) fn waste(&mut self) -> &mut Waste {
        &mut self.waste
    }

    /// A run, to change it.
    fn run_mut(&mut self, index: u64) -> Option<&mut Run> {
        let run = self.runs.get_mut(index)?;
        Some(own(run, &mut self.copied, Run::live_count))
    }

    /// A run, to read records into memory, or to take them out: what a snapshot has of it stays as it is.
    fn run_physical(&mut self, index: u64) -> Option<&mut Run> {
        let run = self.runs.get_physical(index)?;
        Some(own(run, &mut self.copied, |run| run.records_here()))
    }

    pub(crate) fn length(&self) -> RunLength {
        self.length
    }

    /// The number of the next message.
    pub(crate) fn next(&self) -> SequenceNumber {
        self.next
    }

    pub(crate) fn set_next(&mut self, next: SequenceNumber) {
        self.next = next;
    }

    /// Leaves out the next `count` numbers.
    pub(crate) fn skip_numbers(&mut self, count: u64) {
        let highest = (1 << SequenceNumber::BITS) - 1;
        self.next = SequenceNumber::new((self.next.as_u64() + count).min(highest));
    }

    /// How many messages there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// What all messages count for.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The lengths of the bodies that messages elsewhere count.
    pub(crate) fn borrowed_bytes(&self) -> u64 {
        self.borrowed_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn run_count(&self) -> u64 {
        self.runs.len() as u64
    }

    /// Makes sure that no message gets this number again.
    pub(crate) fn use_number(&mut self, number: SequenceNumber) {
        self.next = self.next.max(number.next());
    }

    /// Adds a message. `is_ready` says whether it can be received in the order of its number. Returns false if
    /// there is one of that number. The number may be lower than those of others: in a replay, the next number
    /// can come from a later time than the run.
    pub(crate) fn insert(
        &mut self,
        number: SequenceNumber,
        record: Record,
        side: Side,
        is_ready: bool,
        live: &mut Live,
    ) -> bool {
        let index = self.length.run_of(number.as_u64());
        let length = self.length;
        let new = || Arc::new(Run::new(length, index));
        let Some(run) = self.runs.get_or_insert_with(index, new) else {
            return false;
        };
        let run = own(run, &mut self.copied, Run::live_count);
        *live.begun_runs += u64::from(run.count() == 0);
        let size_bytes = size_bytes(record.body, &side.overlays);
        let borrowed_bytes = record.body.borrowed_bytes();
        if !run.put(number, record, side, |spread, body| live.add(spread, body)) {
            return false;
        }
        run.size_bytes += size_bytes;
        run.borrowed_bytes += borrowed_bytes;
        self.count += 1;
        self.size_bytes += size_bytes;
        self.borrowed_bytes += borrowed_bytes;
        live.resident.records += 1;
        if is_ready {
            if !run.has_ready() {
                self.ready.insert(index);
            }
            run.set_ready(number, true);
        }
        true
    }

    /// Removes a message that counted for so many bytes, of which so many were borrowed, and had these bodies. Returns
    /// false if there is none.
    pub(crate) fn remove(
        &mut self,
        number: SequenceNumber,
        (size_bytes, borrowed_bytes): (u64, u64),
        bodies: impl IntoIterator<Item = BodyLocation>,
        live: &mut Live,
    ) -> bool {
        let index = self.length.run_of(number.as_u64());
        let Some(run) = self.run_mut(index) else {
            return false;
        };
        let (had_ready, patches) = (run.has_ready(), run.patch_count());
        let far_before = run.far_known();
        let Some(was_here) = run.take(number) else {
            return false;
        };
        let far_after = run.far_known();
        live.resident.records -= u64::from(was_here);
        live.resident.patches -= patches - run.patch_count();
        run.size_bytes = run.size_bytes.saturating_sub(size_bytes);
        run.borrowed_bytes = run.borrowed_bytes.saturating_sub(borrowed_bytes);
        for body in bodies {
            live.take(&mut run.spread, body);
        }
        let (has_ready, is_empty, is_lost) = (run.has_ready(), run.count() == 0, run.is_lost());
        let (expires_first, was_cold) = (*run.expires_first, run.is_cold());
        if is_empty {
            live.take_all(&run.spread);
        }
        if had_ready && !has_ready {
            self.ready.remove(&index);
        }
        if is_empty {
            self.expiries.remove(&(expires_first, index));
            self.runs.remove(index);
            if was_cold {
                *self.cold_count -= 1;
                live.resident.cold_runs -= 1;
            }
        }
        if !is_planted(Bug::CountNotLowered) {
            self.count -= 1;
        }
        self.size_bytes = self.size_bytes.saturating_sub(size_bytes);
        self.borrowed_bytes = self.borrowed_bytes.saturating_sub(borrowed_bytes);
        self.recount_far(index, far_before, far_after, live);
        if is_lost {
            self.expire_if_lost(number);
        }
        true
    }

    /// Gives a message a lease, with which it can be received in the order of its number or not. Returns false if
    /// there is none.
    pub(crate) fn lease(
        &mut self,
        number: SequenceNumber,
        is_ready: bool,
        leased: &Leased,
        live: &mut Live,
    ) -> bool {
        let index = self.length.run_of(number.as_u64());
        let Some(run) = self.run_mut(index) else {
            return false;
        };
        let (had_ready, patches) = (run.has_ready(), run.patch_count());
        let far_before = run.far_known();
        if !run.lease(number, leased) {
            return false;
        }
        let far_after = run.far_known();
        live.resident.patches += run.patch_count() - patches;
        run.set_ready(number, is_ready);
        let has_ready = run.has_ready();
        match (had_ready, has_ready) {
            (false, true) => {
                self.ready.insert(index);
            }
            (true, false) => {
                self.ready.remove(&index);
            }
            (true, true) | (false, false) => {}
        }
        self.recount_far(index, far_before, far_after, live);
        true
    }

    /// Counts a body that a message has from now on, and not the one that it replaces.
    pub(crate) fn recount(
        &mut self,
        number: SequenceNumber,
        added: BodyLocation,
        taken: Option<BodyLocation>,
        live: &mut Live,
    ) {
        let index = self.length.run_of(number.as_u64());
        if let Some(run) = self.run_mut(index) {
            live.add(&mut run.spread, added);
            if let Some(taken) = taken {
                live.take(&mut run.spread, taken);
            }
        }
    }

    /// Gives a message a body, or a change to its properties, in another place, if it is in the old one. Returns whether
    /// it is.
    pub(crate) fn move_body(
        &mut self,
        number: SequenceNumber,
        body: BodyMove,
        live: &mut Live,
    ) -> bool {
        let index = self.length.run_of(number.as_u64());
        // Of a record that is not in memory, the event says that the body is there.
        let is_there = self.is_cold_at(number) || self.has_body(number, body.from);
        if is_there && let Some(run) = self.run_mut(index) {
            let patches = run.patch_count();
            run.move_body(number, body);
            live.resident.patches += run.patch_count() - patches;
            live.take(&mut run.spread, body.from);
            live.add(&mut run.spread, body.to);
            self.rebalance(number, body.to.borrowed_bytes(), body.from.borrowed_bytes());
        }
        is_there
    }

    /// Counts what a message borrows with another body, and not with the one before.
    pub(crate) fn rebalance(&mut self, number: SequenceNumber, added: u64, taken: u64) {
        let index = self.length.run_of(number.as_u64());
        if added != taken
            && let Some(run) = self.run_mut(index)
        {
            run.borrowed_bytes = (run.borrowed_bytes + added).saturating_sub(taken);
            self.borrowed_bytes = (self.borrowed_bytes + added).saturating_sub(taken);
        }
    }

    fn is_cold_at(&self, number: SequenceNumber) -> bool {
        let run = self.run(self.length.run_of(number.as_u64()));
        run.is_some_and(|run| run.is_cold_at(number))
    }

    /// Whether a message has that body, or that change to its properties.
    pub(crate) fn has_body(&self, number: SequenceNumber, at: BodyLocation) -> bool {
        let entry = self.get(number);
        entry.is_some_and(|entry| entry.bodies().any(|body| body == at))
    }

    /// Counts all bodies of another partition's table in this one.
    pub(crate) fn count_live(&self, live: &mut Live) {
        for (_, run) in self.runs.iter() {
            live.add_all(&run.spread);
            live.resident.add(run.resident());
        }
    }

    /// Counts no body any more, because the table goes as a whole.
    pub(crate) fn uncount_live(&self, live: &mut Live) {
        for (_, run) in self.runs.iter() {
            live.take_all(&run.spread);
            live.resident.take(run.resident());
        }
    }

    /// Counts other bytes for a message that has changed.
    pub(crate) fn resize(&mut self, number: SequenceNumber, added: u64, taken: u64) {
        let index = self.length.run_of(number.as_u64());
        if let Some(run) = self.run_mut(index) {
            run.size_bytes = (run.size_bytes + added).saturating_sub(taken);
            self.size_bytes = (self.size_bytes + added).saturating_sub(taken);
        }
    }

    /// Adds a change to a message's properties. Nothing happens if there is no such message.
    pub(crate) fn add_overlay(
        &mut self,
        number: SequenceNumber,
        overlay: BodyLocation,
        live: &mut Live,
    ) {
        let index = self.length.run_of(number.as_u64());
        if let Some(run) = self.run_mut(index) {
            let patches = run.patch_count();
            run.add_overlay(number, overlay);
            live.resident.patches += run.patch_count() - patches;
        }
    }

    /// Changes what few messages have, but not their bytes. Nothing happens if there is no such message.
    pub(crate) fn change_side(&mut self, number: SequenceNumber, change: impl FnOnce(&mut Side)) {
        let index = self.length.run_of(number.as_u64());
        if let Some(run) = self.run_mut(index) {
            run.change_side(number, change);
        }
    }

    /// Removes all messages of the runs whose messages lie in a range. A run that reaches beyond it stays as it
    /// is.
    pub(crate) fn remove_runs(
        &mut self,
        from: SequenceNumber,
        until: SequenceNumber,
        live: &mut Live,
    ) {
        if from >= until {
            return;
        }
        let length = self.length;
        let runs = length.run_of(from.as_u64())..=length.run_of(until.as_u64());
        let is_gone = |run: &Arc<Run>| run.is_within(from, until);
        let gone = self.runs.remove_if(runs, is_gone);
        self.forget_runs(gone, live);
        self.next = self.next.max(until);
    }

    /// Counts runs no longer that were removed.
    fn forget_runs(&mut self, gone: impl IntoIterator<Item = (u64, Arc<Run>)>, live: &mut Live) {
        for (index, run) in gone {
            self.ready.remove(&index);
            *self.cold_count -= u64::from(run.is_cold());
            *self.aside_count -= run.quarantined_count();
            live.resident.take(run.resident());
            self.note_far(index, run.far_known(), FarKnown::default());
            self.expiries.remove(&(*run.expires_first, index));
            self.count -= run.count();
            self.size_bytes = self.size_bytes.saturating_sub(run.size_bytes);
            self.borrowed_bytes = self.borrowed_bytes.saturating_sub(run.borrowed_bytes);
            live.take_all(&run.spread);
            self.waste.push(run);
        }
    }

    /// Whether a range covers all messages.
    pub(crate) fn is_within(&self, from: SequenceNumber, until: SequenceNumber) -> bool {
        let (first, last) = (self.runs.first(), self.runs.last());
        first.is_none_or(|run| run.range().0 >= from)
            && last.is_none_or(|run| run.range().1 <= until)
    }

    /// Whether the messages of a range are those of whole runs, and all of them can be received in the order of
    /// their numbers.
    pub(crate) fn is_whole_and_ready(&self, from: SequenceNumber, until: SequenceNumber) -> bool {
        if from >= until {
            return true;
        }
        let runs = self.length.run_of(from.as_u64())..=self.length.run_of(until.as_u64());
        let mut near = self.runs.range(runs).map(|(_, run)| run);
        near.all(|run| {
            !run.overlaps(from, until) || run.is_within(from, until) && run.is_all_ready()
        })
    }

    pub(crate) fn get(&self, number: SequenceNumber) -> Option<Entry<'_>> {
        let index = self.length.run_of(number.as_u64());
        self.runs.get(index)?.get(number)
    }

    /// The runs from that of a number on, in order.
    pub(crate) fn runs_from(&self, number: SequenceNumber) -> impl Iterator<Item = &Run> {
        let first = self.length.run_of(number.as_u64());
        let runs = self.runs.range(first..=u64::MAX);
        runs.map(|(_, run)| run.as_ref())
    }

    pub(crate) fn run(&self, index: u64) -> Option<&Run> {
        self.runs.get(index).map(Arc::as_ref)
    }

    /// All runs, in order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().map(|(_, run)| run.as_ref())
    }

    /// Every message, in order. All records are in memory.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.runs.iter().flat_map(|(_, run)| run.entries())
    }

    /// Every message from a number on, in order.
    pub(crate) fn entries_from(&self, number: SequenceNumber) -> impl Iterator<Item = Entry<'_>> {
        let first = self.length.run_of(number.as_u64());
        let runs = self.runs.range(first..=u64::MAX);
        runs.flat_map(move |(_, run)| run.entries_from(number))
    }

    /// Whether a message can be received in the order of its number.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The messages that can be received in the order of their numbers, in that order. Leaves out runs of which
    /// all has expired at `now`.
    pub(crate) fn ready(&self, now: Timestamp) -> impl Iterator<Item = Entry<'_>> {
        let runs = self.ready.iter().filter_map(|index| self.runs.get(*index));
        let runs = runs.filter(move |run| !run.has_expired(now));
        runs.flat_map(|run| run.ready_entries())
    }

    /// Changes all messages, in a repair. Their orders must stay as they are.
    pub(crate) fn change_all(&mut self, change: impl Fn(&mut Record)) {
        let indexes: Vec<u64> = self.runs.iter().map(|(index, _)| index).collect();
        for index in indexes {
            let records = self.run_mut(index).into_iter().flat_map(Run::records_mut);
            records.for_each(&change);
        }
    }

    /// How many runs a receiver visits to find all that it can receive.
    #[cfg(test)]
    pub(crate) fn visited_by_receiver(&self) -> usize {
        self.ready.len()
    }

    /// Asserts that the spreads are those of the bodies, and that nothing else is counted.
    #[cfg(test)]
    pub(crate) fn check_spreads(&self, live: &Live) {
        let (mut walked, mut resident) = (live.apart(), Resident::default());
        for (_, run) in self.runs.iter() {
            run.count_again(&mut walked);
            resident.add(run.resident());
        }
        assert_eq!(walked, *live);
        assert_eq!(live.resident(), resident);
    }

    /// Asserts what the first lines of this file promise, given which messages can be received in the order of
    /// their numbers, and when each expires. Of messages whose records are not in memory, only the counts are compared.
    #[cfg(test)]
    pub(crate) fn check(
        &self,
        is_ready: impl Fn(&Record) -> bool,
        expiry: impl Fn(&Record) -> Timestamp,
    ) {
        let (mut count, mut size_bytes, mut cold_count, mut aside_count) = (0, 0, 0, 0);
        let mut borrowed_bytes = 0;
        let mut expiries = BTreeSet::new();
        for (index, run) in self.runs.iter() {
            run.check();
            count += run.count();
            size_bytes += run.size_bytes;
            borrowed_bytes += run.borrowed_bytes;
            cold_count += u64::from(run.is_cold());
            aside_count += run.quarantined_count();
            let sizes = run.entries_here().map(|entry| entry.size_bytes());
            let is_whole = !run.is_cold() && run.quarantined_count() == 0;
            let here = sizes.sum::<u64>();
            assert!(here == run.size_bytes || !is_whole && here < run.size_bytes);
            let borrowed = run.entries_here().map(|entry| entry.borrowed_bytes());
            let here: u64 = borrowed.sum();
            assert!(here == run.borrowed_bytes || !is_whole && here < run.borrowed_bytes);
            for entry in run.entries_here() {
                assert_eq!(run.is_ready(entry.number), is_ready(entry.record));
                assert_eq!(self.length.run_of(entry.number.as_u64()), index);
                assert!(*run.expires_first <= expiry(entry.record));
            }
            assert_eq!(self.ready.contains(&index), run.has_ready());
            if *run.expires_first != Timestamp::NEVER {
                expiries.insert((*run.expires_first, index));
            }
        }
        assert_eq!((count, size_bytes), (self.count, self.size_bytes));
        assert_eq!(borrowed_bytes, self.borrowed_bytes);
        assert_eq!(cold_count, *self.cold_count);
        assert_eq!(aside_count, *self.aside_count);
        assert!(
            self.ready
                .iter()
                .all(|index| self.runs.get(*index).is_some())
        );
        assert_eq!(*self.expiries, expiries);
        let far = self.runs.iter();
        let far = far.filter_map(|(index, run)| Some((run.far_first()?, index)));
        assert_eq!(*self.far, far.collect());
        let far = self.runs.iter().map(|(_, run)| run.far_count());
        assert_eq!(*self.far_count, far.sum::<u64>());
    }
}

#[cfg(test)]
pub(crate) mod tests;
