//! Queues, topics, subscriptions and rules from the emulator's configuration file, and back.

pub(crate) mod config;
pub(crate) mod duration;
pub(crate) mod export;
pub(crate) mod file;
pub(crate) mod import;
pub(crate) mod rule;
