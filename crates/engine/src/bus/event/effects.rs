//! The bytes of effects on bus queues: as those of storage queues, with what a bus message has besides.

mod copied;
mod decode;

pub(super) use self::copied::left_out_size_bytes;
pub(in crate::bus) use self::decode::next_copy;
pub(super) use self::decode::{arrived, effects, session, what_it_was};
use super::codec::put_cause;
use crate::bus::{BusMessageState, Effect, OwnEffect};
use crate::effect::{Arrival, NewBody, NextCopy, SessionOf, Standing, Was};
use crate::table::Record;
use crate::vocabulary::codec::{if_some, if_that, put_str, put_varint};
use crate::vocabulary::elements::put_location;
use crate::vocabulary::place::{Before, put_place, put_start, put_time_from, same_entity_flag};
use crate::vocabulary::{BodyLocation, Incarnation, LeaseGeneration, Place, Timestamp};

mod kind {
    pub(super) const ARRIVED: u8 = 1;
    pub(super) const LEASED: u8 = 2;
    pub(super) const ENDED: u8 = 3;
    pub(super) const SESSION_RELEASING: u8 = 4;
    pub(super) const SESSION_FREED: u8 = 5;
    /// An arrived message that is as the one before it, in another entity.
    pub(super) const COPIED: u8 = 6;
    /// The second byte says which effect on a topic it is.
    pub(super) const OF_TOPIC: u8 = 7;
    /// The bits of the first byte that are the kind.
    pub(super) const MASK: u8 = 0x07;
}

