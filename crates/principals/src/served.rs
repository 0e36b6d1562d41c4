//! What is in force now.

use std::ops::Deref;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use kew_broker::{Epoch, Ownership, Rejection};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a request waits for what is being read anew.
const PATIENCE: Duration = Duration::from_secs(5);

/// A snapshot that requests are judged by, and how often principals were changed. Clones share both.
///
/// A snapshot of the log is in force in the epoch in which it was read. In a later one it is read anew first, and so it is
/// after a change whose outcome is unknown. Getting it takes a lock that is held only to swap two pointers, and an atomic
/// load.
#[derive(Debug, Default)]
pub struct Served<T>(Arc<State<T>>);

#[derive(Debug, Default)]
struct State<T> {
    now: RwLock<InForce<T>>,
    /// Of the partition that has the principals. Unset if they are not those of a log: then they are always in force.
    ownership: OnceLock<Arc<Ownership>>,
    changes: watch::Sender<u64>,
    /// Notifies that `now` is another one.
    news: watch::Sender<()>,
}

/// A snapshot that is in force, and in which epoch.
#[derive(Debug, Default)]
pub struct InForce<T> {
    snapshot: Arc<T>,
    /// In which it was read. `None` if it is to be read anew, and if it is not of a log.
    epoch: Option<Epoch>,
}

impl<T> InForce<T> {
    /// The epoch in which it was read. What is decided by it is to be carried out within the epoch. `None` if the snapshot
    /// is not of a log.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    pub(crate) fn into_snapshot(self) -> Arc<T> {
        self.snapshot
    }

    /// Whether both are the same snapshot.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.snapshot, &other.snapshot) && self.epoch == other.epoch
    }
}

impl<T> Deref for InForce<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.snapshot
    }
}

impl<T> Clone for InForce<T> {
    fn clone(&self) -> Self {
        Self {
            snapshot: Arc::clone(&self.snapshot),
            epoch: self.epoch,
        }
    }
}

impl<T> Clone for Served<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Served<T> {
    /// Serves this, which is not of a log.
    pub fn new(snapshot: T) -> Self {
        Self(Arc::new(State {
            now: RwLock::new(InForce {
                snapshot: Arc::new(snapshot),
                epoch: None,
            }),
            ownership: OnceLock::new(),
            changes: watch::Sender::new(0),
            news: watch::Sender::default(),
        }))
    }

    /// The last snapshot. It is perhaps not in force, so no request is judged by it.
    pub fn snapshot(&self) -> Arc<T> {
        self.known().snapshot
    }

    /// The snapshot that is in force. `None` if it is to be read anew, or if the partition has another owner.
    pub fn in_force(&self) -> Option<InForce<T>> {
        let known = self.known();
        let is_in_force = match self.0.ownership.get() {
            Some(ownership) => known.epoch.is_some() && known.epoch == ownership.epoch(),
            None => true,
        };
        is_in_force.then_some(known)
    }

    /// The same, once it is read. Otherwise the reason why nothing can be judged now: [`Rejection::NotOwner`] at once if the
    /// partition has another owner, or [`Rejection::Busy`] after 5 s.
    pub async fn current(&self) -> Result<InForce<T>, Rejection>
    where
        T: Send + Sync,
    {
        match self.in_force() {
            Some(in_force) => Ok(in_force),
            // It is rare, and must not make the future of every request larger.
            None => Box::pin(timeout(PATIENCE, self.read_anew()))
                .await
                .unwrap_or(Err(Rejection::Busy)),
        }
    }

    /// Waits until it was read anew.
    async fn read_anew(&self) -> Result<InForce<T>, Rejection> {
        let mut news = self.0.news.subscribe();
        let ownership = self.0.ownership.get().cloned().unwrap_or_default();
        let mut owners = ownership.watch();
        loop {
            news.borrow_and_update();
            owners.borrow_and_update();
            if let Some(in_force) = self.in_force() {
                return Ok(in_force);
            }
            if ownership.epoch().is_none() {
                return Err(Rejection::NotOwner);
            }
            // Neither of the senders goes meanwhile.
            tokio::select! {
                _ = news.changed() => {}
                _ = owners.changed() => {}
            }
        }
    }

    /// From now on it is that of a log: nothing is in force until it is read.
    pub(crate) fn begin(&self, ownership: Arc<Ownership>) {
        let begun = self.0.ownership.set(ownership);
        assert!(begun.is_ok(), "a snapshot is read by one store");
        self.forget();
    }

    /// Serves this from now on, as it was read or made durable in an epoch.
    pub(crate) fn put(&self, next: impl Into<Arc<T>>, epoch: Epoch) {
        self.set(InForce {
            snapshot: next.into(),
            epoch: Some(epoch),
        });
    }

    /// What is in the log is perhaps something else: it is read anew before it is in force again.
    pub(crate) fn forget(&self) {
        self.set(InForce {
            snapshot: self.snapshot(),
            epoch: None,
        });
    }

    fn known(&self) -> InForce<T> {
        // A snapshot is swapped as a whole, so it is right even if a thread panicked.
        let now = self.0.now.read();
        now.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, next: InForce<T>) {
        let before = {
            let mut now = self.0.now.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *now, next)
        };
        drop(before);
        self.0.news.send_replace(());
    }

    /// Reports every change from now on, with the number of changes so far.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Reports a change, so that connections judge their requests again.
    pub fn note_change(&self) {
        self.0.changes.send_modify(|count| *count += 1);
    }

    /// Notifies that there is another snapshot, or none in force, until nobody is served any more.
    pub(crate) fn news(&self) -> watch::Receiver<()> {
        self.0.news.subscribe()
    }

    /// The same, as long as anybody is served.
    pub(crate) fn downgrade(&self) -> Weakly<T> {
        Weakly(Arc::downgrade(&self.0))
    }
}

/// What is served, without keeping it.
pub(crate) struct Weakly<T>(Weak<State<T>>);

impl<T> Weakly<T> {
    pub(crate) fn upgrade(&self) -> Option<Served<T>> {
        self.0.upgrade().map(Served)
    }
}
