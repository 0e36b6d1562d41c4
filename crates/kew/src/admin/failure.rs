//! Failures of administration, for programs and for people.

use hyper::StatusCode;
use kew_principals::PrincipalError;
use serde::{Deserialize, Serialize};

/// Why an act was not carried out.
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

    /// The failure for an error about principals that `kew {command}` administers. `scope_flag` is the flag that names
    /// their scope, after a space.
    pub(super) fn of(error: &PrincipalError, command: &str, scope_flag: &str) -> Self {
        let (word, next) = match error {
            PrincipalError::Invalid(_) | PrincipalError::InvalidKey(_) => {
                ("invalid", String::new())
            }
            PrincipalError::NotFound("queue", _) => (
                "not-found",
                "; kew bus list shows the queues of a server".into(),
            ),
            PrincipalError::NotFound(..) => (
                "not-found",
                format!("; kew {command} list{scope_flag} shows them"),
            ),
            PrincipalError::Exists(_, name) => (
                "exists",
                format!("; kew {command} show {name}{scope_flag} shows it"),
            ),
            PrincipalError::NotEmpty(..) => (
                "not-empty",
                "; --with-queues deletes them with all their messages".into(),
            ),
            PrincipalError::WellKnown(_) => ("well-known", "; add an account of your own".into()),
            PrincipalError::Refused(_) => ("refused", String::new()),
            PrincipalError::Busy => ("busy", "; try again".into()),
            PrincipalError::Full => ("full", "; make space, then try again".into()),
            PrincipalError::Stopped => ("stopped", "; try again when it runs".into()),
            PrincipalError::Unknown => (
                "unknown",
                format!("; kew {command} list{scope_flag} shows it once a server runs again"),
            ),
            PrincipalError::NoRandomBytes(_) | PrincipalError::Internal(_) => {
                ("internal", String::new())
            }
        };
        Self::new(word, format!("{error}{next}"))
    }

    pub(super) fn status(&self) -> StatusCode {
        match &*self.error {
            "invalid" | "well-known" => StatusCode::BAD_REQUEST,
            "not-found" => StatusCode::NOT_FOUND,
            "exists" | "not-empty" | "refused" => StatusCode::CONFLICT,
            "busy" | "not-owner" | "stopped" => StatusCode::SERVICE_UNAVAILABLE,
            // `full`, `unknown`, `internal`. What is unknown must not be repeated as what a busy server refuses.
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_a_word_a_status_and_what_to_do() {
        for (error, word, status, next) in [
            (
                PrincipalError::NotFound("rule", "x".into()),
                "not-found",
                404,
                "there is no rule \"x\"; kew bus authorization-rule list --entity jobs shows them",
            ),
            (
                PrincipalError::NotFound("queue", "x".into()),
                "not-found",
                404,
                "; kew bus list shows",
            ),
            (
                PrincipalError::Exists("rule", "x".into()),
                "exists",
                409,
                "; kew bus authorization-rule show x --entity jobs shows it",
            ),
            (
                PrincipalError::NotEmpty("x".into(), 2),
                "not-empty",
                409,
                "--with-queues",
            ),
            (
                PrincipalError::WellKnown("x".into()),
                "well-known",
                400,
                "; add an account",
            ),
            (PrincipalError::Busy, "busy", 503, "; try again"),
            (PrincipalError::Full, "full", 500, "; make space"),
            (
                PrincipalError::Stopped,
                "stopped",
                503,
                "nothing was changed; try",
            ),
            (
                PrincipalError::Unknown,
                "unknown",
                500,
                "is unknown; kew bus authorization-rule list",
            ),
            (PrincipalError::internal("bug"), "internal", 500, "bug"),
            (
                kew_principals::InvalidKey.into(),
                "invalid",
                400,
                "16 to 64 bytes",
            ),
        ] {
            let failure = Failure::of(&error, "bus authorization-rule", " --entity jobs");
            assert_eq!(failure.error, word);
            assert_eq!(failure.status().as_u16(), status, "{word}");
            assert!(failure.message.contains(next), "{}", failure.message);
        }
    }
}
