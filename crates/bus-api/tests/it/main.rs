//! Clients of Service Bus, over a socket pair and with the client side of `kew-amqp`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod atom;
mod attach;
mod audit;
mod client;
mod data;
mod greetings;
mod hostile;
mod http;
mod http_limits;
mod idle;
mod management;
mod messages;
mod metrics;
mod names;
mod operator;
mod rest;
mod rights;
mod rules;
mod sasl;
mod sessions;
mod tokens;
mod transactions;
mod turned_away;
mod websocket;
