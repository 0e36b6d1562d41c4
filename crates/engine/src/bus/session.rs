//! Sessions of a bus queue.

mod messages;

use std::collections::BTreeMap;
use std::ops::{Bound, Deref};
use std::sync::Arc;

pub(crate) use self::messages::{Mark, SessionMessages};
use crate::effect::{BusSession, SessionOf};
use crate::shared::{BlockLength, Chunk, Ordered, SharedMap};
use crate::table::{Live, MESSAGE_OVERHEAD_BYTES, RunLength, Spread};
use crate::vocabulary::{
    BodyLocation, BodyMove, LeaseGeneration, PageNumber, SequenceNumber, Timestamp,
};

/// The end of the lock of a session that is being released. No lock ends that early.
pub(crate) const RELEASING: Timestamp = Timestamp::from_ms(1);

/// A session as a snapshot has it: its lock and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) id: Arc<str>,
    pub(crate) generation: LeaseGeneration,
    /// When its lock ends; [`Timestamp::ZERO`] if it is not locked, [`RELEASING`] if it is being released.
    pub(crate) locked_until: Timestamp,
    pub(crate) state: Option<BodyLocation>,
    pub(crate) state_set_at: Timestamp,
}

/// A session with its messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeSession<'a> {
    session: &'a Session,
    pub(crate) messages: &'a SessionMessages,
}

impl Deref for WholeSession<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl Session {
    /// Its id, for an event or an answer.
    pub(crate) fn id(&self) -> Box<str> {
        Box::from(&*self.id)
    }

    pub(crate) fn is_locked(&self, now: Timestamp) -> bool {
        !self.locked_until.has_passed(now)
    }

    /// What its state counts for in its queue's size. With the id it counts as much as a message of that
    /// length, because the state alone keeps the session.
    pub(crate) fn state_size_bytes(&self) -> u64 {
        self.state.map_or(0, |state| {
            state_size_bytes(&self.id, u64::from(state.length))
        })
    }
}

impl WholeSession<'_> {
    /// Whether nothing keeps the session. A generation that starts again makes no old token valid, because
    /// the session's number is not used again.
    fn is_forgettable(&self) -> bool {
        self.messages.is_empty() && self.state.is_none() && self.locked_until == Timestamp::ZERO
    }
}

/// What a state of this length counts for in its queue's size.
pub(crate) fn state_size_bytes(session: &str, length: u64) -> u64 {
    MESSAGE_OVERHEAD_BYTES + session.len() as u64 + length
}

/// Sessions of a queue, as a snapshot shares them.
pub(crate) type SharedSessions = Vec<Arc<Chunk<Session>>>;

/// The sessions of a queue, by a number that is never used again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sessions {
    by_number: SharedMap<Session>,
    /// Each session's, likewise. No snapshot has them.
    messages: SharedMap<SessionMessages>,
    by_id: BTreeMap<Arc<str>, u32>,
    /// The first ready message of each free session, with the session.
    available: Ordered<(SequenceNumber, u32)>,
    locks: Ordered<(Timestamp, u32)>,
    last_number: u32,
    /// How many messages a block of a session has at most.
    block_length: BlockLength,
    /// The sum of what all states count for.
    states_size_bytes: u64,
    /// The bytes of all ids.
    ids_size_bytes: u64,
    /// Where the states lie.
    spread: Spread,
    /// Whether sessions stay that nothing keeps: messages of theirs may be lost, and are still to be set aside.
    keeps_all: bool,
}

/// The most bytes of a session in a snapshot, without its id: number, length, generation, two times, and the
/// location of its state.
const SNAPSHOT_SIZE_BYTES_MAX: u64 = 48;

impl Sessions {
    pub(crate) fn new(length: RunLength) -> Self {
        Self {
            by_number: SharedMap::new(length.as_u64()),
            messages: SharedMap::new(length.as_u64()),
            by_id: BTreeMap::new(),
            available: Ordered::new(length.as_u64()),
            locks: Ordered::new(length.as_u64()),
            last_number: 0,
            block_length: BlockLength::new(length.as_u64()),
            states_size_bytes: 0,
            ids_size_bytes: 0,
            spread: Spread::default(),
            keeps_all: false,
        }
    }

