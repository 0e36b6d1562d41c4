//! A small client of Service Bus over AMQP, for crash tests and load.
//!
//! A [`Client`] is one connection with one session, over plain TCP. It waits for what it asked for, never
//! retries, and tells apart what a crash test must tell apart: what was refused, and what has an
//! outcome that nobody knows ([`enum@Error`]). Whoever wants more than one thing under way drives
//! [`Client::connection`] and reads [`Client::event`].
//!
//! It is made for known servers and trusted answers.

mod client;
mod management;
mod message;

pub use client::{Client, Rule, receiver_attach};
pub use message::{body_of, delivery_count, locked_until_ms, message, sequence_number};

use kew_amqp::performative::DeliveryState;
use thiserror::Error;

/// Why something that was asked for did not come.
#[derive(Debug, Error)]
pub enum Error {
    /// The connection broke or was closed: what was under way has an unknown outcome.
    #[error("the connection is gone: {0}")]
    Gone(String),
    /// The server said no: nothing has changed.
    #[error("refused: {0}")]
    Refused(String),
    /// The server's answer is none to what was asked.
    #[error("an answer that does not fit: {0}")]
    Unexpected(String),
}

impl Error {
    /// Whether what was asked for may have happened all the same.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Gone(_))
    }

    pub(crate) fn refused(state: Option<&DeliveryState>) -> Self {
        Self::Refused(format!("{state:?}"))
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Gone(error.to_string())
    }
}
