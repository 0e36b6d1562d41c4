//! Messages whose records are lost: both copies of their page are damaged.
//!
//! An event names them, so all copies of the state agree. They are in no order and no walk shows them, and a command that
//! names one finds no message. What a single one counted for is unknown. So each counts as it did, and its body's place
//! stays counted, until its run ends: by a clear, by its expiry as a whole (but not in a topic, where nothing expires), with
//! its entity, or as a run in which nothing else is left.
//!
//! Their record may be in memory when the event is applied again, or on another page. Then it goes all the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::bits::Bits;
use super::missing::{Group, Slots};
use super::record::MessageState;
use super::run::Run;
use super::{Live, PagedRun, Table};
use crate::vocabulary::{PageNumber, SequenceNumber, Timestamp};

/// The numbers of some messages, counted from a first one.
pub(crate) fn numbers_of(
    first: SequenceNumber,
    messages: Slots,
) -> impl Iterator<Item = SequenceNumber> {
    let places = (0..u64::from(Slots::BITS)).filter(move |place| messages & 1 << place != 0);
    let numbers = places.filter_map(move |place| first.as_u64().checked_add(place));
    // Nothing else is a number: an event may say anything.
    let numbers = numbers.filter(|number| *number < 1 << SequenceNumber::BITS);
    numbers.map(SequenceNumber::new)
}

/// What is known of messages that were set aside, for what else is kept of them.
#[derive(Debug, Default)]
pub(crate) struct SetAside {
    /// Those that there were, in order.
    pub(crate) numbers: Vec<SequenceNumber>,
    /// Those that could not be received in the order of their numbers: they may be in an order by time.
    pub(crate) not_ready: BTreeSet<SequenceNumber>,
    /// The states that are known of these.
    pub(crate) states: Vec<MessageState>,
    /// Whether one may have been of a session.
    pub(crate) has_special: bool,
}

impl Table {
    /// Sets messages aside.
    pub(crate) fn quarantine(
        &mut self,
        numbers: impl Iterator<Item = SequenceNumber>,
        live: &mut Live,
    ) -> SetAside {
        let mut aside = SetAside::default();
        for number in numbers {
            let index = self.length.run_of(number.as_u64());
            let Some(run) = self.run_mut(index).filter(|run| run.contains(number)) else {
                continue;
            };
            let (before, far_before) = (run.resident(), run.far_known());
            let had_ready = run.has_ready();
            aside.has_special |= run.has_special;
            if !run.is_ready(number) {
                aside.not_ready.insert(number);
            }
            aside.states.extend(run.set_aside(number));
            let (after, has_ready) = (run.resident(), run.has_ready());
            let far_after = run.far_known();
            self.recount_resident(before, after, live);
            self.note_far(index, far_before, far_after);
            if had_ready && !has_ready {
                self.ready.remove(&index);
            }
            self.expire_if_lost(number);
            aside.numbers.push(number);
            *self.aside_count += 1;
        }
        aside
    }

    /// Notes when a run ends in which nothing is left but messages that were set aside: those that were left may have had no
    /// time for that.
    pub(super) fn expire_if_lost(&mut self, number: SequenceNumber) {
        let run = self.run(self.length.run_of(number.as_u64()));
        if let Some(until) = run.map(Run::lost_until) {
            self.lower_expiry(number, until);
        }
    }

    /// Ends a run in which nothing is left but messages that were set aside.
    pub(crate) fn end_lost(&mut self, number: SequenceNumber, live: &mut Live) {
        if self.is_lost(number) {
            let index = self.length.run_of(number.as_u64());
            let gone = self.runs.remove_if(index..=index, |_| true);
            self.forget_runs(gone, live);
        }
    }

    /// Whether nothing is left of a number's run but messages that were set aside.
    pub(crate) fn is_lost(&self, number: SequenceNumber) -> bool {
        let run = self.run(self.length.run_of(number.as_u64()));
        run.is_some_and(Run::is_lost)
    }

    /// How many messages were set aside.
    pub(crate) fn aside_count(&self) -> u64 {
        *self.aside_count
    }

    /// Whether a message was set aside.
    pub(crate) fn is_quarantined(&self, number: SequenceNumber) -> bool {
        let run = self.run(self.length.run_of(number.as_u64()));
        run.is_some_and(|run| run.is_quarantined(run.slot(number)))
    }

    /// The first number of a run.
    pub(crate) fn first_of_run(&self, index: u64) -> SequenceNumber {
        SequenceNumber::new(self.length.first_of(index))
    }

    /// Which messages of a group have no record here and none on the page, which is damaged. None if their run has another
    /// page by now. With `knows_states`, only those whose state is known.
    pub(crate) fn lost_in(
        &self,
        group: Group,
        page: PageNumber,
        knows_states: bool,
    ) -> Option<(SequenceNumber, Slots)> {
        let run = self.run(group.run)?;
        let is_there = run.cold_page() == Some(page);
        let lost = is_there.then(|| run.lost_in(group.index, knows_states))?;
        let first = group.index * self.length.slots_per_group();
        (lost != 0).then(|| (run.number(first), lost))
    }

