//! Wake-ups for receivers that wait: a bus queue may have something for them.
//!
//! A wake-up is a hint. It comes when the event is decided, before it is durable: a receive that
//! follows is decided behind it, and its answer waits for both. It may come without need, and never
//! stays away.
//!
//! A message wakes one of those who wait, in turn, and not all of them. Nobody is stranded by that:
//! a receive that leaves messages behind wakes the next one, a wait that ends passes its wake-up on,
//! and who does not wait at the time is told as soon as it does. What one receiver cannot tell for
//! another wakes all: a change of the queue, its end, and whatever concerns sessions.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kew_engine::Incarnation;
use tokio::sync::Notify;

use crate::broker::lock;
use crate::changes::{ChangeWatch, ChangeWatchers};

/// Who is to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// One of those who wait for the entity.
    One(Incarnation),
    /// All who wait for it.
    All(Incarnation),
    /// All who wait for it, and all who use it: it has changed, or is gone.
    Changed(Incarnation),
}

#[derive(Debug, Default)]
struct Watcher {
    woken: Notify,
    /// Whether it waits, and was not woken yet.
    waits: AtomicBool,
}

/// Who waits for which entity.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// How many there are, for the runner to look at without the lock.
    count: AtomicUsize,
    by_entity: Mutex<HashMap<Incarnation, VecDeque<Arc<Watcher>>>>,
    changes: Arc<ChangeWatchers>,
}

