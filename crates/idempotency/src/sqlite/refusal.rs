//! Errors of SQLite, in the kinds that callers decide by.

use rusqlite::ErrorCode;

use crate::error::{ErrorKind, StoreError};

impl From<rusqlite::Error> for StoreError {
    /// Of a statement before the commit.
    fn from(error: rusqlite::Error) -> Self {
        from_sqlite(error)
    }
}

/// Of a statement before the commit.
pub(super) fn from_sqlite(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code().map(kind_of) {
        Some(ErrorKind::TryAgainLater | ErrorKind::OutcomeUnknown) => {
            StoreError::later("SQLite cannot do it now").because(error)
        }
        Some(ErrorKind::Refused) | None => StoreError::refused("SQLite").because(error),
    }
}

/// Of a commit.
pub(super) fn from_commit(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code().map(kind_of) {
        Some(ErrorKind::TryAgainLater) => {
            StoreError::later("SQLite cannot commit now").because(error)
        }
        // What was written before the failure may be found after a crash.
        Some(ErrorKind::OutcomeUnknown) => {
            StoreError::unknown("SQLite failed to commit").because(error)
        }
        Some(ErrorKind::Refused) | None => {
            StoreError::refused("SQLite did not commit").because(error)
        }
    }
}

/// What an error means for a commit. Before the commit, an unknown outcome is none at all.
fn kind_of(code: ErrorCode) -> ErrorKind {
    match code {
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::OperationAborted
        | ErrorCode::OperationInterrupted
        | ErrorCode::OutOfMemory
        | ErrorCode::DiskFull
        | ErrorCode::CannotOpen
        | ErrorCode::SchemaChanged
        | ErrorCode::FileLockingProtocolFailed => ErrorKind::TryAgainLater,
        ErrorCode::SystemIoFailure | ErrorCode::InternalMalfunction => ErrorKind::OutcomeUnknown,
        _ => ErrorKind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::{OutcomeUnknown, Refused, TryAgainLater};

    #[test]
    fn errors_have_their_kinds() {
        for (code, before, at_commit) in [
            (rusqlite::ffi::SQLITE_BUSY, TryAgainLater, TryAgainLater),
            (rusqlite::ffi::SQLITE_LOCKED, TryAgainLater, TryAgainLater),
            (rusqlite::ffi::SQLITE_FULL, TryAgainLater, TryAgainLater),
            (rusqlite::ffi::SQLITE_CANTOPEN, TryAgainLater, TryAgainLater),
            (rusqlite::ffi::SQLITE_IOERR, TryAgainLater, OutcomeUnknown),
            (rusqlite::ffi::SQLITE_CONSTRAINT, Refused, Refused),
            (rusqlite::ffi::SQLITE_CORRUPT, Refused, Refused),
            (rusqlite::ffi::SQLITE_READONLY, Refused, Refused),
            (rusqlite::ffi::SQLITE_ERROR, Refused, Refused),
        ] {
            let error = || rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            assert_eq!(from_sqlite(error()).kind(), before, "{code}");
            assert_eq!(from_commit(error()).kind(), at_commit, "{code}");
        }
        let shape = from_sqlite(rusqlite::Error::QueryReturnedNoRows);
        assert_eq!(shape.kind(), Refused);
    }
}
