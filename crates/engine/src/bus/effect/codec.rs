//! The bytes of effects on bus queues: as those of storage queues, with what a bus message has besides.

use super::{BusArrival, BusBodies, BusEffect, BusLease, BusSession, BusWas, Standing};
use crate::bus::BusMessageState;
use crate::bus::event::codec::{cause, put_cause};
use crate::codec::{DecodeError, Reader, put_str, put_varint};
use crate::effect::codec::{Before, place, put_start, put_time_from, time_from};
use crate::event::codec::{incarnation, location, put_location, sequence_number};
use crate::{BodyLocation, Incarnation, LeaseGeneration, Place, Timestamp};

mod kind {
    pub(super) const ARRIVED: u8 = 1;
    pub(super) const LEASED: u8 = 2;
    pub(super) const ENDED: u8 = 3;
    pub(super) const SESSION_RELEASING: u8 = 4;
    pub(super) const SESSION_FREED: u8 = 5;
    /// The bits of the first byte that are the kind.
    pub(super) const MASK: u8 = 0x07;
}

/// The other bits of the first byte.
mod flag {
    /// The entity is that of the effect before.
    pub(super) const SAME_ENTITY: u8 = 0x08;
    /// An arrived message expires.
    pub(super) const EXPIRES: u8 = 0x10;
    /// An arrived message is scheduled.
    pub(super) const SCHEDULED: u8 = 0x20;
    /// An arrived message has a second byte of flags.
    pub(super) const RARE: u8 = 0x40;
    /// The bodies of one that has ended are those of the arrival before it, up to a number of changes.
    pub(super) const MOVED: u8 = 0x10;
    /// The bits that are the state of a leased message.
    pub(super) const STATE: u8 = 0x70;
    pub(super) const STATE_SHIFT: u8 = 4;
}

/// The second byte of flags of an arrived message.
mod rare {
    pub(super) const SESSION: u8 = 0x01;
    pub(super) const ID_HASH: u8 = 0x02;
    pub(super) const FIRST_NUMBER: u8 = 0x04;
    /// It was locked before.
    pub(super) const LEASED: u8 = 0x08;
    pub(super) const CAUSE: u8 = 0x10;
    pub(super) const HOPS: u8 = 0x20;
    pub(super) const SOURCE: u8 = 0x40;
    pub(super) const OVERLAYS: u8 = 0x80;
}

/// The byte that says what the old message counted for.
mod was {
    /// The bits that are its state.
    pub(super) const STATE: u8 = 0x07;
    /// Its state would have ended at a time.
    pub(super) const UNTIL: u8 = 0x08;
    pub(super) const SESSION: u8 = 0x10;
    /// A leased message's state ends at a time; one that has ended had changes to its properties.
    pub(super) const LEASE_UNTIL_OR_OVERLAYS: u8 = 0x20;
    /// A leased message has one more change to its properties; one that has ended had a source.
    pub(super) const OVERLAY_OR_SOURCE: u8 = 0x40;
    pub(super) const ALL: u8 = 0x7f;
}

/// Writes effects of an event at `at`, up to its end.
pub(crate) fn put_effects(out: &mut Vec<u8>, at: Timestamp, effects: &[BusEffect]) {
    let mut before = None;
    let mut arrived = None;
    for effect in effects {
        put_effect(out, at, effect, arrived, &mut before);
        arrived = arrived_bodies(effect);
    }
}

/// Reads effects of an event at `at`, up to its end.
pub(crate) fn effects(r: &mut Reader<'_>, at: Timestamp) -> Result<Vec<BusEffect>, DecodeError> {
    let mut before = None;
    let mut effects = Vec::new();
    while !r.is_empty() {
        let arrived = effects.last().and_then(arrived_bodies);
        let next = effect(r, at, arrived, &mut before)?;
        effects.push(next);
    }
    Ok(effects)
}

/// The bodies of a message that arrived. If the next effect ends it elsewhere, it has moved, and has the same.
fn arrived_bodies(effect: &BusEffect) -> Option<&BusBodies> {
    match effect {
        BusEffect::Arrived { message, .. } => Some(&message.bodies),
        BusEffect::Leased { .. }
        | BusEffect::Ended { .. }
        | BusEffect::SessionReleasing { .. }
        | BusEffect::SessionFreed { .. } => None,
    }
}

