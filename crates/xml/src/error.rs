//! Errors of documents.

use thiserror::Error;

/// Why a document is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// It is not well-formed, has another root, or exceeds a limit.
    #[error("line {line}, column {column}: {reason}")]
    Malformed {
        /// Where, counted from 1.
        line: usize,
        /// Where in the line, in bytes, counted from 1.
        column: usize,
        /// What is wrong there.
        reason: Box<str>,
    },
    /// It has an element that is not allowed there.
    #[error("the element {name} is not known")]
    Unsupported {
        /// Its name.
        name: Box<str>,
    },
    /// The text of an element is not valid.
    #[error("{name} is {value:?}: {reason}")]
    Value {
        /// The element's name.
        name: Box<str>,
        /// The beginning of its text.
        value: Box<str>,
        /// What is expected.
        reason: Box<str>,
    },
}
