//! What is kept of messages: the orders of sessions, counts, and a bound of a snapshot. They follow from a message's
//! state and session.

use super::{Backlog, Kept, Oldest, SnapshotBound};
use crate::bus::message::{
    self, ANY_SIZE_BYTES_MAX, LOCATION_SIZE_BYTES_MAX, Message, snapshot_size_bytes_max,
};
use crate::bus::session::{Mark, RELEASING, Sessions};
use crate::bus::snapshot::{kind, message, put_message};
use crate::bus::{BusMessageState, OwnEffect, OwnHolder};
use crate::effect::{BusSession, SessionOf, Standing};
use crate::queues::Profile;
use crate::table::{Entry, Live, Record, RunLength, Side};
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::{BodyLocation, BodyMove, Place, SequenceNumber, Timestamp};

impl Kept {
    pub(super) fn new(length: RunLength, by_session: bool) -> Self {
        Self {
            by_session,
            sessions: Sessions::new(length),
            snapshot: SnapshotBound::default(),
            scheduled_count: 0,
            deferred_count: 0,
            oldest: Oldest::default(),
        }
    }

    /// Keeps a message in its session, if messages are received session by session.
    fn keep(&mut self, number: SequenceNumber, session: u32, mark: Mark) {
        if self.by_session && session != 0 {
            self.sessions.put_message(session, number, mark);
        }
    }

    /// Whether messages of a session are locked. `None` if there is no such session.
    fn has_locked(&self, session: &str) -> Option<bool> {
        let (_, session) = self.sessions.find(session)?;
        Some(session.messages.locked_count() > 0)
    }

    /// The number of the session of that id, its state, and when that was set. `None` if it is not there.
    pub(in crate::bus) fn state_of(
        &self,
        session: &str,
    ) -> Option<(u32, Option<BodyLocation>, Timestamp)> {
        let (number, session) = self.sessions.find(session)?;
        Some((number, session.state, session.state_set_at))
    }

    /// Gives a session, which may be new, a state.
    fn put_state(
        &mut self,
        session: &BusSession,
        state: BodyLocation,
        set_at: Timestamp,
        live: &mut Live,
    ) {
        let number = self.sessions.ensure(session.as_of_message());
        let was = self.sessions.get(number).and_then(|it| it.state);
        (self.sessions).set_state(number, was, Some(state), set_at, live);
    }
}

impl Profile for Kept {
    type Own = OwnEffect;

    type OwnHolder = OwnHolder;

    const MESSAGES_PART: u8 = kind::MESSAGES;

    const COUNTS_STATES: bool = true;

    fn apply(backlog: &mut Backlog, own: &OwnEffect, _: &mut Live) {
        match own {
            OwnEffect::SessionReleasing { session, .. } => {
                (backlog.sessions).change_named(session, |it| it.locked_until = RELEASING);
            }
            OwnEffect::SessionFreed { session, .. } => {
                (backlog.sessions).change_named(session, |it| it.locked_until = Timestamp::ZERO);
            }
            OwnEffect::Passed { topic, .. } => backlog.use_number(topic.number),
            // What it changes is the topic's.
            OwnEffect::FannedOut { .. } => {}
        }
    }

    fn is_exact(backlog: &Backlog, own: &OwnEffect) -> bool {
        match own {
            OwnEffect::SessionReleasing { session, .. } => {
                backlog.has_locked(session) == Some(true)
            }
            OwnEffect::SessionFreed { session, .. } => backlog.has_locked(session) == Some(false),
            OwnEffect::Passed { topic, .. } => topic.number == backlog.next(),
            OwnEffect::FannedOut { topic, .. } => {
                backlog.table().first_ready() == Some(topic.number)
            }
        }
    }

    fn holder_of_change(at: Place) -> Option<OwnHolder> {
        Some(OwnHolder::Change { at })
    }

    fn is_holder(backlog: &Backlog, own: &OwnHolder, body: BodyLocation) -> bool {
        match own {
            OwnHolder::Change { at } => {
                let entry = backlog.table().get(at.number);
                entry.is_some_and(|it| it.record.body != body)
                    && backlog.table().has_body(at.number, body)
            }
            OwnHolder::State {
                session, set_at, ..
            } => backlog.state_of(&session.id) == Some((session.number, Some(body), *set_at)),
        }
    }

    fn move_body(backlog: &mut Backlog, own: &OwnHolder, body: BodyMove, live: &mut Live) -> bool {
        match own {
            OwnHolder::Change { at } => backlog.move_message_body(at.number, body, live),
            OwnHolder::State { session, .. } => {
                backlog.sessions.move_state(&session.id, body, live)
            }
        }
    }

    fn put_body(backlog: &mut Backlog, own: &OwnHolder, body: BodyLocation, live: &mut Live) {
        match own {
            // A change to a message that is not here.
            OwnHolder::Change { .. } => {}
            OwnHolder::State {
                session, set_at, ..
            } => backlog.put_state(session, body, *set_at, live),
        }
    }

    fn put_message(out: &mut Vec<u8>, entry: &Entry<'_>, session: u32) {
        put_message(out, Message::from(*entry), session);
    }

