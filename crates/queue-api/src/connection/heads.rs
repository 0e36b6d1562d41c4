//! The spelling of metadata names, from the heads of requests to their answers.
//!
//! hyper passes names on in lower case. So they are noted as the bytes of a head arrive, and written back
//! into the bytes of the answer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::spelling::Spellings;

/// The heads that were read and that hyper has not passed on yet. Most heads have no metadata and are only
/// counted.
#[derive(Default)]
pub(super) struct Heads {
    heard_count: AtomicU64,
    taken_count: AtomicU64,
    has_spellings: AtomicBool,
    /// With the index of the head in the connection, from zero.
    spellings: Mutex<VecDeque<(u64, Spellings)>>,
}

impl Heads {
    pub(super) fn add(&self, spellings: Spellings) {
        let index = self.heard_count.fetch_add(1, Ordering::Relaxed);
        if !spellings.is_empty() {
            lock(&self.spellings).push_back((index, spellings));
            self.has_spellings.store(true, Ordering::Relaxed);
        }
    }

    /// Whether hyper has passed on every head that was read.
    pub(super) fn are_all_taken(&self) -> bool {
        self.heard_count.load(Ordering::Relaxed) <= self.taken_count.load(Ordering::Relaxed)
    }

    /// The names in the head of the next request. `None` if that head was not read.
    pub(super) fn take(&self) -> Option<Spellings> {
        let index = self.taken_count.fetch_add(1, Ordering::Relaxed);
        if index >= self.heard_count.load(Ordering::Relaxed) {
            return None;
        }
        if !self.has_spellings.load(Ordering::Relaxed) {
            return Some(Spellings::default());
        }
        let mut queued = lock(&self.spellings);
        let found = queued.pop_front_if(|(of, _)| *of == index);
        self.has_spellings
            .store(!queued.is_empty(), Ordering::Relaxed);
        Some(found.map(|(_, spellings)| spellings).unwrap_or_default())
    }
}

/// The spelling of metadata in answers that are not written yet. Usually there is none.
#[derive(Default)]
pub(super) struct Restores {
    is_needed: AtomicBool,
    spellings: Mutex<Spellings>,
}

impl Restores {
    pub(super) fn add(&self, spellings: Spellings) {
        if !spellings.is_empty() {
            lock(&self.spellings).append(spellings);
            self.is_needed.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Relaxed)
    }

    pub(super) fn restore(&self, bytes: &mut [u8]) {
        let mut spellings = lock(&self.spellings);
        spellings.restore(bytes);
        self.is_needed
            .store(!spellings.is_empty(), Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
