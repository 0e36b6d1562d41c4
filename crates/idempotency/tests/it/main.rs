//! The guard and the outbox, over every database, with crashes at every await.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bus;
mod crash;
mod database;
mod examples;
mod guard;
mod kill;
mod outbox;
mod postgres;
mod server;
mod skip;
mod sqlite;
mod stalled;
mod steps;
mod trouble;
