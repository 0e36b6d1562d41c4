//! Reads effects on bus queues.

use super::{arrived_message, copied, flag, kind, of_topic, rare, was};
use crate::bus::event::codec::cause;
use crate::bus::rules::FAILURE;
use crate::bus::{BusMessageState, Effect, Effects, OwnEffect, message};
use crate::effect::{Arrival, Bodies, BusSession, Lease, NewBody, NextCopy, Rest, Standing, Was};
use crate::table::{Record, Side};
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::elements::{incarnation, location, sequence_number};
use crate::vocabulary::place::{Before, place, time_from};
use crate::vocabulary::{LeaseGeneration, Place, Timestamp};

/// Reads effects of an event at `at`, up to its end.
pub(in crate::bus::event) fn effects(
    r: &mut Reader<'_>,
    at: Timestamp,
) -> Result<Effects, DecodeError> {
    Effects::read(r, |r, last, before| {
        effect(r, at, last.and_then(arrived_message), before)
    })
}

fn effect(
    r: &mut Reader<'_>,
    now: Timestamp,
    arrived: Option<&Arrival>,
    before: &mut Before,
) -> Result<Effect, DecodeError> {
    let first = r.u8()?;
    let flags = first & !kind::MASK;
    let known = match first & kind::MASK {
        kind::ARRIVED => flag::SAME_ENTITY | flag::EXPIRES | flag::SCHEDULED | flag::RARE,
        kind::LEASED => flag::SAME_ENTITY | flag::STATE,
        kind::ENDED => flag::SAME_ENTITY | flag::MOVED,
        kind::SESSION_RELEASING | kind::SESSION_FREED => 0,
        kind::COPIED => copied::FLAGS,
        kind::OF_TOPIC => flag::SAME_ENTITY | flag::ID_HASH,
        _ => return Err(r.error("effect that is not known")),
    };
    if flags & !known != 0 {
        return Err(r.error("flag of an effect that is not known"));
    }
    match first & kind::MASK {
        kind::SESSION_RELEASING => {
            *before = None;
            Ok(Effect::Own(OwnEffect::SessionReleasing {
                queue: incarnation(r)?,
                session: r.str()?.into(),
            }))
        }
        kind::SESSION_FREED => {
            *before = None;
            Ok(Effect::Own(OwnEffect::SessionFreed {
                queue: incarnation(r)?,
                session: r.str()?.into(),
            }))
        }
        kind::COPIED => copied::read(r, now, flags, arrived, before),
        kind::OF_TOPIC => effect_on_topic(r, flags, before),
        kind => {
            let at = place(r, flags & flag::SAME_ENTITY != 0, before)?;
            message_effect(r, now, arrived, (kind, flags), at)
        }
    }
}

fn effect_on_topic(
    r: &mut Reader<'_>,
    flags: u8,
    before: &mut Before,
) -> Result<Effect, DecodeError> {
    let code = r.u8()?;
    if code != of_topic::PASSED && code != of_topic::FANNED_OUT {
        return Err(r.error("effect on a topic that is not known"));
    }
    let topic = place(r, flags & flag::SAME_ENTITY != 0, before)?;
    if code == of_topic::FANNED_OUT {
        return Ok(Effect::Own(OwnEffect::FannedOut {
            topic,
            next: next_copy(r)?,
            lent: flags & flag::LENT != 0,
        }));
    }
    let id_hash = match flags & flag::ID_HASH {
        0 => None,
        _ => Some(u128::from_be_bytes(r.array()?)),
    };
    Ok(Effect::Own(OwnEffect::Passed { topic, id_hash }))
}

/// Reads which copy of a topic's message is the next one.
pub(in crate::bus) fn next_copy(r: &mut Reader<'_>) -> Result<NextCopy, DecodeError> {
    let (subscription, rule) = (incarnation(r)?, r.varint()?);
    if rule > FAILURE {
        return Err(r.error("number of a rule that is out of range"));
    }
    Ok(NextCopy { subscription, rule })
}

fn message_effect(
    r: &mut Reader<'_>,
    now: Timestamp,
    arrived: Option<&Arrival>,
    (kind, flags): (u8, u8),
    at: Place,
) -> Result<Effect, DecodeError> {
    match kind {
        kind::ARRIVED => {
            let message = arrival(r, now, flags)?;
            Ok(Effect::Arrived { to: at, message })
        }
        kind::LEASED => {
            let state = state(r, (flags & flag::STATE) >> flag::STATE_SHIFT)?;
            let (was, flags) = what_it_was(r, now)?;
            let generation = LeaseGeneration::new(r.varint_u32()?);
            let deliveries = r.varint_u32()?;
            let until = time_from(r, now, flags & was::LEASE_UNTIL_OR_OVERLAYS)?;
            let until = until.unwrap_or(Timestamp::NEVER);
            let lease = Lease {
                generation,
                deliveries,
                standing: Standing { state, until },
            };
            let body = match flags & was::OVERLAY_OR_SOURCE {
                0 => None,
                _ => Some(Box::new(NewBody::Change(location(r)?))),
            };
            Ok(Effect::Leased {
                at,
                lease,
                body,
                was,
            })
        }
        _ => {
            let (was, was_flags) = what_it_was(r, now)?;
            let has_overlays = was_flags & was::LEASE_UNTIL_OR_OVERLAYS != 0;
            let bodies = match flags & flag::MOVED {
                0 => bodies(r, has_overlays)?,
                _ => moved_bodies(r, arrived, has_overlays)?,
            };
            let source_length = match was_flags & was::OVERLAY_OR_SOURCE {
                0 => None,
                _ => Some(r.varint_u32()?),
            };
            Ok(Effect::Ended {
                at,
                was,
                bodies,
                source_length,
            })
        }
    }
}

