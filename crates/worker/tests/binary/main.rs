//! Listeners in processes of their own, against the real binary of Kew.
//!
//! `cargo test --profile gate -p kew-worker --test binary`, after a build of kew. `KEW_BINARY` names another one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod examples;
mod processes;
mod push;