impl Watchers {
    pub(crate) fn watch(self: &Arc<Self>, entity: Incarnation) -> Watch {
        let watcher = Arc::<Watcher>::default();
        lock(&self.by_entity)
            .entry(entity)
            .or_default()
            .push_back(Arc::clone(&watcher));
        self.count.fetch_add(1, Ordering::Relaxed);
        Watch {
            watcher,
            entity,
            watchers: Arc::clone(self),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn watch_changes(&self, entity: Incarnation, notify: &Arc<Notify>) -> ChangeWatch {
        self.changes.watch(entity, notify)
    }

    pub(crate) fn wake(&self, wakes: impl Iterator<Item = Wake>) {
        if self.count.load(Ordering::Relaxed) == 0 && self.changes.is_empty() {
            return;
        }
        let mut by_entity = lock(&self.by_entity);
        for wake in wakes {
            match wake {
                Wake::One(entity) => wake_one(by_entity.get_mut(&entity)),
                Wake::All(entity) => wake_all(by_entity.get_mut(&entity)),
                Wake::Changed(entity) => {
                    wake_all(by_entity.get_mut(&entity));
                    self.changes.tell(entity);
                }
            }
        }
    }
}

/// Wakes the one that waits and was not woken for the longest time. If none waits, all will find that
/// they were woken: any of them may be about to wait.
fn wake_one(watchers: Option<&mut VecDeque<Arc<Watcher>>>) {
    let Some(watchers) = watchers else {
        return;
    };
    let waiting = watchers
        .iter()
        .position(|watcher| watcher.waits.swap(false, Ordering::AcqRel));
    match waiting.and_then(|index| watchers.remove(index)) {
        Some(watcher) => {
            watcher.woken.notify_one();
            watchers.push_back(watcher);
        }
        None => wake_all(Some(watchers)),
    }
}

fn wake_all(watchers: Option<&mut VecDeque<Arc<Watcher>>>) {
    for watcher in watchers.into_iter().flatten() {
        watcher.waits.store(false, Ordering::Release);
        watcher.woken.notify_one();
    }
}

/// A wait for one entity. To drop it ends it.
///
/// Whoever has one receives first, then waits, and receives again whenever it was woken, as much as it
/// can take. It must not wait while it can take nothing: the wake-up would be another's.
#[derive(Debug)]
pub struct Watch {
    watcher: Arc<Watcher>,
    entity: Incarnation,
    watchers: Arc<Watchers>,
}

impl Watch {
    /// Waits until the entity may have something to receive, or has changed or is gone.
    pub async fn woken(&self) {
        let _waits = Waits::begin(&self.watcher.waits);
        self.watcher.woken.notified().await;
    }
}

/// Says that a watcher waits as long as it does, whatever becomes of the future.
struct Waits<'a>(&'a AtomicBool);

impl<'a> Waits<'a> {
    fn begin(waits: &'a AtomicBool) -> Self {
        waits.store(true, Ordering::Release);
        Self(waits)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut by_entity = lock(&self.watchers.by_entity);
        if let Some(watchers) = by_entity.get_mut(&self.entity) {
            watchers.retain(|watcher| !Arc::ptr_eq(watcher, &self.watcher));
            if watchers.is_empty() {
                by_entity.remove(&self.entity);
            } else {
                // It may have been woken for a message that it did not take.
                wake_one(Some(watchers));
            }
        }
        self.watchers.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn entity() -> Incarnation {
        Incarnation::default()
    }

    fn is_woken(wait: &mut Pin<&mut impl Future<Output = ()>>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        matches!(wait.as_mut().poll(&mut context), Poll::Ready(()))
    }

    #[test]
    fn a_message_wakes_one_and_messages_wake_in_turn() {
        let watchers = Arc::<Watchers>::default();
        let watches = [(); 3].map(|()| watchers.watch(entity()));
        let [a, b, c] = &watches;
        let (mut a, mut b, mut c) = (pin!(a.woken()), pin!(b.woken()), pin!(c.woken()));
        assert!(!is_woken(&mut a) && !is_woken(&mut b) && !is_woken(&mut c));
        watchers.wake([Wake::One(entity())].into_iter());
        assert!(is_woken(&mut a) && !is_woken(&mut b) && !is_woken(&mut c));
        watchers.wake([Wake::One(entity()), Wake::One(entity())].into_iter());
        assert!(is_woken(&mut b) && is_woken(&mut c));
    }

    #[test]
    fn who_was_about_to_wait_is_woken_at_once() {
        let watchers = Arc::<Watchers>::default();
        let watch = watchers.watch(entity());
        watchers.wake([Wake::One(entity())].into_iter());
        assert!(is_woken(&mut pin!(watch.woken())));
        assert!(!is_woken(&mut pin!(watch.woken())));
    }

    #[test]
    fn who_goes_away_passes_its_wake_up_on() {
        let watchers = Arc::<Watchers>::default();
        let (first, second) = (watchers.watch(entity()), watchers.watch(entity()));
        let mut wait = pin!(second.woken());
        {
            let mut gone = pin!(first.woken());
            assert!(!is_woken(&mut gone) && !is_woken(&mut wait));
            watchers.wake([Wake::One(entity())].into_iter());
        }
        assert!(!is_woken(&mut wait));
        drop(first);
        assert!(is_woken(&mut wait));
    }

    #[test]
    fn a_change_is_told_to_those_who_do_not_wait() {
        let watchers = Arc::<Watchers>::default();
        let notify = Arc::<Notify>::default();
        let holds_on = watchers.watch_changes(entity(), &notify);
        watchers.wake([Wake::All(entity())].into_iter());
        assert!(!holds_on.take());
        watchers.wake([Wake::Changed(entity())].into_iter());
        assert!(holds_on.take());
        assert!(is_woken(&mut pin!(notify.notified())));
    }

    #[test]
    fn a_change_wakes_all() {
        let watchers = Arc::<Watchers>::default();
        let (first, second) = (watchers.watch(entity()), watchers.watch(entity()));
        let (mut first, mut second) = (pin!(first.woken()), pin!(second.woken()));
        assert!(!is_woken(&mut first) && !is_woken(&mut second));
        watchers.wake([Wake::All(entity())].into_iter());
        assert!(is_woken(&mut first) && is_woken(&mut second));
    }
}
