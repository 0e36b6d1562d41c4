//! AMQP 1.0 on the wire, without I/O, for a broker.
//!
//! This crate knows no socket, no clock, no thread and no queue. It turns bytes into values,
//! messages and events, and calls into bytes. The caller decides what an address means, who may
//! attach, and what a settlement does.
//!
//! - [`codec`]: the type system. Reading allocates nothing and checks every claim; writing uses the
//!   smallest encoding.
//! - [`frame`], [`performative`], [`sasl`], [`error`]: the frames, as plain structs with every
//!   field of the specification. Maps and filters stay encoded, checked, until the caller reads
//!   them.
//! - [`message`]: sections are found once; a message is stored and delivered byte for byte.
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
//! `examples/memory_broker.rs` is a complete one.
//!
//! It handles by itself everything with one right answer: opens, begins, closes, ends, detaches,
//! echoes, windows, heartbeats, and every rule that the peer breaks, with the specification's
//! condition at the smallest scope. Its caller decides what a broker must decide: whether to accept
//! a mechanism or a link (and with which termini, properties and sizes), how much credit to give,
//! which tag a delivery has, what to drain and when, and the state of every settlement.
//!
//! **Settlement in two steps.** A consumer reports its outcome without settling; that is
//! [`Event::Disposition`] with `is_settled: false`. [`Connection::settle`] answers with the state
//! that the caller chooses: the same outcome, or a rejection because the lock is lost.
//!
//! **Not supported.** Links are not resumed: an attach is answered as if nothing were unsettled,
//! which is true, and a transfer that resumes detaches its link with `amqp:not-implemented`. A
//! message is passed on as a whole, never in parts. TLS inside AMQP is not offered.
//!
//! # What a peer can cost
//!
//! [`Limits`] bound sessions, links, unsettled deliveries, incomplete messages and output, and can
//! be raised when a peer is authenticated. Frames are bounded before they are buffered.
//! [`Connection::poll_event`] reads frame by frame, so that no flood of events waits in memory, and
//! stops while the output is full. A message that is too large is discarded part by part, and the
//! caller rejects it when it is complete; a message that is far too large detaches its link. A
//! disposition of many deliveries is carried out one by one, and visits only those that it changes.
//! [`Connection::poll_event_within`] counts the visits, and stops when its caller's [`Steps`] are
//! used up, so that other connections have their turn. Names and properties that are kept are
//! copied out of the input. A message in one frame is not copied; its owner decides.

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
