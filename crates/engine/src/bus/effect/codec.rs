//! The bytes of effects on bus queues: as those of storage queues, with what a bus message has besides.

mod decode;

pub(crate) use self::decode::{arrived, effects, session, what_it_was};
use super::{BusArrival, BusBodies, BusEffect, BusSession, BusWas, Standing};
use crate::bus::BusMessageState;
use crate::bus::event::codec::put_cause;
use crate::vocabulary::codec::{put_str, put_varint};
use crate::vocabulary::elements::put_location;
use crate::vocabulary::place::{Before, put_start, put_time_from};
use crate::vocabulary::{BodyLocation, Incarnation, LeaseGeneration, Place, Timestamp};

mod kind {
    pub(in crate::bus::effect) const ARRIVED: u8 = 1;
    pub(in crate::bus::effect) const LEASED: u8 = 2;
    pub(in crate::bus::effect) const ENDED: u8 = 3;
    pub(in crate::bus::effect) const SESSION_RELEASING: u8 = 4;
    pub(in crate::bus::effect) const SESSION_FREED: u8 = 5;
    /// The bits of the first byte that are the kind.
    pub(in crate::bus::effect) const MASK: u8 = 0x07;
}

/// The other bits of the first byte.
mod flag {
    /// The entity is that of the effect before.
    pub(in crate::bus::effect) const SAME_ENTITY: u8 = 0x08;
    /// An arrived message expires.
    pub(in crate::bus::effect) const EXPIRES: u8 = 0x10;
    /// An arrived message is scheduled.
    pub(in crate::bus::effect) const SCHEDULED: u8 = 0x20;
    /// An arrived message has a second byte of flags.
    pub(in crate::bus::effect) const RARE: u8 = 0x40;
    /// The bodies of one that has ended are those of the arrival before it, up to a number of changes.
    pub(in crate::bus::effect) const MOVED: u8 = 0x10;
    /// The bits that are the state of a leased message.
    pub(in crate::bus::effect) const STATE: u8 = 0x70;
    pub(in crate::bus::effect) const STATE_SHIFT: u8 = 4;
}

/// The second byte of flags of an arrived message.
mod rare {
    pub(in crate::bus::effect) const SESSION: u8 = 0x01;
    pub(in crate::bus::effect) const ID_HASH: u8 = 0x02;
    pub(in crate::bus::effect) const FIRST_NUMBER: u8 = 0x04;
    /// It was locked before.
    pub(in crate::bus::effect) const LEASED: u8 = 0x08;
    pub(in crate::bus::effect) const CAUSE: u8 = 0x10;
    pub(in crate::bus::effect) const HOPS: u8 = 0x20;
    pub(in crate::bus::effect) const SOURCE: u8 = 0x40;
    pub(in crate::bus::effect) const OVERLAYS: u8 = 0x80;
}

/// The byte that says what the old message counted for.
mod was {
    /// The bits that are its state.
    pub(in crate::bus::effect) const STATE: u8 = 0x07;
    /// Its state would have ended at a time.
    pub(in crate::bus::effect) const UNTIL: u8 = 0x08;
    pub(in crate::bus::effect) const SESSION: u8 = 0x10;
    /// A leased message's state ends at a time; one that has ended had changes to its properties.
    pub(in crate::bus::effect) const LEASE_UNTIL_OR_OVERLAYS: u8 = 0x20;
    /// A leased message has one more change to its properties; one that has ended had a source.
    pub(in crate::bus::effect) const OVERLAY_OR_SOURCE: u8 = 0x40;
    pub(in crate::bus::effect) const ALL: u8 = 0x7f;
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

/// Writes the effect that a message arrived.
pub(crate) fn put_arrived(
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

/// Writes what the old message counted for.
pub(crate) fn put_was(out: &mut Vec<u8>, now: Timestamp, was: &BusWas, flags: u8) {
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

pub(crate) fn put_session(out: &mut Vec<u8>, session: &BusSession) {
    put_varint(out, u64::from(session.number));
    put_str(out, &session.id);
}
