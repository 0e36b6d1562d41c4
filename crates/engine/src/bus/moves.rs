//! Bodies of bus queues that move to another place of the log: of messages, of changes to their properties, and the
//! states of sessions.
//!
//! A move of a message carries the message as it is, although applying it needs only the places. A repair may find
//! nothing else of the message: the event of its arrival lay beside the body, and their segment is gone. Moving is no
//! use of a queue.

use super::backlog::Backlog;
use super::effect::codec::{arrived, put_arrived, put_session, put_was, session, what_it_was};
use super::effect::{BusArrival, BusBodies, BusLease, BusSession, BusWas, Standing};
use super::queues::Queues;
use super::{BusMessageState, Message, message};
use crate::catalogue::Catalogue;
use crate::table::{Live, Record, Side};
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::elements::incarnation;
use crate::vocabulary::place::{Before, MovesBefore, difference, place, put_start, put_time_from};
use crate::vocabulary::{BodyLocation, BodyMove, Incarnation, Place, Timestamp};

/// A body that has moved. Its length is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusMove {
    /// Where it was and is.
    pub body: BodyMove,
    /// What has it.
    pub of: BusMoved,
}

/// What has a body that moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusMoved {
    /// A message.
    Message {
        /// Its place.
        at: Place,
        /// When it arrived there.
        enqueued_at: Timestamp,
        /// Its state.
        standing: Standing,
        /// Everything else of it, as if it arrived. Where its body is follows from the move, and is not said here.
        message: Box<BusArrival>,
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

/// What a message has besides the body that moves.
fn without_body(message: Message<'_>, session: Option<BusSession>) -> BusArrival {
    let first_number = message.first_number();
    BusArrival {
        first_number: (first_number != message.number()).then_some(first_number),
        bodies: BusBodies {
            sent: NOWHERE,
            overlays: message.overlays().to_vec(),
        },
        ..message.arriving(session)
    }
}

const NOWHERE: BodyLocation = BodyLocation {
    record: 0,
    offset: 0,
    length: 0,
};

impl BusMove {
    /// The entity of the message or the session.
    pub fn entity(&self) -> Incarnation {
        match &self.of {
            BusMoved::Message { at, .. } | BusMoved::Change { at } => at.entity,
            BusMoved::State { queue, .. } => *queue,
        }
    }
}

impl Queues {
    /// Whether a message has that body, or that change to its properties.
    pub(crate) fn has_body(&self, at: Place, body: BodyLocation) -> bool {
        let entity = self.get(&at.entity);
        entity.is_some_and(|entity| entity.backlog.table().has_body(at.number, body))
    }

    /// Whether a session has that state.
    pub(crate) fn has_state(&self, queue: Incarnation, session: &str, body: BodyLocation) -> bool {
        let entity = self.get(&queue);
        let found = entity.and_then(|entity| entity.backlog.sessions.find(session));
        found.is_some_and(|(_, session)| session.state == Some(body))
    }

    /// The move of a message's body, or of a change to its properties, if the message is there.
    pub(crate) fn moving(&self, at: Place, body: BodyMove) -> Option<BusMove> {
        let backlog = &self.get(&at.entity)?.backlog;
        let message = backlog.get(at.number)?;
        let of = if message.body == body.from {
            let session = backlog.sessions.get(message.session);
            let session = session.map(|session| BusSession {
                number: message.session,
                id: session.id(),
            });
            BusMoved::Message {
                at,
                enqueued_at: message.enqueued_at,
                standing: message.standing(),
                message: Box::new(without_body(message, session)),
            }
        } else {
            BusMoved::Change { at }
        };
        Some(BusMove { body, of })
    }

    /// The move of a session's state, if the session is there.
    pub(crate) fn moving_state(
        &self,
        queue: Incarnation,
        session: &str,
        body: BodyMove,
    ) -> Option<BusMove> {
        let (number, found) = self.get(&queue)?.backlog.sessions.find(session)?;
        let session = BusSession {
            number,
            id: found.id(),
        };
        let set_at = found.state_set_at;
        Some(BusMove {
            body,
            of: BusMoved::State {
                queue,
                session,
                set_at,
            },
        })
    }

    /// Whether a move says what is true.
    pub(crate) fn is_exact_move(&self, moved: &BusMove) -> bool {
        let (body, there) = (moved.body, moved.body.from);
        match &moved.of {
            BusMoved::Message { at, .. } | BusMoved::Change { at } => {
                self.has_body(*at, there) && self.moving(*at, body).as_ref() == Some(moved)
            }
            BusMoved::State { queue, session, .. } => {
                let moving = self.moving_state(*queue, &session.id, body);
                self.has_state(*queue, &session.id, there) && moving.as_ref() == Some(moved)
            }
        }
    }

    /// Moves bodies that are in their old places.
    pub(crate) fn move_bodies(&mut self, catalogue: &mut Catalogue, moves: &[BusMove]) {
        for moved in moves {
            if let Some(entity) = self.get_mut(&moved.entity()) {
                entity.backlog.move_body(moved, &mut catalogue.live);
                entity.note_deadline(catalogue, moved.entity());
            }
        }
    }

    /// Likewise in a repair. A message that is missing here, or has another body, becomes the one of the move; so does
    /// the state of a session.
    pub(crate) fn move_bodies_fitting(&mut self, catalogue: &mut Catalogue, moves: &[BusMove]) {
        for moved in moves {
            if let Some(entity) = self.get_mut(&moved.entity()) {
                entity.backlog.move_body_fitting(moved, &mut catalogue.live);
                entity.note_deadline(catalogue, moved.entity());
            }
        }
    }
}

impl Backlog {
    /// Moves a body, if it is in its old place. Returns whether it is.
    fn move_body(&mut self, moved: &BusMove, live: &mut Live) -> bool {
        match &moved.of {
            BusMoved::Message { at, .. } | BusMoved::Change { at } => {
                self.move_message_body(at.number, moved.body, live)
            }
            BusMoved::State { session, .. } => {
                self.sessions.move_state(&session.id, moved.body, live)
            }
        }
    }

    fn move_body_fitting(&mut self, moved: &BusMove, live: &mut Live) {
        if self.move_body(moved, live) {
            return;
        }
        let to = moved.body.to;
        match &moved.of {
            BusMoved::Message {
                at,
                enqueued_at,
                standing,
                message,
            } => {
                let arrival = (*enqueued_at, *standing, &**message);
                self.put_again(*at, arrival, to, live);
            }
            // A change to a message that is not here.
            BusMoved::Change { .. } => {}
            BusMoved::State {
                session, set_at, ..
            } => {
                let number = self.sessions.ensure(session);
                let was = self.sessions.get(number).and_then(|it| it.state);
                self.sessions
                    .set_state(number, was, Some(to), *set_at, live);
            }
        }
    }

    /// Puts a message in place of the one that is there, if one is.
    fn put_again(
        &mut self,
        at: Place,
        (enqueued_at, standing, arrival): (Timestamp, Standing, &BusArrival),
        body: BodyLocation,
        live: &mut Live,
    ) {
        if let Some(other) = self.get(at.number) {
            let (was, bodies) = (other.was(), other.bodies_to_end());
            let source_length = other.side().and_then(Side::source_length);
            self.end(at.number, &was, &bodies, source_length, live);
        }
        let session = arrival.session.as_ref();
        let mut record = Record {
            expires_at: arrival.expires_at,
            session: session.map_or(0, |session| self.sessions.ensure(session)),
            cause: arrival.cause,
            hops: arrival.hops,
            ..Record::ready(enqueued_at, body)
        };
        let lease = BusLease {
            generation: arrival.generation,
            deliveries: arrival.deliveries,
            standing,
        };
        message::lease(&mut record, &lease);
        let side = Side {
            first_number: arrival.first_number.filter(|first| *first != at.number),
            source: arrival.source.clone(),
            overlays: arrival.bodies.overlays.clone(),
        };
        self.push(at.number, record, side, live);
    }
}

mod kind {
    pub(super) const MESSAGE: u8 = 1;
    pub(super) const CHANGE: u8 = 2;
    pub(super) const STATE: u8 = 3;
    /// The entity of a changed message is that of the move before.
    pub(super) const SAME_ENTITY: u8 = 0x10;
}

/// Writes moves of an event at `at`, up to its end.
pub(crate) fn put_moves(out: &mut Vec<u8>, at: Timestamp, moves: &[BusMove]) {
    let (mut place, mut bodies) = (None, MovesBefore::default());
    for moved in moves {
        put_holder(out, at, &moved.of, &mut place);
        bodies.put(out, moved.body);
    }
}

fn put_holder(out: &mut Vec<u8>, now: Timestamp, of: &BusMoved, before: &mut Before) {
    match of {
        BusMoved::Message {
            at,
            enqueued_at,
            standing,
            message,
        } => {
            out.push(kind::MESSAGE);
            put_time_from(out, now, Some(*enqueued_at));
            // A ready message lasts until it expires, which the arrival says.
            let until = match standing.state {
                BusMessageState::Ready => Timestamp::NEVER,
                BusMessageState::Locked { .. }
                | BusMessageState::Scheduled
                | BusMessageState::Deferred => standing.until,
            };
            let standing = Standing { until, ..*standing };
            put_was(
                out,
                now,
                &BusWas {
                    standing,
                    session: 0,
                },
                0,
            );
            put_arrived(out, now, *at, message, before);
        }
        BusMoved::Change { at } => {
            put_start(out, kind::CHANGE, kind::SAME_ENTITY, *at, before);
        }
        BusMoved::State {
            queue,
            session,
            set_at,
        } => {
            out.push(kind::STATE);
            put_varint(out, queue.as_u64());
            put_session(out, session);
            put_time_from(out, now, Some(*set_at));
            *before = None;
        }
    }
}

/// Reads moves of an event at `at`, up to its end.
pub(crate) fn moves(r: &mut Reader<'_>, at: Timestamp) -> Result<Vec<BusMove>, DecodeError> {
    let (mut place, mut bodies) = (None, MovesBefore::default());
    let mut moves = Vec::new();
    while !r.is_empty() {
        let of = holder(r, at, &mut place)?;
        let body = bodies.read(r)?;
        moves.push(BusMove { body, of });
    }
    Ok(moves)
}

fn holder(
    r: &mut Reader<'_>,
    now: Timestamp,
    before: &mut Before,
) -> Result<BusMoved, DecodeError> {
    let first = r.u8()?;
    match first {
        kind::MESSAGE => {
            let enqueued_at = difference(r, now)?;
            let (BusWas { standing, .. }, _) = what_it_was(r, now)?;
            let (at, message) = arrived(r, now, before)?;
            let standing = match standing.state {
                BusMessageState::Ready => Standing::ready(message.expires_at),
                BusMessageState::Locked { .. }
                | BusMessageState::Scheduled
                | BusMessageState::Deferred => standing,
            };
            Ok(BusMoved::Message {
                at,
                enqueued_at,
                standing,
                message: Box::new(message),
            })
        }
        kind::STATE => {
            *before = None;
            Ok(BusMoved::State {
                queue: incarnation(r)?,
                session: session(r)?,
                set_at: difference(r, now)?,
            })
        }
        _ if first & !kind::SAME_ENTITY == kind::CHANGE => {
            let at = place(r, first & kind::SAME_ENTITY != 0, before)?;
            Ok(BusMoved::Change { at })
        }
        _ => Err(r.error("move that is not known")),
    }
}
