//! What clients may see, checked over the history that they did see.
//!
//! Operations are looked at in the order in which they were asked, which is the order in which a
//! partition decides them. One whose outcome a client never learned may have happened or not; the
//! checker then knows less, never something false.
//!
//! The invariants, by the names that violations carry: no loss, no phantom, no change, no
//! resurrection, lease exclusivity, stale receipts refused, delivery count, unique ids, time,
//! counts conserved.

mod message;
mod queue;

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use kew_broker::Rejection;
use kew_engine::{Command, Outcome, Timestamp};
use queue::Queue;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub promise: &'static str,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.seen)
    }
}

/// Breaks a promise, with what was seen.
macro_rules! violated {
    ($promise:literal, $($seen:tt)*) => {
        Err($crate::checker::Violation { promise: $promise, seen: format!($($seen)*) })
    };
}
pub(crate) use violated;

/// What became of an operation, as its client sees it.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// It was answered.
    Answered(Result<(Outcome, Vec<Bytes>), Rejection>),
    /// It may have happened or not: there was a crash before the answer.
    Unknown,
}

/// An operation of the history.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) queue: usize,
    pub(crate) command: Command,
    /// The partition's time before which it cannot have been decided.
    pub(crate) from: Timestamp,
    /// The partition's time after which it cannot have been decided.
    pub(crate) until: Timestamp,
    pub(crate) seen: Seen,
}

/// Follows the history.
#[derive(Debug)]
pub(crate) struct Checker {
    queues: BTreeMap<usize, Queue>,
    /// Acknowledged messages that a client saw deleted or saw to the end of their life.
    pub(crate) operations: u64,
    pub(crate) unknown: u64,
}

impl Checker {
    pub(crate) fn new() -> Self {
        Self {
            queues: BTreeMap::new(),
            operations: 0,
            unknown: 0,
        }
    }

    /// Looks at the next operation of the history.
    pub(crate) fn check(&mut self, operation: &Operation) -> Result<(), Violation> {
        self.operations += 1;
        let queue = self.queues.entry(operation.queue).or_default();
        match &operation.seen {
            Seen::Unknown => {
                self.unknown += 1;
                queue.unknown(operation);
                Ok(())
            }
            Seen::Answered(Ok((outcome, bodies))) => queue.succeeded(operation, outcome, bodies),
            Seen::Answered(Err(Rejection::Refused(refusal))) => queue.refused(operation, refusal),
            // Nothing has happened.
            Seen::Answered(Err(Rejection::Busy)) => Ok(()),
            Seen::Answered(Err(Rejection::Stopped)) => {
                self.unknown += 1;
                queue.unknown(operation);
                Ok(())
            }
        }
    }

    /// At the end, when everything was received and deleted: what was acknowledged must have shown.
    pub(crate) fn check_drained(&self, now: Timestamp) -> Result<(), Violation> {
        self.queues
            .values()
            .try_for_each(|queue| queue.check_drained(now))
    }
}
