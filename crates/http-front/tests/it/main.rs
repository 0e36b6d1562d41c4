//! Raw bytes against the front door, with a service behind it that answers anything.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod connections;
mod forms;
mod plain;
mod smuggling;
