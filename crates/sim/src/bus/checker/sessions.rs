//! Sessions: their locks, and their states.

use std::collections::BTreeSet;

use kew_engine::bus::{BusCommand, BusOutcome, ListedSessions, SessionChoice};
use kew_engine::{Timestamp, Token};

use super::life::{Entity, Fate, Life, Part, Span};
use super::queue::{Session, SessionLock};
use super::{ANSWERS_FIT, Answered, Checker, NO_LOSS, ORDER, SESSIONS, entity};
use crate::checker::{Violation, violated};

impl Checker {
    pub(super) fn of_session(&mut self, answered: &Answered<'_>) -> Result<(), Violation> {
        let at = answered.at;
        match (answered.command, answered.outcome) {
            (BusCommand::AcceptSession { .. }, BusOutcome::SessionAccepted(_)) => {
                self.accepted(answered)
            }
            (BusCommand::RenewSession { queue, session }, BusOutcome::SessionRenewed(until)) => {
                let entity = entity(queue);
                let id = self.hold_session(entity, *session, at)?;
                self.holds_for(entity, *until, at)?;
                self.set_lock(entity, &id, Some(*session), Span::at(*until));
                self.note("a session was renewed");
                Ok(())
            }
            (BusCommand::ReleaseSession { queue, session }, BusOutcome::SessionReleased) => {
                let entity = entity(queue);
                let id = self.hold_session(entity, *session, at)?;
                self.free_session(entity, &id);
                Ok(())
            }
            (
                BusCommand::SetSessionState {
                    queue,
                    session,
                    state,
                },
                BusOutcome::SessionStateSet,
            ) => {
                let entity = entity(queue);
                let id = self.hold_session(entity, *session, at)?;
                self.queues.get(entity.queue).session(&id).states = vec![state.clone()];
                Ok(())
            }
            (BusCommand::ReadSessionState { queue, session }, BusOutcome::SessionState(_)) => {
                let entity = entity(queue);
                let id = self.hold_session(entity, *session, at)?;
                let state = answered.bodies.first().cloned();
                let states = &mut self.queues.get(entity.queue).session(&id).states;
                if !states.contains(&state) {
                    return violated!(SESSIONS, "{id}: {state:?}, not one of {states:?}");
                }
                *states = vec![state];
                self.note("a session's state was read");
                Ok(())
            }
            (BusCommand::ListSessions { .. }, BusOutcome::Sessions(_)) => self.listed(answered),
            (command, outcome) => violated!(ANSWERS_FIT, "{command:?}: {outcome:?}"),
        }
    }

    fn accepted(&mut self, answered: &Answered<'_>) -> Result<(), Violation> {
        let (BusCommand::AcceptSession { queue, session }, BusOutcome::SessionAccepted(accepted)) =
            (answered.command, answered.outcome)
        else {
            return violated!(ANSWERS_FIT, "{:?}", answered.outcome);
        };
        let (entity, at) = (entity(queue), answered.at);
        let id = &accepted.session;
        self.hands_out(entity)?;
        self.holds_for(entity, accepted.locked_until, at)?;
        match session {
            SessionChoice::Named(named) if named != id => {
                return violated!(ANSWERS_FIT, "{named} asked for: {accepted:?}");
            }
            SessionChoice::Named(_) => {}
            SessionChoice::Next => self.check_next(entity, id, at)?,
        }
        let known = self.queues.get(entity.queue).session(id);
        if !known.may_be_free(at) {
            return violated!(SESSIONS, "{id}, {known:?}, was accepted at {at}");
        }
        let until = Span::at(accepted.locked_until);
        self.set_lock(entity, id, Some(accepted.lock), until);
        self.session_locks
            .insert(*accepted.lock.as_bytes(), id.clone());
        // The former receiver has none of its messages.
        self.not_shown(SESSIONS, accepted, &BTreeSet::new(), |life| {
            is_held_by_session(life, entity, id)
        })
    }

    /// A session was released: no receiver has it, nor any of its messages.
    pub(super) fn free_session(&mut self, entity: Entity, id: &str) {
        self.queues.get(entity.queue).session(id).locks = vec![SessionLock::Free];
        for message in self.messages.values_mut() {
            message.follow(|fate| match released(fate, entity, id) {
                Some(life) => vec![Fate::Here(life)],
                None => vec![fate.clone()],
            });
        }
    }

    /// Perhaps it was left.
    pub(super) fn perhaps_free_session(&mut self, entity: Entity, id: &str) {
        let known = self.queues.get(entity.queue).session(id);
        known.may_lock(SessionLock::Free);
        self.perhaps(|life| {
            let is_held = is_held_by_session(life, entity, id);
            let back = is_held.then(|| Fate::Here(life.back()));
            back.into_iter().collect()
        });
    }

    /// The next session is the free one with the oldest message.
    fn check_next(&mut self, entity: Entity, id: &str, at: Timestamp) -> Result<(), Violation> {
        self.note("the next session was accepted");
        let is_ready = |life: &Life, id: &str| {
            life.entity == entity && life.is_ready() && life.session() == Some(id)
        };
        let mut has_any = false;
        let mut oldest = u64::MAX;
        for life in self.messages.values().flat_map(|message| message.lives()) {
            if is_ready(life, id) {
                has_any = true;
                oldest = oldest.min(life.number.unwrap_or(0));
            }
        }
        if !has_any {
            return violated!(SESSIONS, "{id} has no message, and is the next");
        }
        let Some(queue) = self.queues.0.get(entity.queue) else {
            return Ok(());
        };
        for (other, session) in &queue.sessions {
            if **other == *id || !session.locks.iter().all(|lock| *lock == SessionLock::Free) {
                continue;
            }
            let older = self.messages.values().find(|message| {
                message.must(|life| {
                    is_ready(life, other)
                        && !life.expires.may_have_passed(at)
                        && life.number.is_some_and(|number| number < oldest)
                })
            });
            if let Some(older) = older {
                return violated!(ORDER, "{id} is the next, and {other} has {older:?}");
            }
        }
        Ok(())
    }

