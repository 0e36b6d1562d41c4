//! Code that every other part may use: names, limits, addresses, texts of refusals, and calls of
//! the broker.
//!
//! Nothing here knows rights, messages or connections.

pub(crate) mod address;
pub(crate) mod clock;
pub(crate) mod constants;
pub(crate) mod limits;
pub(crate) mod lookup;
pub(crate) mod origin;
pub(crate) mod refusal;
pub(crate) mod submit;
pub(crate) mod turned_away;