/// The second byte of an effect on a topic.
mod of_topic {
    pub(super) const PASSED: u8 = 1;
    pub(super) const FANNED_OUT: u8 = 2;
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
    /// A message that took a number of a topic has an id that is remembered.
    pub(super) const ID_HASH: u8 = 0x10;
    /// A copy of a topic's message counts the body.
    pub(super) const LENT: u8 = 0x10;
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
pub(super) fn put_effects(out: &mut Vec<u8>, at: Timestamp, effects: &[Effect]) {
    let mut before = None;
    let mut arrived = None;
    for effect in effects {
        put_effect(out, at, effect, arrived, &mut before);
        arrived = arrived_message(effect);
    }
}

/// A message that arrived. If the next effect ends it elsewhere, it has moved, and has the same bodies.
fn arrived_message(effect: &Effect) -> Option<&Arrival> {
    match effect {
        Effect::Arrived { message, .. } => Some(message),
        Effect::Leased { .. } | Effect::Ended { .. } | Effect::Own(_) => None,
    }
}

fn put_effect(
    out: &mut Vec<u8>,
    now: Timestamp,
    effect: &Effect,
    arrived: Option<&Arrival>,
    before: &mut Before,
) {
    match effect {
        Effect::Arrived { to, message } => {
            match arrived.filter(|it| copied::is_copy(it, message)) {
                Some(earlier) => copied::put(out, now, *to, message, earlier, before),
                None => put_arrived(out, now, *to, message, before),
            }
        }
        Effect::Leased {
            at,
            lease,
            body,
            was,
        } => {
            let overlay = match body.as_deref() {
                Some(NewBody::Change(overlay)) => Some(overlay),
                Some(NewBody::Other { .. }) | None => None,
            };
            let Standing { state, until } = lease.standing;
            let state = state_code(state) << flag::STATE_SHIFT;
            start(out, kind::LEASED | state, *at, before);
            let ends = if_that(until != Timestamp::NEVER, was::LEASE_UNTIL_OR_OVERLAYS);
            let changed = if_that(overlay.is_some(), was::OVERLAY_OR_SOURCE);
            put_was(out, now, was, ends | changed);
            put_varint(out, u64::from(lease.generation.as_u32()));
            put_varint(out, u64::from(lease.deliveries));
            put_time_from(out, now, until.unless_never());
            if let Some(overlay) = overlay {
                put_location(out, *overlay);
            }
        }
        Effect::Ended {
            at,
            was,
            bodies,
            source_length,
        } => {
            let moved = arrived.filter(|it| {
                it.record.body == bodies.sent && it.overlays().starts_with(&bodies.overlays)
            });
            let moved = if_that(moved.is_some(), flag::MOVED);
            start(out, kind::ENDED | moved, *at, before);
            let overlays = !bodies.overlays.is_empty();
            let overlays = if_that(overlays, was::LEASE_UNTIL_OR_OVERLAYS);
            let source = if_that(source_length.is_some(), was::OVERLAY_OR_SOURCE);
            put_was(out, now, was, overlays | source);
            match moved {
                0 => put_bodies(out, bodies.sent, &bodies.overlays),
                _ if overlays > 0 => put_varint(out, bodies.overlays.len() as u64),
                _ => {}
            }
            if let Some(length) = source_length {
                put_varint(out, u64::from(*length));
            }
        }
        Effect::Own(OwnEffect::SessionReleasing { queue, session }) => {
            put_session_effect(out, kind::SESSION_RELEASING, *queue, session, before);
        }
        Effect::Own(OwnEffect::SessionFreed { queue, session }) => {
            put_session_effect(out, kind::SESSION_FREED, *queue, session, before);
        }
        Effect::Own(OwnEffect::Passed { topic, id_hash }) => {
            let hash = if_some(*id_hash, flag::ID_HASH);
            let same = same_entity_flag(*topic, *before, flag::SAME_ENTITY);
            out.extend([kind::OF_TOPIC | hash | same, of_topic::PASSED]);
            put_place(out, *topic, before);
            if let Some(hash) = id_hash {
                out.extend(hash.to_be_bytes());
            }
        }
        Effect::Own(OwnEffect::FannedOut { topic, next, lent }) => {
            let lent = if_that(*lent, flag::LENT);
            let same = same_entity_flag(*topic, *before, flag::SAME_ENTITY);
            out.extend([kind::OF_TOPIC | lent | same, of_topic::FANNED_OUT]);
            put_place(out, *topic, before);
            put_next_copy(out, *next);
        }
    }
}

/// Writes which copy of a topic's message is the next one.
pub(in crate::bus) fn put_next_copy(out: &mut Vec<u8>, next: NextCopy) {
    put_varint(out, next.subscription.as_u64());
    put_varint(out, next.rule);
}

/// Writes the effect that a message arrived.
pub(super) fn put_arrived(
    out: &mut Vec<u8>,
    now: Timestamp,
    to: Place,
    message: &Arrival,
    before: &mut Before,
) {
    let record = &message.record;
    let expires_at = record.expires_at.unless_never();
    let is_scheduled = record.state == BusMessageState::Scheduled;
    let scheduled_at = is_scheduled.then_some(record.due_at);
    let rare = rare_flags(message);
    let flags = if_some(expires_at, flag::EXPIRES)
        | if_some(scheduled_at, flag::SCHEDULED)
        | if_that(rare > 0, flag::RARE);
    start(out, kind::ARRIVED | flags, to, before);
    if rare > 0 {
        out.push(rare);
    }
    put_time_from(out, now, expires_at);
    put_time_from(out, now, scheduled_at);
    put_bodies(out, record.body, message.overlays());
    if let Some(session) = message.session() {
        put_session(out, session);
    }
    if let Some(hash) = message.id_hash() {
        out.extend(hash.to_be_bytes());
    }
    if let Some(number) = message.first_number() {
        put_varint(out, number.as_u64());
    }
    if rare & rare::LEASED != 0 {
        put_varint(out, u64::from(record.generation.as_u32()));
        put_varint(out, u64::from(record.deliveries));
    }
    if let Some(cause) = record.cause {
        put_cause(out, cause);
    }
    if record.hops > 0 {
        out.push(record.hops);
    }
    if let Some(source) = source(message) {
        put_str(out, source);
    }
}

fn rare_flags(message: &Arrival) -> u8 {
    let Record {
        generation,
        deliveries,
        cause,
        hops,
        ..
    } = message.record;
    let is_leased = generation != LeaseGeneration::default() || deliveries > 0;
    if_some(message.session(), rare::SESSION)
        | if_some(message.id_hash(), rare::ID_HASH)
        | if_some(message.first_number(), rare::FIRST_NUMBER)
        | if_that(is_leased, rare::LEASED)
        | if_some(cause, rare::CAUSE)
        | if_that(hops > 0, rare::HOPS)
        | if_some(source(message), rare::SOURCE)
        | if_that(!message.overlays().is_empty(), rare::OVERLAYS)
}

fn source(message: &Arrival) -> Option<&str> {
    message.side()?.source.as_deref()
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
pub(super) fn put_was(out: &mut Vec<u8>, now: Timestamp, was: &Was, flags: u8) {
    let Standing { state, until } = was.standing;
    let until = until.unless_never();
    let own = if_that(until.is_some(), was::UNTIL) | if_that(was.session > 0, was::SESSION);
    out.push(state_code(state) | own | flags);
    put_time_from(out, now, until);
    if was.session > 0 {
        put_varint(out, u64::from(was.session));
    }
}

/// Writes the body that was sent and, if there are any, the changes, as far as they differ from the one before.
fn put_bodies(out: &mut Vec<u8>, sent: BodyLocation, overlays: &[BodyLocation]) {
    put_location(out, sent);
    if overlays.is_empty() {
        return;
    }
    put_varint(out, overlays.len() as u64);
    let mut before = sent.record;
    for overlay in overlays {
        let record = overlay.record.wrapping_sub(before);
        put_location(out, overlay.at_record(record));
        before = overlay.record;
    }
}

pub(super) fn put_session(out: &mut Vec<u8>, session: SessionOf<'_>) {
    put_varint(out, u64::from(session.number));
    put_str(out, session.id);
}

#[cfg(test)]
mod tests;
