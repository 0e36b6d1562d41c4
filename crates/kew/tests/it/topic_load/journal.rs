//! What clients have sent and settled, and what the server has said of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kew_client::Error;

use super::places::Copies;
use crate::bus_load::is_gone;

/// Messages that arrive together, or not at all.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) numbers: Vec<u64>,
    /// A copy that is completed with them.
    pub(super) completes: Option<u64>,
    pub(super) is_accepted: bool,
    /// The disk was full.
    pub(super) is_refused: bool,
    /// A check has not found them, so they never arrive.
    pub(super) is_absent: bool,
}

/// What became of a copy that a client has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Completing,
    Completed,
    DeadLettering,
    DeadLettered,
}

impl Settled {
    /// Whether this may be found of a copy.
    pub(super) fn allows(self, found: Copies) -> bool {
        match (self, found.live, found.dead) {
            (Self::Completing | Self::Completed, 0, 0) => true,
            (Self::DeadLettering | Self::DeadLettered, 0, 1) => true,
            (Self::Completing | Self::DeadLettering, 1, 0) => true,
            (_, _, _) => false,
        }
    }

    /// What it is after a look. `None` if nothing has happened.
    pub(super) fn after(found: Copies) -> Option<Self> {
        match (found.live, found.dead) {
            (0, 0) => Some(Self::Completed),
            (0, _) => Some(Self::DeadLettered),
            (_, _) => None,
        }
    }
}

/// What all clients know.
#[derive(Default)]
pub(super) struct Journal {
    sent: Mutex<Vec<Sent>>,
    /// Of the subscription that clients receive from.
    settled: Mutex<BTreeMap<u64, Settled>>,
    last: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) rules_changed: AtomicU64,
    refused: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Journal {
    pub(super) fn sent(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn settled(&self) -> MutexGuard<'_, BTreeMap<u64, Settled>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that these are going to be sent. Returns their place in the journal.
    pub(super) fn sending(&self, count: u64, completes: Option<u64>) -> (usize, Vec<u64>) {
        let first = self.last.fetch_add(count, Relaxed) + 1;
        let numbers: Vec<u64> = (first..first + count).collect();
        let mut sent = self.sent();
        sent.push(Sent {
            numbers: numbers.clone(),
            completes,
            is_accepted: false,
            is_refused: false,
            is_absent: false,
        });
        (sent.len() - 1, numbers)
    }

    pub(super) fn accepted(&self, place: usize) {
        let mut sent = self.sent();
        sent[place].is_accepted = true;
        let count = sent[place].numbers.len() as u64;
        self.accepted.fetch_add(count, Relaxed);
    }

    pub(super) fn refused(&self, place: usize) {
        self.sent()[place].is_refused = true;
    }

    pub(super) fn settles(&self, number: u64, how: Settled) {
        self.settled().insert(number, how);
    }

    /// A look has shown that the settlement was not done, so another client may settle the copy.
    pub(super) fn does_not_settle(&self, number: u64) {
        self.settled().remove(&number);
    }

    /// The end of a client: the server disappeared, or it refused something.
    pub(super) fn ended(&self, how: Result<(), Error>) {
        if let Err(error) = how
            && !is_gone(&error)
        {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            refused.push(error.to_string());
        }
    }

    pub(super) fn assert_nothing_refused(&self) {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(refused.is_empty(), "{refused:?}");
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    pub(super) fn set_over(&self, is_over: bool) {
        self.is_over.store(is_over, Relaxed);
    }
}
