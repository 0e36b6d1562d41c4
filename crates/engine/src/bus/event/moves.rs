//! The bytes of moves of bodies in bus queues.

use super::effects::{arrived, put_arrived, put_session, put_was, session, what_it_was};
use crate::bus::message::standing;
use crate::bus::{BusMessageState, Moved, MovedOf, OwnHolder};
use crate::effect::{Arrival, Standing, Was};
use crate::table::Record;
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::elements::incarnation;
use crate::vocabulary::place::{Before, MovesBefore, difference, place, put_start, put_time_from};
use crate::vocabulary::{BodyLocation, Place, Timestamp};

mod kind {
    pub(super) const MESSAGE: u8 = 1;
    pub(super) const CHANGE: u8 = 2;
    pub(super) const STATE: u8 = 3;
    /// The entity of a changed message is that of the move before.
    pub(super) const SAME_ENTITY: u8 = 0x10;
}

/// Writes moves of an event at `at`, up to its end.
pub(super) fn put_moves(out: &mut Vec<u8>, at: Timestamp, moves: &[Moved]) {
    let (mut place, mut bodies) = (None, MovesBefore::default());
    for moved in moves {
        put_holder(out, at, &moved.of, &mut place);
        bodies.put(out, moved.body);
    }
}

fn put_holder(out: &mut Vec<u8>, now: Timestamp, of: &MovedOf, before: &mut Before) {
    match of {
        MovedOf::Message { at, message } => put_message(out, now, *at, message, before),
        MovedOf::Own(OwnHolder::Change { at }) => {
            put_start(out, kind::CHANGE, kind::SAME_ENTITY, *at, before);
        }
        MovedOf::Own(OwnHolder::State {
            queue,
            session,
            set_at,
        }) => {
            out.push(kind::STATE);
            put_varint(out, queue.as_u64());
            put_session(out, session.as_of_message());
            put_time_from(out, now, Some(*set_at));
            *before = None;
        }
    }
}

fn put_message(
    out: &mut Vec<u8>,
    now: Timestamp,
    at: Place,
    message: &Arrival,
    before: &mut Before,
) {
    out.push(kind::MESSAGE);
    put_time_from(out, now, Some(message.record.enqueued_at));
    let Standing { state, until } = standing(&message.record);
    // A ready message lasts until it expires, which the arrival says.
    let until = match state {
        BusMessageState::Ready => Timestamp::NEVER,
        BusMessageState::Locked { .. } | BusMessageState::Scheduled | BusMessageState::Deferred => {
            until
        }
    };
    let was = Was {
        standing: Standing { state, until },
        session: 0,
    };
    put_was(out, now, &was, 0);
    // Everything else of it, as if it arrived. Where its body is follows from the move.
    let record = Record {
        state: BusMessageState::Ready,
        body: BodyLocation::default(),
        ..message.record
    };
    let rest = message.rest.clone();
    put_arrived(out, now, at, &Arrival { record, rest }, before);
}

/// Reads moves of an event at `at`, up to its end.
pub(super) fn moves(r: &mut Reader<'_>, at: Timestamp) -> Result<Vec<Moved>, DecodeError> {
    let (mut place, mut bodies) = (None, MovesBefore::default());
    let mut moves = Vec::new();
    while !r.is_empty() {
        let mut of = holder(r, at, &mut place)?;
        let body = bodies.read(r)?;
        if let MovedOf::Message { message, .. } = &mut of {
            message.record.body = body.from;
        }
        moves.push(Moved { body, of });
    }
    Ok(moves)
}

fn holder(r: &mut Reader<'_>, now: Timestamp, before: &mut Before) -> Result<MovedOf, DecodeError> {
    let first = r.u8()?;
    match first {
        kind::MESSAGE => {
            let enqueued_at = difference(r, now)?;
            let (Was { standing, .. }, _) = what_it_was(r, now)?;
            let (at, mut message) = arrived(r, now, before)?;
            let record = &mut message.record;
            record.enqueued_at = enqueued_at;
            let until = match standing.state {
                BusMessageState::Ready => record.expires_at,
                BusMessageState::Locked { .. }
                | BusMessageState::Scheduled
                | BusMessageState::Deferred => standing.until,
            };
            record.stand(standing.state, until);
            Ok(MovedOf::Message { at, message })
        }
        kind::STATE => {
            *before = None;
            Ok(MovedOf::Own(OwnHolder::State {
                queue: incarnation(r)?,
                session: session(r)?,
                set_at: difference(r, now)?,
            }))
        }
        _ if first & !kind::SAME_ENTITY == kind::CHANGE => {
            let at = place(r, first & kind::SAME_ENTITY != 0, before)?;
            Ok(MovedOf::Own(OwnHolder::Change { at }))
        }
        _ => Err(r.error("move that is not known")),
    }
}
