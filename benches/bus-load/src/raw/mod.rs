//! Service Bus over AMQP as raw as it gets, so that figures remain comparable from one version to the next.
//!
//! A [`Client`] is one connection with one session, over plain TCP. It waits for each answer, never
//! retries, and distinguishes a request that was refused from one with an unknown outcome
//! ([`enum@Error`]). To have several operations in progress, drive [`Client::connection`] and read
//! [`Client::event`].
//!
//! It is made for known servers and trusted answers.

mod client;
mod message;

pub use client::{Client, Rule, receiver_attach};
pub use message::{body_of, colored_message, message};

use kew_amqp::performative::DeliveryState;
use thiserror::Error;

/// Why an operation failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The connection broke or was closed: operations in progress have an unknown outcome.
    #[error("the connection is gone: {0}")]
    Gone(String),
    /// The server refused: nothing has changed.
    #[error("refused: {0}")]
    Refused(String),
    /// The server's answer does not fit the request.
    #[error("the server sent an unexpected answer: {0}")]
    Unexpected(String),
}

impl Error {
    pub(super) fn refused(state: Option<&DeliveryState>) -> Self {
        Self::Refused(format!("{state:?}"))
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Gone(error.to_string())
    }
}