    /// Keeps all sessions, until [`Sessions::end_keeping`].
    pub(crate) fn keep_all(&mut self) {
        self.keeps_all = true;
    }

    /// Forgets the sessions that nothing keeps. It looks at each session.
    pub(crate) fn end_keeping(&mut self) {
        self.keeps_all = false;
        let forgotten: Vec<u32> = self.unkept().collect();
        forgotten.into_iter().for_each(|number| self.forget(number));
    }

    /// Whether a session is to be forgotten: a snapshot was written while all were kept. It looks at each session.
    pub(crate) fn has_unkept(&self) -> bool {
        !self.keeps_all && self.unkept().next().is_some()
    }

    fn unkept(&self) -> impl Iterator<Item = u32> {
        let sessions = self.iter();
        let unkept = sessions.filter(|(_, session)| session.is_forgettable());
        unkept.map(|(number, _)| number)
    }

    /// The session of that id: the one that there is, or a new one with the next number.
    pub(crate) fn named(&self, id: &str) -> BusSession {
        BusSession {
            number: self.number_for(id),
            id: id.into(),
        }
    }

    /// Its number.
    pub(crate) fn number_for(&self, id: &str) -> u32 {
        let next = || self.last_number.wrapping_add(1).max(1);
        let known = self.by_id.get(id).copied();
        known.unwrap_or_else(next)
    }

    /// Creates a session, if there is none of that id, and returns its number. In a damaged history, the
    /// session may have another number than it had when the event was decided.
    pub(crate) fn ensure(&mut self, session: SessionOf<'_>) -> u32 {
        if let Some(number) = self.by_id.get(session.id).copied() {
            let known = self.get(number);
            let is_other = self.keeps_all && number != session.number;
            if !is_other || !known.is_some_and(|it| it.is_forgettable()) {
                return number;
            }
            // When the event was decided, it was forgotten.
            self.remove(number);
        }
        if self.get(session.number).is_none() {
            self.last_number = self.last_number.max(session.number);
            self.insert(session.number, session.id);
        }
        session.number
    }

    fn insert(&mut self, number: u32, id: &str) -> Option<&mut Session> {
        let id: Arc<str> = id.into();
        self.ids_size_bytes += id.len() as u64;
        self.by_id.insert(id.clone(), number);
        self.messages
            .get_or_insert_with(number.into(), SessionMessages::default);
        self.by_number
            .get_or_insert_with(number.into(), || Session {
                id,
                generation: LeaseGeneration::default(),
                locked_until: Timestamp::ZERO,
                state: None,
                state_set_at: Timestamp::ZERO,
            })
    }

    /// Restores a session of a snapshot. Its messages follow, so it is kept even without any.
    pub(crate) fn restore(
        &mut self,
        number: u32,
        id: &str,
        live: &mut Live,
        fill: impl FnOnce(&mut Session),
    ) {
        if let Some(session) = self.insert(number, id) {
            fill(session);
            let (state, state_bytes) = (session.state, session.state_size_bytes());
            let locked_until = session.locked_until;
            self.states_size_bytes += state_bytes;
            if let Some(state) = state {
                live.add(&mut self.spread, state);
            }
            if locked_until > Timestamp::ZERO {
                self.locks.insert((locked_until, number));
            }
        }
    }

    /// The sessions, for a snapshot.
    pub(crate) fn share(&self) -> SharedSessions {
        self.by_number.share()
    }

    /// Whether two numbers share a chunk that has no session yet.
    pub(crate) fn is_new_chunk(&self, one: u32, other: u32) -> bool {
        self.by_number.is_new_chunk(one.into(), other.into())
    }

    /// Notes the page that has the chunk of a session.
    pub(crate) fn keep_page(&self, number: u32, page: PageNumber) {
        if let Some(mark) = self.by_number.mark_of(number.into()) {
            mark.set(page);
        }
    }

    /// How many sessions were copied since the last call because a snapshot had them.
    pub(crate) fn take_copied(&mut self) -> u64 {
        self.by_number.take_copied()
    }

    pub(crate) fn states_size_bytes(&self) -> u64 {
        self.states_size_bytes
    }

    pub(crate) fn count(&self) -> u64 {
        self.by_number.len() as u64
    }

    pub(crate) fn snapshot_size_bytes_max(&self) -> u64 {
        self.by_number.len() as u64 * SNAPSHOT_SIZE_BYTES_MAX + self.ids_size_bytes
    }

