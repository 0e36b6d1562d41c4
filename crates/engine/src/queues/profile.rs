//! What is different between the two services in how messages are kept.

use std::fmt::Debug;

use super::Backlog;
use crate::effect::{Bodies, BusSession, Effect, Lease, NewBody, Own, SessionOf, Standing, Was};
use crate::table::{Entry, Live, MessageState, Record, Side};
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::{BodyLocation, BodyMove, Incarnation, Place, SequenceNumber, Timestamp};

/// What a service says of messages, and what it keeps beside a queue's table and its order by time.
///
/// What is given here is true of a service that keeps nothing else.
pub(crate) trait Profile: Debug + Eq + Sized {
    /// The effects that only this service has.
    type Own: Own;

    /// What only this service has that has a body besides messages.
    type OwnHolder: Own + PartialEq;

    /// The kind of the parts of a snapshot that have messages.
    const MESSAGES_PART: u8;

    /// Whether an entity counts its messages by their states: then one can be set aside only if its state is known.
    const COUNTS_STATES: bool;

    /// Makes an effect that only this service has part of a backlog. One that does not fit changes nothing.
    fn apply(backlog: &mut Backlog<Self>, own: &Self::Own, live: &mut Live);

    /// Whether such an effect says what is true of what it is about to change.
    fn is_exact(backlog: &Backlog<Self>, own: &Self::Own) -> bool;

    /// Such an effect, which a repair has read, as it is true here.
    fn fitting(_: &Backlog<Self>, own: Self::Own) -> Vec<Effect<Self::Own>> {
        vec![Effect::Own(own)]
    }

    /// What has the body of a change to that message's properties. `None` if no message is changed so.
    fn holder_of_change(_: Place) -> Option<Self::OwnHolder> {
        None
    }

    /// Whether such a holder is as it says, and has that body.
    fn is_holder(backlog: &Backlog<Self>, own: &Self::OwnHolder, body: BodyLocation) -> bool;

    /// Moves its body, if it is in the old place. Returns whether it is.
    fn move_body(
        backlog: &mut Backlog<Self>,
        own: &Self::OwnHolder,
        body: BodyMove,
        live: &mut Live,
    ) -> bool;

    /// Gives it a body that it has not, in a repair.
    fn put_body(
        backlog: &mut Backlog<Self>,
        own: &Self::OwnHolder,
        body: BodyLocation,
        live: &mut Live,
    );

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

    /// Notes a message that is new and whose record is lost. It may have what few messages have, also a session.
    fn came_lost(&mut self) {}

    /// Notes that it is gone, from its session too.
    fn left(&mut self, _number: SequenceNumber, _session: u32, _more: (usize, Option<u32>)) {}

    /// Notes that so many messages are gone, each without a session, a source, or changes to its properties.
    fn left_plain(&mut self, _count: u64) {}

    /// Forgets messages whose records are lost, in order: nothing says which sessions they have, or what else they had.
    /// May take a step for each session.
    fn set_aside(&mut self, _numbers: &[SequenceNumber]) {}

    /// Notes one more change to a message's properties.
    fn changed(&mut self) {}

    /// Puts a message into the orders of its state, in place of those that it was in, and counts it.
    fn enter(&mut self, _number: SequenceNumber, _state: MessageState, _session: u32) {}

    /// Counts a message of that state no longer. It enters the orders of another one, or has left.
    fn uncount(&mut self, _state: MessageState) {}

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

    /// Adds what another reading of the same history has found.
    fn absorb(&mut self, _other: &Self, _live: &mut Live) {}

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
    fn leased(
        record: &Record,
        at: Place,
        lease: Lease,
        body: Option<Box<NewBody>>,
    ) -> Effect<Self::Own> {
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
    fn ended(entity: Incarnation, entry: &Entry<'_>) -> Effect<Self::Own> {
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
