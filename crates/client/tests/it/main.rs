//! The client against Kew in memory, and against a service that does what a test says.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod admin_answers;
mod cancel;
mod limits;
mod messages;
#[path = "../../../queue-api/tests/it/panics.rs"]
mod panics;
mod peer;
mod pipelining;
mod queue;
mod queue_answers;
mod recorded;
mod recovery;
mod rules;
mod script;
mod server;
mod sessions;
mod settle;
mod tokens;
mod tools;
mod topic_answers;
mod topics;
mod transactions;
mod transports;
mod unreadable;
