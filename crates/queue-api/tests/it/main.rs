//! Raw bytes against the front end, with a real broker in memory behind it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod auth;
mod client;
mod http;
mod messages;
mod metrics;
mod overload;
mod queues;
mod smuggling;
mod versions;
