//! What connections hold, and the bounds on all of it together.
//!
//! `account` adds up what one connection holds, `holdings` tells it to all others, and `answers` is the room for
//! answers with messages in them.

pub(crate) mod account;
pub(crate) mod answers;
pub(crate) mod holdings;
