//! What travels beside commands and outcomes: bodies, rejections of the partition, and watches.

use bytes::Bytes;

use super::received::Received;
use crate::bus::Awaited;
use crate::vocabulary::Incarnation;
use crate::vocabulary::codec::{DecodeError, put_bytes, put_str, put_varint};
use crate::vocabulary::elements::incarnation;

/// Why a command has no answer of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// Too much is under way; nothing has changed.
    Busy,
    /// The disk is full; nothing has changed.
    Full,
    /// The partition has stopped: whether the command was carried out is unknown.
    Stopped,
    /// Whether the command was carried out is unknown.
    Unknown,
    /// The partition has another owner; nothing has changed.
    NotOwner,
    /// Messages cannot be read now; nothing has changed.
    ReadFailed,
}

/// What is watched: something to receive in a bus queue or sub-queue. `None`: its changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watched {
    /// The queue or sub-queue.
    pub entity: Incarnation,
    /// What receivers wait for.
    pub awaited: Option<Awaited>,
}

/// What a node says about something that it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// The first receiver there begins to watch. It comes before that one's first look.
    Begins,
    /// A receiver waits there. The next wake-up goes there, also one that has come since the last.
    Waits,
    /// A wake-up found nobody there, or one who went away before it looked: it is for another node.
    PassesOn,
    /// The last receiver there has gone.
    Ends,
}

/// Who is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The receiver that has waited longest.
    One,
    /// Everybody: the queue has changed, or is gone.
    All,
}

pub(super) fn put_unserved(out: &mut Vec<u8>, unserved: Unserved) {
    out.push(match unserved {
        Unserved::Busy => 1,
        Unserved::Full => 2,
        Unserved::Stopped => 3,
        Unserved::Unknown => 4,
        Unserved::NotOwner => 5,
        Unserved::ReadFailed => 6,
    });
}

pub(super) fn unserved(r: &mut Received<'_>) -> Result<Unserved, DecodeError> {
    Ok(match r.u8()? {
        1 => Unserved::Busy,
        2 => Unserved::Full,
        3 => Unserved::Stopped,
        4 => Unserved::Unknown,
        5 => Unserved::NotOwner,
        6 => Unserved::ReadFailed,
        _ => return Err(r.error("reason that is not known")),
    })
}

pub(super) fn put_bodies(out: &mut Vec<u8>, bodies: &[Bytes]) {
    put_varint(out, bodies.len() as u64);
    for body in bodies {
        put_bytes(out, body);
    }
}

pub(super) fn bodies(r: &mut Received<'_>) -> Result<Vec<Bytes>, DecodeError> {
    r.list(Received::body)
}

pub(super) fn put_watched(out: &mut Vec<u8>, watched: &Watched) {
    put_varint(out, watched.entity.as_u64());
    match &watched.awaited {
        None => out.push(1),
        Some(Awaited::Message) => out.push(2),
        Some(Awaited::OfSession(id)) => {
            out.push(3);
            put_str(out, id);
        }
        Some(Awaited::Session) => out.push(4),
    }
}

pub(super) fn watched(r: &mut Received<'_>) -> Result<Watched, DecodeError> {
    let entity = incarnation(r)?;
    let awaited = match r.u8()? {
        1 => None,
        2 => Some(Awaited::Message),
        3 => Some(Awaited::OfSession(r.text()?)),
        4 => Some(Awaited::Session),
        _ => return Err(r.error("thing to wait for that is not known")),
    };
    Ok(Watched { entity, awaited })
}

pub(super) fn put_interest(out: &mut Vec<u8>, interest: Interest) {
    out.push(match interest {
        Interest::Begins => 1,
        Interest::Waits => 2,
        Interest::PassesOn => 3,
        Interest::Ends => 4,
    });
}

pub(super) fn interest(r: &mut Received<'_>) -> Result<Interest, DecodeError> {
    Ok(match r.u8()? {
        1 => Interest::Begins,
        2 => Interest::Waits,
        3 => Interest::PassesOn,
        4 => Interest::Ends,
        _ => return Err(r.error("interest that is not known")),
    })
}

pub(super) fn put_woken(out: &mut Vec<u8>, woken: Woken) {
    out.push(match woken {
        Woken::One => 1,
        Woken::All => 2,
    });
}

pub(super) fn woken(r: &mut Received<'_>) -> Result<Woken, DecodeError> {
    Ok(match r.u8()? {
        1 => Woken::One,
        2 => Woken::All,
        _ => return Err(r.error("wake-up that is not known")),
    })
}
