//! AMQP 1.0 on the wire, without I/O, for a broker.
//!
//! This crate knows no socket, no clock, no thread and no queue. It turns bytes into values,
//! messages and events, and calls into bytes; what an address means, who may attach, what a
//! settlement does, all that is its caller's.
//!
//! - [`codec`]: the type system. Reading takes no memory and believes no claim; writing takes the
//!   smallest encoding.
//! - [`frame`], [`performative`], [`sasl`], [`error`]: what is said, as plain structs with every
//!   field of the specification. Maps and filters stay as they came, checked, until somebody asks.
//! - [`message`]: sections are found once; a message is kept and delivered byte for byte.
//! - [`Connection`]: one end of a connection, server or client, as a state machine.
//!
//! # The connection
//!
//! ```text
//! let mut connection = Connection::server(config, limits, now);
//! loop {
//!     while let Some(event) = connection.poll_event() {
//!         match event {
//!             Event::SaslInit { .. } => connection.sasl_outcome(SaslCode::Ok),
//!             Event::Attach { link, attach } => {
//!                 connection.accept(link, attach.answer());
//!                 connection.grant(link, 100);
//!             }
//!             Event::Delivery(it) => {
//!                 store(it.payload);
//!                 connection.settle(it.delivery, Some(DeliveryState::ACCEPTED));
//!             }
//!             _ => {}
//!         }
//!     }
//!     let output = connection.take_output(now);
//!     if !output.is_empty() { write(output); continue }
//!     if connection.is_closed() { break }
//!     select! {
//!         bytes = read(), if connection.wants_input() => connection.feed(&bytes, now),
//!         () = sleep_until(connection.next_timeout()) => connection.on_time(now),
//!     }
//! }
//! ```
//!
//! `examples/memory_broker.rs` is that, whole.
//!
//! It answers by itself what has one right answer: opens, begins, closes, ends, detaches, echoes,
//! windows, heartbeats, and every rule that the peer breaks, with the specification's condition at
//! the smallest scope. It leaves to its caller what a broker decides: whether a mechanism is taken,
//! a link accepted (and with which termini, properties and sizes) or refused, how much credit there
//! is, which tag a delivery has, what is drained when, and the verdict on every settlement.
//!
//! **Settlement in two steps.** A consumer tells its outcome without settling; that is
//! [`Event::Disposition`] with `is_settled: false`. [`Connection::settle`] answers with the state
//! that the caller chooses: the same outcome, or a rejection because the lock is gone.
//!
//! **What is not there.** Links are not resumed: an attach is answered as if nothing were unsettled,
//! which is true, and a transfer that resumes detaches its link with `amqp:not-implemented`. A
//! message is handed over whole, never in parts. TLS inside AMQP is not offered.
//!
//! # What a peer can cost
//!
//! [`Limits`] bound sessions, links, unsettled deliveries, unfinished messages and output, and can
//! be raised when a peer has shown who it is. Frames are bounded before they are buffered.
//! [`Connection::poll_event`] reads frame by frame, so that no flood of events waits in memory, and
//! stops while the output is full. A message that is too large is thrown away part by part, and its
//! caller rejects it when it is complete; far too large a one detaches its link. A disposition of many
//! deliveries is carried out one by one, and visits those alone of which it says something new.
//! [`Connection::poll_event_within`] counts what is visited, and stops when its caller's [`Steps`] are taken, so
//! that others have their turn. Names and properties that are kept are copied out of the input;
//! a message in one frame is not, and its keeper decides.

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
    Outgoing, Oversized, Sasl, SendRefusal, SessionId, Steps,
};