    /// No session was available.
    pub(super) fn no_session(&mut self, entity: Entity, at: Timestamp) -> Result<(), Violation> {
        let free: BTreeSet<Box<str>> = {
            let queue = self.queues.get(entity.queue);
            let is_free =
                |session: &Session| session.locks.iter().all(|it| *it == SessionLock::Free);
            let all = queue.sessions.iter();
            all.filter(|(_, session)| is_free(session))
                .map(|(id, _)| id.clone())
                .collect()
        };
        self.not_shown(NO_LOSS, &"no session", &BTreeSet::new(), |life| {
            let is_free = life.session().is_some_and(|id| free.contains(id));
            is_free && life.entity == entity && life.is_ready() && !life.expires.may_have_passed(at)
        })
    }

    fn set_lock(&mut self, entity: Entity, id: &str, token: Option<Token>, until: Span) {
        let session = self.queues.get(entity.queue).session(id);
        session.locks = vec![SessionLock::Held { token, until }];
    }

    /// A receiver used the lock of a session successfully: it holds.
    pub(super) fn hold_session(
        &mut self,
        entity: Entity,
        token: Token,
        at: Timestamp,
    ) -> Result<Box<str>, Violation> {
        let Some(id) = self.session_of(token) else {
            return violated!(SESSIONS, "{token:?} was never given, and holds");
        };
        let session = self.queues.get(entity.queue).session(&id);
        if !session.may_be_held_by(token, at) {
            return violated!(SESSIONS, "{id}, {session:?}: {token:?} holds at {at}");
        }
        session.locks.retain(|lock| lock.is_of(token));
        Ok(id)
    }

    /// The lock of a session was refused: it does not hold.
    pub(super) fn session_is_lost(
        &mut self,
        entity: Entity,
        token: Token,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let Some(id) = self.session_of(token) else {
            return Ok(());
        };
        self.note("the lock of a session was lost");
        let session = self.queues.get(entity.queue).session(&id);
        if session.must_be_held_by(token, at) {
            return violated!(SESSIONS, "{id}, {session:?}: {token:?} is refused at {at}");
        }
        session
            .locks
            .retain(|lock| !lock.is_of(token) || lock.may_be_free(at));
        Ok(())
    }

    /// A session was refused: another receiver has it.
    pub(super) fn session_is_taken(
        &mut self,
        entity: Entity,
        id: &str,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let session = self.queues.get(entity.queue).session(id);
        let before = session.clone();
        session.locks.retain(|lock| *lock != SessionLock::Free);
        if session.locks.is_empty() {
            return violated!(SESSIONS, "{id}, {before:?}, is refused at {at}");
        }
        self.note("a session was refused that another receiver has");
        Ok(())
    }

    fn listed(&mut self, answered: &Answered<'_>) -> Result<(), Violation> {
        let (
            BusCommand::ListSessions {
                queue,
                skip: 0,
                limit,
                state_set_after: None,
                ..
            },
            BusOutcome::Sessions(ListedSessions { ids: listed, .. }),
        ) = (answered.command, answered.outcome)
        else {
            return Ok(());
        };
        let entity = entity(queue);
        if !listed.is_sorted_by(|one, next| one < next) || listed.len() > *limit as usize {
            return violated!(ANSWERS_FIT, "{listed:?}");
        }
        let is_whole = listed.len() < *limit as usize;
        for id in listed {
            let session = self.queues.get(entity.queue).session(id);
            let may_have_state = session.states.iter().any(Option::is_some);
            let is_of = |life: &Life| life.entity == entity && life.session() == Some(id);
            if !may_have_state && !self.messages.values().any(|message| message.may(is_of)) {
                return violated!(SESSIONS, "{id} is listed, and has nothing");
            }
        }
        if !is_whole {
            return Ok(());
        }
        let sessions = &mut self.queues.get(entity.queue).sessions;
        for (id, session) in sessions {
            if !listed.contains(id) {
                let before = session.clone();
                session.states.retain(Option::is_none);
                if session.states.is_empty() {
                    return violated!(SESSIONS, "{id}, {before:?}, is not listed");
                }
            }
        }
        self.not_shown(SESSIONS, listed, &BTreeSet::new(), |life| {
            let is_listed = |id: &str| listed.iter().any(|it| **it == *id);
            life.entity == entity && life.session().is_some_and(|id| !is_listed(id))
        })
    }
}

/// Whether it is locked by that session.
pub(super) fn is_held_by_session(life: &Life, entity: Entity, id: &str) -> bool {
    life.entity == entity
        && life.session() == Some(id)
        && life.lock().is_some_and(|lock| lock.is_of_session())
}

/// The state of a message after its session was released properly.
fn released(fate: &Fate, entity: Entity, id: &str) -> Option<Life> {
    debug_assert_eq!(entity.part, Part::Queue);
    let life = fate.life()?;
    is_held_by_session(life, entity, id).then(|| life.back())
}
