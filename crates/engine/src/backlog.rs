//! The messages of a queue and the order in which they are received.
//!
//! Messages lie in *runs* of consecutive sequence numbers, dense and cheap. A message that was
//! never leased nor delayed waits in the order of its sequence number, which the runs have already:
//! it costs a bit. Leases and delays put a message into an ordered set by the time at
//! which it shows. A run carries the earliest expiry of its messages, so that a time to live costs
//! an entry a run, not one a message.
//!
//! Effects change a backlog. They bring what the old message counted for, so applying one asks only whether
//! the message is there. It never looks at `next`: in a replay, that may be newer than the run.
//!
//! Invariants: no run is empty; `fresh_from` is the first run with a fresh message; a message is
//! in `timed` if and only if its placement says so, otherwise its run has a bit for it; `count` is the number
//! of messages, `size_bytes` the sum of their sizes, and each run has both of its own.

pub(crate) mod expiry;
mod repair;
mod run;

use std::collections::{BTreeMap, BTreeSet};

use kew_planted::{Bug, is_planted};

use self::run::{Run, run_of};
use crate::account::MESSAGE_OVERHEAD_BYTES;
use crate::effect::{Lease, Placed, Was};
use crate::hint::Hint;
use crate::message::{Message, Placement};
use crate::timed::Timed;
use crate::{SequenceNumber, Timestamp};

/// How many sequence numbers share a run.
pub(crate) const RUN_LENGTH: u64 = 128;

/// The value of `fresh_from` if there is no fresh message.
const NO_RUN: u64 = u64::MAX;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Backlog {
    runs: BTreeMap<u64, Run>,
    next: SequenceNumber,
    fresh_from: u64,
    timed: Timed,
    /// The earliest expiry of each run that has one, with the run's number.
    expiries: Hint<BTreeSet<(Timestamp, u64)>>,
    count: u64,
    size_bytes: u64,
}

impl Backlog {
    /// An empty backlog whose next message has this sequence number.
    pub(crate) fn starting_at(next: SequenceNumber) -> Self {
        Self {
            runs: BTreeMap::new(),
            next,
            fresh_from: NO_RUN,
            timed: Timed::default(),
            expiries: Hint::default(),
            count: 0,
            size_bytes: 0,
        }
    }

    /// An empty backlog, for restoring messages of a snapshot.
    pub(crate) fn set_next(&mut self, next: SequenceNumber) {
        *self = Self::starting_at(next);
    }

    /// Restores a message of a snapshot, in rising order. Returns false if its number is not above all
    /// before it.
    pub(crate) fn restore(&mut self, number: SequenceNumber, message: Message) -> bool {
        let last = self.runs.last_key_value();
        let is_next = last.is_none_or(|(_, run)| number.as_u64() >= run.end());
        is_next && self.place(number, message)
    }

    /// Adds a message. Nothing happens if there is one of that number: `apply` is total.
    pub(crate) fn push(&mut self, number: SequenceNumber, message: Message) {
        if self.place(number, message) {
            self.next = self.next.max(number.next());
        }
    }

    fn place(&mut self, number: SequenceNumber, message: Message) -> bool {
        let (placement, visible_at, expires_at) =
            (message.placement, message.visible_at, message.expires_at);
        let size_bytes = MESSAGE_OVERHEAD_BYTES + u64::from(message.body.length);
        let index = run_of(number);
        let run = self.runs.entry(index);
        let run = run.or_insert_with(|| Run::starting_at(number));
        if !run.put(number, message) {
            return false;
        }
        match placement {
            Placement::Fresh => {
                run.set_fresh(number);
                self.fresh_from = self.fresh_from.min(index);
            }
            Placement::Timed => self.timed.insert((visible_at, number)),
        }
        run.size_bytes += size_bytes;
        self.count += 1;
        self.size_bytes += size_bytes;
        run.expires_last = run.expires_last.max(expires_at);
        if expires_at < *run.expires_first {
            self.expiries.remove(&(*run.expires_first, index));
            *run.expires_first = expires_at;
            self.expiries.insert((expires_at, index));
        }
        true
    }

