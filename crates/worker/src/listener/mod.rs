//! Listeners: dequeue tasks, the tasks of messages, and the handle that applications hold.

mod batch;
mod builder;
mod counters;
mod dequeue;
mod events;
mod failing;
mod finished;
mod handling;
mod keeper;
mod metrics;
mod phase;
mod receives;
mod returns;
mod settle;
mod shared;
mod stop;
mod swiftness;
mod tasks;
mod watcher;

use std::sync::{Arc, Mutex};

use self::shared::{Shared, lock};
use crate::codec::Codec;
use crate::error::SourceError;
use crate::push::DynAnnouncements;
use crate::source::Source;

pub use self::builder::ListenerBuilder;
pub use self::counters::State;
pub use self::events::{Event, Watch};
pub use self::metrics::metrics_page;
pub use self::stop::{Stop, StopReport};

pub(crate) use self::phase::Phase;

/// Why a listener does not start tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// None were asked for.
    #[error("0 dequeue tasks were asked for: start at least 1")]
    NoTasks,
    /// The listener stops or has stopped: build another one.
    #[error("the listener has stopped: build another one")]
    Stopped,
}

/// Receives messages of one queue and hands them to handlers.
///
/// It is cheap to clone. When the last clone is dropped, no more messages are received; messages under way are handled
/// to their end as long as the runtime lives. Call [`stop`](Self::stop) to wait for that.
pub struct Listener<T: Send + Sync + 'static, S: Source> {
    shared: Arc<Shared<T, S>>,
    handle: Arc<Handle<T, S>>,
}

/// What ends with the last clone.
struct Handle<T: Send + Sync + 'static, S: Source> {
    shared: Arc<Shared<T, S>>,
    push: Mutex<Option<Watcher>>,
    stopping: stop::Stopping,
}

/// The task that wakes up others, before it starts.
struct Watcher(Option<Box<dyn DynAnnouncements>>);

impl<T: Send + Sync + 'static, S: Source> Listener<T, S> {
    /// Sets a listener up.
    pub fn builder(source: S, codec: impl Codec<T>) -> ListenerBuilder<T, S> {
        ListenerBuilder::new(source, codec)
    }

    fn new(shared: Arc<Shared<T, S>>, push: Option<Box<dyn DynAnnouncements>>) -> Self {
        let handle = Handle {
            shared: shared.clone(),
            push: Mutex::new(Some(Watcher(push))),
            stopping: stop::Stopping::default(),
        };
        Self {
            shared,
            handle: Arc::new(handle),
        }
    }

    /// Starts so many dequeue tasks beside those that run, and returns how many were started: fewer if the listener's
    /// most are reached. It can be called again.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(&self, tasks: u32) -> Result<u32, StartError> {
        if tasks == 0 {
            return Err(StartError::NoTasks);
        }
        if self.shared.phase() != Phase::Running {
            return Err(StartError::Stopped);
        }
        let started = self
            .shared
            .tasks
            .start(tasks, self.shared.settings.tasks_max);
        dequeue::start(&self.shared, started);
        if let Some(Watcher(push)) = lock(&self.handle.push).take() {
            self.shared.spawn(watcher::watch(self.shared.clone(), push));
        }
        Ok(started)
    }

    /// What the listener does now.
    pub fn state(&self) -> State {
        self.shared.state()
    }

    /// Asks the service about how many messages the queue holds. `None` if the source cannot know. [`State::depth`]
    /// shows it afterwards.
    pub async fn depth(&self) -> Result<Option<u64>, SourceError> {
        self.shared.read_depth().await
    }

    /// The events from now on. A message whose handlers have ended by then has no more events.
    pub fn watch(&self) -> Watch<T> {
        Watch::new(
            self.shared.events.subscribe(),
            self.shared.phase.subscribe(),
        )
    }

    /// Has one idle task look into the queue at once, and others started as the depth says: the application knows
    /// that there is work.
    pub fn announce(&self) {
        if self.shared.phase() == Phase::Running {
            watcher::announced(&self.shared);
        }
    }

    /// Stops receiving, and waits until all messages are settled or a deadline is over.
    ///
    /// To drop the future does not undo the stop. A second call waits for the first one's end.
    pub async fn stop(&self, stop: Stop) -> StopReport {
        self.handle.stopping.run(&self.shared, stop).await
    }

    /// Drops all work at once, as if the process had ended. Messages come back when their leases end.
    pub fn abort(&self) {
        self.shared.advance(Phase::Aborted);
    }
}

impl<T: Send + Sync + 'static, S: Source> Clone for Listener<T, S> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            handle: self.handle.clone(),
        }
    }
}

impl<T: Send + Sync + 'static, S: Source> std::fmt::Debug for Listener<T, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("source", self.shared.source.name())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static, S: Source> Drop for Handle<T, S> {
    fn drop(&mut self) {
        self.shared.advance(Phase::Finishing);
    }
}
