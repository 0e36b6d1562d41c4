//! The billing system as separate programs, which are killed at random under load.
//!
//! `cargo test --profile gate -p kew-billing --test binary`, after a build of kew.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fleet;
mod kills;
mod one_command;
