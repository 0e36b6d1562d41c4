//! What is under way at once: how many operations, and how many bytes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places for operations, which wait for one if there is none.
#[derive(Clone, Debug)]
pub(super) struct Room {
    operations: Arc<Semaphore>,
    /// In units of 1 KiB.
    memory: Arc<Semaphore>,
    memory_max: u32,
}

/// The place of an operation, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _operation: OwnedSemaphorePermit,
    _memory: OwnedSemaphorePermit,
}

impl Room {
    /// For so many operations, of so many bytes together. A larger one waits until it is alone.
    pub(super) fn new(operations: usize, bytes: usize) -> Self {
        let memory_max = kib(bytes);
        Self {
            operations: Arc::new(Semaphore::new(operations)),
            memory: Arc::new(Semaphore::new(memory_max as usize)),
            memory_max,
        }
    }

    /// Waits for a place. To drop the future gives up the place in the line, and nothing else.
    pub(super) async fn take(&self, bytes: usize) -> Place {
        const OPEN: &str = "the semaphore is never closed";
        let operation = self.operations.clone().acquire_owned().await.expect(OPEN);
        let memory = kib(bytes).min(self.memory_max);
        let memory = self.memory.clone().acquire_many_owned(memory).await;
        Place {
            _operation: operation,
            _memory: memory.expect(OPEN),
        }
    }
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10))
        .unwrap_or(u32::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn operations_and_bytes_are_bounded_and_given_back() {
        let room = Room::new(3, 4 << 10);
        let small = room.take(1).now_or_never().unwrap();
        let large = room.take(3 << 10).now_or_never().unwrap();
        assert!(room.take(1).now_or_never().is_none(), "no bytes are left");
        drop(large);
        let places = [room.take(1), room.take(1)].map(|it| it.now_or_never().unwrap());
        assert!(room.take(1).now_or_never().is_none(), "no place is left");
        drop((small, places));
        let huge = room.take(usize::MAX).now_or_never();
        assert!(huge.is_some(), "one that is too large comes alone");
    }
}