    /// Removes a message that counted for `was`; nothing happens if there is none.
    pub(crate) fn end(&mut self, number: SequenceNumber, was: &Was) {
        let index = run_of(number);
        let Some(run) = self.runs.get_mut(&index) else {
            return;
        };
        if !run.take(number) {
            return;
        }
        run.clear_fresh(number);
        let has_fresh = run.has_fresh();
        let size_bytes = was.size_bytes();
        run.size_bytes = run.size_bytes.saturating_sub(size_bytes);
        if run.live == 0 {
            self.expiries.remove(&(*run.expires_first, index));
            self.runs.remove(&index);
        }
        if !is_planted(Bug::CountNotLowered) {
            self.count -= 1;
        }
        if !is_planted(Bug::SizeNotGivenBack) {
            self.size_bytes = self.size_bytes.saturating_sub(size_bytes);
        }
        if let Some(due_at) = was.due_at {
            self.timed.remove(&(due_at, number));
        }
        if !has_fresh {
            self.pass_fresh(index);
        }
    }

    /// Gives a message that counted for `was` a lease, and with it another body if there is one. From now on
    /// it waits by the end of the lease. Nothing happens if there is no such message.
    pub(crate) fn lease(
        &mut self,
        number: SequenceNumber,
        lease: &Lease,
        body: Option<Placed>,
        was: &Was,
    ) {
        let index = run_of(number);
        let Some(run) = self.runs.get_mut(&index) else {
            return;
        };
        let Some(message) = run.get_mut(number) else {
            return;
        };
        message.generation = lease.generation;
        message.delivery_count = lease.deliveries;
        message.visible_at = lease.due_at;
        message.placement = Placement::Timed;
        let body = body.filter(|_| !is_planted(Bug::UpdatedBodyDropped));
        if let Some(body) = body {
            message.encoding = body.encoding;
            message.body = body.location;
            let added = u64::from(body.location.length);
            let taken = if is_planted(Bug::ReplacedSizeKept) {
                0
            } else {
                was.body_size_bytes()
            };
            run.size_bytes = (run.size_bytes + added).saturating_sub(taken);
            self.size_bytes = (self.size_bytes + added).saturating_sub(taken);
        }
        run.clear_fresh(number);
        let has_fresh = run.has_fresh();
        if let Some(due_at) = was.due_at {
            self.timed.remove(&(due_at, number));
        }
        self.timed.insert((lease.due_at, number));
        if !has_fresh {
            self.pass_fresh(index);
        }
    }

    /// Removes all messages of the runs whose numbers lie in a range. If they are leased or delayed, the range
    /// must cover the whole backlog.
    pub(crate) fn end_range(&mut self, from: SequenceNumber, until: SequenceNumber) {
        if from >= until {
            return;
        }
        if self.is_within(from, until) {
            *self = Self::starting_at(self.next.max(until));
            return;
        }
        let runs = run_of(from)..=run_of(until);
        let gone = self
            .runs
            .extract_if(runs, |_, run| run.is_within(from, until));
        for (index, run) in gone {
            self.expiries.remove(&(*run.expires_first, index));
            self.count -= run.live;
            self.size_bytes = self.size_bytes.saturating_sub(run.size_bytes);
        }
        self.next = self.next.max(until);
        if !self.runs.contains_key(&self.fresh_from) {
            self.pass_fresh(self.fresh_from);
        }
    }

    /// Updates `fresh_from` after a run has lost its last fresh message. Each run is passed once.
    fn pass_fresh(&mut self, index: u64) {
        if index == self.fresh_from {
            let mut later = self.runs.range(index..);
            let first = later.find(|(_, run)| run.has_fresh());
            self.fresh_from = first.map_or(NO_RUN, |(index, _)| *index);
        }
    }

