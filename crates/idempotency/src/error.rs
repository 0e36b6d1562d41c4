//! What went wrong, and what can be done about it.

use std::error::Error as StdError;
use std::fmt;

use crate::key::BusinessId;
use crate::outcome::OutcomeError;

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Nothing was recorded, and the same request is of no use until something else changes.
    Refused,
    /// Nothing was recorded, and the same request can succeed later.
    TryAgainLater,
    /// The commit was sent and its answer did not come: the work may be done. The same request with the same id finds
    /// out, and does it if it is not.
    OutcomeUnknown,
}

/// Why a database did not do what it was asked to do.
pub struct StoreError {
    kind: ErrorKind,
    text: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl StoreError {
    /// An error that lasts until something else changes, such as a table that does not exist.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, text)
    }

    /// An error that may be over soon, such as a lost connection before the commit.
    pub fn later(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::TryAgainLater, text)
    }

    /// An error after which the transaction may be committed.
    pub fn unknown(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::OutcomeUnknown, text)
    }

    /// Adds the error behind it.
    #[must_use]
    pub fn because(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            source: None,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ErrorKind::Refused => "refused: ",
            ErrorKind::TryAgainLater => "try again later: ",
            ErrorKind::OutcomeUnknown => "outcome unknown: ",
        })?;
        f.write_str(&self.text)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source: &(dyn StdError + Send + Sync) = self.source.as_deref()?;
        Some(source)
    }
}

/// Why a guarded piece of work has no outcome. `E` is the error of its handler.
///
/// Do not settle the message as done after any of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError<E> {
    /// The handler failed. Its effects were rolled back, and nothing was recorded: the next delivery runs it again.
    #[error("the handler failed: {0}")]
    Handler(E),
    /// The handler took longer than [`GuardOptions::time_max`](crate::GuardOptions::time_max). Its effects were rolled
    /// back.
    #[error("the handler took longer than {limit_ms} ms")]
    TimedOut {
        /// The most that it may take.
        limit_ms: u128,
    },
    /// The handler's outcome is larger than
    /// [`GuardOptions::outcome_size_max_bytes`](crate::GuardOptions::outcome_size_max_bytes). Its effects were rolled
    /// back.
    #[error("the outcome has {size_bytes} bytes; {limit_bytes} are allowed")]
    OutcomeTooLarge {
        /// How large it is.
        size_bytes: usize,
        /// How large it may be.
        limit_bytes: usize,
    },
    /// The handler's outcome has no bytes that can be recorded. Its effects were rolled back.
    #[error("the outcome cannot be written: {0}")]
    OutcomeUnwritable(OutcomeError),
    /// The work is done, and what was recorded as its outcome is not one of this type.
    #[error("the recorded outcome cannot be read: {0}")]
    OutcomeUnreadable(OutcomeError),
    /// Other work with this id is done: the request says something else than the one that was done. Its handler did not
    /// run, and the recorded outcome is not that of this request. Repeating it does not help: dead-letter the message, or
    /// tell the client.
    #[error(
        "the id {id} belongs to another request, which is done: give this one an id of its own"
    )]
    AnotherRequest {
        /// The id that both have.
        id: BusinessId,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<E> GuardError<E> {
    /// What can be done about it. `None` for an error of the handler: only the application knows.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Handler(_) => None,
            Self::TimedOut { .. } => Some(ErrorKind::TryAgainLater),
            Self::OutcomeTooLarge { .. }
            | Self::OutcomeUnwritable(_)
            | Self::OutcomeUnreadable(_)
            | Self::AnotherRequest { .. } => Some(ErrorKind::Refused),
            Self::Store(error) => Some(error.kind()),
        }
    }
}