fn put_effect(
    out: &mut Vec<u8>,
    now: Timestamp,
    effect: &BusEffect,
    arrived: Option<&BusBodies>,
    before: &mut Before,
) {
    match effect {
        BusEffect::Arrived { to, message } => put_arrived(out, now, *to, message, before),
        BusEffect::Leased {
            at,
            lease,
            overlay,
            was,
        } => {
            let Standing { state, until } = lease.standing;
            let state = state_code(state) << flag::STATE_SHIFT;
            start(out, kind::LEASED | state, *at, before);
            let ends = if_that(until != Timestamp::NEVER, was::LEASE_UNTIL_OR_OVERLAYS);
            let changed = if_that(overlay.is_some(), was::OVERLAY_OR_SOURCE);
            put_was(out, now, was, ends | changed);
            put_varint(out, u64::from(lease.generation.as_u32()));
            put_varint(out, u64::from(lease.deliveries));
            put_time_from(out, now, Some(until).filter(|it| *it != Timestamp::NEVER));
            if let Some(overlay) = overlay {
                put_location(out, *overlay);
            }
        }
        BusEffect::Ended {
            at,
            was,
            bodies,
            source_length,
        } => {
            let moved = arrived
                .filter(|it| it.sent == bodies.sent && it.overlays.starts_with(&bodies.overlays));
            let moved = if_that(moved.is_some(), flag::MOVED);
            start(out, kind::ENDED | moved, *at, before);
            let overlays = !bodies.overlays.is_empty();
            let overlays = if_that(overlays, was::LEASE_UNTIL_OR_OVERLAYS);
            let source = if_that(source_length.is_some(), was::OVERLAY_OR_SOURCE);
            put_was(out, now, was, overlays | source);
            match moved {
                0 => put_bodies(out, bodies),
                _ if overlays > 0 => put_varint(out, bodies.overlays.len() as u64),
                _ => {}
            }
            if let Some(length) = source_length {
                put_varint(out, u64::from(*length));
            }
        }
        BusEffect::SessionReleasing { queue, session } => {
            put_session_effect(out, kind::SESSION_RELEASING, *queue, session, before);
        }
        BusEffect::SessionFreed { queue, session } => {
            put_session_effect(out, kind::SESSION_FREED, *queue, session, before);
        }
    }
}

fn put_arrived(
    out: &mut Vec<u8>,
    now: Timestamp,
    to: Place,
    message: &BusArrival,
    before: &mut Before,
) {
    let expires_at = Some(message.expires_at).filter(|it| *it != Timestamp::NEVER);
    let is_leased = message.generation != LeaseGeneration::default() || message.deliveries > 0;
    let rare = if_that(message.session.is_some(), rare::SESSION)
        | if_that(message.id_hash.is_some(), rare::ID_HASH)
        | if_that(message.first_number.is_some(), rare::FIRST_NUMBER)
        | if_that(is_leased, rare::LEASED)
        | if_that(message.cause.is_some(), rare::CAUSE)
        | if_that(message.hops > 0, rare::HOPS)
        | if_that(message.source.is_some(), rare::SOURCE)
        | if_that(!message.bodies.overlays.is_empty(), rare::OVERLAYS);
    let flags = if_that(expires_at.is_some(), flag::EXPIRES)
        | if_that(message.scheduled_at.is_some(), flag::SCHEDULED)
        | if_that(rare > 0, flag::RARE);
    start(out, kind::ARRIVED | flags, to, before);
    if rare > 0 {
        out.push(rare);
    }
    put_time_from(out, now, expires_at);
    put_time_from(out, now, message.scheduled_at);
    put_bodies(out, &message.bodies);
    if let Some(session) = &message.session {
        put_session(out, session);
    }
    if let Some(hash) = message.id_hash {
        out.extend(hash.to_be_bytes());
    }
    if let Some(number) = message.first_number {
        put_varint(out, number.as_u64());
    }
    if is_leased {
        put_varint(out, u64::from(message.generation.as_u32()));
        put_varint(out, u64::from(message.deliveries));
    }
    if let Some(cause) = message.cause {
        put_cause(out, cause);
    }
    if message.hops > 0 {
        out.push(message.hops);
    }
    if let Some(source) = &message.source {
        put_str(out, source);
    }
}