fn moved_bodies(
    r: &mut Reader<'_>,
    arrived: Option<&Arrival>,
    has_overlays: bool,
) -> Result<Bodies, DecodeError> {
    let Some(arrived) = arrived else {
        return Err(r.error("end of a moved message without its arrival"));
    };
    let count = if has_overlays { r.varint()? } else { 0 };
    let overlays = usize::try_from(count).ok();
    let Some(overlays) = overlays.and_then(|count| arrived.overlays().get(..count)) else {
        return Err(r.error("more changes than the moved message has"));
    };
    Ok(Bodies {
        sent: arrived.record.body,
        overlays: overlays.to_vec(),
    })
}

/// Reads what the old message counted for, and the byte with the flags.
pub(in crate::bus::event) fn what_it_was(
    r: &mut Reader<'_>,
    now: Timestamp,
) -> Result<(Was, u8), DecodeError> {
    let flags = r.u8()?;
    if flags & !was::ALL != 0 {
        return Err(r.error("flag of an effect that is not known"));
    }
    let state = state(r, flags & was::STATE)?;
    let until = time_from(r, now, flags & was::UNTIL)?.unwrap_or(Timestamp::NEVER);
    let session = match flags & was::SESSION {
        0 => 0,
        _ => r.varint_u32()?,
    };
    let standing = Standing { state, until };
    Ok((Was { standing, session }, flags))
}

/// Reads the effect that a message arrived.
pub(in crate::bus::event) fn arrived(
    r: &mut Reader<'_>,
    now: Timestamp,
    before: &mut Before,
) -> Result<(Place, Arrival), DecodeError> {
    let first = r.u8()?;
    let flags = first & !kind::MASK;
    let known = flag::SAME_ENTITY | flag::EXPIRES | flag::SCHEDULED | flag::RARE;
    if first & kind::MASK != kind::ARRIVED || flags & !known != 0 {
        return Err(r.error("arrival that is not known"));
    }
    let at = place(r, flags & flag::SAME_ENTITY != 0, before)?;
    Ok((at, arrival(r, now, flags)?))
}

fn arrival(r: &mut Reader<'_>, now: Timestamp, flags: u8) -> Result<Arrival, DecodeError> {
    let rare = match flags & flag::RARE {
        0 => 0,
        _ => r.u8()?,
    };
    let has = |flag| rare & flag != 0;
    let expires_at = time_from(r, now, flags & flag::EXPIRES)?;
    let scheduled_at = time_from(r, now, flags & flag::SCHEDULED)?;
    let Bodies { sent, overlays } = bodies(r, has(rare::OVERLAYS))?;
    let session = match has(rare::SESSION) {
        true => Some(session(r)?),
        false => None,
    };
    let id_hash = match has(rare::ID_HASH) {
        true => Some(u128::from_be_bytes(r.array()?)),
        false => None,
    };
    let first_number = match has(rare::FIRST_NUMBER) {
        true => Some(sequence_number(r)?),
        false => None,
    };
    let (generation, deliveries) = match has(rare::LEASED) {
        true => (LeaseGeneration::new(r.varint_u32()?), r.varint_u32()?),
        false => (LeaseGeneration::default(), 0),
    };
    let expires_at = expires_at.unwrap_or(Timestamp::NEVER);
    let record = Record {
        generation,
        deliveries,
        cause: match has(rare::CAUSE) {
            true => Some(cause(r)?),
            false => None,
        },
        hops: match has(rare::HOPS) {
            true => r.u8()?,
            false => 0,
        },
        ..message::sent(now, expires_at, scheduled_at, sent)
    };
    let source = match has(rare::SOURCE) {
        true => Some(r.str()?.into()),
        false => None,
    };
    let side = Side {
        first_number,
        source,
        overlays,
    };
    let rest = Rest {
        side,
        id_hash,
        ..Rest::default()
    };
    Ok(Arrival::new(record, session, rest))
}

/// Reads a session's number and id.
pub(in crate::bus::event) fn session(r: &mut Reader<'_>) -> Result<BusSession, DecodeError> {
    let number = r.varint_u32()?;
    if number == 0 {
        return Err(r.error("session without a number"));
    }
    let id = r.str()?.into();
    Ok(BusSession { number, id })
}

fn state(r: &Reader<'_>, code: u8) -> Result<BusMessageState, DecodeError> {
    Ok(match code {
        1 => BusMessageState::Ready,
        2 => BusMessageState::Locked { deferred: false },
        3 => BusMessageState::Locked { deferred: true },
        4 => BusMessageState::Scheduled,
        5 => BusMessageState::Deferred,
        _ => return Err(r.error("state of a message that is not known")),
    })
}

fn bodies(r: &mut Reader<'_>, has_overlays: bool) -> Result<Bodies, DecodeError> {
    let sent = location(r)?;
    let mut overlays = Vec::new();
    let count = if has_overlays { r.varint()? } else { 0 };
    let mut before = sent.record;
    for _ in 0..count {
        let overlay = location(r)?;
        before = before.wrapping_add(overlay.record);
        overlays.push(overlay.at_record(before));
    }
    Ok(Bodies { sent, overlays })
}
