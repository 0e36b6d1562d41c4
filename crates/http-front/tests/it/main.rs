//! Raw bytes sent to the front door, with a service behind it that answers everything.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod connections;
mod forms;
mod plain;
mod smuggling;
