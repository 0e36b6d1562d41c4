//! The counters and logs of the front end, and the metrics made of them.
//!
//! Labels come from sets that clients cannot extend: operations, outcomes, and known conditions.
//! Counting for a frame takes a few relaxed atomic additions. The resources of a connection are
//! reported once a turn, by its `Holdings`.

mod codes;
mod families;
mod instruments;
mod labels;
mod observer;

pub(crate) use labels::{Answered, HELD, Held, Lock, Offered, Overdue, Scope, Sent, Settled};
pub(crate) use observer::Observer;
