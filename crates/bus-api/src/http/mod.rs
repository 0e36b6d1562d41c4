//! HTTP on the listeners of Service Bus.
//!
//! Management, the data plane and the operator's own interface answer on the same host and port as
//! AMQP, since that is what a connection string names. [`connection`] drives a connection, `route`
//! says which part of it a request is for, and the parts answer [`call::Call`]s:
//!
//! - `atom`: management of queues, as the SDKs' administration clients ask for it;
//! - `data`: messages;
//! - `health`: what the emulator says of itself;
//! - `operator`: what the service does not have;
//! - `speaker`: whether a request may be that of a web page from elsewhere;
//! - `websocket`: AMQP, for those who may only speak HTTPS.

mod activity;
mod answer;
mod answer_room;
mod atom;
mod audit;
mod body;
mod call;
mod connection;
mod data;
mod health;
mod operator;
mod room;
mod route;
mod service;
mod shown;
mod speaker;
mod times;
mod websocket;

pub(crate) use answer::HttpError;
pub(crate) use connection::serve;
pub use data::is_custom as is_custom_header;
pub(crate) use service::HttpService;
