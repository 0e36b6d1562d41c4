//! Texts that nothing prints.

use std::fmt;

/// A key, a signature or a token. `Debug` shows two dots.
#[derive(Clone)]
pub struct Secret(Box<str>);

impl Secret {
    /// Of a text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself, to be sent.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
