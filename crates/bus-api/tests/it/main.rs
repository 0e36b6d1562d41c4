//! Clients of Service Bus, over a socket pair and with the client side of `kew-amqp`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod hostile;
mod http;
mod management;
mod messages;
mod metrics;
mod sasl;
mod tokens;
