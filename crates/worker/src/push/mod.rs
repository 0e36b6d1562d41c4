//! Announcements of work, so that nobody polls an empty queue.
//!
//! An announcement is a hint: a listener that misses one finds the work later, by its re-check. It is sent before the
//! first or after the last message of a package, or when a queue has grown to some depth; every listener is offered
//! it, and acts if account and queue are its own.

mod bus;
mod local;
mod message;
mod topic;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::bus::{BusAnnouncements, BusAnnouncer, create_push_queue};
pub use self::local::{LocalAnnouncements, LocalPush};
pub use self::topic::{TopicAnnouncements, TopicAnnouncer, create_push_topic};
use crate::delivery::Boxed;
use crate::error::SourceError;
use crate::source::SourceName;

/// Work was put into a queue.
///
/// As JSON: `{"account":"a","queue":"jobs","size_bytes":1024,"sender":"web-1"}`. Unknown members are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The storage account or the namespace.
    pub account: String,
    /// The queue.
    pub queue: String,
    /// How large the work is, if the sender says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Who announces it, for people.
    #[serde(default)]
    pub sender: String,
}

impl Announcement {
    /// Of work in this queue.
    pub fn new(name: &SourceName, sender: impl Into<String>) -> Self {
        Self {
            account: name.account.to_string(),
            queue: name.queue.to_string(),
            size_bytes: None,
            sender: sender.into(),
        }
    }

    pub(crate) fn is_for(&self, name: &SourceName) -> bool {
        self.account == *name.account && self.queue == *name.queue
    }
}

/// What a listener hears.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heard {
    /// An announcement, perhaps for another queue.
    Work(Announcement),
    /// Announcements were missed: the listener looks into its queue.
    Missed,
}

/// Announces work to listeners.
pub trait Announce: Send + Sync + 'static {
    /// Offers an announcement to every listener. An error means that some may not hear it; the work itself is safe.
    fn announce(
        &self,
        announcement: &Announcement,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;
}

/// Hears announcements, for one listener.
pub trait Announcements: Send + 'static {
    /// Begins to hear. Announcements made after this returned `Ok` are heard, until [`next`](Self::next) fails.
    fn ready(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Waits for the next announcement. To drop the future must lose nothing. After an error the listener calls
    /// [`ready`](Self::ready) again, and polls until that succeeds.
    fn next(&mut self) -> impl Future<Output = Result<Heard, SourceError>> + Send;

    /// For how long after [`ready`](Self::ready) announcers may not know this listener yet. It looks into its queue
    /// some times until then. Default: none.
    fn unknown_for(&self) -> Duration {
        Duration::ZERO
    }

    /// The listener has stopped: gives back what was set up for it. It has 5 s for that. Default: nothing.
    fn close(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The same with futures in boxes.
pub(crate) trait DynAnnouncements: Send {
    fn ready_boxed(&mut self) -> Boxed<'_, Result<(), SourceError>>;
    fn next_boxed(&mut self) -> Boxed<'_, Result<Heard, SourceError>>;
    fn unknown_for_dyn(&self) -> Duration;
    fn close_boxed(&mut self) -> Boxed<'_, ()>;
}

impl<A: Announcements> DynAnnouncements for A {
    fn ready_boxed(&mut self) -> Boxed<'_, Result<(), SourceError>> {
        Box::pin(self.ready())
    }

    fn next_boxed(&mut self) -> Boxed<'_, Result<Heard, SourceError>> {
        Box::pin(self.next())
    }

    fn unknown_for_dyn(&self) -> Duration {
        self.unknown_for()
    }

    fn close_boxed(&mut self) -> Boxed<'_, ()> {
        Box::pin(self.close())
    }
}

impl fmt::Debug for dyn DynAnnouncements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Announcements")
    }
}