    /// The message, if it is there and its time to live has not passed.
    pub(crate) fn get(&self, sequence_number: SequenceNumber, now: Timestamp) -> Option<&Message> {
        let message = self.find(sequence_number)?;
        (!message.is_expired(now)).then_some(message)
    }

    /// The messages that can be received at `now`, in order: by the time at which they showed, then
    /// by sequence number.
    ///
    /// Source: Queue Storage REST, *Get Messages* (order is best effort, oldest first).
    pub(crate) fn visible(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (SequenceNumber, &Message)> {
        let mut fresh = self.fresh(now).peekable();
        let mut timed = self.shown(now).peekable();
        std::iter::from_fn(move || {
            let fresh_is_first = match (fresh.peek(), timed.peek()) {
                (Some((a, fresh)), Some((b, timed))) => {
                    (fresh.inserted_at, *a) < (timed.visible_at, *b)
                }
                (fresh, _) => fresh.is_some(),
            };
            if fresh_is_first {
                fresh.next()
            } else {
                timed.next()
            }
        })
    }

    fn fresh(&self, now: Timestamp) -> impl Iterator<Item = (SequenceNumber, &Message)> {
        self.runs
            .range(self.fresh_from..)
            .filter(move |(_, run)| run.has_fresh() && !run.expires_last.has_passed(now))
            .flat_map(|(_, run)| run.fresh())
            .filter(move |(_, message)| !message.is_expired(now))
    }

    /// Leased or delayed messages whose time has come.
    fn shown(&self, now: Timestamp) -> impl Iterator<Item = (SequenceNumber, &Message)> {
        let early_ms = if is_planted(Bug::LeaseEndsEarly) {
            2000
        } else {
            0
        };
        self.timed
            .iter()
            .take_while(move |(visible_at, _)| visible_at.has_passed(now.plus_ms(early_ms)))
            .filter_map(move |(_, sequence_number)| {
                Some((*sequence_number, self.get(*sequence_number, now)?))
            })
    }

    /// The sequence number of the next message.
    pub(crate) fn next(&self) -> SequenceNumber {
        self.next
    }

    /// How many messages there are, hidden ones included, and expired ones that no tick has removed.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The sizes of the messages that are counted, as an account's quota has them.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Every message, in the order of sequence numbers.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (SequenceNumber, &Message)> {
        self.runs.values().flat_map(Run::messages)
    }

    /// The messages from one number up to but not including another.
    pub(crate) fn messages_between(
        &self,
        from: u64,
        until: u64,
    ) -> impl Iterator<Item = (SequenceNumber, &Message)> {
        let last = until.saturating_sub(1) / RUN_LENGTH;
        let runs = self.runs.range((from / RUN_LENGTH).min(last)..=last);
        runs.flat_map(|(_, run)| run.messages())
            .filter(move |(number, _)| (from..until).contains(&number.as_u64()))
    }

    /// Moves past the messages that became visible by `now`, in at most `budget` steps. Returns false if the
    /// steps ran out. After that, [`Backlog::hidden_count`] is the number at `now`.
    pub(crate) fn pass_shown(&mut self, now: Timestamp, budget: &mut u32) -> bool {
        self.timed.pass_shown(now, budget)
    }

    /// How many messages are leased or delayed beyond the time that was last moved to.
    pub(crate) fn hidden_count(&self) -> u64 {
        self.timed.hidden_count()
    }

    /// The message that was sent first, expired or not.
    pub(crate) fn oldest(&self) -> Option<&Message> {
        let (_, run) = self.runs.first_key_value()?;
        run.messages().next().map(|(_, message)| message)
    }

    /// The message of that number, expired or not.
    pub(crate) fn find(&self, sequence_number: SequenceNumber) -> Option<&Message> {
        self.runs
            .get(&run_of(sequence_number))?
            .get(sequence_number)
    }

    /// Whether there is a message of that number, expired or not.
    pub(crate) fn holds(&self, sequence_number: SequenceNumber) -> bool {
        self.find(sequence_number).is_some()
    }
}

#[cfg(test)]
mod tests;
