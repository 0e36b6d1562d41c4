//! Errors of PostgreSQL, in the kinds that callers decide by.

use tokio_postgres::error::SqlState;

use crate::error::{ErrorKind, StoreError};

impl From<tokio_postgres::Error> for StoreError {
    /// Of a statement before the commit.
    fn from(error: tokio_postgres::Error) -> Self {
        from_postgres(error)
    }
}

/// Of a statement before the commit, or of a connection.
pub(super) fn from_postgres(error: tokio_postgres::Error) -> StoreError {
    match kind_before_commit(error.code()) {
        ErrorKind::TryAgainLater | ErrorKind::OutcomeUnknown => {
            StoreError::later("PostgreSQL cannot do it now").because(Detailed(error))
        }
        ErrorKind::Refused => StoreError::refused("PostgreSQL").because(Detailed(error)),
    }
}

/// Of a commit.
pub(super) fn from_commit(error: tokio_postgres::Error) -> StoreError {
    match kind_at_commit(error.code()) {
        ErrorKind::TryAgainLater => {
            StoreError::later("PostgreSQL cannot commit now").because(Detailed(error))
        }
        ErrorKind::OutcomeUnknown => {
            StoreError::unknown("PostgreSQL did not answer the commit").because(Detailed(error))
        }
        ErrorKind::Refused => {
            StoreError::refused("PostgreSQL did not commit").because(Detailed(error))
        }
    }
}

/// Without a code, the connection failed.
fn kind_before_commit(code: Option<&SqlState>) -> ErrorKind {
    match code {
        None => ErrorKind::TryAgainLater,
        Some(code) if is_passing(code.code()) => ErrorKind::TryAgainLater,
        Some(_) => ErrorKind::Refused,
    }
}

fn kind_at_commit(code: Option<&SqlState>) -> ErrorKind {
    match code.map(SqlState::code) {
        None => ErrorKind::OutcomeUnknown,
        // The server ended the connection, and may have committed before.
        Some(code) if code.starts_with("08") || code.starts_with("57") || code == "40003" => {
            ErrorKind::OutcomeUnknown
        }
        Some(code) if is_passing(code) => ErrorKind::TryAgainLater,
        Some(_) => ErrorKind::Refused,
    }
}

/// Whether the same statement can succeed later.
fn is_passing(code: &str) -> bool {
    // By class: connection, authorization (a password that changes), a transaction that another one stopped, resources,
    // the operator (a restart), the system.
    let classes = ["08", "28", "40", "53", "57", "58"];
    let codes = [
        // Still in a transaction whose statement failed; idle for too long; a standby, after a switch.
        "25P02", "25P03", "25006", // A lock that was not free in time.
        "55P03",
    ];
    classes.iter().any(|class| code.starts_with(class)) || codes.contains(&code)
}

/// With the text of the server, which the library's own text leaves out.
#[derive(Debug)]
struct Detailed(tokio_postgres::Error);

impl std::fmt::Display for Detailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.as_db_error(), std::error::Error::source(&self.0)) {
            (Some(error), _) => write!(f, "{} ({})", error.message(), error.code().code()),
            (None, Some(source)) => write!(f, "{}: {source}", self.0),
            (None, None) => write!(f, "{}", self.0),
        }
    }
}

impl std::error::Error for Detailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::{OutcomeUnknown, Refused, TryAgainLater};

    #[test]
    fn errors_have_their_kinds() {
        for (code, before, at_commit) in [
            ("08006", TryAgainLater, OutcomeUnknown),
            ("28P01", TryAgainLater, TryAgainLater),
            ("40001", TryAgainLater, TryAgainLater),
            ("40003", TryAgainLater, OutcomeUnknown),
            ("40P01", TryAgainLater, TryAgainLater),
            ("53100", TryAgainLater, TryAgainLater),
            ("53300", TryAgainLater, TryAgainLater),
            ("55P03", TryAgainLater, TryAgainLater),
            ("57P01", TryAgainLater, OutcomeUnknown),
            ("58030", TryAgainLater, TryAgainLater),
            ("25006", TryAgainLater, TryAgainLater),
            ("25P02", TryAgainLater, TryAgainLater),
            ("25P03", TryAgainLater, TryAgainLater),
            ("23505", Refused, Refused),
            ("23503", Refused, Refused),
            ("42P01", Refused, Refused),
            ("42501", Refused, Refused),
            ("XX001", Refused, Refused),
        ] {
            let state = SqlState::from_code(code);
            assert_eq!(kind_before_commit(Some(&state)), before, "{code}");
            assert_eq!(kind_at_commit(Some(&state)), at_commit, "{code}");
        }
        assert_eq!(kind_before_commit(None), TryAgainLater);
        assert_eq!(kind_at_commit(None), OutcomeUnknown);
    }
}
