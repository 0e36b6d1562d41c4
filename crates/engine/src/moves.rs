//! Bodies that move to the log's end, so that a part of the log with few of them can be removed.
//!
//! The partition finds bodies in a range of positions ([`State::bodies_in`](crate::State::bodies_in)), reads them, and
//! asks with [`Command::MoveBodies`](crate::Command) for those that are still in their place. The events of the
//! profiles say where each was and is.
//!
//! A body that several messages have is stored once. The first one that moves counts it from then on, and the others
//! borrow it there. They are far apart, so the partition remembers the first one ([`MovedBodies`]) and names it instead of
//! bytes. Whether that message still has the body is checked when the move is decided: so a place that is named has a
//! holder, and its segment stays, here and in a replay.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::catalogue::Description;
use crate::catalogue::description::{
    BODY_OVERHEAD_BYTES, Class, EVENT_SIZE_BYTES, Touches, Writes,
};
use crate::vocabulary::{BodyLocation, Hold, Incarnation, Place};

/// What has a body.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A message of either service: its body, or a change to its properties.
    Message(Place),
    /// A session, which has a state.
    Session {
        /// The bus queue.
        queue: Incarnation,
        /// The session's id.
        session: Box<str>,
    },
}

/// A body that is to move, if it is still in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyToMove {
    /// What has it.
    pub holder: Holder,
    /// Where it is.
    pub from: BodyLocation,
    /// Where its bytes are.
    pub source: Source,
    /// The most bytes that its move takes in an event, from [`FoundBody`](crate::FoundBody).
    pub event_size_bytes: u64,
}

/// Where the bytes of a body that is to move are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Here, as they were read from the old place. If several messages of a command have the same body, it is stored once.
    Bytes(Bytes),
    /// In the log: another message had the same body, and has moved with it.
    SameAs(MovedBody),
}

/// A message that has moved with a body that others have, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedBody {
    /// The message.
    pub holder: Place,
    /// Where it has the body.
    pub at: BodyLocation,
}

/// Bodies of several messages that have moved with one of them, by their old places.
///
/// Copies of a body are found far apart. A move of each by itself would store the body as often as it has copies.
#[derive(Debug, Default)]
pub struct MovedBodies(BTreeMap<BodyLocation, MovedBody>);

impl MovedBodies {
    /// The most bodies: they take about 3 MB.
    pub const COUNT_MAX: usize = 65_536;

    /// Where a body has moved, if it has, and if it is not the only one of its message.
    pub fn get(&self, from: BodyLocation) -> Option<MovedBody> {
        self.0.get(&from.with(Hold::Alone)).copied()
    }

    /// Notes the first message that has moved with a body.
    pub fn note(&mut self, from: BodyLocation, moved: MovedBody) {
        self.0.insert(from.with(Hold::Alone), moved);
    }

    /// Forgets where a body has moved, because that message does not have it any more.
    pub fn forget(&mut self, from: BodyLocation) {
        self.0.remove(&from.with(Hold::Alone));
    }

    /// Whether there is room for so many more.
    pub(crate) fn has_room_for(&self, count: usize) -> bool {
        self.0.len() + count <= Self::COUNT_MAX
    }
}

/// The most bytes of a batch that moving a body of this length takes.
pub(crate) fn moved_size_bytes(event_size_bytes: u64, length: u64) -> u64 {
    event_size_bytes + BODY_OVERHEAD_BYTES + length
}

/// The most bytes of the two events around the moves.
pub(crate) const EVENTS_SIZE_BYTES: u64 = 2 * EVENT_SIZE_BYTES;

/// Describes the command that moves these bodies. One that several messages have is stored once.
pub(crate) fn describe<R>(bodies: &[BodyToMove]) -> Description<'_, R> {
    let mut stored = BTreeSet::new();
    let (mut size_bytes, mut body_size_bytes) = (EVENTS_SIZE_BYTES, 0);
    for body in bodies {
        let length = match &body.source {
            Source::Bytes(bytes) => Some(bytes.len() as u64),
            Source::SameAs(_) => None,
        };
        let is_alone = body.from.hold() == Hold::Alone;
        match length {
            Some(length) if is_alone || stored.insert(body.from.with(Hold::Alone)) => {
                size_bytes += moved_size_bytes(body.event_size_bytes, length);
                body_size_bytes += length;
            }
            Some(_) | None => size_bytes += body.event_size_bytes,
        }
    }
    Description::new(Class::Maintain, Touches::Bodies, Writes::AtMost(size_bytes))
        .with_bodies(body_size_bytes)
        .looking_at(bodies.len() as u64)
}
