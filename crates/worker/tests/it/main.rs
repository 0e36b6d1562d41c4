//! Listeners against a service in memory with paused time, and against Kew's front ends.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batches;
mod documented;
mod failures;
mod fake;
mod fake_sessions;
mod fake_source;
mod fake_store;
mod idle;
mod kew;
mod leases;
mod listener;
mod opentelemetry;
mod packages;
mod panicking;
#[path = "../../../queue-api/tests/it/panics.rs"]
mod panics;
#[expect(dead_code, reason = "tests of the client need more of it")]
#[path = "../../../client/tests/it/peer.rs"]
mod peer;
mod push_topics;
mod pushed;
mod refused;
mod returns;
mod scenarios;
mod services;
mod sessions;
mod sharding;
mod simulation;
mod slow;
mod stopping;
mod suite;
mod topics;
mod traces;
