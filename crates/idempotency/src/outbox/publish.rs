//! How messages of the outbox are sent.

use std::error::Error as StdError;
use std::fmt;

use crate::error::ErrorKind;
use crate::outbox::OutboxMessage;

/// Sends messages.
pub trait Publish: Send + Sync {
    /// Sends a message, and returns when the receiver has accepted it durably.
    ///
    /// The same message can be sent again after any error, and after a crash: send it with its id, to a destination
    /// that drops duplicates or whose receivers are idempotent. A pump drops the future when its time is over.
    fn publish(
        &self,
        message: &OutboxMessage,
    ) -> impl Future<Output = Result<(), PublishError>> + Send;
}

/// Why a message was not accepted.
pub struct PublishError {
    kind: ErrorKind,
    source: Box<dyn StdError + Send + Sync>,
}

impl PublishError {
    /// The message, or its destination, must change before it can be accepted.
    pub fn refused(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Refused, source)
    }

    /// It was not accepted, and can be later.
    pub fn later(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(ErrorKind::TryAgainLater, source)
    }

    /// It may have been accepted. It is sent again.
    pub fn unknown(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(ErrorKind::OutcomeUnknown, source)
    }

    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn new(kind: ErrorKind, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            kind,
            source: source.into(),
        }
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ErrorKind::Refused => "refused",
            ErrorKind::TryAgainLater => "try again later",
            ErrorKind::OutcomeUnknown => "outcome unknown",
        };
        write!(f, "{kind}: {}", self.source)
    }
}

impl fmt::Debug for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for PublishError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source: &(dyn StdError + Send + Sync) = &*self.source;
        Some(source)
    }
}
