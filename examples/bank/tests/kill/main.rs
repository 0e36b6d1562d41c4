//! The bank as separate programs, which are killed at random under load.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aside;
mod demo;
mod fleet;
mod kills;
mod readme;
#[path = "../../../../crates/idempotency/tests/it/server.rs"]
#[expect(dead_code, reason = "no test here uses TLS")]
mod server;
#[path = "../../../../crates/kew/tests/it/skip.rs"]
mod skip;
#[path = "../shared/url.rs"]
mod url;