    /// Adds to a restored run what its directory says of messages that were set aside. Returns false if one of their numbers
    /// was never given out.
    pub(crate) fn restore_quarantined(
        &mut self,
        paged: &PagedRun,
        is_same_unit: bool,
        live: &mut Live,
    ) -> bool {
        let Some(quarantined) = paged.quarantined() else {
            return true;
        };
        let (index, length) = (paged.index, self.length);
        let new = || Arc::new(Run::new(length, index));
        let Some(run) = self.runs.get_or_insert_with(index, new) else {
            return false;
        };
        let run = super::own(run, &mut self.copied, Run::live_count);
        let (before, size_bytes, borrowed_bytes) =
            (run.resident(), run.size_bytes, run.borrowed_bytes);
        live.take_all(&run.spread);
        run.quarantined = Some(Box::new(*quarantined));
        run.size_bytes = size_bytes.max(paged.size_bytes);
        run.borrowed_bytes = borrowed_bytes.max(paged.borrowed_bytes);
        if is_same_unit {
            run.spread = paged.spread.clone();
        }
        live.add_all(&run.spread);
        let (after, is_given_out) = (run.resident(), run.range().1 <= self.next);
        let more_bytes = run.size_bytes - size_bytes;
        let more_borrowed_bytes = run.borrowed_bytes - borrowed_bytes;
        self.size_bytes = self.size_bytes.saturating_add(more_bytes);
        self.borrowed_bytes = self.borrowed_bytes.saturating_add(more_borrowed_bytes);
        self.count += quarantined.count() as u64;
        *self.aside_count += quarantined.count() as u64;
        self.recount_resident(before, after, live);
        is_given_out
    }

    /// Messages that were set aside, by the number at which each run of them begins, with how many of its numbers.
    pub(crate) fn quarantined(&self) -> impl Iterator<Item = (SequenceNumber, u64)> {
        let runs = self.runs().filter(|run| run.quarantined_count() > 0);
        runs.filter_map(|run| {
            let first = run.quarantined.as_ref()?.first()?;
            Some((run.number(first), run.quarantined_count()))
        })
    }
}

impl Run {
    /// How many messages were set aside.
    pub(crate) fn quarantined_count(&self) -> u64 {
        let quarantined = self.quarantined.as_ref();
        quarantined.map_or(0, |it| it.count() as u64)
    }

    /// How many messages it counts for.
    pub(crate) fn count(&self) -> u64 {
        self.live_count + self.quarantined_count()
    }

    /// Whether nothing is left but messages that were set aside.
    pub(crate) fn is_lost(&self) -> bool {
        self.live_count == 0 && self.quarantined.is_some()
    }

    /// When what was set aside ends, if nothing else is left.
    pub(super) fn lost_until(&self) -> Timestamp {
        match self.is_lost() {
            true => self.expires_last,
            false => Timestamp::NEVER,
        }
    }

    pub(super) fn is_quarantined(&self, slot: usize) -> bool {
        let quarantined = self.quarantined.as_ref();
        quarantined.is_some_and(|it| it.contains(slot))
    }

    /// The slots that are taken: with a message, or with one that was set aside.
    pub(super) fn taken(&self) -> Bits {
        match &self.quarantined {
            Some(quarantined) => self.live.or(quarantined),
            None => self.live,
        }
    }

    /// Sets a message aside. Returns its state, if that is known.
    fn set_aside(&mut self, number: SequenceNumber) -> Option<MessageState> {
        let slot = self.slot(number);
        let state = self.state_here(slot);
        self.live.remove(slot);
        self.ready.remove(slot);
        self.live_count -= 1;
        self.sides.remove(&slot);
        self.records.take(slot);
        self.note_gone(slot);
        self.quarantined.get_or_insert_default().insert(slot);
        // What its page had is worth writing without it.
        self.page_of = 0;
        state
    }

    /// The state of a message, as far as it can be known without its page.
    fn state_here(&self, slot: usize) -> Option<MessageState> {
        match self.records.get(slot) {
            Some(record) => Some(record.state),
            None => self.patch_state(slot).or_else(|| self.waiting_state(slot)),
        }
    }

    fn lost_in(&self, group: usize, knows_states: bool) -> Slots {
        let first = group * self.length.slots_per_group();
        let is_known = |place: &u32| {
            let slot = first + *place as usize;
            !knows_states || self.ready.contains(slot) || self.state_here(slot).is_some()
        };
        let missing = self.missing_in(group);
        let places = (0..Slots::BITS).filter(|place| missing & 1 << place != 0);
        places
            .filter(is_known)
            .fold(0, |all, place| all | 1 << place)
    }
}