    pub(crate) fn last_number(&self) -> u32 {
        self.last_number
    }

    pub(crate) fn set_last_number(&mut self, number: u32) {
        self.last_number = number;
    }

    pub(crate) fn find(&self, id: &str) -> Option<(u32, WholeSession<'_>)> {
        let number = *self.by_id.get(id)?;
        Some((number, self.get(number)?))
    }

    pub(crate) fn get(&self, number: u32) -> Option<WholeSession<'_>> {
        Some(WholeSession {
            session: self.by_number.get(number.into())?,
            messages: self.messages.get(number.into())?,
        })
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.by_number.get(number.into()).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, WholeSession<'_>)> {
        let messages = self.messages.iter();
        let sessions = self.by_number.iter();
        sessions
            .zip(messages)
            .filter_map(|((number, session), (_, messages))| {
                let number = u32::try_from(number).ok()?;
                Some((number, WholeSession { session, messages }))
            })
    }

    /// The sessions in the order of their ids, from an id on.
    pub(crate) fn in_order_from(&self, id: &str) -> impl Iterator<Item = WholeSession<'_>> {
        let numbers = self
            .by_id
            .range::<str, _>((Bound::Included(id), Bound::Unbounded));
        numbers.filter_map(|(_, number)| self.get(*number))
    }

    /// Changes a session, updates the indexes, and forgets the session if nothing keeps it.
    pub(crate) fn change(&mut self, number: u32, change: impl FnOnce(&mut Session)) {
        if self.unindex(number) {
            if let Some(session) = self.by_number.get_mut(number.into()) {
                change(session);
            }
            self.index(number);
        }
    }

    /// Adds a message to a session, or changes what it is to receivers. Nothing happens if there is no such session.
    pub(crate) fn put_message(&mut self, session: u32, number: SequenceNumber, mark: Mark) {
        let length_max = self.block_length.max();
        self.change_messages(session, |it| it.put(number, mark, length_max));
    }

    /// Takes a message out of a session, and forgets the session if nothing else keeps it.
    pub(crate) fn remove_message(&mut self, session: u32, number: SequenceNumber) {
        let length_max = self.block_length.max();
        self.change_messages(session, |it| it.remove(number, length_max));
    }

    /// Takes messages, in order, out of the sessions that they are in, which nothing says any more. It looks at each session.
    pub(crate) fn remove_lost(&mut self, numbers: &[SequenceNumber]) {
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return;
        };
        let is_lost = |number: &SequenceNumber| numbers.binary_search(number).is_ok();
        let mut found = Vec::new();
        for (session, messages) in self.messages.iter() {
            let Ok(session) = u32::try_from(session) else {
                continue;
            };
            let within = messages.numbers_from(*first);
            let within = within.take_while(|number| number <= last);
            found.extend(within.filter(is_lost).map(|number| (session, number)));
        }
        for (session, number) in found {
            self.remove_message(session, number);
        }
    }

    fn change_messages(&mut self, number: u32, change: impl FnOnce(&mut SessionMessages)) {
        let Some(messages) = self.messages.get_mut(number.into()) else {
            return;
        };
        let before = messages.first_ready();
        change(messages);
        let (after, is_empty) = (messages.first_ready(), messages.is_empty());
        if before == after && !is_empty {
            return;
        }
        let session = self.by_number.get(number.into());
        if session.is_some_and(|session| session.locked_until == Timestamp::ZERO) {
            before.map(|first| self.available.remove(&(first, number)));
            after.map(|first| self.available.insert((first, number)));
        }
        if is_empty {
            self.forget(number);
        }
    }

    /// Forgets a session if nothing keeps it.
    fn forget(&mut self, number: u32) {
        if self.keeps_all {
            return;
        }
        let session = self.get(number);
        if session.is_some_and(|session| session.is_forgettable()) {
            self.remove(number);
        }
    }

    /// Removes a session that nothing keeps.
    fn remove(&mut self, number: u32) {
        let Some(session) = self.by_number.get(number.into()) else {
            return;
        };
        let id = session.id.clone();
        self.ids_size_bytes -= id.len() as u64;
        self.by_id.remove(&id);
        self.by_number.remove(number.into());
        self.messages.remove(number.into());
    }

    /// Takes a session out of the indexes. Returns false if there is none.
    fn unindex(&mut self, number: u32) -> bool {
        let Some(session) = self.get(number) else {
            return false;
        };
        let (first, lock) = (session.messages.first_ready(), session.locked_until);
        if lock > Timestamp::ZERO {
            self.locks.remove(&(lock, number));
        } else if let Some(first) = first {
            self.available.remove(&(first, number));
        }
        true
    }

    fn index(&mut self, number: u32) {
        let Some(session) = self.get(number) else {
            return;
        };
        let (first, lock) = (session.messages.first_ready(), session.locked_until);
        if lock > Timestamp::ZERO {
            self.locks.insert((lock, number));
        } else if let Some(first) = first {
            self.available.insert((first, number));
        }
        self.forget(number);
    }

    /// Replaces a session's state, which was at `was` until now.
    pub(crate) fn set_state(
        &mut self,
        number: u32,
        was: Option<BodyLocation>,
        state: Option<BodyLocation>,
        at: Timestamp,
        live: &mut Live,
    ) {
        let spread = &mut self.spread;
        if let Some(was) = was {
            live.take(spread, was);
        }
        if let Some(state) = state {
            live.add(spread, state);
        }
        let mut freed_bytes = 0;
        let mut taken_bytes = 0;
        self.change(number, |session| {
            let size_bytes = |it: BodyLocation| state_size_bytes(&session.id, it.length.into());
            freed_bytes = was.map_or(0, size_bytes);
            taken_bytes = state.map_or(0, size_bytes);
            session.state = state;
            session.state_set_at = at;
        });
        let rest_bytes = self.states_size_bytes.saturating_sub(freed_bytes);
        self.states_size_bytes = rest_bytes + taken_bytes;
    }

    /// Gives a session its state in another place, if it is in the old one. Returns whether it is.
    pub(crate) fn move_state(&mut self, id: &str, body: BodyMove, live: &mut Live) -> bool {
        let found = self.find(id);
        let found = found.filter(|(_, session)| session.state == Some(body.from));
        let Some((number, _)) = found else {
            return false;
        };
        if let Some(session) = self.by_number.get_mut(number.into()) {
            session.state = Some(body.to);
        }
        live.take(&mut self.spread, body.from);
        live.add(&mut self.spread, body.to);
        true
    }

    /// Where the states lie.
    pub(crate) fn spread(&self) -> &Spread {
        &self.spread
    }

    /// The sessions from a number on.
    pub(crate) fn iter_from(&self, number: u32) -> impl Iterator<Item = (u32, &Session)> {
        let sessions = self.by_number.range(number.into()..=u64::from(u32::MAX));
        sessions.filter_map(|(number, session)| Some((u32::try_from(number).ok()?, session)))
    }

    /// Counts all states in a partition.
    pub(crate) fn count_live(&self, live: &mut Live) {
        live.add_all(&self.spread);
    }

    /// Counts the states no longer.
    pub(crate) fn uncount_live(&self, live: &mut Live) {
        live.take_all(&self.spread);
    }

    /// Changes the session of that id, if there is one.
    pub(crate) fn change_named(&mut self, id: &str, change: impl FnOnce(&mut Session)) {
        if let Some(number) = self.by_id.get(id) {
            self.change(*number, change);
        }
    }

    /// The free session that has the oldest message to receive.
    ///
    /// A lock that has ended but was not cleared yet still counts: callers clear ended locks first.
    pub(crate) fn next_available(&self) -> Option<u32> {
        self.available.first().map(|(_, number)| *number)
    }

    /// The first lock that has ended.
    pub(crate) fn ended_lock(&self, now: Timestamp) -> Option<u32> {
        let (until, number) = self.locks.first()?;
        until.has_passed(now).then_some(*number)
    }

    /// How many sessions are locked. An ended lock counts until an event clears it.
    pub(crate) fn locked_count(&self) -> u64 {
        self.locks.len() as u64
    }

    /// When the next lock ends.
    pub(crate) fn next_lock_end(&self) -> Option<Timestamp> {
        self.locks.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
impl Sessions {
    /// Asserts that what is known of each session's messages is what they say one by one.
    pub(crate) fn check(&self) {
        self.messages.iter().for_each(|(_, it)| it.check());
    }
}
