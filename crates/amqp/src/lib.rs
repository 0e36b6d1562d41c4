//! AMQP 1.0 on the wire, without I/O.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod codec;
mod connection;
pub mod error;
pub mod frame;
pub mod message;
pub mod performative;
pub mod sasl;

pub use connection::{
    By, Config, Connection, Delivery, DeliveryId, Direction, Event, Limits, LinkId, Millis,
    Outgoing, Sasl, SendRefusal, SessionId,
};
