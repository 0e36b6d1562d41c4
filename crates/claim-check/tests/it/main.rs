//! Data that is checked in, out, and swept, with stores that fail, stand still and forget.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod damage;
mod examples;
mod life;
mod round_trips;
mod store;
mod sweep;
mod trouble;
