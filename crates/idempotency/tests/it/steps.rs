//! A store whose operations can be stopped before, during and after them.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use kew_idempotency::{Begun, Key, OutboxMessage, Record, Scope, Store, StoreError, Transaction};
use tokio::sync::Notify;

/// Counts the awaits of a run, and stops it at one of them.
#[derive(Clone, Debug)]
pub(crate) struct Steps(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    passed: AtomicUsize,
    crash_at: usize,
    crashed: Notify,
}

impl Steps {
    pub(crate) fn new(crash_at: usize) -> Self {
        Self(Arc::new(Counted {
            passed: AtomicUsize::new(0),
            crash_at,
            crashed: Notify::new(),
        }))
    }

    /// Goes on, or stands still for ever at the chosen step.
    pub(crate) async fn step(&self) {
        if self.is_here() {
            self.crash::<()>().await;
        }
    }

    /// Runs a future up to its end, or up to its first await at the chosen step.
    pub(crate) async fn during<T>(&self, future: impl Future<Output = T>) -> T {
        self.step().await;
        let mut future = pin!(future);
        if self.is_here() {
            // It has begun, and may be done: what it returns is lost.
            let once = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context)));
            let _ = once.await;
            self.crash::<()>().await;
        }
        let done = future.await;
        self.step().await;
        done
    }

    /// Runs a future, or drops it when it stands still. `None`: it was dropped.
    pub(crate) async fn run<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.0.crashed.notified() => None,
            done = future => Some(done),
        }
    }

    fn is_here(&self) -> bool {
        self.0.passed.fetch_add(1, Ordering::Relaxed) == self.0.crash_at
    }

    async fn crash<T>(&self) -> T {
        self.0.crashed.notify_one();
        pending().await
    }
}

/// A store with steps.
#[derive(Clone, Debug)]
pub(crate) struct Stepped<S>(pub(crate) S, pub(crate) Steps);

/// A transaction with steps.
#[derive(Debug)]
pub(crate) struct SteppedTransaction<T>(pub(crate) T, pub(crate) Steps);

impl<S: Store> Store for Stepped<S> {
    type Transaction = SteppedTransaction<S::Transaction>;

    async fn begin(&self, key: &Key) -> Result<Begun<Self::Transaction>, StoreError> {
        let Self(store, steps) = self;
        Ok(match steps.during(store.begin(key)).await? {
            Begun::Recorded(record) => Begun::Recorded(record),
            Begun::New(transaction) => Begun::New(SteppedTransaction(transaction, steps.clone())),
        })
    }

    async fn find(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.1.during(self.0.find(key)).await
    }

    async fn remove_older_than(
        &self,
        scope: &Scope,
        age: Duration,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let remove = self.0.remove_older_than(scope, age, limit);
        self.1.during(remove).await
    }
}

impl<T: Transaction> Transaction for SteppedTransaction<T> {
    async fn enqueue(&mut self, message: &OutboxMessage) -> Result<(), StoreError> {
        self.1.during(self.0.enqueue(message)).await
    }

    async fn commit(self, record: Record) -> Result<(), StoreError> {
        let Self(transaction, steps) = self;
        steps.during(transaction.commit(record)).await
    }

    async fn roll_back(self) -> Result<(), StoreError> {
        let Self(transaction, steps) = self;
        steps.during(transaction.roll_back()).await
    }
}
