//! A raw client of Service Bus over AMQP, for load generators and benchmarks.

mod raw;

pub use raw::{Client, Error, Rule, body_of, colored_message, message, receiver_attach};
