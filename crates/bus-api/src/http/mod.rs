//! HTTP on the listeners of Service Bus.
//!
//! Management, the data plane and the operator's own interface answer on the same host and port as
//! AMQP, since that is what a connection string names. [`connection`] drives a connection, `route`
//! says which part of it a request is for, and the parts answer [`Call`]s:
//!
//! - `health`: what the emulator says of itself;
//! - `websocket`: AMQP, for those who may only speak HTTPS.

mod activity;
mod answer;
mod body;
mod call;
mod connection;
mod health;
mod room;
mod route;
mod websocket;

pub(crate) use answer::{Answer, HttpError, answer_of};
pub(crate) use call::Call;
pub(crate) use connection::serve;
pub(crate) use room::Room;
