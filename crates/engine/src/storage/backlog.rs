//! The order in which messages of a storage queue are received.
//!
//! A message that was never leased nor delayed waits in the order of its sequence number. Leases and delays put a
//! message into the order by the time at which it shows, also when that has passed.

pub(crate) mod expiry;

use crate::effect::Standing;
use crate::queues::{self, Profile};
use crate::storage::message::Message;
use crate::storage::snapshot::{kind, message, put_message};
use crate::storage::{Effect, OwnEffect, OwnHolder};
use crate::table::{Entry, Live, MessageState, Record, Side};
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::{BodyLocation, BodyMove, LeaseGeneration, SequenceNumber, Timestamp};

/// How many messages of each order a receiver looks at. Due work removes those that have expired, and until it has done so
/// a receiver may find nothing, although there are messages behind them.
pub(crate) const SCAN_MAX: usize = 16 * 1024;

/// Messages of storage queues: nothing more is kept of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored;

pub(crate) type Backlog = queues::Backlog<Stored>;

impl Profile for Stored {
    type Own = OwnEffect;

    type OwnHolder = OwnHolder;

    const MESSAGES_PART: u8 = kind::MESSAGES;

    const COUNTS_STATES: bool = false;

    fn apply(backlog: &mut Backlog, own: &OwnEffect, live: &mut Live) {
        match own {
            OwnEffect::RangeEnded { from, until, .. } => backlog.end_range(*from, *until, live),
        }
    }

    fn is_exact(backlog: &Backlog, own: &OwnEffect) -> bool {
        match own {
            OwnEffect::RangeEnded { from, until, .. } => {
                let table = backlog.table();
                table.is_within(*from, *until) || table.is_whole_and_ready(*from, *until)
            }
        }
    }

    /// A range that is not of whole, ready runs ends its messages one by one.
    fn fitting(backlog: &Backlog, own: OwnEffect) -> Vec<Effect> {
        let OwnEffect::RangeEnded {
            entity,
            from,
            until,
        } = own;
        let mut effects = Vec::new();
        if !backlog.table().is_within(from, until) {
            let entries = backlog.table().entries_from(from);
            let gone = entries.take_while(|entry| entry.number < until);
            effects.extend(gone.map(|entry| Self::ended(entity, &entry)));
        }
        effects.push(Effect::Own(own));
        effects
    }

    fn is_holder(_: &Backlog, own: &OwnHolder, _: BodyLocation) -> bool {
        match *own {}
    }

    fn move_body(_: &mut Backlog, own: &OwnHolder, _: BodyMove, _: &mut Live) -> bool {
        match *own {}
    }

    fn put_body(_: &mut Backlog, own: &OwnHolder, _: BodyLocation, _: &mut Live) {
        match *own {}
    }

    fn put_message(out: &mut Vec<u8>, entry: &Entry<'_>, _session: u32) {
        put_message(out, entry.record);
    }

    fn message(r: &mut Reader<'_>, _number: SequenceNumber) -> Result<(Record, Side), DecodeError> {
        Ok((message(r)?, Side::default()))
    }

    fn standing(record: &Record) -> Standing {
        match record.state {
            MessageState::Ready => Standing::default(),
            MessageState::Locked { .. } | MessageState::Scheduled | MessageState::Deferred => {
                Standing {
                    state: record.state,
                    until: record.due_at,
                }
            }
        }
    }

    fn expiry(record: &Record) -> Timestamp {
        record.expires_at
    }
}

pub(crate) fn stored(entry: Entry<'_>) -> (SequenceNumber, Message) {
    (entry.number, Message(*entry.record))
}

impl Backlog {
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
        let fresh = self.table().ready(now).take(SCAN_MAX).map(stored);
        fresh.filter(move |(_, message)| !message.is_expired(now))
    }

    /// Leased or delayed messages whose time has come.
    fn shown(&self, now: Timestamp) -> impl Iterator<Item = (SequenceNumber, Message)> {
        self.timed()
            .iter()
            .take_while(move |(due_at, _)| due_at.has_passed(now))
            .take(SCAN_MAX)
            .filter_map(move |(_, number)| Some((*number, self.get(*number, now)?)))
    }

    /// Every message, in the order of sequence numbers.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (SequenceNumber, Message)> {
        self.table().entries().map(stored)
    }

    /// The messages from one number up to but not including another.
    pub(crate) fn messages_between(
        &self,
        from: u64,
        until: u64,
    ) -> impl Iterator<Item = (SequenceNumber, Message)> {
        let entries = self.table().entries_from(SequenceNumber::named(from));
        entries
            .map(stored)
            .take_while(move |(number, _)| number.as_u64() < until)
    }

    /// How many messages are leased or delayed beyond the time that was last moved to. Of those that are far, a group counts
    /// as a whole by when the first one may be due: a receive finds out.
    pub(crate) fn hidden_count(&self) -> u64 {
        let (passed, hidden) = (self.timed().passed_at(), self.timed().hidden_count());
        hidden + self.table().far_count_after(passed)
    }

    /// The message of that number, expired or not.
    pub(crate) fn find(&self, number: SequenceNumber) -> Option<Message> {
        self.table().get(number).map(|entry| stored(entry).1)
    }

    /// The sizes of the messages that are counted, as an account's quota has them.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.table().size_bytes()
    }

    /// Leaves out the next `count` lease generations of every message.
    pub(crate) fn skip_generations(&mut self, count: u32) {
        self.change_all(|record| {
            let generation = record.generation.as_u32().wrapping_add(count);
            record.generation = LeaseGeneration::new(generation);
        });
    }
}

#[cfg(test)]
mod tests;
