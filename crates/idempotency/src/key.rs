//! Business ids, and the scopes in which they are unique.

use std::fmt;
use std::sync::Arc;

/// The longest name, in bytes of UTF-8.
const SIZE_MAX: usize = 255;

/// Why a text cannot be a business id or a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// It is empty.
    #[error("the {what} is empty")]
    Empty {
        /// What was to be named.
        what: &'static str,
    },
    /// It is longer than 255 bytes.
    #[error("the {what} has {size_bytes} bytes; it can have {SIZE_MAX} at most")]
    TooLong {
        /// What was to be named.
        what: &'static str,
        /// Its size in UTF-8.
        size_bytes: usize,
    },
    /// It has a control character, such as a line feed.
    #[error("the {what} has the control character {character:?}")]
    ControlCharacter {
        /// What was to be named.
        what: &'static str,
        /// The first of them.
        character: char,
    },
}

fn checked(what: &'static str, text: &str) -> Result<Arc<str>, InvalidName> {
    let size_bytes = text.len();
    if size_bytes == 0 {
        return Err(InvalidName::Empty { what });
    }
    if size_bytes > SIZE_MAX {
        return Err(InvalidName::TooLong { what, size_bytes });
    }
    match text.chars().find(|it| it.is_control()) {
        Some(character) => Err(InvalidName::ControlCharacter { what, character }),
        None => Ok(text.into()),
    }
}

/// What identifies a piece of work for the business, such as the id of a transaction. Every delivery of the same work
/// has the same id, and no other work of its scope has it.
///
/// 1 to 255 bytes of UTF-8 without control characters. Ids are compared byte by byte: `A` and `a` differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BusinessId(Arc<str>);

impl BusinessId {
    /// Checks an id. An id from outside that is refused cannot be processed: dead-letter its message.
    pub fn new(id: &str) -> Result<Self, InvalidName> {
        Ok(Self(checked("business id", id)?))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BusinessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of work within which ids are unique, such as the name of a queue or of an operation.
///
/// 1 to 255 bytes of UTF-8 without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(Arc<str>);

impl Scope {
    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        Ok(Self(checked("scope", name)?))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where the outcome of a piece of work is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The kind of work.
    pub scope: Scope,
    /// Which work.
    pub id: BusinessId,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.id, self.scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_1_to_255_bytes() {
        assert!(BusinessId::new("a").is_ok());
        assert!(BusinessId::new(&"a".repeat(255)).is_ok());
        let long = BusinessId::new(&"é".repeat(128)).unwrap_err();
        assert_eq!(
            long.to_string(),
            "the business id has 256 bytes; it can have 255 at most"
        );
        let empty = Scope::new("").unwrap_err();
        assert_eq!(empty.to_string(), "the scope is empty");
    }

    #[test]
    fn a_name_has_no_control_character() {
        for bad in ["a\0", "\n", "a\u{7f}b"] {
            assert!(
                matches!(
                    BusinessId::new(bad),
                    Err(InvalidName::ControlCharacter { .. })
                ),
                "{bad:?}"
            );
        }
        assert!(BusinessId::new("user|account/ü 7").is_ok());
    }
}
