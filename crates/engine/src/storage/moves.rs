//! Bodies of messages of storage queues that move to another place of the log.
//!
//! A move carries the message as it is, although applying it needs only the places. A repair may find nothing else of
//! the message: the event of its arrival lay beside the body, and their segment is gone.

use super::Queues;
use super::backlog::Backlog;
use super::message::{self, Message};
use crate::catalogue::Catalogue;
use crate::table::codec::{encoding, put_encoding};
use crate::table::{Live, Record};
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::place::{
    Before, MovesBefore, difference, place, put_start, put_time_from, time_from,
};
use crate::vocabulary::{BodyLocation, BodyMove, LeaseGeneration, Place, Timestamp};

/// A body that has moved, and its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredMove {
    /// The message's place.
    pub at: Place,
    /// Where the body was and is. Its length is the same.
    pub body: BodyMove,
    /// The message. Where its body is follows from the move.
    pub(crate) message: Message,
}

impl Queues {
    /// Whether a message has that body.
    pub(crate) fn has_body(&self, at: Place, body: BodyLocation) -> bool {
        let entity = self.get(&at.entity);
        entity.is_some_and(|entity| entity.backlog.table().has_body(at.number, body))
    }

    /// The move of a message's body, if the message is there.
    pub(crate) fn moving(&self, at: Place, body: BodyMove) -> Option<StoredMove> {
        let message = self.get(&at.entity)?.backlog.find(at.number)?;
        Some(StoredMove { at, body, message })
    }

    /// Whether a move says what is true.
    pub(crate) fn is_exact_move(&self, moved: &StoredMove) -> bool {
        self.has_body(moved.at, moved.body.from)
            && self.moving(moved.at, moved.body).as_ref() == Some(moved)
    }

    /// Moves bodies that are in their old places.
    pub(crate) fn move_bodies(&mut self, catalogue: &mut Catalogue, moves: &[StoredMove]) {
        for moved in moves {
            if let Some(entity) = self.get_mut(&moved.at.entity) {
                let live = &mut catalogue.live;
                entity.backlog.move_body(moved.at.number, moved.body, live);
                entity.settle(catalogue, moved.at.entity);
            }
        }
    }

    /// Likewise in a repair. A message that is missing here, or has another body, becomes the one of the move.
    pub(crate) fn move_bodies_fitting(&mut self, catalogue: &mut Catalogue, moves: &[StoredMove]) {
        for moved in moves {
            if let Some(entity) = self.get_mut(&moved.at.entity) {
                let live = &mut catalogue.live;
                entity.backlog.move_body_fitting(moved, live);
                entity.settle(catalogue, moved.at.entity);
            }
        }
    }
}

impl Backlog {
    fn move_body_fitting(&mut self, moved: &StoredMove, live: &mut Live) {
        let number = moved.at.number;
        if self.move_body(number, moved.body, live) {
            return;
        }
        if let Some(other) = self.find(number) {
            let was = other.was();
            self.end(number, &was, live);
        }
        let message = Message(Record {
            body: moved.body.to,
            ..moved.message.0
        });
        self.push(number, message, live);
    }
}

mod flag {
    pub(super) const MESSAGE: u8 = 1;
    /// The entity is that of the move before.
    pub(super) const SAME_ENTITY: u8 = 0x10;
    /// It was leased or delayed.
    pub(super) const TIMED: u8 = 0x20;
    /// It expires.
    pub(super) const EXPIRES: u8 = 0x40;
    pub(super) const ALL: u8 = MESSAGE | SAME_ENTITY | TIMED | EXPIRES;
}

/// Writes moves of an event at `at`, up to its end.
pub(crate) fn put_moves(out: &mut Vec<u8>, at: Timestamp, moves: &[StoredMove]) {
    let (mut place, mut bodies) = (None, MovesBefore::default());
    for moved in moves {
        put_move(out, at, moved, &mut place);
        bodies.put(out, moved.body);
    }
}

fn put_move(out: &mut Vec<u8>, now: Timestamp, moved: &StoredMove, before: &mut Before) {
    let message = moved.message;
    let expires_at = Some(message.expires_at).filter(|it| *it != Timestamp::NEVER);
    let timed = if message.is_timed() { flag::TIMED } else { 0 };
    let expires = if expires_at.is_some() {
        flag::EXPIRES
    } else {
        0
    };
    let first = flag::MESSAGE | timed | expires;
    put_start(out, first, flag::SAME_ENTITY, moved.at, before);
    put_time_from(out, now, Some(message.enqueued_at));
    put_time_from(out, message.enqueued_at, expires_at);
    put_time_from(out, message.enqueued_at, Some(message.due_at));
    put_varint(out, u64::from(message.generation.as_u32()));
    put_varint(out, u64::from(message.deliveries));
    put_encoding(out, message.encoding);
}

/// Reads moves of an event at `at`, up to its end.
pub(crate) fn moves(r: &mut Reader<'_>, at: Timestamp) -> Result<Vec<StoredMove>, DecodeError> {
    let (mut place, mut bodies) = (None, MovesBefore::default());
    let mut moves = Vec::new();
    while !r.is_empty() {
        moves.push(one(r, at, &mut place, &mut bodies)?);
    }
    Ok(moves)
}

fn one(
    r: &mut Reader<'_>,
    now: Timestamp,
    before: &mut Before,
    bodies: &mut MovesBefore,
) -> Result<StoredMove, DecodeError> {
    let first = r.u8()?;
    if first & !flag::ALL != 0 || first & flag::MESSAGE == 0 {
        return Err(r.error("move that is not known"));
    }
    let at = place(r, first & flag::SAME_ENTITY != 0, before)?;
    let enqueued_at = difference(r, now)?;
    let expires_at = time_from(r, enqueued_at, first & flag::EXPIRES)?;
    let due_at = difference(r, enqueued_at)?;
    let generation = LeaseGeneration::new(r.varint_u32()?);
    let deliveries = r.varint_u32()?;
    let encoding = encoding(r)?;
    let body = bodies.read(r)?;
    let message = Message(Record {
        expires_at: expires_at.unwrap_or(Timestamp::NEVER),
        due_at,
        generation,
        deliveries,
        state: message::state(first & flag::TIMED != 0),
        encoding,
        ..Record::ready(enqueued_at, body.from)
    });
    Ok(StoredMove { at, body, message })
}
