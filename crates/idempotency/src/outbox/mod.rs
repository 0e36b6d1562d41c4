//! Effects outside the database: messages that are written in the transaction and sent after its commit.

#[cfg(feature = "client")]
mod bus;
mod message;
mod publish;
mod pump;

use std::time::Duration;

use tokio::sync::watch;

#[cfg(feature = "client")]
pub use bus::BusPublisher;
pub use message::OutboxMessage;
pub use publish::{Publish, PublishError};
pub use pump::{Pump, PumpOptions, Pumped};

use crate::error::StoreError;
use crate::random;
use crate::store::Store;

/// A message that waits to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its place in the order of its destination.
    pub sequence: i64,
    /// The message.
    pub message: OutboxMessage,
}

/// Who sends the messages of a destination: one pump at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder(String);

impl Holder {
    /// A name that no other pump has.
    pub fn new() -> Result<Self, StoreError> {
        random::token().map(Self)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A database with an outbox.
///
/// Each destination has a lease of its own, so that two pumps do not send its messages out of order. The lease is timed
/// by the clock of the database. A pump that stalls for longer may send a message a second time, and removes nothing
/// that another pump is responsible for.
pub trait OutboxStore: Store {
    /// The destinations that have messages, at most `limit` of them.
    fn destinations(
        &self,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Takes the lease of a destination, or holds it for longer. Returns false if another holder has it.
    fn lease(
        &self,
        destination: &str,
        holder: &Holder,
        time: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Gives the lease back, if this holder has it.
    fn release(
        &self,
        destination: &str,
        holder: &Holder,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The first messages of a destination, in order, at most `limit` of them and 4 MiB (one at least).
    fn pending(
        &self,
        destination: &str,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<Pending>, StoreError>> + Send;

    /// Removes messages that were accepted, if this holder has the lease. Returns false, and removes nothing, if it has
    /// not.
    fn remove_sent(
        &self,
        destination: &str,
        holder: &Holder,
        sequences: &[i64],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// A number that changes when a transaction of this process has committed messages.
    fn enqueued(&self) -> watch::Receiver<u64>;
}

/// The most that [`OutboxStore::pending`] returns, in bytes of bodies, unless the first message is larger.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const PENDING_SIZE_MAX_BYTES: usize = 4 << 20;

/// How many of these sizes, in order, are read at once.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn within_size(size_bytes: usize, total_bytes: &mut usize) -> bool {
    let is_first = *total_bytes == 0;
    *total_bytes = total_bytes.saturating_add(size_bytes.max(1));
    is_first || *total_bytes <= PENDING_SIZE_MAX_BYTES
}
