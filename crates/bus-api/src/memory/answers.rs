//! Room for answers with messages, from the request until their connection has them.

use std::sync::Arc;

use kew_engine::bus::ANSWER_SIZE_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit of room for answers.
const ANSWER_UNIT_BYTES: usize = 16 << 10;

/// A page of many entries over HTTP: the broker's answer, and the written page.
pub(crate) fn units_of_page() -> u32 {
    2 * units_of(usize::MAX)
}

/// The units for an answer of this size: at least one, and at most those of the largest answer.
pub(crate) fn units_of(size_bytes: usize) -> u32 {
    let largest = usize::try_from(ANSWER_SIZE_BYTES_MAX).unwrap_or(usize::MAX);
    let units = size_bytes.min(largest).div_ceil(ANSWER_UNIT_BYTES).max(1);
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Frees units that are not needed. If the answer is larger than expected, it takes more units if
/// they are free, and else goes without.
pub(crate) fn resize(taken: &mut OwnedSemaphorePermit, units: usize) {
    let has = taken.num_permits();
    if let Some(surplus) = has.checked_sub(units) {
        drop(taken.split(surplus));
    } else if let Ok(missing) = u32::try_from(units.saturating_sub(has))
        && let Ok(more) = Arc::clone(taken.semaphore()).try_acquire_many_owned(missing)
    {
        taken.merge(more);
    }
}

/// Room for answers with messages, from the request until their connection has them; over HTTP,
/// until they are written. There is always room for the largest answer alone.
#[derive(Debug)]
pub(crate) struct RoomForAnswers(pub(crate) Arc<Semaphore>);

impl RoomForAnswers {
    pub(crate) fn new(held_size_bytes_max: usize) -> Self {
        let units = held_size_bytes_max / ANSWER_UNIT_BYTES;
        let least = units_of_page() as usize;
        let units = units.clamp(least, Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(units)))
    }

    /// Room for an answer of at most this size, and for its written form. `None` only when the
    /// server ends.
    pub(crate) async fn for_both(&self, size_bytes: usize) -> Option<OwnedSemaphorePermit> {
        let answers = Arc::clone(&self.0);
        let room = answers.acquire_many_owned(2 * units_of(size_bytes));
        room.await.ok()
    }

    /// Room for an answer of about this size, if some is free and no other request waits for it.
    pub(crate) fn try_for(&self, size_bytes: usize) -> Option<OwnedSemaphorePermit> {
        let answers = Arc::clone(&self.0);
        answers.try_acquire_many_owned(units_of(size_bytes)).ok()
    }

    /// The same, and waits for room. `None` only when the server ends.
    pub(crate) async fn wait_for(&self, size_bytes: usize) -> Option<OwnedSemaphorePermit> {
        let answers = Arc::clone(&self.0);
        let room = answers.acquire_many_owned(units_of(size_bytes));
        room.await.ok()
    }
}
