//! The messages of a storage queue and the order in which they are received.
//!
//! A message that was never leased nor delayed waits in the order of its sequence number, which the table has
//! already: it costs a bit. Leases and delays put a message into an ordered set by the time at which it shows.
//!
//! Effects change a backlog. They bring what the old message counted for, so applying one asks only whether
//! the message is there. It never looks at the next number: in a replay, that may be newer than the run.
//!
//! Invariant: a message is in `timed` if and only if its state says so, otherwise it is in the table's order.

pub(crate) mod expiry;
mod repair;

use std::ops::RangeInclusive;

use crate::shared::Waste;
use crate::storage::message::{self, Message};
use crate::storage::{Lease, Was};
use crate::table::{Entry, Live, Placed, Restoring, RunLength, SharedRuns, Side, Table, Timed};
use crate::vocabulary::{BodyMove, SequenceNumber, Timestamp};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Backlog {
    table: Table,
    timed: Timed,
}

pub(crate) fn stored(entry: Entry<'_>) -> (SequenceNumber, Message) {
    (entry.number, Message(*entry.record))
}

impl Backlog {
    /// An empty backlog whose next message has this sequence number.
    pub(crate) fn starting_at(length: RunLength, next: SequenceNumber) -> Self {
        Self {
            table: Table::new(length, next),
            timed: Timed::default(),
        }
    }

    /// The messages, for a snapshot.
    pub(crate) fn share(&self) -> SharedRuns {
        self.table.share()
    }

    /// What has left the backlog and takes long to free.
    pub(crate) fn waste(&mut self) -> &mut Waste {
        self.table.waste()
    }

    /// How many messages were copied since the last call because a snapshot had them.
    pub(crate) fn take_copied(&mut self) -> u64 {
        self.table.take_copied()
    }

    /// The number of the next message, for restoring those of a snapshot.
    pub(crate) fn set_next(&mut self, next: SequenceNumber) {
        self.table.set_next(next);
    }

    /// Restores messages of a snapshot, which must come in rising order and be above all before. Returns false at
    /// one that is not.
    pub(crate) fn restore<E>(
        &mut self,
        live: &mut Live,
        mut next: impl FnMut() -> Result<Option<(SequenceNumber, Message)>, E>,
    ) -> Result<bool, E> {
        let (mut last, mut restoring) = (self.table.last(), Restoring::default());
        while let Some((number, message)) = next()? {
            if last.replace(number).is_some_and(|last| number <= last) {
                return Ok(false);
            }
            if let Some(due_at) = message.timed_at() {
                self.timed.insert((due_at, number));
            }
            let (is_fresh, expiry) = (!message.is_timed(), message.expires_at);
            let message = (number, message.0, Side::default());
            if !self
                .table
                .restore(&mut restoring, message, is_fresh, expiry, live)
            {
                return Ok(false);
            }
        }
        Ok(self.table.add_restored(&mut restoring, live))
    }

    fn insert(&mut self, number: SequenceNumber, message: Message, live: &mut Live) -> bool {
        let is_fresh = !message.is_timed();
        let is_new = self
            .table
            .insert(number, message.0, Side::default(), is_fresh, live);
        if !is_new {
            return false;
        }
        if let Some(due_at) = message.timed_at() {
            self.timed.insert((due_at, number));
        }
        self.table.lower_expiry(number, message.expires_at);
        true
    }

    /// Adds a message. Nothing happens if there is one of that number: `apply` is total.
    pub(crate) fn push(&mut self, number: SequenceNumber, message: Message, live: &mut Live) {
        if self.insert(number, message, live) {
            self.table.use_number(number);
        }
    }

