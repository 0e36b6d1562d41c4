//! What went wrong in a request of a source.

use std::fmt;

use kew_client::ErrorKind;

/// Codes with which Queue Storage reports that a receipt holds its message no longer.
const LOST_RECEIPTS: [&str; 2] = ["MessageNotFound", "PopReceiptMismatch"];

/// Codes with which the services report that a message is too large.
const TOO_LARGE: [&str; 3] = [
    "RequestBodyTooLarge",
    "MessageTooLarge",
    "amqp:link:message-size-exceeded",
];

/// Why a request of a [`Source`](crate::Source) has no result.
///
/// Its kind says what is known: *refused* and *try again later* mean that nothing has changed, *outcome unknown* that
/// the request may have been carried out.
///
/// It is a single pointer: results are moved often, and rarely hold an error.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceError(Box<Parts>);

#[derive(Clone, PartialEq, Eq)]
struct Parts {
    kind: ErrorKind,
    is_lease_lost: bool,
    is_busy: bool,
    is_too_large: bool,
    code: Option<Box<str>>,
    text: Box<str>,
}

impl SourceError {
    /// An error of this kind. The text says what failed, without the kind.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            kind,
            is_lease_lost: false,
            is_busy: false,
            is_too_large: false,
            code: None,
            text: text.into().into_boxed_str(),
        }))
    }

    /// Nothing has changed, and the same request is of no use.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, text)
    }

    /// The service is busy and asks for a pause. Nothing has changed.
    pub fn busy(text: impl Into<String>) -> Self {
        let mut error = Self::new(ErrorKind::TryAgainLater, text);
        error.0.is_busy = true;
        error
    }

    /// The lease has ended: another listener may have the message.
    pub fn lease_lost(text: impl Into<String>) -> Self {
        let mut error = Self::refused(text);
        error.0.is_lease_lost = true;
        error
    }

    /// The message is larger than the service accepts.
    pub fn too_large(text: impl Into<String>) -> Self {
        let mut error = Self::refused(text);
        error.0.is_too_large = true;
        error
    }

    /// What is known about the outcome.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the lease has ended.
    pub fn is_lease_lost(&self) -> bool {
        self.0.is_lease_lost
    }

    /// Whether the service asked for a pause.
    pub fn is_busy(&self) -> bool {
        self.0.is_busy
    }

    /// Whether the message was too large for the service.
    pub fn is_too_large(&self) -> bool {
        self.0.is_too_large
    }

    /// The service's code, if it sent one.
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }
}

impl From<kew_client::Error> for SourceError {
    fn from(error: kew_client::Error) -> Self {
        let is_code_of = |codes: &[&str]| error.code().is_some_and(|code| codes.contains(&code));
        Self(Box::new(Parts {
            kind: error.kind(),
            is_lease_lost: error.is_lock_lost() || is_code_of(&LOST_RECEIPTS),
            is_busy: error.is_busy(),
            is_too_large: is_code_of(&TOO_LARGE) || error.status() == Some(413),
            code: error.code().map(Into::into),
            text: error.text().into(),
        }))
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.kind {
            ErrorKind::Refused => "refused: ",
            ErrorKind::TryAgainLater => "try again later: ",
            ErrorKind::OutcomeUnknown => "outcome unknown: ",
        })?;
        f.write_str(&self.0.text)?;
        match &self.0.code {
            Some(code) => write!(f, " ({code})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SourceError {}
