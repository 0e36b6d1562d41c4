//! The memory of connections, and the limits for all of it together.
//!
//! `account` adds up the memory of one connection, `holdings` adds up all connections, and
//! `answers` is the room for answers with messages.

pub(crate) mod account;
pub(crate) mod answers;
pub(crate) mod holdings;
