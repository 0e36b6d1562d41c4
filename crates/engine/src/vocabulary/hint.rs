//! Values that are no part of the state.

use std::ops::{Deref, DerefMut};

/// Where to look first: derived from the state, right or too early, and raised by a look, without an
/// event. A replay may come to another value, so two hints are always equal.
#[derive(Debug, Default)]
pub(crate) struct Hint<T>(T);

impl<T> Hint<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for Hint<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Hint<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> PartialEq for Hint<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Hint<T> {}