    fn message(r: &mut Reader<'_>, number: SequenceNumber) -> Result<(Record, Side), DecodeError> {
        message(r, number)
    }

    fn standing(record: &Record) -> Standing {
        message::standing(record)
    }

    fn expiry(record: &Record) -> Timestamp {
        message::expiry(record)
    }

    /// Of a session, it is in the session's order.
    fn is_in_order(&self, state: BusMessageState, session: u32) -> bool {
        state == BusMessageState::Ready && (!self.by_session || session == 0)
    }

    fn is_named(&self, session: Option<SessionOf<'_>>) -> bool {
        session.is_none_or(|session| self.sessions.number_for(session.id) == session.number)
    }

    fn session_of(&mut self, session: Option<SessionOf<'_>>) -> u32 {
        session.map_or(0, |session| self.sessions.ensure(session))
    }

    fn has_session(&self, number: u32) -> bool {
        self.sessions.has(number)
    }

    fn session_left(&mut self, number: u32) -> u32 {
        if number == 0 || self.has_session(number) {
            return number;
        }
        let id = format!("recovered-{number}");
        self.sessions.ensure(SessionOf { number, id: &id })
    }

    fn session_named(&self, number: u32) -> Option<BusSession> {
        let id = self.sessions.get(number)?.id();
        Some(BusSession { number, id })
    }

    fn session_from(&mut self, other: &Self, session: u32) -> u32 {
        let named = other.session_named(session);
        let named = named.map(|session| self.sessions.named(&session.id));
        self.session_of(named.as_ref().map(BusSession::as_of_message))
    }

    fn came(
        &mut self,
        number: SequenceNumber,
        session: u32,
        (overlays, source_length): (usize, Option<u32>),
    ) {
        self.snapshot.bytes += snapshot_size_bytes_max(overlays, source_length);
        // Otherwise its state says what it is in the session.
        if !self.by_session && session != 0 {
            self.sessions.put_message(session, number, Mark::Other);
        }
    }

    fn came_plain(&mut self, first: SequenceNumber, count: u64) {
        self.snapshot.bytes += count * snapshot_size_bytes_max(0, None);
        self.oldest.0 = self.oldest.0.min(first);
    }

    fn came_lost(&mut self) {
        // As much as any message: if it ends, what it had is taken away again.
        self.snapshot.bytes += ANY_SIZE_BYTES_MAX;
        self.snapshot.is_more = true;
        // It may be of any.
        self.sessions.keep_all();
    }

    fn left(
        &mut self,
        number: SequenceNumber,
        session: u32,
        (overlays, source_length): (usize, Option<u32>),
    ) {
        let bytes = snapshot_size_bytes_max(overlays, source_length);
        self.snapshot.bytes = self.snapshot.bytes.saturating_sub(bytes);
        if session != 0 {
            self.sessions.remove_message(session, number);
        }
    }

    fn left_plain(&mut self, count: u64) {
        let bytes = count * snapshot_size_bytes_max(0, None);
        self.snapshot.bytes = self.snapshot.bytes.saturating_sub(bytes);
    }

    /// A session goes on without them, as it does without messages that have expired.
    fn set_aside(&mut self, numbers: &[SequenceNumber]) {
        self.snapshot.is_more |= !numbers.is_empty();
        self.sessions.remove_lost(numbers);
    }

    fn changed(&mut self) {
        self.snapshot.bytes += LOCATION_SIZE_BYTES_MAX;
    }

    fn enter(&mut self, number: SequenceNumber, state: BusMessageState, session: u32) {
        let mark = match state {
            BusMessageState::Ready => Mark::Ready,
            BusMessageState::Locked { .. } => Mark::Locked,
            BusMessageState::Scheduled => {
                self.scheduled_count += 1;
                Mark::Other
            }
            BusMessageState::Deferred => {
                self.deferred_count += 1;
                Mark::Other
            }
        };
        self.keep(number, session, mark);
        if state != BusMessageState::Scheduled {
            self.oldest.0 = self.oldest.0.min(number);
        }
    }

    fn uncount(&mut self, state: BusMessageState) {
        match state {
            BusMessageState::Ready | BusMessageState::Locked { .. } => {}
            BusMessageState::Scheduled => {
                self.scheduled_count = self.scheduled_count.saturating_sub(1);
            }
            BusMessageState::Deferred => {
                self.deferred_count = self.deferred_count.saturating_sub(1);
            }
        }
    }

    fn absorb(&mut self, other: &Self, live: &mut Live) {
        for (_, session) in other.sessions.iter() {
            if session.state.is_none() {
                continue;
            }
            let named = self.sessions.named(&session.id);
            let number = self.sessions.ensure(named.as_of_message());
            let own = self.sessions.get(number);
            if own.is_some_and(|own| own.state.is_none()) {
                let (state, at) = (session.state, session.state_set_at);
                self.sessions.set_state(number, None, state, at, live);
            }
        }
    }

    fn count_live(&self, live: &mut Live) {
        self.sessions.count_live(live);
    }

    fn uncount_live(&self, live: &mut Live) {
        self.sessions.uncount_live(live);
    }

    fn take_copied(&mut self) -> u64 {
        self.sessions.take_copied()
    }
}
