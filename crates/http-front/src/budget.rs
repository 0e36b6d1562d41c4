//! Bounds on what all connections hold together.
//!
//! Each connection has bounds of its own, but ten thousand times those is more than a machine has.
//! So a body takes its size from one budget as it grows, and gives it back when it is dropped: a
//! request's when it was carried out, an answer's when it was written. Anybody can send a head, so heads
//! have a budget of their own until their connection has had an authentic request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// There is no room for as many bytes as were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// How many bytes may be held, and are.
#[derive(Debug)]
pub struct Budget {
    size_bytes_max: usize,
    taken_bytes: AtomicUsize,
}

impl Budget {
    /// Room for so many bytes.
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

    /// Refuses if there is no room for so many bytes now. Takes nothing: a service asks before it does
    /// what cannot be undone, for an answer that would not fit.
    pub fn check_room(&self, size_bytes: usize) -> Result<(), NoRoom> {
        let taken_bytes = self.taken_bytes.load(Ordering::Relaxed);
        if size_bytes <= self.size_bytes_max.saturating_sub(taken_bytes) {
            Ok(())
        } else {
            Err(NoRoom)
        }
    }
}

/// What one body or head has taken of a budget. Dropping it gives everything back.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    size_bytes: usize,
}

impl Share {
    /// Takes so many bytes more, or refuses and takes nothing.
    pub fn grow(&mut self, size_bytes: usize) -> Result<(), NoRoom> {
        let taken = &self.budget.taken_bytes;
        // Adding first keeps two from both seeing the last room.
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

    /// The bytes, which give the share back when the last part of them is dropped.
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
    fn what_is_taken_comes_back() {
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
