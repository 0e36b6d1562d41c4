//! The bank in one process: its stores in both databases, and all calls against both services of Kew.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod certain;
mod database;
mod hang;
#[path = "../../../../crates/worker/tests/it/kew.rs"]
mod kew;
mod leases;
mod ledger;
mod limits;
mod panics;
mod patience;
mod progress;
mod readme;
#[path = "../../../../crates/idempotency/tests/it/server.rs"]
#[expect(dead_code, reason = "no test here crashes it or uses TLS")]
mod server;
mod service;
#[path = "../../../../crates/kew/tests/it/skip.rs"]
mod skip;
#[path = "../shared/url.rs"]
mod url;
