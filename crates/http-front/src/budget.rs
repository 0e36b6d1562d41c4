//! Bounds on what all connections hold together.
//!
//! Each connection has bounds of its own, but ten thousand times those is more than a machine has.
//! So a body takes its size from one budget as it grows, and releases it when it is dropped: the body of a
//! request when it was carried out, the body of an answer when it was written. Any client can send a head,
//! so heads have a budget of their own until their connection has had an authentic request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// There is no room for the requested bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// How many bytes may be held, and how many are held.
#[derive(Debug)]
pub struct Budget {
    size_bytes_max: usize,
    taken_bytes: AtomicUsize,
}

impl Budget {
    /// Room for this many bytes.
    pub fn new(size_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            size_bytes_max,
            taken_bytes: AtomicUsize::new(0),
        })
    }

    /// A share with nothing in it.
    pub fn share(self: &Arc<Self>) -> Share {
        Share {
            budget: Arc::clone(self),
            size_bytes: 0,
        }
    }

    /// Refuses if there is no room for this many bytes now. Takes no room. A service checks this before it does
    /// something that cannot be undone, so that the answer fits.
    pub fn check_room(&self, size_bytes: usize) -> Result<(), NoRoom> {
        let taken_bytes = self.taken_bytes.load(Ordering::Relaxed);
        if size_bytes <= self.size_bytes_max.saturating_sub(taken_bytes) {
            Ok(())
        } else {
            Err(NoRoom)
        }
    }
}

/// The part of a budget that one body or head has taken. Dropping it releases everything.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    size_bytes: usize,
}

impl Share {
    /// Takes this many bytes more, or refuses and takes nothing.
    pub fn grow(&mut self, size_bytes: usize) -> Result<(), NoRoom> {
        let taken = &self.budget.taken_bytes;
        // Adding first keeps two threads from both seeing the last room.
        let before = taken.fetch_add(size_bytes, Ordering::Relaxed);
        if before.saturating_add(size_bytes) > self.budget.size_bytes_max {
            taken.fetch_sub(size_bytes, Ordering::Relaxed);
            return Err(NoRoom);
        }
        self.size_bytes += size_bytes;
        Ok(())
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self) {
        let size_bytes = std::mem::take(&mut self.size_bytes);
        let taken = &self.budget.taken_bytes;
        taken.fetch_sub(size_bytes, Ordering::Relaxed);
    }

    /// The bytes, which release the share when the last part of them is dropped.
    pub fn hold(self, bytes: Bytes) -> Bytes {
        held(bytes, self)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Bytes that keep something until the last part of them is dropped. If there are no bytes, it is dropped now.
pub fn held(bytes: Bytes, kept: impl Send + 'static) -> Bytes {
    match bytes.is_empty() {
        true => bytes,
        false => Bytes::from_owner(Held { bytes, _kept: kept }),
    }
}

struct Held<T> {
    bytes: Bytes,
    _kept: T,
}

impl<T> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_share_releases_its_bytes() {
        let budget = Budget::new(10);
        let mut one = budget.share();
        let mut two = budget.share();
        one.grow(4).unwrap();
        two.grow(6).unwrap();
        assert!(matches!(one.grow(1), Err(NoRoom)));
        assert!(budget.check_room(0).is_ok());
        assert!(budget.check_room(1).is_err());
        drop(two);
        assert!(budget.check_room(6).is_ok());
        one.grow(6).unwrap();
        drop(one);
        assert!(budget.check_room(10).is_ok());
    }

    #[test]
    fn bytes_hold_their_share_to_the_last_part() {
        let budget = Budget::new(10);
        let mut share = budget.share();
        share.grow(10).unwrap();
        let bytes = share.hold(Bytes::from_static(b"0123456789"));
        let part = bytes.slice(8..);
        drop(bytes);
        assert!(budget.check_room(1).is_err());
        assert_eq!(part, "89");
        drop(part);
        assert!(budget.check_room(10).is_ok());
    }
}
