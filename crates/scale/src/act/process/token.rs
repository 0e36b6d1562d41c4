//! Tokens of instances, and the processes that have them.

use std::path::Path;

use super::proc;
use crate::act::ActError;
use crate::act::state::{Record, file_of};

/// Characters of a token.
const TOKEN_SIZE: usize = 32;

/// The process of a record, if it runs.
///
/// A process that cannot be examined may be the instance, and to take it for none would start another one beside it. That
/// is an error, unless the file is damaged: then each process of the system is asked for the token, also those that are
/// far older, and one of these must not keep an operator from stopping instances.
pub(super) fn process_of(
    record: &Record,
    boot: &str,
    directory: &Path,
) -> Result<proc::Found, ActError> {
    if record.boot != boot {
        return Ok(proc::Found::default());
    }
    if let Some(process) = record.process.clone() {
        return Ok(proc::Found {
            process: Some(process),
            unread: Vec::new(),
        });
    }
    if !is_token(&record.token) {
        return Ok(proc::Found::default());
    }
    let found = proc::find_token(&record.token, record.since_ticks)?;
    checked(found, record, directory)
}

/// What was found, unless something was not that must be known.
pub(super) fn checked(
    mut found: proc::Found,
    record: &Record,
    directory: &Path,
) -> Result<proc::Found, ActError> {
    if record.is_damaged() {
        return Ok(found);
    }
    match found.unread.pop() {
        None => Ok(found),
        Some(error) => Err(ActError::Unknown {
            path: file_of(directory, &record.token),
            source: Box::new(error),
        }),
    }
}

/// Whether an agent makes such tokens. Another program may use the variable for something else, such as `1`.
fn is_token(text: &str) -> bool {
    text.len() == TOKEN_SIZE && text.bytes().all(|it| it.is_ascii_hexdigit())
}

/// Nobody else has the same.
pub(super) fn new_token() -> Result<String, ActError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let place = Path::new("random bytes");
        ActError::file("read", place, std::io::Error::other(error.to_string()))
    })?;
    let number = u128::from_le_bytes(bytes);
    Ok(format!("{number:0TOKEN_SIZE$x}"))
}
