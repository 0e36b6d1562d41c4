//! An encoded message of AMQP as the rules of subscriptions see it.
//!
//! A [`View`] reads the sections before the body once, and gives `kew-filter` the properties that a rule asks for. Texts
//! and bytes are those of the message: nothing is copied, except an id that is no text and that a rule asks for. The body
//! is not looked at. What the bytes do not say, such as a sequence number, comes from the caller ([`Known`]).
//!
//! It is pure: it knows no queue, no topic and no clock, and the same bytes give the same answers. A message that it
//! refuses as [`Malformed`] is one that `kew-amqp` refuses too.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#[cfg(test)]
mod layers;
mod scalar;
mod sections;
mod view;

pub use scalar::value_of;
pub use sections::Malformed;
pub use view::{Known, View, time_to_live_ms};
