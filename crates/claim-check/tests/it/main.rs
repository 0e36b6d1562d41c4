//! Data that is checked in, out, and swept, with stores that fail, stand still and forget.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "azure")]
mod clouds;
mod damage;
mod examples;
#[expect(dead_code, reason = "the tests of kew-worker use the rest of it")]
#[path = "../../../worker/tests/it/fake.rs"]
mod fake;
#[expect(dead_code, reason = "the tests of kew-worker use the rest of it")]
#[path = "../../../worker/tests/it/fake_source.rs"]
mod fake_source;
#[expect(dead_code, reason = "the tests of kew-worker use the rest of it")]
#[path = "../../../worker/tests/it/kew.rs"]
mod kew;
mod life;
mod listener;
#[path = "../../../queue-api/tests/it/panics.rs"]
mod panics;
mod round_trips;
mod services;
mod store;
mod sweep;
mod sweep_cost;
mod trouble;
