//! Clients of Service Bus, over a socket pair and with the client side of `kew-amqp`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod atom;
mod attach;
mod audit;
mod audit_flood;
mod client;
mod crowds;
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
mod oversized;
#[path = "../../../queue-api/tests/it/panics.rs"]
mod panics;
mod resend;
mod rest;
mod rights;
mod rules;
mod sasl;
mod sessions;
mod tokens;
mod transactions;
mod turned_away;
mod turns;
mod wakes;
mod websocket;
