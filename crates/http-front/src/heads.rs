//! The heads of a connection that were read, and their spelling on its way to the answers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::spelling::Spelling;

/// The heads that were read and that hyper has not passed on yet. Most heads have no spelling to note and are only
/// counted.
#[derive(Debug)]
pub(crate) struct Heads<S> {
    heard_count: AtomicU64,
    taken_count: AtomicU64,
    has_spellings: AtomicBool,
    /// With the index of the head in the connection, from zero.
    spellings: Mutex<VecDeque<(u64, S)>>,
}

impl<S> Default for Heads<S> {
    fn default() -> Self {
        Self {
            heard_count: AtomicU64::new(0),
            taken_count: AtomicU64::new(0),
            has_spellings: AtomicBool::new(false),
            spellings: Mutex::default(),
        }
    }
}

impl<S: Spelling> Heads<S> {
    pub(crate) fn add(&self, spelling: S) {
        let index = self.heard_count.fetch_add(1, Ordering::Relaxed);
        if !spelling.is_empty() {
            lock(&self.spellings).push_back((index, spelling));
            self.has_spellings.store(true, Ordering::Relaxed);
        }
    }

    /// Whether hyper has passed on every head that was read.
    pub(crate) fn are_all_taken(&self) -> bool {
        self.heard_count.load(Ordering::Relaxed) <= self.taken_count.load(Ordering::Relaxed)
    }

    /// The spelling of the head of the next request. `None` if the listener did not report that head.
    pub(crate) fn take(&self) -> Option<S> {
        let index = self.taken_count.fetch_add(1, Ordering::Relaxed);
        if index >= self.heard_count.load(Ordering::Relaxed) {
            return None;
        }
        if !self.has_spellings.load(Ordering::Relaxed) {
            return Some(S::default());
        }
        let mut queued = lock(&self.spellings);
        let found = queued.pop_front_if(|(of, _)| *of == index);
        self.has_spellings
            .store(!queued.is_empty(), Ordering::Relaxed);
        Some(found.map(|(_, spelling)| spelling).unwrap_or_default())
    }
}

/// The spelling of answers that are not written yet. Usually there is none.
#[derive(Debug, Default)]
pub(crate) struct Restores<S> {
    is_needed: AtomicBool,
    spelling: Mutex<S>,
}

impl<S: Spelling> Restores<S> {
    pub(crate) fn add(&self, spelling: S) {
        if !spelling.is_empty() {
            lock(&self.spelling).append(spelling);
            self.is_needed.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Relaxed)
    }

    pub(crate) fn restore(&self, bytes: &mut [u8]) {
        let mut spelling = lock(&self.spelling);
        spelling.restore(bytes);
        self.is_needed
            .store(!spelling.is_empty(), Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
