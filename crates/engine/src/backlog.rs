//! The messages of a queue and the order in which they are received.
//!
//! Messages lie in *runs* of consecutive sequence numbers, dense and cheap. A message that was
//! never leased nor delayed waits in the order of its sequence number, which the runs have already:
//! it costs no index entry. Leases and delays put a message into an ordered set by the time at
//! which it shows. A run carries the earliest expiry of its messages, so that a time to live costs
//! an entry a run, not one a message.
//!
//! Invariants: no run is empty; `fresh_from` is the lowest fresh message, or `next`; a message is
//! in `timed` if and only if its placement says so; `count` is the number of messages, `size_bytes` the
//! sum of their sizes.

use std::collections::{BTreeMap, BTreeSet};

use kew_planted::{Bug, is_planted};

use crate::account::MESSAGE_OVERHEAD_BYTES;
use crate::message::{Message, Placement};
use crate::timed::Timed;
use crate::{LeaseGeneration, SequenceNumber, Timestamp};

/// How many sequence numbers share a run.
pub(crate) const RUN_LENGTH: u64 = 128;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Backlog {
    runs: BTreeMap<u64, Run>,
    next: SequenceNumber,
    fresh_from: SequenceNumber,
    timed: Timed,
    /// The earliest expiry of each run that has one, with the run's number.
    expiries: BTreeSet<(Timestamp, u64)>,
    count: u64,
    size_bytes: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Run {
    /// The sequence number of the first slot.
    first: u64,
    slots: Vec<Option<Message>>,
    live: usize,
    /// How many of the live ones are fresh: a run without one is passed over as a whole.
    fresh: usize,
    /// A lower bound: the message that had it may be gone.
    expires_first: Timestamp,
    /// An upper bound, likewise.
    expires_last: Timestamp,
}

/// What a message counts for in its account's bytes.
fn size_bytes(message: &Message) -> u64 {
    u64::from(message.body.length) + MESSAGE_OVERHEAD_BYTES
}

impl Run {
    fn index(&self, sequence_number: SequenceNumber) -> Option<usize> {
        let index = sequence_number.as_u64().checked_sub(self.first)?;
        usize::try_from(index).ok()
    }

    fn get(&self, sequence_number: SequenceNumber) -> Option<&Message> {
        self.slots.get(self.index(sequence_number)?)?.as_ref()
    }

    fn messages(&self) -> impl Iterator<Item = (SequenceNumber, &Message)> {
        (self.first..)
            .zip(&self.slots)
            .filter_map(|(number, slot)| Some((SequenceNumber::new(number), slot.as_ref()?)))
    }
}

impl Backlog {
    /// An empty backlog whose next message has this sequence number.
    pub(crate) fn starting_at(next: SequenceNumber) -> Self {
        Self {
            runs: BTreeMap::new(),
            next,
            fresh_from: next,
            timed: Timed::default(),
            expiries: BTreeSet::new(),
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
    pub(crate) fn restore(&mut self, sequence_number: SequenceNumber, message: Message) -> bool {
        let last = self
            .runs
            .last_key_value()
            .map(|(_, run)| run.first + run.slots.len() as u64);
        if last.is_some_and(|end| sequence_number.as_u64() < end) {
            return false;
        }
        self.place(sequence_number, message);
        true
    }

    /// Adds the next message. A number that was used before is ignored: `apply` is total.
    pub(crate) fn push(&mut self, sequence_number: SequenceNumber, message: Message) {
        if sequence_number < self.next {
            return;
        }
        if self.fresh_from == self.next {
            self.fresh_from = sequence_number.next();
        }
        self.next = sequence_number.next();
        self.place(sequence_number, message);
    }

    /// Appends a message behind all others.
    fn place(&mut self, sequence_number: SequenceNumber, message: Message) {
        match message.placement {
            Placement::Fresh if self.fresh_from == self.next => self.fresh_from = sequence_number,
            Placement::Fresh => {}
            Placement::Timed => {
                self.timed.insert((message.visible_at, sequence_number));
            }
        }
        self.count += 1;
        self.size_bytes += size_bytes(&message);
        let number = sequence_number.as_u64() / RUN_LENGTH;
        let run = self.runs.entry(number).or_insert_with(|| Run {
            first: sequence_number.as_u64(),
            slots: Vec::new(),
            live: 0,
            fresh: 0,
            expires_first: Timestamp::NEVER,
            expires_last: Timestamp::ZERO,
        });
        let index = run
            .index(sequence_number)
            .expect("sequence numbers rise, so none lies before its run's first");
        run.slots.resize_with(index, || None);
        run.expires_last = run.expires_last.max(message.expires_at);
        if message.expires_at < run.expires_first {
            self.expiries.remove(&(run.expires_first, number));
            run.expires_first = message.expires_at;
            self.expiries.insert((run.expires_first, number));
        }
        run.live += 1;
        run.fresh += usize::from(message.placement == Placement::Fresh);
        run.slots.push(Some(message));
    }

    /// Removes a message; nothing happens if there is none.
    pub(crate) fn remove(&mut self, sequence_number: SequenceNumber) {
        let number = sequence_number.as_u64() / RUN_LENGTH;
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let Some(message) = run
            .index(sequence_number)
            .and_then(|index| run.slots.get_mut(index)?.take())
        else {
            return;
        };
        run.live -= 1;
        run.fresh -= usize::from(message.placement == Placement::Fresh);
        if run.live == 0 {
            self.expiries.remove(&(run.expires_first, number));
            self.runs.remove(&number);
        }
        if !is_planted(Bug::CountNotLowered) {
            self.count -= 1;
        }
        if !is_planted(Bug::SizeNotGivenBack) {
            self.size_bytes -= size_bytes(&message);
        }
        if message.placement == Placement::Timed {
            self.timed.remove(&(message.visible_at, sequence_number));
        }
        self.advance_fresh(sequence_number);
    }

    /// Changes a message and where it waits: from now on by `visible_at`.
    pub(crate) fn lease(
        &mut self,
        sequence_number: SequenceNumber,
        visible_at: Timestamp,
        change: impl FnOnce(&mut Message),
    ) {
        let number = sequence_number.as_u64() / RUN_LENGTH;
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let Some(message) = run
            .index(sequence_number)
            .and_then(|index| run.slots.get_mut(index)?.as_mut())
        else {
            return;
        };
        match message.placement {
            Placement::Fresh => run.fresh -= 1,
            Placement::Timed => {
                self.timed.remove(&(message.visible_at, sequence_number));
            }
        }
        message.placement = Placement::Timed;
        message.visible_at = visible_at;
        self.size_bytes -= size_bytes(message);
        change(message);
        self.size_bytes += size_bytes(message);
        self.timed.insert((visible_at, sequence_number));
        self.advance_fresh(sequence_number);
    }

    /// Updates `fresh_from` after `changed` left the fresh messages. Each number is passed once.
    fn advance_fresh(&mut self, changed: SequenceNumber) {
        if changed != self.fresh_from {
            return;
        }
        let from = changed.as_u64() + 1;
        self.fresh_from = self
            .runs
            .range(from / RUN_LENGTH..)
            .filter(|(_, run)| run.fresh > 0)
            .flat_map(|(_, run)| {
                let skip = usize::try_from(from.saturating_sub(run.first)).unwrap_or(usize::MAX);
                (run.first..).zip(&run.slots).skip(skip)
            })
            .find(|(_, slot)| {
                slot.as_ref()
                    .is_some_and(|message| message.placement == Placement::Fresh)
            })
            .map_or(self.next, |(number, _)| SequenceNumber::new(number));
    }

    /// Removes the messages of a run whose time to live has passed at `at`, and says how many.
    pub(crate) fn expire_run(&mut self, number: u64, at: Timestamp) -> u64 {
        let Some(run) = self.runs.get_mut(&number) else {
            return 0;
        };
        let expired: Vec<_> = run
            .messages()
            .filter(|(_, message)| message.is_expired(at))
            .map(|(sequence_number, _)| sequence_number)
            .collect();
        self.expiries.remove(&(run.expires_first, number));
        run.expires_first = run
            .messages()
            .filter(|(_, message)| !message.is_expired(at))
            .map(|(_, message)| message.expires_at)
            .min()
            .unwrap_or(Timestamp::NEVER);
        if run.expires_first != Timestamp::NEVER {
            self.expiries.insert((run.expires_first, number));
        }
        let count = expired.len() as u64;
        for sequence_number in expired {
            self.remove(sequence_number);
        }
        count
    }

    /// Removes every message below `before`.
    pub(crate) fn clear(&mut self, before: SequenceNumber) {
        if before >= self.next {
            *self = Self::starting_at(before);
            return;
        }
        let gone: Vec<_> = self
            .messages()
            .map(|(sequence_number, _)| sequence_number)
            .take_while(|sequence_number| *sequence_number < before)
            .collect();
        for sequence_number in gone {
            self.remove(sequence_number);
        }
    }

    /// The message, if it is there and its time to live has not passed.
    pub(crate) fn get(&self, sequence_number: SequenceNumber, now: Timestamp) -> Option<&Message> {
        let run = self.runs.get(&(sequence_number.as_u64() / RUN_LENGTH))?;
        let message = run.get(sequence_number)?;
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
            .range(self.fresh_from.as_u64() / RUN_LENGTH..)
            .filter(move |(_, run)| run.fresh > 0 && !run.expires_last.has_passed(now))
            .flat_map(|(_, run)| run.messages())
            .filter(move |(_, message)| {
                message.placement == Placement::Fresh && !message.is_expired(now)
            })
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

    /// The first run with something to expire at `now`.
    pub(crate) fn run_to_expire(&self, now: Timestamp) -> Option<u64> {
        let (expires_at, run) = self.expiries.first()?;
        expires_at.has_passed(now).then_some(*run)
    }

    /// When the next run has something to expire.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.first().map(|(expires_at, _)| *expires_at)
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

    /// Whether there is a message of that number, expired or not.
    pub(crate) fn holds(&self, sequence_number: SequenceNumber) -> bool {
        let run = self.runs.get(&(sequence_number.as_u64() / RUN_LENGTH));
        run.is_some_and(|run| run.get(sequence_number).is_some())
    }
}

/// The operations of a repair.
impl Backlog {
    /// Adds messages of another backlog that are missing here.
    pub(crate) fn absorb(&mut self, other: Self) {
        let next = self.next.max(other.next);
        let mut messages = other.take_messages();
        messages.extend(std::mem::replace(self, Self::starting_at(next)).take_messages());
        self.place_all(messages);
    }

    /// Leaves out the next `count` sequence numbers.
    pub(crate) fn skip_numbers(&mut self, count: u64) {
        let highest = (1 << SequenceNumber::BITS) - 1;
        let next = SequenceNumber::new((self.next.as_u64() + count).min(highest));
        let messages = std::mem::replace(self, Self::starting_at(next)).take_messages();
        self.place_all(messages);
    }

    /// Leaves out the next `count` lease generations of every message.
    pub(crate) fn skip_generations(&mut self, count: u32) {
        let slots = self.runs.values_mut().flat_map(|run| &mut run.slots);
        for message in slots.flatten() {
            let generation = message.generation.as_u32().wrapping_add(count);
            message.generation = LeaseGeneration::new(generation);
        }
    }

    fn take_messages(self) -> BTreeMap<SequenceNumber, Message> {
        let runs = self.runs.into_values();
        let numbered = runs.flat_map(|run| (run.first..).zip(run.slots));
        numbered
            .filter_map(|(number, slot)| Some((SequenceNumber::new(number), slot?)))
            .collect()
    }

    fn place_all(&mut self, messages: BTreeMap<SequenceNumber, Message>) {
        for (sequence_number, message) in messages {
            self.place(sequence_number, message);
        }
    }
}

#[cfg(test)]
mod tests;
