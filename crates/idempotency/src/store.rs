//! What a database must be able to do.

use std::time::Duration;

use crate::error::StoreError;
use crate::key::{Key, Scope};
use crate::outbox::OutboxMessage;
use crate::request::Fingerprint;

/// What is recorded of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its outcome.
    pub outcome: Vec<u8>,
    /// What the request said that was done. `None`: it was not compared.
    pub fingerprint: Option<Fingerprint>,
}

/// A piece of work, when its transaction begins.
#[derive(Debug)]
pub enum Begun<T> {
    /// It is done. This is what was recorded. The transaction is rolled back, now or soon.
    Recorded(Record),
    /// It is new. The transaction is open.
    New(T),
}

/// A database with records of outcomes.
///
/// All clones are the same store.
pub trait Store: Clone + Send + Sync + 'static {
    /// An open transaction, as handlers use it.
    type Transaction: Transaction;

    /// Begins a transaction, and looks up whether the work is done.
    ///
    /// Returns [`Begun::New`] only if the database answered that there is no record; anything else is an error. While
    /// the transaction is open, another `begin` of the same key waits for it, or fails with
    /// [`ErrorKind::TryAgainLater`](crate::ErrorKind::TryAgainLater). To drop the future rolls back what it began.
    fn begin(
        &self,
        key: &Key,
    ) -> impl Future<Output = Result<Begun<Self::Transaction>, StoreError>> + Send;

    /// What was recorded, if the work is done.
    fn find(&self, key: &Key) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// Removes at most `limit` records of a scope that are older than `age`, and returns how many it removed.
    fn remove_older_than(
        &self,
        scope: &Scope,
        age: Duration,
        limit: u32,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// An open transaction.
///
/// Dropping it rolls it back, also when the process ends.
pub trait Transaction: Send + 'static {
    /// Writes a message that is sent after the commit.
    ///
    /// Refuses a message whose destination and id are those of one that is still waiting.
    fn enqueue(
        &mut self,
        message: &OutboxMessage,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Writes the record, and commits it with everything else. It is durable when this returns `Ok`.
    ///
    /// If the transaction is not open any more, because the handler ended it or one of its statements failed, this
    /// fails and records nothing. To drop the future leaves it open whether it is committed.
    fn commit(self, record: Record) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Undoes everything.
    fn roll_back(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}
