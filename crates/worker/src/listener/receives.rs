//! Receives that are under way while a listener stops. One of them would get a message that is returned meanwhile: it
//! would have been delivered once more for nothing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How long a message is held for them at most.
const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// The tasks that may still receive something.
#[derive(Debug)]
pub(crate) struct Receives {
    count: watch::Sender<usize>,
    patience: Mutex<Duration>,
}

impl Default for Receives {
    fn default() -> Self {
        Self {
            count: watch::Sender::new(0),
            patience: Mutex::new(PATIENCE_MAX),
        }
    }
}

impl Receives {
    pub(super) fn begin(&self) {
        self.count.send_modify(|count| *count += 1);
    }

    pub(super) fn end(&self) {
        self.count.send_modify(|count| *count -= 1);
    }

    /// A stop has so long to return messages: enough is left of it for the requests.
    pub(super) fn stops_within(&self, return_within: Duration) {
        let patience = PATIENCE_MAX.min(return_within / 2);
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner) = patience;
    }

    /// Waits until all have ended, and not for long. Only for a listener that receives no more.
    pub(super) async fn ended(&self) {
        let patience = *self.patience.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = self.count.subscribe();
        // The service may not answer: the message goes back nevertheless.
        let _ = timeout(patience, count.wait_for(|count| *count == 0)).await;
    }
}
