//! Bodies that move to the log's end, so that a part of the log with few of them can be removed.
//!
//! The partition finds bodies in a range of positions ([`State::bodies_in`](crate::State::bodies_in)), reads them, and
//! asks with [`Command::MoveBodies`](crate::Command) for those that are still in their place. The events of the
//! profiles say where each was and is.

use bytes::Bytes;

use crate::catalogue::Description;
use crate::catalogue::description::{
    BODY_OVERHEAD_BYTES, Class, EVENT_SIZE_BYTES, Touches, Writes,
};
use crate::vocabulary::{BodyLocation, Incarnation, Place};

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
    /// Its bytes, as they were read from there.
    pub body: Bytes,
    /// The most bytes that its move takes in an event, from [`FoundBody`](crate::FoundBody).
    pub event_size_bytes: u64,
}

/// The most bytes of a batch that moving a body of this length takes.
pub(crate) fn moved_size_bytes(event_size_bytes: u64, length: u64) -> u64 {
    event_size_bytes + BODY_OVERHEAD_BYTES + length
}

/// The most bytes of the two events around the moves.
pub(crate) const EVENTS_SIZE_BYTES: u64 = 2 * EVENT_SIZE_BYTES;

/// Describes the command that moves these bodies.
pub(crate) fn describe<R>(bodies: &[BodyToMove]) -> Description<'_, R> {
    let moved = bodies.iter();
    let moved = moved.map(|it| moved_size_bytes(it.event_size_bytes, it.body.len() as u64));
    let writes = Writes::AtMost(EVENTS_SIZE_BYTES + moved.sum::<u64>());
    let sizes = bodies.iter().map(|it| it.body.len() as u64);
    Description::new(Class::Maintain, Touches::Bodies, writes)
        .with_bodies(sizes.sum())
        .looking_at(bodies.len() as u64)
}
