//! What is different between the two services in how messages are kept.

use std::fmt::Debug;

use crate::effect::{Bodies, BusSession, Effect, Lease, NewBody, SessionOf, Standing, Was};
use crate::table::{Entry, Live, MessageState, Record, Side};
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::{BodyLocation, BodyMove, Incarnation, Place, SequenceNumber, Timestamp};

/// What a service says of messages, and what it keeps beside a queue's table and its order by time.
///
/// What is given here is true of a service that keeps nothing else.
pub(crate) trait Profile: Debug + Eq + Sized {
    /// Whether whole runs can end by their counts, because nothing is kept of each message. If not, such an effect
    /// changes nothing.
    const ENDS_RUNS: bool;

    /// Whether a message can take a number of an entity that does not keep it: topics are of this service.
    const PASSES_ON: bool = false;

    /// The kind of the parts of a snapshot that have messages.
    const MESSAGES_PART: u8;

    /// Writes a message into such a part, behind its number. The session may be gone, and then it is 0.
    fn put_message(out: &mut Vec<u8>, entry: &Entry<'_>, session: u32);

    /// Reads it.
    fn message(r: &mut Reader<'_>, number: SequenceNumber) -> Result<(Record, Side), DecodeError>;

    /// A message's state, and until when it lasts.
    fn standing(record: &Record) -> Standing;

    /// When a message expires if nothing else happens first.
    fn expiry(record: &Record) -> Timestamp;

    /// Whether a message of that state is in the table's order.
    fn is_in_order(&self, state: MessageState, _session: u32) -> bool {
        state == MessageState::Ready
    }

    /// Whether a session's number and id are those that it has, or would get.
    fn is_named(&self, session: Option<SessionOf<'_>>) -> bool {
        session.is_none()
    }

    /// The number of the session of a message that arrives. A new session begins if there was none of that id.
    fn session_of(&mut self, _session: Option<SessionOf<'_>>) -> u32 {
        0
    }

    /// The number here of a session of another queue.
    fn session_from(&mut self, _other: &Self, _session: u32) -> u32 {
        0
    }

    /// Notes a message that is new, with the number of changes to its properties and the length of its source's
    /// name.
    fn came(&mut self, _number: SequenceNumber, _session: u32, _more: (usize, Option<u32>)) {}

    /// Notes so many messages that are new, from this number on: each without a session, a source, or changes to its
    /// properties.
    fn came_plain(&mut self, _first: SequenceNumber, _count: u64) {}

    /// Notes that it is gone, from its session too.
    fn left(&mut self, _number: SequenceNumber, _session: u32, _more: (usize, Option<u32>)) {}

    /// Notes that so many messages are gone, each without a session, a source, or changes to its properties.
    fn left_plain(&mut self, _count: u64) {}

    /// Notes one more change to a message's properties.
    fn changed(&mut self) {}

    /// Puts a message into the orders of its state, in place of those that it was in, and counts it.
    fn enter(&mut self, _number: SequenceNumber, _state: MessageState, _session: u32) {}

    /// Counts a message of that state no longer. It enters the orders of another one, or has left.
    fn uncount(&mut self, _state: MessageState) {}

    /// Ends a session's lock, before its messages are released.
    fn begin_release(&mut self, _session: &str) {}

    /// Frees a session.
    fn free(&mut self, _session: &str) {}

    /// Whether there is a session of that number.
    fn has_session(&self, _number: u32) -> bool {
        false
    }

    /// The number here of the session that a message of a damaged snapshot names. If the session is lost, one with a
    /// made-up id takes its place, so that its messages can be received.
    fn session_left(&mut self, _number: u32) -> u32 {
        0
    }

    /// The session of that number, if it is there.
    fn session_named(&self, _number: u32) -> Option<BusSession> {
        None
    }

    /// The number of the session of that id, its state, and when that was set. `None` if it is not there.
    fn state_of(&self, _session: &str) -> Option<(u32, Option<BodyLocation>, Timestamp)> {
        None
    }

    /// Whether messages of a session are locked. `None` if there is no such session.
    fn has_locked(&self, _session: &str) -> Option<bool> {
        None
    }

    /// Adds what another reading of the same history has found.
    fn absorb(&mut self, _other: &Self, _live: &mut Live) {}

    /// Moves the body of a session's state, if it is in the old place. Returns whether it is.
    fn move_state(&mut self, _session: &str, _body: BodyMove, _live: &mut Live) -> bool {
        false
    }

    /// Gives a session, which may be new, a state.
    fn put_state(
        &mut self,
        _session: &BusSession,
        _state: BodyLocation,
        _set_at: Timestamp,
        _live: &mut Live,
    ) {
    }

    /// Counts bodies besides those of messages in a partition.
    fn count_live(&self, _live: &mut Live) {}

    /// Counts them no longer, because the queue goes as a whole.
    fn uncount_live(&self, _live: &mut Live) {}

    /// How many things were copied since the last call because a snapshot had them.
    fn take_copied(&mut self) -> u64 {
        0
    }

    /// What a message counts for in the orders of its queue.
    fn was(record: &Record) -> Was {
        Was {
            standing: Self::standing(record),
            session: record.session,
        }
    }

    /// The effect that gives a message a lease, and a body if there is one.
    fn leased(record: &Record, at: Place, lease: Lease, body: Option<Box<NewBody>>) -> Effect {
        let mut body = body;
        if let Some(NewBody::Other { was, .. }) = body.as_deref_mut() {
            *was = record.body;
        }
        Effect::Leased {
            at,
            lease,
            body,
            was: Self::was(record),
        }
    }

    /// The effect that ends a message.
    fn ended(entity: Incarnation, entry: &Entry<'_>) -> Effect {
        Effect::Ended {
            at: Place {
                entity,
                number: entry.number,
            },
            was: Self::was(entry.record),
            bodies: Bodies {
                sent: entry.record.body,
                overlays: entry.overlays().to_vec(),
            },
            source_length: entry.source_length(),
        }
    }
}
