//! Errors of a request, distinguished by what it may have done.

use std::io;

/// Why a request brought no success.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection could be made, so the server never saw the request: it changed nothing.
    #[error("not sent: {0}")]
    NotSent(#[source] io::Error),

    /// The connection broke, or the answer could not be read, after the request was (partly) sent.
    /// The operation happened or did not happen.
    #[error("outcome unknown: {0}")]
    Unknown(#[source] io::Error),

    /// The server answered with an error.
    #[error("refused with status {status} {code}: {body}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The value of `x-ms-error-code`, or empty.
        code: String,
        /// The beginning of the body, for people.
        body: String,
    },
}

impl Error {
    /// The status and error code of a refusal.
    #[must_use]
    pub fn refusal(&self) -> Option<(u16, &str)> {
        match self {
            Error::Refused { status, code, .. } => Some((*status, code)),
            Error::NotSent(_) | Error::Unknown(_) => None,
        }
    }
}

/// An answer that does not follow the protocol.
pub(crate) fn malformed(what: impl Into<String>) -> Error {
    Error::Unknown(io::Error::new(io::ErrorKind::InvalidData, what.into()))
}
