//! What a thread does when it ends by a panic, so that no other thread waits for it.

use std::sync::Arc;
use std::thread;

use tokio::sync::watch;

use super::mailbox::{Intake, Shared};
use crate::Failure;
use crate::broker::lock;

/// Rejects all waiting commands when the runner ends, however it ends.
pub(super) struct LastWill {
    pub(super) shared: Arc<Shared>,
    pub(super) failed: watch::Sender<Option<Failure>>,
}

impl Drop for LastWill {
    fn drop(&mut self) {
        // Dropped tickets answer their callers that the partition has stopped.
        self.shared.close_intake(Intake::Stopped, &mut Vec::new());
        if thread::panicking() {
            self.failed.send_replace(Some(Failure::of_a_bug()));
        }
    }
}

/// Lets the runner know if a thread dies in the middle of a job.
pub(super) struct TellIfGone<'a>(pub(super) &'a Shared);

impl Drop for TellIfGone<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut mailbox = lock(&self.0.mailbox);
            mailbox.worker_is_gone = true;
            self.0.wake(mailbox);
        }
    }
}
