//! Does a piece of work once.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::timeout;

use crate::error::{GuardError, StoreError};
use crate::key::{BusinessId, Key, Scope};
use crate::outcome::Outcome;
use crate::request::{Fingerprint, Request};
use crate::store::{Begun, Record, Store, Transaction};

/// How long records of outcomes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Until [`Guard::remove_expired`] finds them older than `keep`.
    Limited {
        /// The longest time between two deliveries of the same work: the life of a message, the time that it may wait
        /// as a dead letter before it is sent again, and the time for which a producer repeats it.
        redelivery_max: Duration,
        /// How long a record is kept. Longer than `redelivery_max`: a delivery after it does the work again.
        keep: Duration,
    },
    /// Always.
    Forever,
}

/// How a guard works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardOptions {
    /// The largest outcome, in bytes. Default 64 KiB.
    pub outcome_size_max_bytes: usize,
    /// How long a handler may run with the transaction open. Default 30 s. Choose less than the lock duration or the
    /// visibility timeout of the message.
    pub time_max: Duration,
    /// How long outcomes are kept. Default: 30 days, for redeliveries within 14 days.
    pub retention: Retention,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self {
            outcome_size_max_bytes: 64 << 10,
            time_max: Duration::from_secs(30),
            retention: Retention::Limited {
                redelivery_max: Duration::from_hours(14 * 24),
                keep: Duration::from_hours(30 * 24),
            },
        }
    }
}

/// The outcome of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<O> {
    /// It was done now.
    New(O),
    /// It had been done before. The handler did not run.
    Repeated(O),
}

impl<O> Answer<O> {
    /// The outcome, whenever the work was done.
    pub fn into_outcome(self) -> O {
        match self {
            Self::New(outcome) | Self::Repeated(outcome) => outcome,
        }
    }

    /// Whether the work had been done before.
    pub fn is_repeated(&self) -> bool {
        match self {
            Self::New(_) => false,
            Self::Repeated(_) => true,
        }
    }
}

/// The future of a handler that is a closure.
pub type HandlerFuture<'a, O, E> = Pin<Box<dyn Future<Output = Result<O, E>> + Send + 'a>>;

/// Does a piece of work in an open transaction.
///
/// Change nothing outside the transaction: everything else stays when it is rolled back. The transaction holds locks
/// in the database, so a handler waits for nothing but the database.
pub trait Handler<T>: Send {
    /// What is recorded.
    type Outcome: Outcome;

    /// Why the work could not be done.
    type Error: Send;

    /// Does the work. After an error everything is rolled back, and nothing is recorded.
    fn handle(
        self,
        transaction: &mut T,
    ) -> impl Future<Output = Result<Self::Outcome, Self::Error>> + Send;
}

/// A closure as a handler.
struct Closure<F>(F);

impl<T, O, E, F> Handler<T> for Closure<F>
where
    T: Send,
    O: Outcome,
    E: Send,
    F: for<'a> FnOnce(&'a mut T) -> HandlerFuture<'a, O, E> + Send,
{
    type Outcome = O;
    type Error = E;

    async fn handle(self, transaction: &mut T) -> Result<O, E> {
        self.0(transaction).await
    }
}

/// Does each piece of work of one scope once.
#[derive(Clone, Debug)]
pub struct Guard<S> {
    store: S,
    scope: Scope,
    options: GuardOptions,
}

impl<S: Store> Guard<S> {
    /// A guard for the work of a scope.
    ///
    /// Fails if the retention is not longer than the time in which work may be delivered again.
    pub fn new(store: S, scope: Scope, options: GuardOptions) -> Result<Self, StoreError> {
        match options.retention {
            Retention::Limited {
                redelivery_max,
                keep,
            } if keep <= redelivery_max => Err(StoreError::refused(format!(
                "records are kept for {keep:?}, and work can be delivered again for {redelivery_max:?}: keep them longer"
            ))),
            Retention::Limited { .. } | Retention::Forever => Ok(Self {
                store,
                scope,
                options,
            }),
        }
    }

