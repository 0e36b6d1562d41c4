//! HTTP on the listeners of Service Bus.
//!
//! Management, the data plane and the operator's interface use the same host and port as AMQP,
//! since a connection string names only one. [`connection`] serves a connection, `route` chooses
//! the part for a request, `body` reads its body, and the parts answer [`call::Call`]s:
//!
//! - `atom`: management of queues, for the SDKs' administration clients;
//! - `data`: messages;
//! - `health`: the emulator's health page;
//! - `operator`: functions that Azure does not have;
//! - `websocket`: AMQP, for clients that can only use HTTPS.
//!
//! All of them use `answers` (success, errors, and room for them), `audit` (the record of
//! administration) and `service` (the state that connections share).

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
