//! The things that receivers of bus queues wait for, and the facts that bring them.
//!
//! Facts say what has arrived, and the state says for which receivers. A message of a session is for the
//! receiver that has locked the session or, if it is free, for a receiver that waits for any session. So
//! each message concerns only one kind of receiver, and only that kind is woken.

use crate::token::TokenKind;
use crate::{EntityName, Incarnation, SequenceNumber, State, Timestamp, Token};

use super::queue::Role;
use super::session::Session;
use super::{BusFact, BusMessageState};

/// A thing that a receiver of a bus queue or sub-queue waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Awaited {
    /// A message that is received without a session.
    Message,
    /// A message of the session with this id, which the receiver has locked, or the end of that lock.
    OfSession(Box<str>),
    /// A session that has messages and is not locked.
    Session,
}

/// A fact's news for receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A message that can be received, in this entity.
    Message(Incarnation, SequenceNumber),
    /// A session that is no longer locked.
    Session(Incarnation, Box<str>),
}

impl Arrival {
    /// The news that the fact brings, if any.
    pub(crate) fn of(fact: &BusFact) -> Option<Self> {
        match fact {
            BusFact::Sent {
                queue,
                sequence_number,
                scheduled_at: Timestamp::ZERO,
                ..
            }
            | BusFact::Activated {
                queue,
                sequence_number,
                ..
            }
            | BusFact::Released {
                queue,
                sequence_number,
                ..
            } => Some(Self::Message(*queue, *sequence_number)),
            BusFact::Moved {
                to,
                to_sequence_number,
                ..
            }
            | BusFact::Resubmitted {
                to,
                to_sequence_number,
                ..
            } => Some(Self::Message(*to, *to_sequence_number)),
            BusFact::SessionReleased { queue, session } => {
                Some(Self::Session(*queue, session.clone()))
            }
            BusFact::Sent { .. }
            | BusFact::QueueCreated { .. }
            | BusFact::QueueUpdated { .. }
            | BusFact::QueueDeleted { .. }
            | BusFact::Locked { .. }
            | BusFact::LockRenewed { .. }
            | BusFact::Removed { .. }
            | BusFact::SessionLocked { .. }
            | BusFact::SessionRenewed { .. }
            | BusFact::SessionStateSet { .. }
            | BusFact::Used { .. } => None,
        }
    }
}

impl State {
    /// The things that the arrival has brought and that are still there. A message brings at most one. A
    /// session that was freed also brings the end of the lock that its last holder waits for.
    pub fn awaited(&self, arrival: Arrival) -> [Option<(Incarnation, Awaited)>; 2] {
        match arrival {
            Arrival::Message(queue, number) => [self.awaited_message(queue, number), None],
            Arrival::Session(queue, id) => {
                let found = self.bus.get(&queue);
                let found = found.and_then(|entity| entity.backlog.sessions.find(&id));
                let is_free = found.is_some_and(|(_, session)| is_available(session));
                [
                    is_free.then_some((queue, Awaited::Session)),
                    Some((queue, Awaited::OfSession(id))),
                ]
            }
        }
    }

    fn awaited_message(
        &self,
        queue: Incarnation,
        number: SequenceNumber,
    ) -> Option<(Incarnation, Awaited)> {
        let entity = self.bus.get(&queue)?;
        let message = entity.backlog.get(number)?;
        if message.state != BusMessageState::Ready {
            return None;
        }
        let Some(session) = entity.locking_session(message) else {
            return Some((queue, Awaited::Message));
        };
        let session = entity.backlog.sessions.get(session)?;
        let awaited = match session.locked_until {
            Timestamp::ZERO => Awaited::Session,
            _ => Awaited::OfSession(session.id.clone()),
        };
        Some((queue, awaited))
    }

    /// The bus queue of that name, if it has messages to receive without a session.
    pub fn has_ready(&self, name: &EntityName) -> Option<Incarnation> {
        let queue = *self.catalogue.get(name)?;
        self.bus.get(&queue)?.backlog.has_ready().then_some(queue)
    }

    /// The bus queue of that name, if it has a session with messages that is not locked.
    pub fn has_session(&self, name: &EntityName) -> Option<Incarnation> {
        let queue = *self.catalogue.get(name)?;
        let sessions = &self.bus.get(&queue)?.backlog.sessions;
        sessions.next_available().map(|_| queue)
    }

    /// Whether a receiver that waits at this entity should look, so that the queue is not taken for idle.
    pub fn is_use_due(&self, entity: Incarnation, now: Timestamp) -> bool {
        let role = self.bus.get(&entity).map(|entity| entity.role);
        let queue = match role {
            Some(Role::DeadLetters { of } | Role::FailedTransfers { of }) => of,
            Some(Role::Queue) | None => entity,
        };
        let queue = self.bus.get(&queue);
        queue.is_some_and(|queue| queue.is_use_noted(now))
    }

    /// The thing that a receiver waits for after it was given nothing, if it passed over messages: they have
    /// expired, and may hide others until they are removed.
    pub fn passed_over(
        &self,
        name: &EntityName,
        session: Option<Token>,
    ) -> Option<(Incarnation, Awaited)> {
        let queue = *self.catalogue.get(name)?;
        let backlog = &self.bus.get(&queue)?.backlog;
        match session {
            None => backlog.has_ready().then_some((queue, Awaited::Message)),
            Some(lock) => {
                let place = self.cipher.as_ref()?.open(TokenKind::SessionLock, lock)?;
                let number = u32::try_from(place.sequence_number.as_u64()).ok()?;
                let session = backlog.sessions.get(number)?;
                let has_ready = place.incarnation == queue && !session.ready.is_empty();
                has_ready.then(|| (queue, Awaited::OfSession(session.id.clone())))
            }
        }
    }

    /// Whether an entity has messages that have expired and were not removed yet.
    pub fn has_expired(&self, queue: Incarnation, now: Timestamp) -> bool {
        let entity = self.bus.get(&queue);
        entity.is_some_and(|entity| entity.backlog.expired(now).is_some())
    }
}

fn is_available(session: &Session) -> bool {
    session.locked_until == Timestamp::ZERO && !session.ready.is_empty()
}
