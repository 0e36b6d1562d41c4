//! Bounds on what the requests of all connections hold together: one for heads, and one for bodies.
//!
//! Each connection has bounds of its own, but thousands of times those is more than a machine has. So
//! heads that are not short and bodies take their size from a room as they grow, and give it back
//! when they are dropped. The two rooms are apart because anybody can send a head, and only clients
//! with a token send bodies: strangers leave no less room for these.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::HttpError;

/// In what the room is counted: nothing smaller is worth it.
const UNIT_SIZE_BYTES: usize = 1024;

/// Room for so much at once.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Semaphore>);

/// What one request has taken of the room.
#[derive(Debug)]
pub(crate) struct Share {
    room: Room,
    taken: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(crate) fn new(size_bytes: usize) -> Self {
        let units = (size_bytes / UNIT_SIZE_BYTES).min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(units)))
    }

    /// A share with nothing in it.
    pub(super) fn share(&self) -> Share {
        Share {
            room: self.clone(),
            taken: None,
        }
    }
}

impl Share {
    /// Grows to so much, or stays and refuses with 503.
    pub(super) fn cover(&mut self, size_bytes: usize) -> Result<(), HttpError> {
        let has = self
            .taken
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let wants = size_bytes.div_ceil(UNIT_SIZE_BYTES);
        let Some(missing) = wants.checked_sub(has).filter(|missing| *missing > 0) else {
            return Ok(());
        };
        let missing = u32::try_from(missing).map_err(|_| crowded())?;
        let more = Arc::clone(&self.room.0).try_acquire_many_owned(missing);
        let more = more.map_err(|_| crowded())?;
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        Ok(())
    }

    /// Gives everything back.
    pub(super) fn clear(&mut self) {
        self.taken = None;
    }

    /// The bytes, which give the share back when the last part of them is dropped.
    pub(super) fn hold(self, bytes: Bytes) -> Bytes {
        held(bytes, self)
    }
}

pub(super) fn crowded() -> HttpError {
    let text = "The server has as many requests as it can hold.";
    HttpError::busy(text)
}

/// Bytes that keep something until the last part of them is dropped. If there are none, it goes now.
pub(super) fn held(bytes: Bytes, kept: impl Send + 'static) -> Bytes {
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
    fn what_is_taken_comes_back_with_the_last_byte() {
        let room = Room::new(10 * UNIT_SIZE_BYTES);
        let (mut one, mut two) = (room.share(), room.share());
        one.cover(1).unwrap();
        one.cover(4 * UNIT_SIZE_BYTES).unwrap();
        two.cover(6 * UNIT_SIZE_BYTES).unwrap();
        assert!(one.cover(4 * UNIT_SIZE_BYTES + 1).is_err());
        one.cover(4 * UNIT_SIZE_BYTES).unwrap();
        let held = two.hold(Bytes::from_static(b"0123456789"));
        let part = held.slice(2..3);
        drop(held);
        assert!(one.cover(5 * UNIT_SIZE_BYTES).is_err());
        drop(part);
        one.cover(10 * UNIT_SIZE_BYTES).unwrap();
        one.clear();
        room.share().cover(10 * UNIT_SIZE_BYTES).unwrap();
    }
}
