//! A small client of the Queue Storage REST protocol, for load generators and crash tests.
//!
//! A [`Client`] is one keep-alive connection with one request in flight. It signs every request
//! with Shared Key, never retries, and distinguishes what a crash test must distinguish: an
//! operation that was answered, one that was refused, one that was certainly never sent, and one
//! with an unknown outcome ([`Error`]).
//!
//! It is made for known servers and trusted answers. It reads the answers of this protocol by
//! searching for their elements and is no general XML reader.

mod answer;
mod client;
mod connection;
mod dribble;
mod endpoint;
mod error;
mod usage;

pub use client::{Client, Message, PutOptions, Queue, QueuePage, QueueProperties, Receipt, Sent};
pub use connection::Connection;
pub use dribble::{Dribblers, Tally as DribbleTally};
pub use endpoint::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Endpoint};
pub use error::Error;
pub use usage::{Usage, percentile};