    /// Does the work once, with a closure: `|transaction| Box::pin(async move { … })`. What [`Handler`] says of handlers
    /// holds for it.
    ///
    /// See [`Guard::run_handler`].
    pub async fn run<O, E, F>(
        &self,
        request: impl Into<Request> + Send,
        handler: F,
    ) -> Result<Answer<O>, GuardError<E>>
    where
        O: Outcome,
        E: Send,
        F: for<'a> FnOnce(&'a mut S::Transaction) -> HandlerFuture<'a, O, E> + Send,
    {
        self.run_handler(request, Closure(handler)).await
    }

    /// Does the work once, and returns its outcome. If it has been done, the handler does not run. If other work has been
    /// done under the same id, this fails with [`GuardError::AnotherRequest`]; a request that is only a [`BusinessId`] is
    /// not compared.
    ///
    /// The outcome is durable when this returns: settle the message then. Two requests with the same id at the same
    /// time wait for each other. To drop the future rolls the work back, or leaves it done; the next request with the
    /// same id finds out.
    pub async fn run_handler<H: Handler<S::Transaction>>(
        &self,
        request: impl Into<Request> + Send,
        handler: H,
    ) -> Result<Answer<H::Outcome>, GuardError<H::Error>> {
        let Request { id, fingerprint } = request.into();
        let mut transaction = match self.store.begin(&self.key(&id)).await? {
            Begun::Recorded(record) => return read(&id, fingerprint, record).map(Answer::Repeated),
            Begun::New(transaction) => transaction,
        };
        match self.handle(handler, &mut transaction).await {
            Ok((outcome, bytes)) => {
                let record = Record {
                    outcome: bytes,
                    fingerprint,
                };
                transaction.commit(record).await?;
                Ok(Answer::New(outcome))
            }
            Err(error) => {
                // It is rolled back in any case, at the latest when the database sees the end of the connection.
                if let Err(failed) = transaction.roll_back().await {
                    tracing::debug!(target: "kew::idempotency", %id, %failed, "a rollback failed");
                }
                Err(error)
            }
        }
    }

    /// The outcome of the work, if it is done. `None` means that the database has no record of it. Fails with
    /// [`GuardError::AnotherRequest`] as [`Guard::run_handler`] does.
    pub async fn look_up<O: Outcome>(
        &self,
        request: impl Into<Request> + Send,
    ) -> Result<Option<O>, GuardError<std::convert::Infallible>> {
        let Request { id, fingerprint } = request.into();
        let found = self.store.find(&self.key(&id)).await?;
        let found = found.map(|record| read(&id, fingerprint, record));
        found.transpose()
    }

    /// Removes records that are older than the retention, at most `limit` of them, and returns how many it removed.
    ///
    /// Call it from time to time, again at once if it removed `limit`. It removes nothing if outcomes are kept forever.
    pub async fn remove_expired(&self, limit: u32) -> Result<u64, StoreError> {
        match self.options.retention {
            Retention::Limited { keep, .. } => {
                self.store.remove_older_than(&self.scope, keep, limit).await
            }
            Retention::Forever => Ok(0),
        }
    }

    /// The database.
    pub fn store(&self) -> &S {
        &self.store
    }

    fn key(&self, id: &BusinessId) -> Key {
        Key {
            scope: self.scope.clone(),
            id: id.clone(),
        }
    }

    async fn handle<H: Handler<S::Transaction>>(
        &self,
        handler: H,
        transaction: &mut S::Transaction,
    ) -> Result<(H::Outcome, Vec<u8>), GuardError<H::Error>> {
        let limit = self.options.time_max;
        let outcome = timeout(limit, handler.handle(transaction))
            .await
            .map_err(|_| GuardError::TimedOut {
                limit_ms: limit.as_millis(),
            })?
            .map_err(GuardError::Handler)?;
        let bytes = outcome.to_bytes().map_err(GuardError::OutcomeUnwritable)?;
        let (size_bytes, limit_bytes) = (bytes.len(), self.options.outcome_size_max_bytes);
        if size_bytes > limit_bytes {
            return Err(GuardError::OutcomeTooLarge {
                size_bytes,
                limit_bytes,
            });
        }
        Ok((outcome, bytes))
    }
}

/// The recorded outcome, if it is that of this request.
fn read<O: Outcome, E>(
    id: &BusinessId,
    fingerprint: Option<Fingerprint>,
    record: Record,
) -> Result<O, GuardError<E>> {
    match (fingerprint, record.fingerprint) {
        (Some(asked), Some(done)) if asked != done => {
            return Err(GuardError::AnotherRequest { id: id.clone() });
        }
        // One of them is not compared.
        (Some(_) | None, Some(_) | None) => {}
    }
    O::from_bytes(record.outcome).map_err(GuardError::OutcomeUnreadable)
}
