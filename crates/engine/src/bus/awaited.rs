//! The things that receivers of bus queues wait for, and the effects that bring them.
//!
//! Effects say what has arrived, and the state says for which receivers. A message of a session is for the
//! receiver that has locked the session or, if it is free, for a receiver that waits for any session. So
//! each message concerns only one kind of receiver, and only that kind is woken.

use super::BusMessageState;
use super::queues::Queues;
use super::session::{RELEASING, WholeSession};
use crate::bus::{Effect, OwnEffect};
use crate::catalogue::Catalogue;
use crate::vocabulary::token::TokenKind;
use crate::vocabulary::{EntityName, Incarnation, Timestamp, Token};

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

/// An effect's news for receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A message that can be received, in this entity. With the number of its session, 0 without one.
    Message(Incarnation, u32),
    /// A message that can be received again. It waits for the holder of its session, if it has one: a session
    /// that is free was freed after that, which is news of its own.
    Returned(Incarnation, u32),
    /// A session that is no longer locked.
    Session(Incarnation, Box<str>),
}

impl Arrival {
    /// The news that the effect brings, if any.
    pub(crate) fn of(effect: &Effect) -> Option<Self> {
        match effect {
            Effect::Arrived { to, message } => {
                let record = &message.record;
                let is_ready = record.state == BusMessageState::Ready;
                is_ready.then_some(Self::Message(to.entity, record.session))
            }
            Effect::Leased { at, lease, was, .. } => {
                let is_ready = lease.standing.state == BusMessageState::Ready;
                is_ready.then_some(Self::Returned(at.entity, was.session))
            }
            Effect::Own(
                OwnEffect::SessionReleasing { queue, session }
                | OwnEffect::SessionFreed { queue, session },
            ) => Some(Self::Session(*queue, session.clone())),
            // Nobody waits for a message of a topic: those who wait for its copies learn of these.
            Effect::Ended { .. }
            | Effect::Own(OwnEffect::Passed { .. } | OwnEffect::FannedOut { .. }) => None,
        }
    }
}

impl Queues {
    /// The things that the arrival has brought, as far as something of the kind is still there. A message
    /// brings at most one. A session that was freed also brings the end of the lock that its last holder waits
    /// for.
    pub(crate) fn awaited(&self, arrival: Arrival) -> [Option<(Incarnation, Awaited)>; 2] {
        match arrival {
            Arrival::Message(queue, session) => [self.awaited_message(queue, session), None],
            Arrival::Returned(queue, session) => {
                let awaited = self.awaited_message(queue, session);
                let is_news = |it: &(_, Awaited)| it.1 != Awaited::Session;
                [awaited.filter(is_news), None]
            }
            Arrival::Session(queue, id) => {
                let found = self.get(&queue);
                let found = found.and_then(|entity| entity.backlog.sessions.find(&id));
                let is_free = found.is_some_and(|(_, session)| is_available(session));
                [
                    is_free.then_some((queue, Awaited::Session)),
                    Some((queue, Awaited::OfSession(id))),
                ]
            }
        }
    }

    fn awaited_message(&self, queue: Incarnation, session: u32) -> Option<(Incarnation, Awaited)> {
        let entity = self.get(&queue)?;
        if session == 0 || !entity.requires_session() {
            let has_ready = entity.backlog.has_ready();
            return has_ready.then_some((queue, Awaited::Message));
        }
        let session = entity.backlog.sessions.get(session)?;
        let awaited = match session.locked_until {
            _ if !session.messages.has_ready() => return None,
            RELEASING => return None,
            Timestamp::ZERO => Awaited::Session,
            _ => Awaited::OfSession(session.id()),
        };
        Some((queue, awaited))
    }

    /// The bus queue of that name, if it has messages to receive without a session.
    pub(crate) fn has_ready(
        &self,
        catalogue: &Catalogue,
        name: &EntityName,
    ) -> Option<Incarnation> {
        let queue = catalogue.find(name)?;
        self.get(&queue)?.backlog.has_ready().then_some(queue)
    }

    /// The bus queue of that name, if it has a session with messages that is not locked.
    pub(crate) fn has_session(
        &self,
        catalogue: &Catalogue,
        name: &EntityName,
    ) -> Option<Incarnation> {
        let queue = catalogue.find(name)?;
        let sessions = &self.get(&queue)?.backlog.sessions;
        sessions.next_available().map(|_| queue)
    }

    /// Whether a receiver that waits at this entity should look, so that neither the queue nor its topic is
    /// taken for idle.
    pub(crate) fn is_use_due(&self, entity: Incarnation, now: Timestamp) -> bool {
        let found = self.get(&entity);
        let queue = found.map_or(entity, |found| found.role.first_of(entity));
        let queue = self.get(&queue);
        let topic = queue.and_then(|queue| self.get(&queue.role.topic()?));
        let mut all = queue.into_iter().chain(topic);
        all.any(|queue| queue.is_use_noted(now))
    }

    /// The thing that a receiver waits for after it was given nothing, if it passed over messages: they have
    /// expired, and may hide others until they are removed.
    pub(crate) fn passed_over(
        &self,
        catalogue: &Catalogue,
        name: &EntityName,
        session: Option<Token>,
    ) -> Option<(Incarnation, Awaited)> {
        let queue = catalogue.find(name)?;
        let backlog = &self.get(&queue)?.backlog;
        match session {
            None => backlog.has_ready().then_some((queue, Awaited::Message)),
            Some(lock) => {
                let place = catalogue
                    .cipher
                    .as_ref()?
                    .open(TokenKind::SessionLock, lock)?;
                let number = u32::try_from(place.sequence_number.as_u64()).ok()?;
                let session = backlog.sessions.get(number)?;
                let has_ready = place.incarnation == queue && session.messages.has_ready();
                has_ready.then(|| (queue, Awaited::OfSession(session.id())))
            }
        }
    }

    /// Whether an entity may have messages that have expired and were not removed yet.
    pub(crate) fn may_have_expired(&self, queue: Incarnation, now: Timestamp) -> bool {
        let entity = self.get(&queue);
        entity.is_some_and(|entity| entity.backlog.may_expire(now))
    }
}

fn is_available(session: WholeSession<'_>) -> bool {
    session.locked_until == Timestamp::ZERO && session.messages.has_ready()
}
