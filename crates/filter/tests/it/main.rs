//! Filters, actions and the index, through the public interface.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod cases;
mod definitions;
mod naive;
mod rules;
mod sample;
