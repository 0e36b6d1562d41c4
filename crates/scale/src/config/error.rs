//! Errors of a configuration file, with their place in it.

use std::ops::Range;
use std::path::Path;

use thiserror::Error;

/// What is wrong with a configuration file: its name, line and column, the value, and what was expected. One line.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    /// The file could not be read.
    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        Self(format!("cannot read {}: {error}", path.display()))
    }
}

/// A file and its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Document<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl Document<'_> {
    /// An error at a place of the text.
    pub(super) fn error(self, at: &Range<usize>, what: impl std::fmt::Display) -> ConfigError {
        Place::new(self, at).error(what)
    }

    /// An error of the parser, whose text can have several lines.
    pub(super) fn refused(self, error: &toml::de::Error) -> ConfigError {
        let at = error.span().unwrap_or_default();
        let message = error.message().lines().map(str::trim);
        let message = message.filter(|it| !it.is_empty()).collect::<Vec<_>>();
        self.error(&at, message.join(", "))
    }
}

/// A place in a file, as its errors name it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place(String);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Place {
    pub(super) fn new(document: Document<'_>, at: &Range<usize>) -> Self {
        let before = document.text.get(..at.start).unwrap_or(document.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default();
        let column = column.chars().count() + 1;
        Self(format!("{}:{line}:{column}", document.path.display()))
    }

    /// An error of what the file says there.
    #[must_use]
    pub fn error(&self, what: impl std::fmt::Display) -> ConfigError {
        ConfigError(format!("{}: {what}", self.0))
    }
}
