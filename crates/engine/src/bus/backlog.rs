//! The order in which messages of a bus queue are received, and what is kept for it.
//!
//! Order is the sequence number: a message that comes back takes its old place.
//!
//! Invariants: a message of a session is to receivers of its session what its state says;
//! `snapshot` is a sum over all messages.

mod kept;

use super::BusMessageState;
use super::message::{self, Message};
use super::session::Sessions;
use crate::queues;
use crate::table::{Entry, RunLength, Seen};
use crate::vocabulary::{SequenceNumber, Timestamp};

/// How many expired messages a receiver passes over at most before a tick has removed them. In a session, up to 128
/// numbers are looked at for each, because a block says only how many of its messages are ready: at worst two million
/// numbers of 4 bytes. The looks themselves are not counted: how blocks lie depends on the past, and a decision must not.
const SCAN_MAX: usize = 16 * 1024;

pub(crate) type Backlog = queues::Backlog<Kept>;

/// What is kept of the messages of a bus queue, beside a table and an order by time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Whether messages are received session by session. If they are not, a message keeps its session for
    /// the queue it may be forwarded to.
    by_session: bool,
    pub(crate) sessions: Sessions,
    /// An upper bound of what the messages take in a snapshot.
    snapshot: SnapshotBound,
    scheduled_count: u64,
    deferred_count: u64,
    oldest: Oldest,
}

/// A message that may have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiring {
    /// It has.
    Message {
        number: SequenceNumber,
        /// How many messages were looked at before it.
        looks: u32,
    },
    /// None of this run has: its bound is too low.
    Bound {
        run: u64,
        /// How many messages were looked at.
        looks: u32,
    },
    /// Nothing is left of this run but messages that were set aside, and their time has passed.
    Lost { run: u64 },
}

/// No message below this number can be anything but scheduled. Known for metrics alone: two backlogs
/// that differ in it alone are equal.
#[derive(Debug, Default)]
struct Oldest(SequenceNumber);

impl PartialEq for Oldest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Oldest {}

/// An upper bound of what messages take in a snapshot: what they take at most, one by one.
#[derive(Debug, Default)]
struct SnapshotBound {
    bytes: u64,
    /// Whether it is more than that: of messages that were set aside, nobody knows how often their properties had changed. A
    /// start counts again.
    is_more: bool,
}

/// A replay and a start come to the same bound, unless it is more.
impl PartialEq for SnapshotBound {
    fn eq(&self, other: &Self) -> bool {
        self.is_more || other.is_more || self.bytes == other.bytes
    }
}

impl Eq for SnapshotBound {}

impl Backlog {
    pub(crate) fn starting_at(length: RunLength, next: SequenceNumber, by_session: bool) -> Self {
        Self::of(Kept::new(length, by_session), length, next)
    }

    /// Gives a message that comes from a snapshot its source.
    pub(crate) fn restore_source(&mut self, number: SequenceNumber, source: &str) -> bool {
        let size_bytes = |backlog: &Self| {
            let message = backlog.get(number);
            message.map(|message| message.snapshot_size_bytes_max())
        };
        let Some(before_bytes) = size_bytes(self) else {
            return false;
        };
        self.change_side(number, |side| side.source = Some(source.into()));
        let after_bytes = size_bytes(self).unwrap_or_default();
        self.snapshot.bytes = self.snapshot.bytes - before_bytes + after_bytes;
        true
    }

    /// Whether a message without a session can be received.
    pub(crate) fn has_ready(&self) -> bool {
        self.table().has_ready()
    }

    /// Whether there is a message that could go on to another queue.
    pub(crate) fn has_to_forward(&self) -> bool {
        self.has_ready() || self.sessions.next_available().is_some()
    }

    /// The message to forward next: the first one that can be received. Messages of a locked session wait
    /// until it is free, as for any other receiver.
    pub(crate) fn next_to_forward(&self, now: Timestamp) -> Option<SequenceNumber> {
        let alone = self.ready(0, now).next();
        alone.or_else(|| self.ready(self.sessions.next_available()?, now).next())
    }