fn put_session_effect(
    out: &mut Vec<u8>,
    kind: u8,
    queue: Incarnation,
    session: &str,
    before: &mut Before,
) {
    out.push(kind);
    put_varint(out, queue.as_u64());
    put_str(out, session);
    *before = None;
}

fn start(out: &mut Vec<u8>, kind_and_flags: u8, at: Place, before: &mut Before) {
    put_start(out, kind_and_flags, flag::SAME_ENTITY, at, before);
}

fn if_that(is_so: bool, flag: u8) -> u8 {
    if is_so { flag } else { 0 }
}

fn state_code(state: BusMessageState) -> u8 {
    match state {
        BusMessageState::Ready => 1,
        BusMessageState::Locked { deferred: false } => 2,
        BusMessageState::Locked { deferred: true } => 3,
        BusMessageState::Scheduled => 4,
        BusMessageState::Deferred => 5,
    }
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

fn put_was(out: &mut Vec<u8>, now: Timestamp, was: &BusWas, flags: u8) {
    let Standing { state, until } = was.standing;
    let until = Some(until).filter(|it| *it != Timestamp::NEVER);
    let own = if_that(until.is_some(), was::UNTIL) | if_that(was.session > 0, was::SESSION);
    out.push(state_code(state) | own | flags);
    put_time_from(out, now, until);
    if was.session > 0 {
        put_varint(out, u64::from(was.session));
    }
}

/// Writes the body that was sent and, if there are any, the changes, as far as they differ from the one before.
fn put_bodies(out: &mut Vec<u8>, bodies: &BusBodies) {
    put_location(out, bodies.sent);
    if bodies.overlays.is_empty() {
        return;
    }
    put_varint(out, bodies.overlays.len() as u64);
    let mut before = bodies.sent.record;
    for overlay in &bodies.overlays {
        let record = overlay.record.wrapping_sub(before);
        put_location(out, BodyLocation { record, ..*overlay });
        before = overlay.record;
    }
}

fn bodies(r: &mut Reader<'_>, has_overlays: bool) -> Result<BusBodies, DecodeError> {
    let sent = location(r)?;
    let mut overlays = Vec::new();
    let count = if has_overlays { r.varint()? } else { 0 };
    let mut before = sent.record;
    for _ in 0..count {
        let overlay = location(r)?;
        before = before.wrapping_add(overlay.record);
        overlays.push(BodyLocation {
            record: before,
            ..overlay
        });
    }
    Ok(BusBodies { sent, overlays })
}

fn effect(
    r: &mut Reader<'_>,
    now: Timestamp,
    arrived: Option<&BusBodies>,
    before: &mut Before,
) -> Result<BusEffect, DecodeError> {
    let first = r.u8()?;
    let flags = first & !kind::MASK;
    let known = match first & kind::MASK {
        kind::ARRIVED => flag::SAME_ENTITY | flag::EXPIRES | flag::SCHEDULED | flag::RARE,
        kind::LEASED => flag::SAME_ENTITY | flag::STATE,
        kind::ENDED => flag::SAME_ENTITY | flag::MOVED,
        kind::SESSION_RELEASING | kind::SESSION_FREED => 0,
        _ => return Err(r.error("effect that is not known")),
    };
    if flags & !known != 0 {
        return Err(r.error("flag of an effect that is not known"));
    }
    match first & kind::MASK {
        kind::SESSION_RELEASING => {
            *before = None;
            Ok(BusEffect::SessionReleasing {
                queue: incarnation(r)?,
                session: r.str()?.into(),
            })
        }
        kind::SESSION_FREED => {
            *before = None;
            Ok(BusEffect::SessionFreed {
                queue: incarnation(r)?,
                session: r.str()?.into(),
            })
        }
        kind => {
            let at = place(r, flags & flag::SAME_ENTITY != 0, before)?;
            message_effect(r, now, arrived, (kind, flags), at)
        }
    }
}

fn message_effect(
    r: &mut Reader<'_>,
    now: Timestamp,
    arrived: Option<&BusBodies>,
    (kind, flags): (u8, u8),
    at: Place,
) -> Result<BusEffect, DecodeError> {
    match kind {
        kind::ARRIVED => {
            let message = Box::new(arrival(r, now, flags)?);
            Ok(BusEffect::Arrived { to: at, message })
        }
        kind::LEASED => {
            let state = state(r, (flags & flag::STATE) >> flag::STATE_SHIFT)?;
            let (was, flags) = was(r, now)?;
            let generation = LeaseGeneration::new(r.varint_u32()?);
            let deliveries = r.varint_u32()?;
            let until = time_from(r, now, flags & was::LEASE_UNTIL_OR_OVERLAYS)?;
            let until = until.unwrap_or(Timestamp::NEVER);
            let lease = BusLease {
                generation,
                deliveries,
                standing: Standing { state, until },
            };
            let overlay = match flags & was::OVERLAY_OR_SOURCE {
                0 => None,
                _ => Some(location(r)?),
            };
            Ok(BusEffect::Leased {
                at,
                lease,
                overlay,
                was,
            })
        }
        _ => {
            let (was, was_flags) = was(r, now)?;
            let has_overlays = was_flags & was::LEASE_UNTIL_OR_OVERLAYS != 0;
            let bodies = match flags & flag::MOVED {
                0 => bodies(r, has_overlays)?,
                _ => moved_bodies(r, arrived, has_overlays)?,
            };
            let source_length = match was_flags & was::OVERLAY_OR_SOURCE {
                0 => None,
                _ => Some(r.varint_u32()?),
            };
            Ok(BusEffect::Ended {
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
    arrived: Option<&BusBodies>,
    has_overlays: bool,
) -> Result<BusBodies, DecodeError> {
    let Some(arrived) = arrived else {
        return Err(r.error("end of a moved message without its arrival"));
    };
    let count = if has_overlays { r.varint()? } else { 0 };
    let overlays = usize::try_from(count).ok();
    let Some(overlays) = overlays.and_then(|count| arrived.overlays.get(..count)) else {
        return Err(r.error("more changes than the moved message has"));
    };
    Ok(BusBodies {
        sent: arrived.sent,
        overlays: overlays.to_vec(),
    })
}

/// Reads what the old message counted for, and the byte with the flags.
fn was(r: &mut Reader<'_>, now: Timestamp) -> Result<(BusWas, u8), DecodeError> {
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
    Ok((BusWas { standing, session }, flags))
}

fn arrival(r: &mut Reader<'_>, now: Timestamp, flags: u8) -> Result<BusArrival, DecodeError> {
    let rare = match flags & flag::RARE {
        0 => 0,
        _ => r.u8()?,
    };
    let has = |flag| rare & flag != 0;
    let expires_at = time_from(r, now, flags & flag::EXPIRES)?;
    let scheduled_at = time_from(r, now, flags & flag::SCHEDULED)?;
    let bodies = bodies(r, has(rare::OVERLAYS))?;
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
    Ok(BusArrival {
        expires_at: expires_at.unwrap_or(Timestamp::NEVER),
        scheduled_at,
        first_number,
        bodies,
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
        session,
        source: match has(rare::SOURCE) {
            true => Some(r.str()?.into()),
            false => None,
        },
        id_hash,
    })
}

/// Reads a session's number and id.
pub(crate) fn session(r: &mut Reader<'_>) -> Result<BusSession, DecodeError> {
    let number = r.varint_u32()?;
    if number == 0 {
        return Err(r.error("session without a number"));
    }
    let id = r.str()?.into();
    Ok(BusSession { number, id })
}

pub(crate) fn put_session(out: &mut Vec<u8>, session: &BusSession) {
    put_varint(out, u64::from(session.number));
    put_str(out, &session.id);
}
