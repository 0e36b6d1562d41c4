//! Events of earlier versions, and what they are in this one.
//!
//! Earlier versions logged what happened to a message and left it to `apply` to look up the rest. Here each such
//! event is turned into one of this version by looking at the state so far, in which all messages are. Nothing
//! else knows the old forms. They stay readable until 1.0, and their kinds are never used again.

mod storage;

use self::storage::OldFact;
use crate::codec::{DecodeError, Reader};
use crate::event::codec::head;
use crate::{Event, State, Timestamp};

/// An event as a log has it: of this version, or of an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent(Logged);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Logged {
    Current(Event),
    Old { at: Timestamp, fact: OldFact },
}

impl LoggedEvent {
    /// Reads an event that any version up to this one wrote.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if !bytes.first().is_some_and(|kind| OldFact::is_kind(*kind)) {
            return Event::decode(bytes).map(Logged::Current).map(Self);
        }
        let mut r = Reader::new(bytes);
        let (kind, at) = head(&mut r)?;
        let fact = OldFact::decode(kind, &mut r)?;
        r.finish()?;
        Ok(Self(Logged::Old { at, fact }))
    }

    /// The event in the form of this version, for the state that all events before it have made.
    #[inline]
    pub fn upgrade(self, state: &State) -> Event {
        match self.0 {
            Logged::Current(event) => event,
            Logged::Old { at, fact } => Event {
                at,
                fact: fact.upgrade(at, state),
            },
        }
    }
}

#[cfg(test)]
mod tests;
