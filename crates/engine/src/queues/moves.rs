//! Bodies that move to another place of the log: of messages, of changes to their properties, and the states of
//! sessions.
//!
//! A move of a message carries the message as it is, although applying it needs only the places. A repair may find
//! nothing else of the message: the event of its arrival lay beside the body, and their segment is gone. Moving is no
//! use of a queue.

use super::{Backlog, Profile, Queue, Queues};
use crate::catalogue::Catalogue;
use crate::effect::{Arrival, BusSession, Effect, Rest};
use crate::table::{Live, Record};
use crate::vocabulary::{BodyLocation, BodyMove, Incarnation, Place, Timestamp};

/// A body that has moved. Its length is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Where it was and is.
    pub body: BodyMove,
    /// What has it.
    pub of: MovedOf,
}

/// What has a body that moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MovedOf {
    /// A message.
    Message {
        /// Its place.
        at: Place,
        /// The message as it was until then.
        message: Arrival,
    },
    /// A message, whose properties were changed.
    Change {
        /// Its place.
        at: Place,
    },
    /// A session, which has a state.
    State {
        /// The queue.
        queue: Incarnation,
        /// The session.
        session: BusSession,
        /// When the state was set.
        set_at: Timestamp,
    },
}

impl Moved {
    /// The queue of the message or the session.
    pub fn entity(&self) -> Incarnation {
        match &self.of {
            MovedOf::Message { at, .. } | MovedOf::Change { at } => at.entity,
            MovedOf::State { queue, .. } => *queue,
        }
    }
}

impl<Q: Queue> Queues<Q> {
    /// Whether a message has that body, or that change to its properties.
    pub(crate) fn has_body(&self, at: Place, body: BodyLocation) -> bool {
        let queue = self.get(&at.entity);
        queue.is_some_and(|queue| queue.backlog().table().has_body(at.number, body))
    }

    /// Whether a session has that state.
    pub(crate) fn has_state(&self, queue: Incarnation, session: &str, body: BodyLocation) -> bool {
        let state = self.state_of(queue, session);
        state.is_some_and(|(_, state, _)| state == Some(body))
    }

    fn state_of(
        &self,
        queue: Incarnation,
        session: &str,
    ) -> Option<(u32, Option<BodyLocation>, Timestamp)> {
        self.get(&queue)?.backlog().state_of(session)
    }

    /// The move of a message's body, or of a change to its properties, if the message is there.
    pub(crate) fn moving(&self, at: Place, body: BodyMove) -> Option<Moved> {
        let backlog = self.get(&at.entity)?.backlog();
        let entry = backlog.table().get(at.number)?;
        let of = if entry.record.body == body.from {
            let rest = Rest {
                side: entry.whole_side(),
                ..Rest::default()
            };
            let session = backlog.session_named(entry.record.session);
            let message = Arrival::new(*entry.record, session, rest);
            MovedOf::Message { at, message }
        } else {
            MovedOf::Change { at }
        };
        Some(Moved { body, of })
    }

    /// The move of a session's state, if the session is there.
    pub(crate) fn moving_state(
        &self,
        queue: Incarnation,
        session: &str,
        body: BodyMove,
    ) -> Option<Moved> {
        let (number, _, set_at) = self.state_of(queue, session)?;
        let session = BusSession {
            number,
            id: session.into(),
        };
        let of = MovedOf::State {
            queue,
            session,
            set_at,
        };
        Some(Moved { body, of })
    }

    /// Whether a move says what is true.
    pub(crate) fn is_exact_move(&self, moved: &Moved) -> bool {
        let (body, there) = (moved.body, moved.body.from);
        match &moved.of {
            MovedOf::Message { at, .. } | MovedOf::Change { at } => {
                self.has_body(*at, there) && self.moving(*at, body).as_ref() == Some(moved)
            }
            MovedOf::State { queue, session, .. } => {
                let moving = self.moving_state(*queue, &session.id, body);
                self.has_state(*queue, &session.id, there) && moving.as_ref() == Some(moved)
            }
        }
    }

    /// Moves bodies that are in their old places.
    pub(crate) fn move_bodies(&mut self, catalogue: &mut Catalogue, moves: &[Moved]) {
        for moved in moves {
            if let Some(queue) = self.get_mut(&moved.entity()) {
                let live = &mut catalogue.live;
                queue.note_move(moved);
                queue.backlog_mut().move_body(moved, live);
                queue.settle(catalogue, moved.entity());
            }
        }
    }

    /// Likewise in a repair. A message that is missing here, or has another body, becomes the one of the move; so does
    /// the state of a session.
    pub(crate) fn move_bodies_fitting(&mut self, catalogue: &mut Catalogue, moves: &[Moved]) {
        for moved in moves {
            if let Some(queue) = self.get_mut(&moved.entity()) {
                let live = &mut catalogue.live;
                queue.note_move(moved);
                queue.backlog_mut().move_body_fitting(moved, live);
                queue.settle(catalogue, moved.entity());
            }
        }
    }
}

impl<P: Profile> Backlog<P> {
    /// Moves a body, if it is in its old place. Returns whether it is.
    fn move_body(&mut self, moved: &Moved, live: &mut Live) -> bool {
        match &moved.of {
            MovedOf::Message { at, .. } | MovedOf::Change { at } => {
                self.move_message_body(at.number, moved.body, live)
            }
            MovedOf::State { session, .. } => self.move_state(&session.id, moved.body, live),
        }
    }

    fn move_body_fitting(&mut self, moved: &Moved, live: &mut Live) {
        if self.move_body(moved, live) {
            return;
        }
        let to = moved.body.to;
        match &moved.of {
            MovedOf::Message { at, message } => self.put_again(*at, message, to, live),
            // A change to a message that is not here.
            MovedOf::Change { .. } => {}
            MovedOf::State {
                session, set_at, ..
            } => self.put_state(session, to, *set_at, live),
        }
    }

    /// Puts a message in place of the one that is there, if one is.
    fn put_again(&mut self, at: Place, arrival: &Arrival, body: BodyLocation, live: &mut Live) {
        if let Some(ended) = self.ended(at) {
            self.apply(&ended, live);
        }
        let record = Record {
            session: self.session_of(arrival.session()),
            body,
            ..arrival.record
        };
        let side = arrival.side().cloned();
        self.push(at.number, record, side.unwrap_or_default(), live);
    }

    /// The effect that ends a message, if it is there.
    pub(crate) fn ended(&self, at: Place) -> Option<Effect> {
        let entry = self.table().get(at.number)?;
        Some(P::ended(at.entity, &entry))
    }
}
