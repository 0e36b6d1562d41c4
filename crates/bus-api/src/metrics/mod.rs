//! What the front end counts and logs, and the metrics made of it.
//!
//! Labels come from sets that clients cannot widen: operations, outcomes, and the conditions that are
//! answered here. What is counted on the way of a frame is a few relaxed atomic additions. What a
//! connection holds is taken over once a turn, by its `Holdings`.

mod codes;
mod families;
mod instruments;
mod labels;
mod observer;

pub(crate) use labels::{Answered, HELD, Held, Lock, Offered, Overdue, Scope, Sent, Settled};
pub(crate) use observer::Observer;
