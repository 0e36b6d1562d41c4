//! Bodies that move to another place of the log: of messages, of changes to their properties, and the states of
//! sessions.
//!
//! A move of a message carries the message as it is, although applying it needs only the places. A repair may find
//! nothing else of the message: the event of its arrival lay beside the body, and their segment is gone. Moving is no
//! use of a queue.

use super::{Backlog, MovedIn, Profile, Queue, Queues};
use crate::catalogue::Catalogue;
use crate::effect::{Arrival, Effect, Own, Rest};
use crate::table::{Live, Record};
use crate::vocabulary::{BodyLocation, BodyMove, Incarnation, Place};

/// A body that has moved. Its length is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved<O> {
    /// Where it was and is.
    pub body: BodyMove,
    /// What has it.
    pub of: MovedOf<O>,
}

/// What has a body that moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MovedOf<O> {
    /// A message.
    Message {
        /// Its place.
        at: Place,
        /// The message as it was until then.
        message: Arrival,
    },
    /// What only this service has.
    Own(O),
}

impl<O: Own> Moved<O> {
    /// The queue of what has the body.
    pub fn entity(&self) -> Incarnation {
        match &self.of {
            MovedOf::Message { at, .. } => at.entity,
            MovedOf::Own(own) => own.entity(),
        }
    }
}

impl<Q: Queue> Queues<Q> {
    /// Whether a message has that body, or that change to its properties.
    pub(crate) fn has_body(&self, at: Place, body: BodyLocation) -> bool {
        let queue = self.get(&at.entity);
        queue.is_some_and(|queue| queue.backlog().table().has_body(at.number, body))
    }

    /// The move of a message's body, or of a change to its properties, if the message is there.
    pub(crate) fn moving(&self, at: Place, body: BodyMove) -> Option<MovedIn<Q>> {
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
            MovedOf::Own(Q::Profile::holder_of_change(at)?)
        };
        Some(Moved { body, of })
    }

    /// Whether a move says what is true.
    pub(crate) fn is_exact_move(&self, moved: &MovedIn<Q>) -> bool {
        let (body, there) = (moved.body, moved.body.from);
        match &moved.of {
            MovedOf::Message { at, .. } => {
                self.has_body(*at, there) && self.moving(*at, body).as_ref() == Some(moved)
            }
            MovedOf::Own(own) => self
                .get(&own.entity())
                .is_some_and(|queue| Q::Profile::is_holder(queue.backlog(), own, there)),
        }
    }

    /// Moves bodies that are in their old places.
    pub(crate) fn move_bodies(&mut self, catalogue: &mut Catalogue, moves: &[MovedIn<Q>]) {
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
    pub(crate) fn move_bodies_fitting(&mut self, catalogue: &mut Catalogue, moves: &[MovedIn<Q>]) {
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
    fn move_body(&mut self, moved: &Moved<P::OwnHolder>, live: &mut Live) -> bool {
        match &moved.of {
            MovedOf::Message { at, .. } => self.move_message_body(at.number, moved.body, live),
            MovedOf::Own(own) => P::move_body(self, own, moved.body, live),
        }
    }

    fn move_body_fitting(&mut self, moved: &Moved<P::OwnHolder>, live: &mut Live) {
        if self.move_body(moved, live) {
            return;
        }
        let to = moved.body.to;
        match &moved.of {
            MovedOf::Message { at, message } => self.put_again(*at, message, to, live),
            MovedOf::Own(own) => P::put_body(self, own, to, live),
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
    pub(crate) fn ended(&self, at: Place) -> Option<Effect<P::Own>> {
        let entry = self.table().get(at.number)?;
        Some(P::ended(at.entity, &entry))
    }
}