    pub(crate) fn get(&self, number: SequenceNumber) -> Option<Message<'_>> {
        self.table().get(number).map(Message::from)
    }

    /// Every message from a number on, in order.
    pub(crate) fn from(&self, number: SequenceNumber) -> impl Iterator<Item = Message<'_>> {
        self.table().entries_from(number).map(Message::from)
    }

    /// Every message from a number on, in order. With a session, only its messages: the walk takes a step
    /// for each of them, however many other messages there are.
    pub(crate) fn walk(
        &self,
        session: Option<u32>,
        first: SequenceNumber,
    ) -> impl Iterator<Item = Message<'_>> {
        let all = session.is_none().then(|| self.from(first));
        let session = session.and_then(|number| self.sessions.get(number));
        let of_session = session.map(|session| session.messages.numbers_from(first));
        let of_session = of_session.into_iter().flatten();
        let of_session = of_session.filter_map(|number| self.get(number));
        all.into_iter().flatten().chain(of_session)
    }

    /// The numbers of the messages that can be received, in order, of a session or without one.
    pub(crate) fn ready(
        &self,
        session: u32,
        now: Timestamp,
    ) -> impl Iterator<Item = SequenceNumber> {
        let alone = (session == 0).then(|| self.table().ready(now));
        let alone = alone.into_iter().flatten();
        let of_session = self.sessions.get(session).into_iter();
        let of_session = of_session.flat_map(|session| session.messages.ready());
        let of_session = of_session.filter_map(|number| self.table().get(number));
        let all = alone.chain(of_session).take(SCAN_MAX);
        let there = all.filter(move |entry: &Entry<'_>| !entry.record.expires_at.has_passed(now));
        there.map(|entry| entry.number)
    }

    /// Those of [`Backlog::ready`], expired ones too.
    pub(crate) fn ready_seen(
        &self,
        session: u32,
        now: Timestamp,
    ) -> impl Iterator<Item = Seen<'_>> {
        let alone = (session == 0).then(|| self.table().ready_seen(now));
        let alone = alone.into_iter().flatten();
        let of_session = self.sessions.get(session).into_iter();
        let of_session = of_session.flat_map(|session| session.messages.ready());
        let of_session = of_session.filter_map(|number| self.table().seen(number));
        alone.chain(of_session).take(SCAN_MAX)
    }

    /// Whether a message came at that time or later for certain: if not, its record says when. Needs no record.
    pub(crate) fn came_from(&self, number: SequenceNumber, at: Timestamp) -> bool {
        let came_at = self.table().enqueued_at(number);
        came_at.is_some_and(|came_at| came_at >= at)
    }

    /// Those of [`Backlog::walk`].
    pub(crate) fn walk_seen(
        &self,
        session: Option<u32>,
        first: SequenceNumber,
    ) -> impl Iterator<Item = Seen<'_>> {
        let all = session.is_none().then(|| self.table().seen_from(first));
        let session = session.and_then(|number| self.sessions.get(number));
        let of_session = session.map(|session| session.messages.numbers_from(first));
        let of_session = of_session.into_iter().flatten();
        let of_session = of_session.filter_map(|number| self.table().seen(number));
        all.into_iter().flatten().chain(of_session)
    }

    /// The first lock of a message without a session that has ended, or schedule that is due.
    pub(crate) fn due(&self, now: Timestamp) -> Option<Message<'_>> {
        let (at, number) = self.timed().first()?;
        if !at.has_passed(now) {
            return None;
        }
        self.get(*number)
    }

    /// A ready message whose time to live has ended, if there is one. It takes a look at a run.
    pub(crate) fn expiring(&self, now: Timestamp) -> Option<Expiring> {
        let run = self.table().run_to_expire(now)?;
        let mut looks = 0;
        let found = self.table().run(run)?;
        if found.is_lost() && found.has_expired(now) {
            return Some(Expiring::Lost { run });
        }
        for entry in found.entries() {
            let number = entry.number;
            if message::expiry(entry.record).has_passed(now) {
                return Some(Expiring::Message { number, looks });
            }
            looks += 1;
        }
        Some(Expiring::Bound { run, looks })
    }

    /// Whether a ready message may have expired.
    pub(crate) fn may_expire(&self, now: Timestamp) -> bool {
        self.table().run_to_expire(now).is_some()
    }

    /// When a lock or a schedule ends next, or earlier.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        let due = self.first_time();
        let lock = self.sessions.next_lock_end();
        due.into_iter().chain(lock).min()
    }

    pub(crate) fn scheduled_count(&self) -> u64 {
        self.scheduled_count
    }

    pub(crate) fn deferred_count(&self) -> u64 {
        self.deferred_count
    }

    /// Messages that a receiver has locked.
    pub(crate) fn locked_count(&self) -> u64 {
        self.timed_count().saturating_sub(self.scheduled_count)
    }

    /// The messages that can be received, including expired ones that were not removed yet.
    pub(crate) fn ready_count(&self) -> u64 {
        let others = self.timed_count() + self.deferred_count;
        self.count().saturating_sub(others)
    }

    /// Those that wait in a topic for their copies. What was set aside gets none.
    pub(crate) fn pending_count(&self) -> u64 {
        self.ready_count()
            .saturating_sub(self.table().aside_count())
    }

    /// Moves on to the oldest message that is not scheduled, in at most `steps` steps. Each scheduled
    /// message takes one step, once in its life. Returns whether it got there.
    pub(crate) fn pass_scheduled(&mut self, steps: &mut u32) -> bool {
        let (mut oldest, mut is_there) = (self.next(), true);
        for (number, entry) in self.table().seen_from(self.oldest.0) {
            // One that is not in memory is not read for this.
            let is_scheduled =
                entry.is_some_and(|entry| entry.record.state == BusMessageState::Scheduled);
            if !is_scheduled || *steps == 0 {
                (oldest, is_there) = (number, !is_scheduled);
                break;
            }
            *steps -= 1;
        }
        self.oldest.0 = oldest;
        is_there
    }

    /// When the message was sent that [`Backlog::pass_scheduled`] found, if there is one; or an earlier time if it is
    /// not in memory.
    pub(crate) fn oldest_at(&self) -> Option<Timestamp> {
        self.table().enqueued_at(self.oldest.0)
    }

    /// Bytes of messages and session states.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.table().size_bytes() + self.sessions.states_size_bytes()
    }

    /// An upper bound of what messages and sessions take in a snapshot.
    pub(crate) fn snapshot_size_bytes_max(&self) -> u64 {
        self.snapshot.bytes + self.sessions.snapshot_size_bytes_max()
    }

    /// Whether a receiver holds something, or a message waits for its time: the queue is then in use.
    pub(crate) fn is_in_use(&self) -> bool {
        self.timed_count() > 0 || self.sessions.next_lock_end().is_some()
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        self.table().entries().map(Message::from)
    }
}

