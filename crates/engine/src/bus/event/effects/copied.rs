//! The bytes of a copy: a message that arrives as the one before it did, in another entity.
//!
//! The copies of a message that was sent to a topic follow each other. They have the same body, and share in memory what
//! few messages have. So a copy takes about six bytes, and reading one takes no more memory than any other effect.
//!
//! A message with changes to its properties is written in full: the places of its changes are its own.

use super::{flag, kind};
use crate::bus::Effect;
use crate::effect::Arrival;
use crate::table::Record;
use crate::vocabulary::codec::{DecodeError, Reader, if_that, put_varint};
use crate::vocabulary::place::{
    Before, difference_to, place_near, put_difference_to, put_time_from, same_entity_flag,
    time_from,
};
use crate::vocabulary::{BodyLocation, Hold, Place, Timestamp};

/// It expires, at another time than the one before it.
const EXPIRES: u8 = 0x10;
/// It does not expire, and the one before it does.
const STAYS: u8 = 0x20;
/// Its session has another number.
const SESSION: u8 = 0x40;
/// It counts the body, and the one before it does not; or the other way round.
const OTHER_HOLD: u8 = 0x80;
/// The flags of a copy.
pub(super) const FLAGS: u8 = flag::SAME_ENTITY | EXPIRES | STAYS | SESSION | OTHER_HOLD;

/// The most bytes that an arrival takes besides texts and changes, and a copy leaves out: the place of the body,
/// a time, two numbers and a hash, what a dead letter has, and lengths.
const LEFT_OUT_SIZE_BYTES: u64 = 80;

/// Whether a message can be written as a copy of the one that arrived before it.
pub(super) fn is_copy(earlier: &Arrival, message: &Arrival) -> bool {
    let body = earlier.record.body;
    let has_fitting_hold =
        message.record.body == body || Some(message.record.body) == with_other_hold(body);
    let record = Record {
        expires_at: earlier.record.expires_at,
        session: earlier.record.session,
        body,
        ..message.record
    };
    has_fitting_hold
        && record == earlier.record
        && message.rest == earlier.rest
        && message.overlays().is_empty()
}

/// The same body for a copy that lends if this one borrows, and the other way round.
fn with_other_hold(body: BodyLocation) -> Option<BodyLocation> {
    match body.hold() {
        Hold::Alone => None,
        Hold::Lends => Some(body.with(Hold::Borrows)),
        Hold::Borrows => Some(body.with(Hold::Lends)),
    }
}

/// Writes it.
pub(super) fn put(
    out: &mut Vec<u8>,
    now: Timestamp,
    to: Place,
    message: &Arrival,
    earlier: &Arrival,
    before: &mut Before,
) {
    let Record {
        expires_at,
        session,
        ..
    } = message.record;
    let other_expiry = (expires_at != earlier.record.expires_at).then_some(expires_at);
    let other_time = other_expiry.filter(|it| *it != Timestamp::NEVER);
    let other_session = (session != earlier.record.session).then_some(session);
    let stays = other_expiry.is_some() && other_time.is_none();
    let flags = if_that(other_time.is_some(), EXPIRES)
        | if_that(stays, STAYS)
        | if_that(other_session.is_some(), SESSION)
        | if_that(message.record.body != earlier.record.body, OTHER_HOLD)
        | same_entity_flag(to, *before, flag::SAME_ENTITY);
    out.push(kind::COPIED | flags);
    put_difference_to(out, to, before);
    put_time_from(out, now, other_time);
    if let Some(number) = other_session {
        put_varint(out, u64::from(number));
    }
}

/// Reads it behind its first byte, given the message that arrived before it.
pub(super) fn read(
    r: &mut Reader<'_>,
    now: Timestamp,
    flags: u8,
    earlier: Option<&Arrival>,
    before: &mut Before,
) -> Result<Effect, DecodeError> {
    let earlier = earlier.filter(|it| it.overlays().is_empty());
    let Some(earlier) = earlier else {
        return Err(r.error("copy without a message before it that has no changes"));
    };
    let to = match flags & flag::SAME_ENTITY {
        0 => difference_to(r, before)?,
        _ => place_near(r, before)?,
    };
    let expires_at = match (time_from(r, now, flags & EXPIRES)?, flags & STAYS) {
        (Some(_), STAYS) => return Err(r.error("copy that expires and does not")),
        (Some(other), _) => other,
        (None, STAYS) => Timestamp::NEVER,
        (None, _) => earlier.record.expires_at,
    };
    let session = match flags & SESSION {
        0 => earlier.record.session,
        _ => r.varint_u32()?,
    };
    if (session == 0) != earlier.session().is_none() {
        return Err(r.error("copy in a session that the message before it has not"));
    }
    let body = match flags & OTHER_HOLD {
        0 => Some(earlier.record.body),
        _ => with_other_hold(earlier.record.body),
    };
    let Some(body) = body else {
        return Err(r.error("copy with a hold that the message before it cannot have"));
    };
    let record = Record {
        expires_at,
        session,
        body,
        ..earlier.record
    };
    let message = Arrival {
        record,
        rest: earlier.rest.clone(),
    };
    Ok(Effect::Arrived { to, message })
}

/// How many bytes more these effects would take at most if each copy were written in full.
pub(in crate::bus) fn left_out_size_bytes(effects: &[Effect]) -> u64 {
    let pairs = effects.windows(2).filter_map(|pair| match pair {
        [
            Effect::Arrived {
                message: earlier, ..
            },
            Effect::Arrived { message, .. },
        ] => is_copy(earlier, message).then_some(message),
        _ => None,
    });
    let texts = |message: &Arrival| {
        let session = message.session().map_or(0, |session| session.id.len());
        let source = super::source(message).map_or(0, str::len);
        (session + source) as u64
    };
    pairs.map(|it| LEFT_OUT_SIZE_BYTES + texts(it)).sum()
}
