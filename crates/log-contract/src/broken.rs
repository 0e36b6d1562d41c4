//! A promise that a log did not keep.

use std::error::Error;
use std::fmt;

/// What a log did that it had promised not to do, or an error where there should be none.
pub struct Broken(String);

impl Broken {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: Error> From<E> for Broken {
    fn from(error: E) -> Self {
        Self(format!("unexpected: {error}"))
    }
}

/// Whether a promise was kept so far.
pub(crate) type Checked<T = ()> = Result<T, Broken>;

/// Returns that the promise is broken unless a condition holds.
macro_rules! hold {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::broken::Broken::new(format!($($what)+)));
        }
    };
}

pub(crate) use hold;
