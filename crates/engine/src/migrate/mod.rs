//! Events of earlier versions, and what they are in this one.
//!
//! Earlier versions logged what happened to a message and left it to `apply` to look up the rest. Here each such
//! event is turned into one of this version by looking at the state so far, in which all messages are. Nothing
//! else knows the old forms. They stay readable until 1.0, and their kinds are never used again.

mod storage;

use self::storage::OldFact;
use crate::codec::{DecodeError, Reader};
use crate::event::codec::head;
use crate::{Event, State};

impl State {
    /// Reads the event after all those that have made this state, which any version up to this one wrote.
    pub fn read_event(&self, bytes: &[u8]) -> Result<Event, DecodeError> {
        if !bytes.first().is_some_and(|kind| OldFact::is_kind(*kind)) {
            return Event::decode(bytes);
        }
        let mut r = Reader::new(bytes);
        let (kind, at) = head(&mut r)?;
        let fact = OldFact::decode(kind, &mut r)?;
        r.finish()?;
        let fact = fact.upgrade(at, self);
        Ok(Event { at, fact })
    }
}

#[cfg(test)]
mod tests;
