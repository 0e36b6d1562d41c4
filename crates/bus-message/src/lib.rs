//! An encoded message of AMQP as the rules of subscriptions see it.
//!
//! A [`View`] reads the sections before the body once, and gives `kew-filter` the properties that a rule asks for. Texts
//! and bytes are those of the message: nothing is copied, except an id that is no text and that a rule asks for. The body
//! is not looked at. What the bytes do not say, such as a sequence number, comes from the caller ([`Known`]).
//!
//! Changes to a stored message are stored beside it, as overlays: of settlements ([`overlay_of`]) and of actions
//! ([`AmqpFormat`]). A view sees them, and [`Merged`] is what receivers get.
//!
//! It is pure: it knows no queue, no topic and no clock, and the same bytes give the same answers. A message that it
//! refuses as [`Malformed`] is one that `kew-amqp` refuses too.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
mod annotation;
mod format;
#[cfg(test)]
mod layers;
mod made;
mod merged;
mod overlay;
mod scalar;
mod sections;
mod view;

pub use annotation::SCHEDULED_ENQUEUE_TIME;
pub use format::{AmqpFormat, DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON};
pub use kew_engine::bus::Known;
pub use made::MESSAGE_ID_LENGTH_MAX;
pub use merged::Merged;
pub use overlay::{overlaid, overlay_of};
pub use scalar::{amqp_of, expires_at_ms, time_to_live_ms, value_of};
pub use sections::Malformed;
pub use view::View;
