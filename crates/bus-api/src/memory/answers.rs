//! Room for answers with messages in them, from when they are asked for until their connection has them.

use std::sync::Arc;

use kew_engine::bus::ANSWER_SIZE_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What room for answers is counted in.
const ANSWER_UNIT_BYTES: usize = 16 << 10;

/// A page of many things over HTTP: what the broker answers, and what is written of it.
pub(crate) fn units_of_page() -> u32 {
    2 * units_of(usize::MAX)
}

/// The units that an answer of this size takes: one at least, and no more than the largest.
pub(crate) fn units_of(size_bytes: usize) -> u32 {
    let largest = usize::try_from(ANSWER_SIZE_BYTES_MAX).unwrap_or(usize::MAX);
    let units = size_bytes.min(largest).div_ceil(ANSWER_UNIT_BYTES).max(1);
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Gives back what is too much. What is missing may not be there: then the answer is larger than it
/// seemed, and is there all the same.
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

/// Room for answers with messages in them, from when they are asked for until their connection has
/// them; over HTTP, until they are written. The largest one has room at any rate.
#[derive(Debug)]
pub(crate) struct RoomForAnswers(pub(crate) Arc<Semaphore>);

impl RoomForAnswers {
    pub(crate) fn new(held_size_bytes_max: usize) -> Self {
        let units = held_size_bytes_max / ANSWER_UNIT_BYTES;
        let least = units_of_page() as usize;
        let units = units.clamp(least, Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(units)))
    }

    /// Room for an answer of at most this size, and for what is written of it. None is left only when the
    /// server ends.
    pub(crate) async fn for_both(&self, size_bytes: usize) -> Option<OwnedSemaphorePermit> {
        let answers = Arc::clone(&self.0);
        let room = answers.acquire_many_owned(2 * units_of(size_bytes));
        room.await.ok()
    }

    /// Room for an answer of about this size, if there is some now and nobody waits for it.
    pub(crate) fn try_for(&self, size_bytes: usize) -> Option<OwnedSemaphorePermit> {
        let answers = Arc::clone(&self.0);
        answers.try_acquire_many_owned(units_of(size_bytes)).ok()
    }

    /// The same, and waits for it. None is left only when the server ends.
    pub(crate) async fn wait_for(&self, size_bytes: usize) -> Option<OwnedSemaphorePermit> {
        let answers = Arc::clone(&self.0);
        let room = answers.acquire_many_owned(units_of(size_bytes));
        room.await.ok()
    }
}
