//! The law on its own, and with simulated queues and workers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod explain;
mod falls;
mod loads;
mod sources;
mod stated;
mod steady;
mod step;
mod support;
mod zero;
