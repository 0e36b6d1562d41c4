//! HTTP on the listeners of Service Bus.
//!
//! Management, the data plane and the operator's own interface answer on the same host and port as
//! AMQP, since that is what a connection string names. `kew-http-front` drives a connection, [`connection`]
//! adds what is this service's, `route` says which part of it a request is for, and the parts answer
//! [`call::Call`]s:
//!
//! - `answers`: what is written to clients: errors, messages and times, and the room that answers take;
//! - `atom`: management of queues, as the SDKs' administration clients ask for it;
//! - `data`: messages;
//! - `health`: what the emulator says of itself;
//! - `operator`: what the service does not have;
//! - `websocket`: AMQP, for clients that may only speak HTTPS.

mod answers;
mod atom;
mod audit;
mod body;
mod call;
mod connection;
mod data;
mod health;
mod operator;
mod route;
mod service;
mod websocket;

pub(crate) use answers::HttpError;
pub(crate) use connection::serve;
pub use data::is_custom as is_custom_header;
pub(crate) use service::HttpService;
