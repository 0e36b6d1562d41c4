//! Views of encoded messages and changes to them, through the public interface.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod actions;
mod overlays;
mod plain;
mod random;
mod view;
