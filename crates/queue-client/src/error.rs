//! The errors of a request.

use std::time::Duration;

/// Why an operation has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service answered with an error.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// There was no answer: the connection could not be made, or broke.
    #[error("cannot reach {url}: {reason}")]
    Unreachable {
        /// The endpoint, without credentials.
        url: String,
        /// The error of the transport.
        reason: String,
    },
    /// There was no answer in time.
    #[error("{url} did not answer within {} s", .after.as_secs())]
    TimedOut {
        /// The endpoint, without credentials.
        url: String,
        /// How long was waited.
        after: Duration,
    },
    /// The answer is not one of this protocol.
    #[error("{url} answered something that is not Queue Storage: {what}")]
    NotUnderstood {
        /// The endpoint, without credentials.
        url: String,
        /// The fault.
        what: String,
    },
    /// The client cannot be set up, for example because a certificate cannot be read.
    #[error("{0}")]
    Setup(String),
}

/// An error that the service answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The service's code, for example `QueueNotFound`; empty if the answer had none.
    pub code: String,
    /// The first line of the service's message.
    pub message: String,
    /// The further elements of the answer, for example `MaximumAllowed`.
    pub details: Vec<(String, String)>,
    /// The service's name for the request.
    pub request_id: Option<String>,
}

impl Error {
    /// The service's code, if it answered with one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => Some(refusal.code.as_str()).filter(|code| !code.is_empty()),
            _ => None,
        }
    }

    /// Whether the same request may succeed later without any change: there was no answer, or the
    /// service was too busy.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Refused(refusal) => {
                matches!(refusal.status, 408 | 429 | 502 | 503 | 504)
                    || refusal.code == "OperationTimedOut"
            }
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::NotUnderstood { .. } | Self::Setup(_) => false,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let code = if self.code.is_empty() {
            "no code"
        } else {
            &self.code
        };
        write!(f, "{} ({code}, status {})", self.message, self.status)?;
        for (name, value) in &self.details {
            write!(f, "; {name}: {value}")?;
        }
        Ok(())
    }
}
