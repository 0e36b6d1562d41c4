//! What watchers see.

use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::source::Meta;

/// Something that happened in a listener.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<T> {
    /// All handlers of a message succeeded, and it was deleted.
    Completed {
        /// The message.
        message: Arc<T>,
        /// What is known of it.
        meta: Arc<Meta>,
        /// How long the handlers took.
        handled_for: Duration,
    },
    /// An attempt failed. The message comes back after the delay.
    Failed {
        /// The message, if it could be decoded.
        message: Option<Arc<T>>,
        /// What is known of it.
        meta: Arc<Meta>,
        /// Why.
        error: String,
        /// After how long the message comes back.
        delay: Duration,
    },
    /// A message went to the dead-letter or poison queue.
    Buried {
        /// The message, if it could be decoded.
        message: Option<Arc<T>>,
        /// What is known of it.
        meta: Arc<Meta>,
        /// The reason.
        reason: String,
    },
    /// The work of a message is done, and the message could not be deleted.
    Unsettled {
        /// The message.
        message: Arc<T>,
        /// What is known of it.
        meta: Arc<Meta>,
        /// Why.
        error: String,
    },
    /// A lease ended while its handlers ran. They were stopped.
    LeaseLost {
        /// What is known of the message.
        meta: Arc<Meta>,
    },
    /// A message went back unfinished because the listener stopped.
    Returned {
        /// What is known of it.
        meta: Arc<Meta>,
    },
    /// A request to the service failed. A pause follows.
    RequestFailed {
        /// Why.
        error: String,
        /// How long the task pauses.
        pause: Duration,
    },
    /// Work came to an idle queue.
    WokeUp {
        /// About how many messages it holds.
        depth: Option<u64>,
        /// How many tasks were started.
        started: u32,
    },
    /// A dequeue task ended.
    TaskEnded {
        /// How many still run.
        active: u32,
    },
    /// This watcher was too slow, and so many events were dropped.
    Missed(u64),
}

/// The events of a listener from now on. It slows nothing down: a watcher that is more than 1,024 events behind
/// loses the oldest.
#[derive(Debug)]
pub struct Watch<T>(broadcast::Receiver<Arc<Event<T>>>);

impl<T: Send + Sync + 'static> Watch<T> {
    pub(crate) fn new(receiver: broadcast::Receiver<Arc<Event<T>>>) -> Self {
        Self(receiver)
    }

    /// Waits for the next event. `None` after the listener's end. To drop the future loses nothing.
    pub async fn next(&mut self) -> Option<Arc<Event<T>>> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(count)) => Some(Arc::new(Event::Missed(count))),
            Err(RecvError::Closed) => None,
        }
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Arc<Event<T>>> + Send {
        futures_util::stream::unfold(self, async |mut watch| {
            watch.next().await.map(|event| (event, watch))
        })
    }
}
