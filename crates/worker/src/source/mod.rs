//! What hands out messages: a queue of one of the services, behind three traits.
//!
//! A [`Source`] is opened once for each dequeue task. What it opens is an [`Intake`], which receives. A received
//! message is a [`Lease`]: an exclusive, timed hold that ends with a settlement or by itself.

mod bury;
mod bus;
mod envelope;
mod key;
mod message;
mod poison;
mod queue;
mod session;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

pub use self::bury::Burial;
pub use self::bus::{BusIntake, BusLease, BusSource};
pub use self::envelope::Envelopes;
pub use self::key::Key;
pub use self::message::{Attempt, Incoming, Meta, Outgoing};
pub use self::queue::{QueueIntake, QueueLease, QueueSource, TextEncoding};
pub use self::session::{SessionIntake, SessionLease, SessionSource};
use crate::error::SourceError;

pub(crate) use self::envelope::Envelope;
pub(crate) use self::message::{HISTORY_MAX, LEASE_HINT, history_text, properties_of_bus};
pub(crate) use self::queue::text_of;

/// Where a source receives from. Metrics, spans and announcements name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceName {
    /// The storage account or the namespace.
    pub account: Arc<str>,
    /// The queue.
    pub queue: Arc<str>,
}

impl SourceName {
    /// A name.
    pub fn new(account: &str, queue: &str) -> Self {
        Self {
            account: account.into(),
            queue: queue.into(),
        }
    }
}

/// What an intake is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// At most so many messages; at least 1.
    pub count: u32,
    /// How long each is to be leased. A service that decides itself ignores it.
    pub lease: Duration,
}

/// A queue that hands out messages.
pub trait Source: Send + Sync + 'static {
    /// A received message.
    type Lease: Lease;
    /// What receives for one dequeue task.
    type Intake: Intake<Lease = Self::Lease>;

    /// Whether messages of one intake must be handled one after the other. Such an intake hands out no message that
    /// would overtake one that it handed out before and that is not certain to be settled.
    const IS_ORDERED: bool = false;

    /// Whether the listener chooses how long a message is leased. If not, the service has locks of its own, counts
    /// deliveries, and buries a message after too many.
    const CHOOSES_LEASE: bool = false;

    /// Which queue it is.
    fn name(&self) -> &SourceName;

    /// The most messages that one request returns. The listener asks for no more.
    fn batch_size_max(&self) -> u32;

    /// Opens an intake for one dequeue task. To drop the future gives it up.
    fn open(&self) -> impl Future<Output = Result<Self::Intake, SourceError>> + Send;

    /// About how many messages the queue holds, or `None` if this source cannot know. It is one request.
    fn depth(&self) -> impl Future<Output = Result<Option<u64>, SourceError>> + Send;
}

/// A source whose service lets the listener choose how long a message is leased.
pub trait ChosenLease: Source {}

/// Receives for one dequeue task.
pub trait Intake: Send + 'static {
    /// A received message.
    type Lease: Lease;

    /// Whether [`receive`](Self::receive) waits until there is a message. Then its future can be dropped without a
    /// loss. If it is `false`, `receive` returns at once with what there is, perhaps nothing, and its future is
    /// never dropped, except when the process gives up.
    const WAITS: bool;

    /// Receives messages.
    fn receive(
        &mut self,
        ask: Ask,
    ) -> impl Future<Output = Result<Vec<Self::Lease>, SourceError>> + Send;

    /// Returns messages that arrived and were not received, and ends the intake.
    fn close(self) -> impl Future<Output = Result<(), SourceError>> + Send;
}

/// A message under an exclusive, timed hold. To drop it settles nothing: the message comes back when the lease ends.
///
/// The methods take `&mut self` because a request can change what names the lease.
pub trait Lease: Send + 'static {
    /// The message.
    fn incoming(&self) -> &Incoming;

    /// When the lease ends: never later than the service ends it, as far as clocks allow.
    fn ends_at(&self) -> Instant;

    /// Holds the message for `duration` from now. A service that decides itself ignores the duration.
    fn renew(&mut self, duration: Duration)
    -> impl Future<Output = Result<(), SourceError>> + Send;

    /// The message was handled, and nothing but its delete is called from now on: what else the lease holds of it can be
    /// freed. The listener says it only if no codec and no event needs the body any more.
    fn handled(&mut self) {}

    /// Deletes the message: its work is done.
    fn complete(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Whether [`complete_all`](Self::complete_all) costs less than to complete each message. If it is `false`, the
    /// listener does not call it.
    const COMPLETES_TOGETHER: bool = false;

    /// Deletes messages of one intake, and returns what became of each, in their order. To drop the future leaves all
    /// of them open.
    fn complete_all(
        leases: Vec<&mut Self>,
    ) -> impl Future<Output = Vec<Result<(), SourceError>>> + Send
    where
        Self: Sized,
    {
        async {
            let mut outcomes = Vec::with_capacity(leases.len());
            for lease in leases {
                outcomes.push(lease.complete().await);
            }
            outcomes
        }
    }

    /// Whether [`release`](Self::release) can hide the message for a time. If not, the listener holds it instead.
    fn hides_released(&self) -> bool;

    /// Returns the message, so that it can be received after `delay`, with the history of its failures where the
    /// service has a place for it.
    fn release(
        &mut self,
        delay: Duration,
        history: &[Attempt],
    ) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Moves the message to where failed messages lie. It is never lost on the way, but it can be there twice.
    fn bury(&mut self, burial: &Burial) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Whether [`bury`](Self::bury) failed after the message was put where failed messages lie, so that only its
    /// delete is missing.
    fn is_buried(&self) -> bool {
        false
    }
}

/// A lease whose service has a place for the progress of long work.
pub trait Checkpoints: Lease {
    /// Stores the progress. It stays when the lease ends, and the next delivery has it in [`Meta::checkpoint`].
    fn save(&mut self, progress: Bytes) -> impl Future<Output = Result<(), SourceError>> + Send;
}
