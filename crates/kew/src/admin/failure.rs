//! Why something was not done, for programs and for people.

use hyper::StatusCode;
use kew_principals::PrincipalError;
use serde::{Deserialize, Serialize};

/// Why something was not done.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// A word for programs.
    pub(crate) error: String,
    /// A sentence for people, with what to do next.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(error: &str, message: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            message: message.into(),
        }
    }

    /// Of principals that `command` administers, with the flag that names their scope.
    pub(super) fn of(error: &PrincipalError, command: &str, scope_flag: &str) -> Self {
        let (word, next) = match error {
            PrincipalError::Invalid(_) => ("invalid", String::new()),
            PrincipalError::NotFound { what: "queue", .. } => (
                "not-found",
                "; kew bus list shows the queues of a server".into(),
            ),
            PrincipalError::NotFound { .. } => (
                "not-found",
                format!("; {command} list{scope_flag} shows them"),
            ),
            PrincipalError::Exists { name, .. } => (
                "exists",
                format!("; {command} show {name}{scope_flag} shows it"),
            ),
            PrincipalError::NotEmpty { .. } => (
                "not-empty",
                "; --with-queues deletes them with all their messages".into(),
            ),
            PrincipalError::WellKnown { .. } => {
                ("well-known", "; add an account of your own".into())
            }
            PrincipalError::Refused(_) => ("refused", String::new()),
            PrincipalError::Busy => ("busy", "; try again".into()),
            PrincipalError::Full => ("full", "; make space, then try again".into()),
            PrincipalError::Stopped => ("stopped", "; try again when it runs".into()),
            PrincipalError::Unknown => (
                "unknown",
                format!("; {command} list{scope_flag} shows it when the server runs again"),
            ),
            PrincipalError::Internal(_) => ("internal", String::new()),
        };
        Self::new(word, format!("{error}{next}"))
    }

    pub(super) fn status(&self) -> StatusCode {
        match &*self.error {
            "invalid" | "well-known" => StatusCode::BAD_REQUEST,
            "not-found" => StatusCode::NOT_FOUND,
            "exists" | "not-empty" | "refused" => StatusCode::CONFLICT,
            "busy" | "stopped" | "unknown" => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
