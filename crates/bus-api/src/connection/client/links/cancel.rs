//! How a wait is ended.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Ends a wait, before or after a last look.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    wake: Notify,
    is_given_up: AtomicBool,
    detached: Notify,
}

impl Cancel {
    /// Cancels the operation.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Cancels it because its link is gone: nobody waits for an answer either.
    pub(crate) fn detach(&self) {
        self.give_up();
        self.detached.notify_one();
    }

    /// Waits until the link is gone.
    pub(crate) async fn detached(&self) {
        self.detached.notified().await;
    }

    /// Lets the operation take what is available, without waiting.
    pub(crate) fn hurry(&self) {
        self.wake.notify_one();
    }

    pub(crate) async fn cancelled(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }
}
