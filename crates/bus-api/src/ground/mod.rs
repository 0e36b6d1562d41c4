//! What every other part may use: names, bounds, addresses, what a refusal says, and how the broker is asked.
//!
//! Nothing here knows who may do what, how messages look, or what a connection is.

pub(crate) mod address;
pub(crate) mod clock;
pub(crate) mod constants;
pub(crate) mod limits;
pub(crate) mod lookup;
pub(crate) mod origin;
pub(crate) mod refusal;
pub(crate) mod submit;
pub(crate) mod turned_away;
