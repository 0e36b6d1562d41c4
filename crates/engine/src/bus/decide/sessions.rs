//! Sessions: lock, renew, release, list, and their states.

use bytes::Bytes;
use kew_planted::{Bug, is_planted};

use super::super::room::{LOOKED_AT_MAX, released_at_once};
use super::super::session::{RELEASING, state_size_bytes};
use super::super::{
    BusFact, BusOutcome, BusRefusal, ITEMS_MAX, ListedSessions, Release, SessionChoice, SessionLock,
};
use super::{Answer, Turn};
use crate::bus::{Effect, OwnEffect};
use crate::vocabulary::token::{TokenKind, TokenPlace};
use crate::vocabulary::{
    BodyLocation, Incarnation, LeaseGeneration, SequenceNumber, Timestamp, Token,
};

impl Turn<'_> {
    /// Source: Service Bus, *Message sessions*.
    pub(super) fn accept_session(&mut self, queue: Incarnation, choice: SessionChoice) -> Answer {
        self.check_receivable(queue)?;
        self.check_has_sessions(queue)?;
        let now = self.now();
        let sessions = &self.bus_backlog(queue).sessions;
        let session: Box<str> = match choice {
            SessionChoice::Named(id) => {
                // A lock that has ended but was not cleared yet holds messages that another receiver must
                // not get. The receiver can ask again after it is cleared.
                let found = sessions.find(&id);
                let is_locked =
                    found.is_some_and(|(_, session)| session.locked_until != Timestamp::ZERO);
                if is_locked && !is_planted(Bug::BusSessionShared) {
                    return Err(BusRefusal::SessionCannotBeLocked { session: id });
                }
                id
            }
            SessionChoice::Next => sessions
                .next_available()
                .and_then(|number| sessions.get(number))
                .map(|session| session.id())
                .ok_or(BusRefusal::NoSessionAvailable)?,
        };
        let until = now.plus_ms(self.bus(queue).options.lock_duration_ms);
        let known = sessions.find(&session);
        let before = known.map_or(LeaseGeneration::default(), |(_, it)| it.generation);
        let generation = before.next();
        let session = sessions.named(&session);
        let place = TokenPlace {
            incarnation: queue,
            sequence_number: SequenceNumber::new(session.number.into()),
            generation,
        };
        self.emit_bus(BusFact::SessionLocked {
            queue,
            session: session.clone(),
            generation,
            until,
        });
        Ok(BusOutcome::SessionAccepted(SessionLock {
            session: session.id,
            lock: self.cipher().seal(TokenKind::SessionLock, place),
            locked_until: until,
        }))
    }

    fn check_has_sessions(&self, queue: Incarnation) -> Result<(), BusRefusal> {
        if self.bus(queue).requires_session() {
            Ok(())
        } else {
            Err(BusRefusal::SessionsNotSupported)
        }
    }

    /// The number of the session with this lock, if the lock is valid.
    pub(super) fn held_session(&self, queue: Incarnation, lock: Token) -> Result<u32, BusRefusal> {
        let place = self
            .cipher()
            .open(TokenKind::SessionLock, lock)
            .filter(|place| place.incarnation == queue)
            .ok_or(BusRefusal::SessionLockLost)?;
        let number = u32::try_from(place.sequence_number.as_u64())
            .map_err(|_| BusRefusal::SessionLockLost)?;
        let session = self.bus_backlog(queue).sessions.get(number);
        session
            .filter(|session| session.generation == place.generation)
            .filter(|session| session.is_locked(self.now()))
            .map(|_| number)
            .ok_or(BusRefusal::SessionLockLost)
    }

    /// The id of a session that exists.
    pub(super) fn session_id(&self, queue: Incarnation, session: u32) -> Box<str> {
        let session = self.bus_backlog(queue).sessions.get(session);
        session.map_or_else(Box::default, |session| session.id())
    }

    /// Source: Service Bus, AMQP request/response, *Session renew lock*.
    pub(super) fn renew_session(&mut self, queue: Incarnation, lock: Token) -> Answer {
        let session = self.held_session(queue, lock)?;
        let session = self.session_id(queue, session);
        let until = self.now().plus_ms(self.bus(queue).options.lock_duration_ms);
        self.emit_bus(BusFact::SessionRenewed {
            queue,
            session,
            until,
        });
        Ok(BusOutcome::SessionRenewed(until))
    }

    /// Releases a session in order: its deliveries do not count as failed.
    pub(super) fn release_session(&mut self, queue: Incarnation, lock: Token) -> Answer {
        let session = self.held_session(queue, lock)?;
        self.free_session(queue, session);
        Ok(BusOutcome::SessionReleased)
    }

    /// Ends a session's lock and those of its messages; no delivery counts as failed. If there are too many
    /// messages for one command, due work releases the others, and frees the session after the last one.
    pub(super) fn free_session(&mut self, queue: Incarnation, session: u32) {
        let Some(session) = self.bus_backlog(queue).sessions.get(session) else {
            return;
        };
        let id = session.id();
        let is_releasing = session.locked_until == RELEASING;
        let count = released_at_once(self.due_budget());
        let released: Vec<_> = session.messages.locked().take(count).collect();
        let is_freed = released.len() == session.messages.locked_count();
        if !is_freed && !is_releasing {
            let session = id.clone();
            self.emit_bus_effect(Effect::Own(OwnEffect::SessionReleasing { queue, session }));
        }
        for number in released {
            self.release_unseen(queue, number);
        }
        if is_freed {
            let session = id;
            self.emit_bus_effect(Effect::Own(OwnEffect::SessionFreed { queue, session }));
        }
    }

    /// Ends the lock of a message of a session that is released.
    pub(super) fn release_unseen(&mut self, queue: Incarnation, number: SequenceNumber) {
        self.release(queue, number, Release::Unseen, None);
    }

    pub(super) fn read_session_state(&mut self, queue: Incarnation, lock: Token) -> Answer {
        let session = self.held_session(queue, lock)?;
        let session = self.bus_backlog(queue).sessions.get(session);
        Ok(BusOutcome::SessionState(
            session.and_then(|session| session.state),
        ))
    }

    pub(super) fn set_session_state(
        &mut self,
        queue: Incarnation,
        lock: Token,
        state: Option<Bytes>,
    ) -> Answer {
        let session = self.held_session(queue, lock)?;
        let limit_bytes = self.bus(self.charged(queue)).options.message_size_bytes_max;
        let size_bytes = state.as_ref().map_or(0, |state| state.len() as u64);
        if size_bytes > limit_bytes {
            return Err(BusRefusal::SessionStateTooLarge {
                size_bytes,
                limit_bytes,
            });
        }
        self.check_room_for_state(queue, session, state.as_ref())?;
        let session = self.session_id(queue, session);
        let state = state.map(|state| self.store_body(&state));
        self.replace_session_state(queue, &session, state);
        Ok(BusOutcome::SessionStateSet)
    }

    pub(super) fn replace_session_state(
        &mut self,
        queue: Incarnation,
        session: &str,
        state: Option<BodyLocation>,
    ) {
        let sessions = &self.bus_backlog(queue).sessions;
        let was = sessions.find(session).and_then(|(_, it)| it.state);
        let session = sessions.named(session);
        self.emit_bus(BusFact::SessionStateSet {
            queue,
            session,
            was,
            state,
        });
    }

    /// A state that is no larger than the one before is accepted even if the queue is full.
    fn check_room_for_state(
        &mut self,
        queue: Incarnation,
        session: u32,
        state: Option<&Bytes>,
    ) -> Result<(), BusRefusal> {
        let Some(session) = self.bus_backlog(queue).sessions.get(session) else {
            return Ok(());
        };
        let before_bytes = session.state_size_bytes();
        let after_bytes = state.map_or(0, |it| state_size_bytes(&session.id, it.len() as u64));
        let Some(more_bytes) = after_bytes.checked_sub(before_bytes).filter(|it| *it > 0) else {
            return Ok(());
        };
        let charged = self.charged(queue);
        let limit_bytes = self.bus(charged).options.size_bytes_max;
        let room_at = limit_bytes.saturating_sub(more_bytes);
        let (held_bytes, _) = self.size_bytes_above(charged, room_at);
        let size_bytes = held_bytes.saturating_add(more_bytes);
        if size_bytes > limit_bytes {
            return Err(BusRefusal::QuotaExceeded {
                size_bytes,
                limit_bytes,
            });
        }
        Ok(())
    }

    /// Looks at a bounded number of sessions, and returns where to continue if it has not reached the end.
    ///
    /// Source: Service Bus, AMQP request/response, *Enumerate sessions*.
    pub(super) fn list_sessions(
        &mut self,
        queue: Incarnation,
        from: &str,
        state_set_after: Option<Timestamp>,
        skip: u32,
        limit: u32,
    ) -> Answer {
        self.check_has_sessions(queue)?;
        let limit = ITEMS_MAX.min(limit as usize);
        let mut listed = ListedSessions::default();
        let sessions = self.bus_backlog(queue).sessions.in_order_from(from);
        for (looked_at, session) in sessions.enumerate() {
            if looked_at == LOOKED_AT_MAX || listed.ids.len() == limit {
                listed.next = Some(session.id());
                break;
            }
            let is_meant = match state_set_after {
                Some(after) => session.state.is_some() && session.state_set_at > after,
                None => !session.messages.is_empty() || session.state.is_some(),
            };
            if is_meant && listed.skipped < skip {
                listed.skipped += 1;
            } else if is_meant {
                listed.ids.push(session.id());
            }
        }
        Ok(BusOutcome::Sessions(listed))
    }
}
