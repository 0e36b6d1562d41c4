//! What goes to a partition that another process runs, and what comes back, as bytes.
//!
//! A frame has a version, a kind, the number of its command, and the value. Each variant of an enum has a tag that is
//! written out, and each match is exhaustive: a new variant does not compile until it has a tag. A tag is never used
//! for anything else, so `tests/golden/wire-1.txt` only grows. What travels is what the types say; nothing here
//! decides whether the other side may ask for it.
//!
//! Decoding never panics, and takes no more memory than a multiple of what it was given. Bodies are slices of that.
//!
//! Nothing in the product calls this yet; tests of the front ends run over it (`kew-loopback`).

mod around;
mod bus_answer;
mod bus_command;
mod bus_refusal;
mod command;
mod outcome;
mod received;
mod storage;

use bytes::Bytes;

pub use self::around::{Interest, Unserved, Watched, Woken};
use self::received::Received;
use crate::command::Command;
use crate::outcome::{Outcome, Refusal};
use crate::vocabulary::DecodeError;
use crate::vocabulary::codec::put_varint;

/// The version of these bytes. Both ends of a connection use the lower one of theirs.
pub const VERSION: u8 = 1;

/// What travels in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number of the command on its connection. Its answer has the same. Of a wake-up, how many there were for what is
    /// watched; of an interest, how many of them have come. Otherwise 0.
    pub number: u64,
    /// What it carries.
    pub value: Value,
}

/// What a frame carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Something to carry out.
    Command(Command),
    /// The answer to a command that was carried out.
    Outcome(Outcome),
    /// Why a command was not carried out.
    Refusal(Refusal),
    /// The answer to a command that was carried out, with the bodies of its messages, in their order.
    Answer(Outcome, Vec<Bytes>),
    /// Why a command has no answer of the engine.
    Unserved(Unserved),
    /// Nobody waits for the answer any more. If the command would hand messages out and remove them, it is not carried out.
    /// The answer comes all the same.
    GiveUp,
    /// A node is interested in something, or is not any more.
    Interest(Watched, Interest),
    /// Receivers are to look.
    Woken(Watched, Woken),
    /// Something to carry out, if the partition is owned with the epoch of this number. Otherwise it has another owner.
    Within(u64, Command),
    /// The number of the epoch with which the partition is owned from now on; 0 if it is not.
    Owned(u64),
}

impl Frame {
    /// Appends the bytes of the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.push(match &self.value {
            Value::Command(_) => 1,
            Value::Outcome(_) => 2,
            Value::Refusal(_) => 3,
            Value::Answer(..) => 4,
            Value::Unserved(_) => 5,
            Value::GiveUp => 6,
            Value::Interest(..) => 7,
            Value::Woken(..) => 8,
            Value::Within(..) => 9,
            Value::Owned(_) => 10,
        });
        put_varint(out, self.number);
        match &self.value {
            Value::Command(command) => command::put_command(out, command),
            Value::Outcome(outcome) => outcome::put_outcome(out, outcome),
            Value::Refusal(refusal) => outcome::put_refusal(out, refusal),
            Value::Answer(outcome, bodies) => {
                outcome::put_outcome(out, outcome);
                around::put_bodies(out, bodies);
            }
            Value::Unserved(unserved) => around::put_unserved(out, *unserved),
            Value::GiveUp => {}
            Value::Interest(watched, interest) => {
                around::put_watched(out, watched);
                around::put_interest(out, *interest);
            }
            Value::Woken(watched, woken) => {
                around::put_watched(out, watched);
                around::put_woken(out, *woken);
            }
            Value::Within(epoch, command) => {
                put_varint(out, *epoch);
                command::put_command(out, command);
            }
            Value::Owned(epoch) => put_varint(out, *epoch),
        }
    }

    /// Reads a frame, which must be all of the bytes. Bodies are slices of them.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Received::new(bytes);
        if r.u8()? != VERSION {
            return Err(r.error("frame of a version that is not known"));
        }
        let kind = r.u8()?;
        let number = r.varint()?;
        let value = match kind {
            1 => Value::Command(command::command(&mut r)?),
            2 => Value::Outcome(outcome::outcome(&mut r)?),
            3 => Value::Refusal(outcome::refusal(&mut r)?),
            4 => Value::Answer(outcome::outcome(&mut r)?, around::bodies(&mut r)?),
            5 => Value::Unserved(around::unserved(&mut r)?),
            6 => Value::GiveUp,
            7 => Value::Interest(around::watched(&mut r)?, around::interest(&mut r)?),
            8 => Value::Woken(around::watched(&mut r)?, around::woken(&mut r)?),
            9 => Value::Within(r.varint()?, command::command(&mut r)?),
            10 => Value::Owned(r.varint()?),
            _ => return Err(r.error("kind of a frame that is not known")),
        };
        r.finish()?;
        Ok(Self { number, value })
    }
}

#[cfg(test)]
mod tests;
