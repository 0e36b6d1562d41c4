//! The partition over a disk that fails, and the broker with its threads.

mod broker;
mod partition;
mod support;
