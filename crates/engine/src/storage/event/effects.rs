//! The bytes of effects on storage queues.
//!
//! Effects take most of the log. So an effect on the same entity as the one before it leaves the entity out and
//! writes its number as a difference, and times are differences to the event's time.

use crate::effect::{Bodies, Lease, NewBody, Standing, Was};
use crate::storage::message::{self, Message, timed_at};
use crate::storage::{Effect, Effects, OwnEffect};
use crate::table::codec::{placed, put_body};
use crate::table::{MessageState, Placed};
use crate::vocabulary::codec::{DecodeError, Reader, if_some, put_varint};
use crate::vocabulary::elements::{location, put_location, sequence_number};
use crate::vocabulary::place::{Before, difference, place, put_start, put_time_from, time_from};
use crate::vocabulary::{BodyLocation, LeaseGeneration, Place, Timestamp};

mod kind {
    pub(super) const ARRIVED: u8 = 1;
    pub(super) const LEASED: u8 = 2;
    pub(super) const ENDED: u8 = 3;
    pub(super) const RANGE_ENDED: u8 = 4;
    /// The bits of the first byte that are the kind.
    pub(super) const MASK: u8 = 0x0f;
}

/// The other bits of the first byte.
mod flag {
    /// The entity is that of the effect before.
    pub(super) const SAME_ENTITY: u8 = 0x10;
    /// There is a time: from which the message shows, or at which the old one showed.
    pub(super) const DUE_AT: u8 = 0x20;
    /// The message expires; its lease comes with a new body.
    pub(super) const EXPIRES_OR_BODY: u8 = 0x40;
    /// A body is no longer needed.
    pub(super) const OLD_BODY: u8 = 0x80;
}

/// Writes effects of an event at `at`, up to its end.
pub(super) fn put_effects(out: &mut Vec<u8>, at: Timestamp, effects: &[Effect]) {
    let mut before = None;
    for effect in effects {
        put_effect(out, at, effect, &mut before);
    }
}

/// Reads effects of an event at `at`, up to its end.
pub(super) fn effects(r: &mut Reader<'_>, at: Timestamp) -> Result<Effects, DecodeError> {
    Effects::read(r, |r, _, before| effect(r, at, before))
}

fn put_effect(out: &mut Vec<u8>, now: Timestamp, effect: &Effect, before: &mut Before) {
    match effect {
        Effect::Arrived { to, message } => {
            let record = &message.record;
            let expires_at = record.expires_at.unless_never();
            let due_at = timed_at(record);
            let flags = if_some(expires_at, flag::EXPIRES_OR_BODY) | if_some(due_at, flag::DUE_AT);
            start(out, kind::ARRIVED | flags, *to, before);
            put_time_from(out, now, expires_at);
            put_time_from(out, now, due_at);
            put_body(out, record.encoding, record.body);
        }
        Effect::Leased {
            at,
            lease,
            body,
            was,
        } => {
            let (body, old) = match body.as_deref() {
                Some(NewBody::Other { body, was }) => (Some(*body), needless(*was)),
                Some(NewBody::Change(_)) | None => (None, None),
            };
            let flags = was_flags(was, old) | if_some(body, flag::EXPIRES_OR_BODY);
            start(out, kind::LEASED | flags, *at, before);
            put_varint(out, u64::from(lease.generation.as_u32()));
            put_varint(out, u64::from(lease.deliveries));
            put_time_from(out, now, Some(lease.standing.until));
            if let Some(body) = body {
                put_body(out, body.encoding, body.location);
            }
            put_was(out, now, was, old);
        }
        Effect::Ended {
            at, was, bodies, ..
        } => {
            let old = needless(bodies.sent);
            start(out, kind::ENDED | was_flags(was, old), *at, before);
            put_was(out, now, was, old);
        }
        Effect::Own(OwnEffect::RangeEnded {
            entity,
            from,
            until,
        }) => {
            let from = Place {
                entity: *entity,
                number: *from,
            };
            start(out, kind::RANGE_ENDED, from, before);
            put_varint(out, until.as_u64());
        }
    }
}

