//! The agent on its own: its file, what it sees of Kew in memory, its loop in paused time, and real processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod announced;
mod command;
mod config;
mod environment;
mod http;
#[path = "../../../worker/tests/it/kew.rs"]
mod kew;
mod observe;
mod page;
#[path = "../../../queue-api/tests/it/panics.rs"]
mod panics;
#[cfg(target_os = "linux")]
mod processes;
mod silent;
mod simulate;
mod socket;
mod support;
mod workers;
