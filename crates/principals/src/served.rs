//! What is in force now.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

/// A snapshot that requests are judged by, and how often principals were changed. Clones share both.
///
/// Reading a snapshot takes a lock that is held only to swap two pointers.
#[derive(Debug, Default)]
pub struct Served<T>(Arc<State<T>>);

#[derive(Debug, Default)]
struct State<T> {
    now: RwLock<Arc<T>>,
    changes: watch::Sender<u64>,
}

impl<T> Clone for Served<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Served<T> {
    /// Serves this.
    pub fn new(now: T) -> Self {
        Self(Arc::new(State {
            now: RwLock::new(Arc::new(now)),
            changes: watch::Sender::new(0),
        }))
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> Arc<T> {
        // A snapshot is swapped as a whole, so it is right even if a thread panicked.
        Arc::clone(&self.0.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves this from now on.
    pub fn replace(&self, next: impl Into<Arc<T>>) {
        let next = next.into();
        let before = {
            let mut now = self.0.now.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *now, next)
        };
        drop(before);
    }

    /// Reports every change from now on, with the number of changes so far.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Reports a change, so that connections judge their requests again.
    pub fn note_change(&self) {
        self.0.changes.send_modify(|count| *count += 1);
    }
}