/// A body that is not needed any more, if there was one.
fn needless(body: BodyLocation) -> Option<BodyLocation> {
    body.is_of_a_body().then_some(body)
}

/// When the old message would have shown, if it was leased or delayed.
fn was_until(was: &Was) -> Option<Timestamp> {
    let Standing { state, until } = was.standing;
    (state != MessageState::Ready).then_some(until)
}

fn was_flags(was: &Was, old: Option<BodyLocation>) -> u8 {
    if_some(was_until(was), flag::DUE_AT) | if_some(old, flag::OLD_BODY)
}

fn put_was(out: &mut Vec<u8>, now: Timestamp, was: &Was, old: Option<BodyLocation>) {
    put_time_from(out, now, was_until(was));
    if let Some(old) = old {
        put_location(out, old);
    }
}

fn start(out: &mut Vec<u8>, kind_and_flags: u8, at: Place, before: &mut Before) {
    put_start(out, kind_and_flags, flag::SAME_ENTITY, at, before);
}

fn effect(r: &mut Reader<'_>, now: Timestamp, before: &mut Before) -> Result<Effect, DecodeError> {
    let first = r.u8()?;
    let flags = first & !kind::MASK;
    let known = match first & kind::MASK {
        kind::ARRIVED => flag::DUE_AT | flag::EXPIRES_OR_BODY,
        kind::LEASED => flag::DUE_AT | flag::EXPIRES_OR_BODY | flag::OLD_BODY,
        kind::ENDED => flag::DUE_AT | flag::OLD_BODY,
        kind::RANGE_ENDED => 0,
        _ => return Err(r.error("effect that is not known")),
    };
    if flags & !(known | flag::SAME_ENTITY) != 0 {
        return Err(r.error("flag of an effect that is not known"));
    }
    let at = place(r, flags & flag::SAME_ENTITY != 0, before)?;
    Ok(match first & kind::MASK {
        kind::ARRIVED => {
            let expires_at = time_from(r, now, flags & flag::EXPIRES_OR_BODY)?;
            let expires_at = expires_at.unwrap_or(Timestamp::NEVER);
            let due_at = time_from(r, now, flags & flag::DUE_AT)?;
            let message = Message::arrived(now, expires_at, due_at, placed(r)?).into();
            Effect::Arrived { to: at, message }
        }
        kind::LEASED => leased(r, now, flags, at)?,
        kind::ENDED => {
            let (was, sent) = was(r, now, flags)?;
            let overlays = Vec::new();
            Effect::Ended {
                at,
                was,
                bodies: Bodies { sent, overlays },
                source_length: None,
            }
        }
        _ => Effect::Own(OwnEffect::RangeEnded {
            entity: at.entity,
            from: at.number,
            until: sequence_number(r)?,
        }),
    })
}

fn leased(r: &mut Reader<'_>, now: Timestamp, flags: u8, at: Place) -> Result<Effect, DecodeError> {
    let lease = Lease {
        generation: LeaseGeneration::new(r.varint_u32()?),
        deliveries: r.varint_u32()?,
        standing: message::until(difference(r, now)?),
    };
    let new: Option<Placed> = match flags & flag::EXPIRES_OR_BODY {
        0 => None,
        _ => Some(placed(r)?),
    };
    let (was, old) = was(r, now, flags)?;
    // An old body without a new one says nothing.
    let body = new.map(|body| Box::new(NewBody::Other { body, was: old }));
    Ok(Effect::Leased {
        at,
        lease,
        body,
        was,
    })
}

/// Reads what the old message was, and the body that is not needed any more.
fn was(r: &mut Reader<'_>, now: Timestamp, flags: u8) -> Result<(Was, BodyLocation), DecodeError> {
    let until = time_from(r, now, flags & flag::DUE_AT)?;
    let standing = until.map(message::until).unwrap_or_default();
    let old = match flags & flag::OLD_BODY {
        0 => BodyLocation::default(),
        _ => location(r)?,
    };
    Ok((
        Was {
            standing,
            session: 0,
        },
        old,
    ))
}

#[cfg(test)]
mod tests;
