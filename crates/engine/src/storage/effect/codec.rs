//! The bytes of effects.
//!
//! Effects take most of the log. So an effect on the same entity as the one before it leaves the entity out and
//! writes its number as a difference, and times are differences to the event's time.

use super::{Effect, Effects, Lease, Was};
use crate::table::Placed;
use crate::table::codec::{body, put_body};
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::elements::{location, put_location, sequence_number};
use crate::vocabulary::place::{Before, difference, place, put_start, put_time_from, time_from};
use crate::vocabulary::{LeaseGeneration, Place, Timestamp};

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
pub(crate) fn put_effects(out: &mut Vec<u8>, at: Timestamp, effects: &[Effect]) {
    let mut before = None;
    for effect in effects {
        put_effect(out, at, effect, &mut before);
    }
}

/// Reads effects of an event at `at`, up to its end.
pub(crate) fn effects(r: &mut Reader<'_>, at: Timestamp) -> Result<Effects, DecodeError> {
    let mut before = None;
    let mut all = Vec::new();
    while !r.is_empty() {
        let effect = effect(r, at, &mut before)?;
        if all.is_empty() && r.is_empty() {
            return Ok(Effects::from(effect));
        }
        all.push(effect);
    }
    Ok(Effects::from(all))
}

fn put_effect(out: &mut Vec<u8>, now: Timestamp, effect: &Effect, before: &mut Before) {
    match effect {
        Effect::Arrived {
            to,
            expires_at,
            due_at,
            body,
        } => {
            let expires_at = (*expires_at != Timestamp::NEVER).then_some(*expires_at);
            let flags = if_some(expires_at, flag::EXPIRES_OR_BODY) | if_some(*due_at, flag::DUE_AT);
            start(out, kind::ARRIVED | flags, *to, before);
            put_time_from(out, now, expires_at);
            put_time_from(out, now, *due_at);
            put_body(out, body.encoding, body.location);
        }
        Effect::Leased {
            at,
            lease,
            body,
            was,
        } => {
            let flags = was_flags(was) | if_some(*body, flag::EXPIRES_OR_BODY);
            start(out, kind::LEASED | flags, *at, before);
            put_varint(out, u64::from(lease.generation.as_u32()));
            put_varint(out, u64::from(lease.deliveries));
            put_time_from(out, now, Some(lease.due_at));
            if let Some(body) = body {
                put_body(out, body.encoding, body.location);
            }
            put_was(out, now, was);
        }
        Effect::Ended { at, was } => {
            start(out, kind::ENDED | was_flags(was), *at, before);
            put_was(out, now, was);
        }
        Effect::RangeEnded {
            entity,
            from,
            until,
        } => {
            let from = Place {
                entity: *entity,
                number: *from,
            };
            start(out, kind::RANGE_ENDED, from, before);
            put_varint(out, until.as_u64());
        }
    }
}

/// A value that is there has this flag.
fn if_some<T>(value: Option<T>, flag: u8) -> u8 {
    if value.is_some() { flag } else { 0 }
}

fn was_flags(was: &Was) -> u8 {
    if_some(was.due_at, flag::DUE_AT) | if_some(was.body, flag::OLD_BODY)
}

fn put_was(out: &mut Vec<u8>, now: Timestamp, was: &Was) {
    put_time_from(out, now, was.due_at);
    if let Some(body) = was.body {
        put_location(out, body);
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
        kind::ARRIVED => Effect::Arrived {
            to: at,
            expires_at: time_from(r, now, flags & flag::EXPIRES_OR_BODY)?
                .unwrap_or(Timestamp::NEVER),
            due_at: time_from(r, now, flags & flag::DUE_AT)?,
            body: placed(r)?,
        },
        kind::LEASED => Effect::Leased {
            at,
            lease: Lease {
                generation: LeaseGeneration::new(r.varint_u32()?),
                deliveries: r.varint_u32()?,
                due_at: difference(r, now)?,
            },
            body: match flags & flag::EXPIRES_OR_BODY {
                0 => None,
                _ => Some(placed(r)?),
            },
            was: was(r, now, flags)?,
        },
        kind::ENDED => Effect::Ended {
            at,
            was: was(r, now, flags)?,
        },
        _ => Effect::RangeEnded {
            entity: at.entity,
            from: at.number,
            until: sequence_number(r)?,
        },
    })
}

fn was(r: &mut Reader<'_>, now: Timestamp, flags: u8) -> Result<Was, DecodeError> {
    Ok(Was {
        due_at: time_from(r, now, flags & flag::DUE_AT)?,
        body: match flags & flag::OLD_BODY {
            0 => None,
            _ => Some(location(r)?),
        },
    })
}

fn placed(r: &mut Reader<'_>) -> Result<Placed, DecodeError> {
    let (encoding, location) = body(r)?;
    Ok(Placed { encoding, location })
}
