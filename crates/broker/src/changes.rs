//! Notifies the users of a bus queue that its settings have changed or that it is gone.
//!
//! Unlike the wake-ups of [`crate::Watch`], these notices go to every client that holds on to an entity,
//! whether it waits for messages or not. They are hints too: read the entity to see what has changed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kew_engine::Incarnation;
use kew_engine::wire::{Interest, Watched};
use tokio::sync::Notify;

use crate::broker::lock;
use crate::watch::Tell;

#[derive(Debug)]
struct Told {
    has_changed: AtomicBool,
    notify: Arc<Notify>,
}

impl Told {
    fn tell(&self) {
        self.has_changed.store(true, Ordering::Release);
        self.notify.notify_one();
    }
}

/// The clients to notify, by entity.
#[derive(Default)]
pub(crate) struct ChangeWatchers {
    /// The number of watches, so that the runner can read it without the lock.
    count: AtomicUsize,
    /// How many watches were ever made. It names the next one.
    named: AtomicU64,
    /// By name: a client can have thousands of watches for one entity, and drop them one by one.
    by_entity: Mutex<HashMap<Incarnation, BTreeMap<u64, Arc<Told>>>>,
    /// The process of the partition, if it is another one.
    remote: Option<Tell>,
}

impl fmt::Debug for ChangeWatchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeWatchers")
            .field("by_entity", &self.by_entity)
            .finish_non_exhaustive()
    }
}

impl ChangeWatchers {
    /// Those of a process that reaches the partition in another one, which hears of which entities there are some.
    pub(crate) fn remote(tell: Tell) -> Self {
        Self {
            remote: Some(tell),
            ..Self::default()
        }
    }

    fn tell_remote(&self, entity: Incarnation, interest: Interest) {
        if let Some(tell) = &self.remote {
            let awaited = None;
            tell(Watched { entity, awaited }, interest, 0);
        }
    }

    pub(crate) fn watch(
        self: &Arc<Self>,
        entity: Incarnation,
        notify: &Arc<Notify>,
    ) -> ChangeWatch {
        let told = Arc::new(Told {
            has_changed: AtomicBool::new(false),
            notify: Arc::clone(notify),
        });
        let name = self.named.fetch_add(1, Ordering::Relaxed);
        let mut by_entity = lock(&self.by_entity);
        let all = by_entity.entry(entity).or_default();
        if all.is_empty() {
            self.tell_remote(entity, Interest::Begins);
        }
        all.insert(name, Arc::clone(&told));
        drop(by_entity);
        self.count.fetch_add(1, Ordering::Relaxed);
        ChangeWatch {
            told,
            name,
            entity,
            watchers: Arc::clone(self),
        }
    }

    /// Whether there are no watches.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn tell(&self, entity: Incarnation) {
        let by_entity = lock(&self.by_entity);
        let watches = by_entity.get(&entity).into_iter();
        watches
            .flat_map(BTreeMap::values)
            .for_each(|told| told.tell());
    }

    /// Notifies the clients of all entities.
    pub(crate) fn tell_all(&self) {
        let by_entity = lock(&self.by_entity);
        let watches = by_entity.values();
        watches
            .flat_map(BTreeMap::values)
            .for_each(|told| told.tell());
    }
}

/// Watches one entity for its owner and notifies it of changes. Dropping it ends that.
///
/// It does not report earlier changes: read the entity after making the watch.
#[derive(Debug)]
pub struct ChangeWatch {
    told: Arc<Told>,
    name: u64,
    entity: Incarnation,
    watchers: Arc<ChangeWatchers>,
}

impl ChangeWatch {
    /// Whether the entity may have changed since the last call.
    pub fn take(&self) -> bool {
        self.told.has_changed.swap(false, Ordering::AcqRel)
    }
}

impl Drop for ChangeWatch {
    fn drop(&mut self) {
        let mut by_entity = lock(&self.watchers.by_entity);
        if let Some(all) = by_entity.get_mut(&self.entity) {
            all.remove(&self.name);
            if all.is_empty() {
                by_entity.remove(&self.entity);
                self.watchers.tell_remote(self.entity, Interest::Ends);
            }
        }
        self.watchers.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_holders_of_an_entity_are_notified() {
        let watchers = Arc::<ChangeWatchers>::default();
        let [first, second, _] = Incarnation::default().with_sub_queues();
        let notify = Arc::<Notify>::default();
        let [a, b] = [(); 2].map(|()| watchers.watch(first, &notify));
        let other = watchers.watch(second, &notify);
        assert!(!a.take());
        watchers.tell(first);
        notify.notified().await;
        assert!(a.take() && b.take() && !other.take());
        assert!(!a.take());
        drop((a, b, other));
        assert!(lock(&watchers.by_entity).is_empty());
        assert_eq!(watchers.count.load(Ordering::Relaxed), 0);
    }
}
