//! The bytes of moves of bodies in storage queues.

use crate::queues::MovedOf;
use crate::storage::Moved;
use crate::storage::message::{self, timed_at};
use crate::table::Record;
use crate::table::codec::{encoding, put_encoding};
use crate::vocabulary::codec::{DecodeError, Reader, if_some, put_varint};
use crate::vocabulary::place::{
    Before, MovesBefore, difference, place, put_start, put_time_from, time_from,
};
use crate::vocabulary::{LeaseGeneration, Place, Timestamp};

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
pub(super) fn put_moves(out: &mut Vec<u8>, at: Timestamp, moves: &[Moved]) {
    let (mut place, mut bodies) = (None, MovesBefore::default());
    for moved in moves {
        match &moved.of {
            MovedOf::Message { at: of, message } => {
                put_message(out, at, *of, &message.record, &mut place);
            }
            MovedOf::Own(own) => match *own {},
        }
        bodies.put(out, moved.body);
    }
}

fn put_message(
    out: &mut Vec<u8>,
    now: Timestamp,
    at: Place,
    message: &Record,
    before: &mut Before,
) {
    let expires_at = message.expires_at.unless_never();
    let timed = if_some(timed_at(message), flag::TIMED);
    let first = flag::MESSAGE | timed | if_some(expires_at, flag::EXPIRES);
    put_start(out, first, flag::SAME_ENTITY, at, before);
    put_time_from(out, now, Some(message.enqueued_at));
    put_time_from(out, message.enqueued_at, expires_at);
    put_time_from(out, message.enqueued_at, Some(message.due_at));
    put_varint(out, u64::from(message.generation.as_u32()));
    put_varint(out, u64::from(message.deliveries));
    put_encoding(out, message.encoding);
}

/// Reads moves of an event at `at`, up to its end.
pub(super) fn moves(r: &mut Reader<'_>, at: Timestamp) -> Result<Vec<Moved>, DecodeError> {
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
) -> Result<Moved, DecodeError> {
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
    let record = Record {
        expires_at: expires_at.unwrap_or(Timestamp::NEVER),
        due_at,
        generation,
        deliveries,
        state: message::state(first & flag::TIMED != 0),
        encoding,
        ..Record::ready(enqueued_at, body.from)
    };
    let message = record.into();
    Ok(Moved {
        body,
        of: MovedOf::Message { at, message },
    })
}
