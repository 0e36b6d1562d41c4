//! Views of encoded messages, through the public interface.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod random;
mod view;