#[cfg(test)]
use crate::queues::Profile;
#[cfg(test)]
use crate::table::{CountUnit, Live, Record};

#[cfg(test)]
impl Backlog {
    /// Asserts that every index says what the messages say.
    pub(crate) fn check(&self) {
        let length = self.table().length();
        let mut fresh = Self::starting_at(length, self.next(), self.by_session);
        let mut live = Live::new(CountUnit::DEFAULT);
        fresh.sessions.set_last_number(self.sessions.last_number());
        for (number, session) in self.sessions.iter() {
            fresh
                .sessions
                .restore(number, &session.id, &mut live, |restored| {
                    restored.generation = session.generation;
                    restored.locked_until = session.locked_until;
                    restored.state = session.state;
                    restored.state_set_at = session.state_set_at;
                });
        }
        for entry in self.table().entries() {
            let side = entry.whole_side();
            let count = fresh.count();
            fresh.push(entry.number, *entry.record, side, &mut live);
            assert_eq!(fresh.count(), count + 1);
        }
        assert_eq!(self, &fresh);
        let is_ready = |record: &Record| self.is_in_order(record.state, record.session);
        self.table().check(is_ready, message::expiry);
        fresh.uncount_live(&mut live);
        assert_eq!(live.size_bytes(), 0, "each body is counted once");
        self.sessions.check();
        for (session, _) in self.sessions.iter() {
            let walked = self.walk(Some(session), SequenceNumber::default());
            let own = self.messages().filter(|it| it.session == session);
            assert!(walked.eq(own), "a session has an index of its own messages");
        }
    }
}
