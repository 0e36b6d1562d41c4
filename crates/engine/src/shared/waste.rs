//! What has left the state and takes long to free.

use std::fmt::Debug;

/// What has left the state. Any thread may drop it: to free ten million messages takes milliseconds.
#[derive(Debug, Default)]
pub struct Waste(Vec<Box<dyn Debug + Send>>);

impl Waste {
    pub(crate) fn push(&mut self, gone: impl Debug + Send + 'static) {
        self.0.push(Box::new(gone));
    }

    pub(crate) fn append(&mut self, other: &mut Self) {
        self.0.append(&mut other.0);
    }

    /// Whether there is nothing to free.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
