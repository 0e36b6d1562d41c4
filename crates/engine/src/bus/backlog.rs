//! The messages of a bus queue, and the order in which they are received.
//!
//! Order is the sequence number: a message that comes back takes its old place.
//!
//! Invariants: a message is in `ready` (of the backlog, or of its session) exactly if its state says
//! so, in `due` exactly if it is locked or scheduled, and in `expiring` exactly if it expires and is
//! neither locked nor deferred; `size_bytes` and `snapshot_size_bytes` are sums over all messages.

mod index;

use std::collections::{BTreeMap, BTreeSet};

use kew_planted::{Bug, is_planted};

use super::BusMessageState;
use super::effect::{BusBodies, BusLease, BusWas, Standing};
use super::message::{LOCATION_SIZE_BYTES_MAX, Message, snapshot_size_bytes_max};
use super::session::Sessions;
use crate::{BodyLocation, SequenceNumber, Timestamp};

/// How many expired messages a receiver passes over at most before a tick has removed them.
const SCAN_MAX: usize = 16 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Backlog {
    messages: BTreeMap<SequenceNumber, Message>,
    next: SequenceNumber,
    /// Whether messages are received session by session. If they are not, a message keeps its session for
    /// the queue it may be forwarded to.
    by_session: bool,
    /// Messages that can be received without a session.
    ready: BTreeSet<SequenceNumber>,
    due: BTreeSet<(Timestamp, SequenceNumber)>,
    expiring: BTreeSet<(Timestamp, SequenceNumber)>,
    pub(crate) sessions: Sessions,
    size_bytes: u64,
    /// An upper bound of what the messages take in a snapshot.
    snapshot_size_bytes: u64,
    scheduled_count: u64,
    deferred_count: u64,
    oldest: Oldest,
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

impl Backlog {
    pub(crate) fn starting_at(next: SequenceNumber, by_session: bool) -> Self {
        Self {
            messages: BTreeMap::new(),
            next,
            by_session,
            ready: BTreeSet::new(),
            due: BTreeSet::new(),
            expiring: BTreeSet::new(),
            sessions: Sessions::default(),
            size_bytes: 0,
            snapshot_size_bytes: 0,
            scheduled_count: 0,
            deferred_count: 0,
            oldest: Oldest::default(),
        }
    }

    /// Adds a message under a number that is not in use. A lower number than the next one may be new: in a
    /// replay, the next one can come from a later time than the messages.
    pub(crate) fn push(&mut self, number: SequenceNumber, message: Message) {
        self.next = self.next.max(number.next());
        self.insert(number, message);
    }

    /// Restores a message of a snapshot. Returns false if its number is taken or was never given out.
    pub(crate) fn restore(&mut self, number: SequenceNumber, message: Message) -> bool {
        if number >= self.next || self.messages.contains_key(&number) {
            return false;
        }
        self.insert(number, message);
        true
    }

    fn insert(&mut self, number: SequenceNumber, message: Message) {
        self.size_bytes += message.size_bytes();
        self.snapshot_size_bytes += message.snapshot_size_bytes_max();
        let by_session = self.by_session;
        self.sessions.change(message.session, |session| {
            session.message_count += 1;
            if !by_session {
                session.others.insert(number);
            }
        });
        let was = message.was();
        self.index(number, was.standing, was.session);
        self.messages.insert(number, message);
    }

    /// Removes a message that counted for `was` and had these bodies; nothing happens if there is none.
    pub(crate) fn end(
        &mut self,
        number: SequenceNumber,
        was: &BusWas,
        bodies: &BusBodies,
        source_length: Option<u32>,
    ) {
        if self.messages.remove(&number).is_none() {
            return;
        }
        self.unindex(number, was);
        if !is_planted(Bug::BusSizeNotGivenBack) {
            self.size_bytes = self.size_bytes.saturating_sub(bodies.size_bytes());
        }
        let snapshot_bytes = snapshot_size_bytes_max(bodies.overlays.len(), source_length);
        self.snapshot_size_bytes = self.snapshot_size_bytes.saturating_sub(snapshot_bytes);
        self.sessions.change(was.session, |session| {
            session.message_count = session.message_count.saturating_sub(1);
            session.others.remove(&number);
        });
        if is_planted(Bug::BusNumberReused) && number.next() == self.next {
            self.next = number;
        }
    }

    /// Gives a message that counted for `was` a lease, and with it a change to its properties if there is one.
    pub(crate) fn lease(
        &mut self,
        number: SequenceNumber,
        lease: &BusLease,
        overlay: Option<BodyLocation>,
        was: &BusWas,
    ) {
        let Some(message) = self.messages.get_mut(&number) else {
            return;
        };
        let Standing { state, until } = lease.standing;
        message.generation = lease.generation;
        message.delivery_count = lease.deliveries;
        message.state = state;
        message.due_at = Timestamp::NEVER;
        match state {
            BusMessageState::Ready => message.expires_at = until,
            BusMessageState::Locked { .. } | BusMessageState::Scheduled => message.due_at = until,
            BusMessageState::Deferred => {}
        }
        if let Some(overlay) = overlay {
            message.overlays.push(overlay);
            self.size_bytes += u64::from(overlay.length);
            self.snapshot_size_bytes += LOCATION_SIZE_BYTES_MAX;
        }
        self.unindex(number, was);
        self.index(number, lease.standing, was.session);
    }

    /// Gives a message that comes from a snapshot its source.
    pub(crate) fn restore_source(&mut self, number: SequenceNumber, source: &str) -> bool {
        let Some(message) = self.messages.get_mut(&number) else {
            return false;
        };
        self.snapshot_size_bytes -= message.snapshot_size_bytes_max();
        message.dead_letter_source = Some(source.into());
        self.snapshot_size_bytes += message.snapshot_size_bytes_max();
        true
    }

    /// Whether a message without a session can be received.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
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

    pub(crate) fn get(&self, number: SequenceNumber) -> Option<&Message> {
        self.messages.get(&number)
    }

    /// Every message from a number on, in order.
    pub(crate) fn from(
        &self,
        number: SequenceNumber,
    ) -> impl Iterator<Item = (SequenceNumber, &Message)> {
        self.messages
            .range(number..)
            .map(|(number, message)| (*number, message))
    }

    /// Every message from a number on, in order. With a session, only its messages: the walk takes a step
    /// for each of them, however many other messages there are.
    pub(crate) fn walk(
        &self,
        session: Option<u32>,
        first: SequenceNumber,
    ) -> impl Iterator<Item = (SequenceNumber, &Message)> {
        let all = session.is_none().then(|| self.from(first));
        let session = session.and_then(|number| self.sessions.get(number));
        let of_session = session.map(|session| session.numbers_from(first));
        let of_session = of_session.into_iter().flatten();
        let of_session =
            of_session.filter_map(|number| Some((number, self.messages.get(&number)?)));
        all.into_iter().flatten().chain(of_session)
    }

    /// The numbers of the messages that can be received, in order, of a session or without one.
    pub(crate) fn ready(
        &self,
        session: u32,
        now: Timestamp,
    ) -> impl Iterator<Item = SequenceNumber> {
        let numbers = if session == 0 {
            Some(&self.ready)
        } else {
            self.sessions.get(session).map(|session| &session.ready)
        };
        let numbers = numbers.into_iter().flatten().copied().take(SCAN_MAX);
        numbers.filter(move |number| {
            let message = self.messages.get(number);
            message.is_some_and(|message| !message.expires_at.has_passed(now))
        })
    }

    /// The first lock of a message without a session that has ended, or schedule that is due.
    pub(crate) fn due(&self, now: Timestamp) -> Option<(SequenceNumber, &Message)> {
        let (at, number) = self.due.first()?;
        if !at.has_passed(now) {
            return None;
        }
        Some((*number, self.messages.get(number)?))
    }

    /// The first ready message whose time to live has ended.
    pub(crate) fn expired(&self, now: Timestamp) -> Option<SequenceNumber> {
        let (at, number) = self.expiring.first()?;
        at.has_passed(now).then_some(*number)
    }

    /// When something becomes due next.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let due = self.due.first().map(|(at, _)| *at);
        let expiry = self.expiring.first().map(|(at, _)| *at);
        let lock = self.sessions.next_lock_end();
        [due, expiry, lock].into_iter().flatten().min()
    }

    pub(crate) fn next(&self) -> SequenceNumber {
        self.next
    }

    pub(crate) fn set_next(&mut self, next: SequenceNumber) {
        self.next = next;
    }

    pub(crate) fn count(&self) -> u64 {
        self.messages.len() as u64
    }

    pub(crate) fn scheduled_count(&self) -> u64 {
        self.scheduled_count
    }

    pub(crate) fn deferred_count(&self) -> u64 {
        self.deferred_count
    }

    /// Messages that a receiver has locked.
    pub(crate) fn locked_count(&self) -> u64 {
        (self.due.len() as u64).saturating_sub(self.scheduled_count)
    }

    /// The messages that can be received, including expired ones that were not removed yet.
    pub(crate) fn ready_count(&self) -> u64 {
        let others = self.due.len() as u64 + self.deferred_count;
        self.count().saturating_sub(others)
    }

    /// Moves on to the oldest message that is not scheduled, in at most `steps` steps. Each scheduled
    /// message takes one step, once in its life. Returns whether it got there.
    pub(crate) fn pass_scheduled(&mut self, steps: &mut u32) -> bool {
        let from = self.messages.range(self.oldest.0..);
        for (number, message) in from {
            self.oldest.0 = *number;
            if message.state != BusMessageState::Scheduled {
                return true;
            }
            if *steps == 0 {
                return false;
            }
            *steps -= 1;
        }
        self.oldest.0 = self.next;
        true
    }

    /// When the message was sent that [`Backlog::pass_scheduled`] found, if there is one.
    pub(crate) fn oldest_at(&self) -> Option<Timestamp> {
        let oldest = self.messages.get(&self.oldest.0)?;
        Some(oldest.enqueued_at)
    }

    /// Bytes of messages and session states.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes + self.sessions.states_size_bytes()
    }

    /// An upper bound of what messages and sessions take in a snapshot.
    pub(crate) fn snapshot_size_bytes_max(&self) -> u64 {
        self.snapshot_size_bytes + self.sessions.snapshot_size_bytes_max()
    }

    /// Whether a receiver holds something, or a message waits for its time: the queue is then in use.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.due.is_empty() || self.sessions.next_lock_end().is_some()
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = (SequenceNumber, &Message)> {
        self.from(SequenceNumber::default())
    }
}

#[cfg(test)]
impl Backlog {
    /// Asserts that every index says what the messages say.
    pub(crate) fn check(&self) {
        let mut fresh = Self::starting_at(self.next, self.by_session);
        fresh.sessions.set_last_number(self.sessions.last_number());
        for (number, session) in self.sessions.iter() {
            fresh
                .sessions
                .restore(number, session.id.clone(), |restored| {
                    restored.generation = session.generation;
                    restored.locked_until = session.locked_until;
                    restored.state = session.state;
                    restored.state_set_at = session.state_set_at;
                });
        }
        for (number, message) in &self.messages {
            assert!(fresh.restore(*number, message.clone()));
        }
        assert_eq!(self, &fresh);
        for (session, _) in self.sessions.iter() {
            let walked = self.walk(Some(session), SequenceNumber::default());
            let all = self.messages();
            let own = all.filter(|(_, message)| message.session == session);
            assert!(walked.eq(own), "a session has an index of its own messages");
        }
    }
}
