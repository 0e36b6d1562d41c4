//! HTTP on the listeners of Service Bus.
//!
//! Management, the data plane and the operator's own interface answer on the same host and port as
//! AMQP, since that is what a connection string names. [`connection`] drives a connection, `route`
//! says which part of it a request is for, and the parts answer calls:
//!
//! - `health`: what the emulator says of itself;
//! - `atom`: management of queues, as the SDKs' administration clients ask for it.

mod answer;
mod atom;
mod call;
mod connection;
mod health;
mod route;

pub(crate) use connection::serve;