    /// Removes a message that counted for `was`; nothing happens if there is none.
    pub(crate) fn end(&mut self, number: SequenceNumber, was: &Was, live: &mut Live) {
        if self.table.remove(number, was.size_bytes(), was.body, live)
            && let Some(due_at) = was.due_at
        {
            self.timed.remove(&(due_at, number));
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
        live: &mut Live,
    ) {
        let change = |record: &mut _| message::lease(record, lease, body);
        if !self.table.change(number, false, change) {
            return;
        }
        if let Some(body) = body {
            let added = u64::from(body.location.length);
            self.table.resize(number, added, was.body_size_bytes());
            self.table.recount(number, body.location, was.body, live);
        }
        if let Some(due_at) = was.due_at {
            self.timed.remove(&(due_at, number));
        }
        self.timed.insert((lease.due_at, number));
    }

    /// Removes all messages of the runs whose numbers lie in a range. If they are leased or delayed, the range
    /// must cover the whole backlog.
    pub(crate) fn end_range(
        &mut self,
        from: SequenceNumber,
        until: SequenceNumber,
        live: &mut Live,
    ) {
        if from < until && self.table.is_within(from, until) {
            self.uncount_live(live);
            let next = self.next().max(until);
            let gone = std::mem::replace(self, Self::starting_at(self.table.length(), next));
            self.waste().push(gone);
        } else {
            self.table.remove_runs(from, until, live);
        }
    }

    /// Gives a message a body in another place, if it is in the old one. Returns whether it is.
    pub(crate) fn move_body(
        &mut self,
        number: SequenceNumber,
        body: BodyMove,
        live: &mut Live,
    ) -> bool {
        self.table.move_body(number, body, live)
    }

    /// The messages by number.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Counts its bodies in a partition.
    pub(crate) fn count_live(&self, live: &mut Live) {
        self.table.count_live(live);
    }

    /// Counts its bodies no longer, because it goes as a whole.
    pub(crate) fn uncount_live(&self, live: &mut Live) {
        self.table.uncount_live(live);
    }

    /// The message, if it is there and its time to live has not passed.
    pub(crate) fn get(&self, number: SequenceNumber, now: Timestamp) -> Option<Message> {
        let message = self.find(number)?;
        (!message.is_expired(now)).then_some(message)
    }

    /// The messages that can be received at `now`, in order: by the time at which they showed, then
    /// by sequence number.
    ///
    /// Source: Queue Storage REST, *Get Messages* (order is best effort, oldest first).
    pub(crate) fn visible(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (SequenceNumber, Message)> {
        let mut fresh = self.fresh(now).peekable();
        let mut timed = self.shown(now).peekable();
        std::iter::from_fn(move || {
            let fresh_is_first = match (fresh.peek(), timed.peek()) {
                (Some((a, fresh)), Some((b, timed))) => {
                    (fresh.enqueued_at, *a) < (timed.due_at, *b)
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

    fn fresh(&self, now: Timestamp) -> impl Iterator<Item = (SequenceNumber, Message)> {
        let fresh = self.table.ready(now).map(stored);
        fresh.filter(move |(_, message)| !message.is_expired(now))
    }

    /// Leased or delayed messages whose time has come.
    fn shown(&self, now: Timestamp) -> impl Iterator<Item = (SequenceNumber, Message)> {
        self.timed
            .iter()
            .take_while(move |(due_at, _)| due_at.has_passed(now))
            .filter_map(move |(_, number)| Some((*number, self.get(*number, now)?)))
    }

    /// The sequence number of the next message.
    pub(crate) fn next(&self) -> SequenceNumber {
        self.table.next()
    }

    /// How many messages there are, hidden ones included, and expired ones that no tick has removed.
    pub(crate) fn count(&self) -> u64 {
        self.table.count()
    }

    /// The sizes of the messages that are counted, as an account's quota has them.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.table.size_bytes()
    }

    /// Every message, in the order of sequence numbers.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (SequenceNumber, Message)> {
        self.table.entries().map(stored)
    }

    /// The messages of runs with bodies in these units of positions.
    pub(crate) fn messages_near(
        &self,
        units: RangeInclusive<u32>,
    ) -> impl Iterator<Item = (SequenceNumber, Message)> {
        self.table.entries_near(units).map(stored)
    }

    /// The messages from one number up to but not including another.
    pub(crate) fn messages_between(
        &self,
        from: u64,
        until: u64,
    ) -> impl Iterator<Item = (SequenceNumber, Message)> {
        let entries = self.table.entries_from(SequenceNumber::named(from));
        entries
            .map(stored)
            .take_while(move |(number, _)| number.as_u64() < until)
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
    pub(crate) fn oldest(&self) -> Option<Message> {
        self.table.first().map(|entry| stored(entry).1)
    }

    /// The message of that number, expired or not.
    pub(crate) fn find(&self, number: SequenceNumber) -> Option<Message> {
        self.table.get(number).map(|entry| stored(entry).1)
    }

    /// Whether there is a message of that number, expired or not.
    pub(crate) fn holds(&self, number: SequenceNumber) -> bool {
        self.table.get(number).is_some()
    }
}

#[cfg(test)]
mod tests;
