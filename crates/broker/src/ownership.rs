//! Which ownership of its log a partition is in, as front ends see it.
//!
//! A front end that keeps something of the partition in memory notes the epoch in which it was read. In another epoch it
//! reads anew: other owners may have changed it in between.

use std::sync::atomic::{AtomicU64, Ordering};

use kew_log::Epoch;
use tokio::sync::watch;

/// The epoch with which the partition behind a door is owned, if it is. Reading it is one atomic load.
#[derive(Debug, Default)]
pub struct Ownership {
    /// The number of the epoch. 0 without an owner: no epoch has this number.
    now: AtomicU64,
    changes: watch::Sender<Option<Epoch>>,
}

impl Ownership {
    /// The epoch with which the partition is owned. `None` if this door leads to no owner.
    ///
    /// It is published before the first command of the epoch is taken. Over a connection it comes a little later. A command
    /// that must not be carried out in a later epoch is submitted by
    /// [`Broker::submit_within`](crate::Broker::submit_within).
    pub fn epoch(&self) -> Option<Epoch> {
        epoch_of(self.now.load(Ordering::Acquire))
    }

    /// Notifies of each change from now on.
    pub fn watch(&self) -> watch::Receiver<Option<Epoch>> {
        self.changes.subscribe()
    }

    /// From now on it is this one. For doors.
    pub fn set(&self, epoch: Option<Epoch>) {
        let number = epoch.map_or(0, Epoch::as_u64);
        if self.now.swap(number, Ordering::AcqRel) != number {
            self.changes.send_replace(epoch_of(number));
        }
    }
}

fn epoch_of(number: u64) -> Option<Epoch> {
    (number > 0).then(|| Epoch::new(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_and_read_at_once() {
        let ownership = Ownership::default();
        assert_eq!(ownership.epoch(), None);
        let mut changes = ownership.watch();
        for epoch in [Some(Epoch::new(7)), None, Some(Epoch::new(8))] {
            ownership.set(epoch);
            assert_eq!(ownership.epoch(), epoch);
            assert!(changes.has_changed().unwrap());
            assert_eq!(*changes.borrow_and_update(), epoch);
            ownership.set(epoch);
            assert!(!changes.has_changed().unwrap());
        }
    }
}
