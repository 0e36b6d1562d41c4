//! Events of earlier versions, and what they are in this one.
//!
//! Earlier versions logged what happened to a message and left it to `apply` to look up the rest. Here each such
//! event is turned into one of this version by looking at the state so far, in which all messages are. Nothing
//! else knows the old forms. They stay readable until 1.0, and their kinds are never used again.

mod bus;
mod storage;

use crate::event::codec::head;
use crate::event::{Event, Fact};
use crate::state::State;
use crate::table::RunLength;
use crate::vocabulary::Timestamp;
use crate::vocabulary::codec::{DecodeError, Reader};

impl Event {
    /// Whether these bytes are an event of an earlier version: what it means depends on the state before it, and only
    /// [`State::read_event`] can read it. Others can be decoded ahead of the state.
    pub fn needs_state(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|kind| OldFact::is_kind(*kind))
    }
}

impl State {
    /// Reads the event after all those that have made this state, which any version up to this one wrote.
    pub fn read_event(&self, bytes: &[u8]) -> Result<Event, DecodeError> {
        if !Event::needs_state(bytes) {
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

/// The kind of the event that initialized a partition, without the length of its runs.
const PARTITION_INITIALIZED: u8 = 1;

/// What an event of an earlier version says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OldFact {
    Initialized { secret: [u8; 16] },
    Storage(storage::OldFact),
    Bus(bus::OldFact),
}

impl OldFact {
    /// Whether an event of this kind is an old one.
    fn is_kind(kind: u8) -> bool {
        kind == PARTITION_INITIALIZED
            || storage::OldFact::is_kind(kind)
            || bus::OldFact::is_kind(kind)
    }

    /// Reads the rest of an event.
    fn decode(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if kind == PARTITION_INITIALIZED {
            let secret = r.array()?;
            Ok(Self::Initialized { secret })
        } else if bus::OldFact::is_kind(kind) {
            bus::OldFact::decode(kind, r).map(Self::Bus)
        } else {
            storage::OldFact::decode(kind, r).map(Self::Storage)
        }
    }

    fn upgrade(self, at: Timestamp, state: &State) -> Fact {
        match self {
            Self::Initialized { secret } => Fact::PartitionInitialized {
                secret,
                run_length: RunLength::UNTOLD,
            },
            Self::Storage(fact) => fact.upgrade(at, state),
            Self::Bus(fact) => fact.upgrade(at, state),
        }
    }
}

#[cfg(test)]
mod tests;
