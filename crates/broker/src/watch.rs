//! Wake-ups for receivers that wait: a bus queue may have something for them.
//!
//! A wake-up is a hint. It comes when the event is decided, before it is durable: a receive that
//! follows is decided behind it, and its answer waits for both. It may come without need, and never
//! stays away: one that comes while nobody waits is kept for the next wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use kew_engine::Incarnation;
use tokio::sync::Notify;

use crate::broker::lock;

/// Who waits for which entity.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// How many there are, for the runner to look at without the lock.
    count: AtomicUsize,
    by_entity: Mutex<HashMap<Incarnation, Vec<Weak<Notify>>>>,
}

impl Watchers {
    pub(crate) fn watch(self: &Arc<Self>, entity: Incarnation) -> Watch {
        let woken = Arc::new(Notify::new());
        lock(&self.by_entity)
            .entry(entity)
            .or_default()
            .push(Arc::downgrade(&woken));
        self.count.fetch_add(1, Ordering::Relaxed);
        Watch {
            woken,
            entity,
            watchers: Arc::clone(self),
        }
    }

    /// Wakes who waits for one of these.
    pub(crate) fn wake(&self, entities: impl Iterator<Item = Incarnation>) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let by_entity = lock(&self.by_entity);
        for entity in entities {
            for watcher in by_entity.get(&entity).into_iter().flatten() {
                if let Some(watcher) = watcher.upgrade() {
                    watcher.notify_one();
                }
            }
        }
    }
}

/// A wait for one entity. To drop it ends it.
#[derive(Debug)]
pub struct Watch {
    woken: Arc<Notify>,
    entity: Incarnation,
    watchers: Arc<Watchers>,
}

impl Watch {
    /// Waits until the entity may have something to receive, or is gone.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut by_entity = lock(&self.watchers.by_entity);
        if let Some(watchers) = by_entity.get_mut(&self.entity) {
            let own = Arc::as_ptr(&self.woken);
            watchers.retain(|watcher| watcher.as_ptr() != own);
            if watchers.is_empty() {
                by_entity.remove(&self.entity);
            }
        }
        self.watchers.count.fetch_sub(1, Ordering::Relaxed);
    }
}
