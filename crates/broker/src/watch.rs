//! Wake-ups for receivers that wait for something in a bus queue.
//!
//! A wake-up is a hint. The partition sends it when the event is decided, before it is durable. A receive
//! that follows is decided after that event, and its answer waits for both. A wake-up may be unnecessary,
//! but it is never lost.
//!
//! Receivers wait in separate lists: for messages, for the messages of one session, and for any session. An
//! arrival wakes one receiver of its list, in turn. No receiver is stranded by that:
//!
//! - A receiver that takes something and leaves something wakes the next receiver.
//! - A receiver that goes away without looking passes its wake-up on.
//! - If no receiver waits when something arrives, the next one that wants to wait looks first.
//!
//! Only a change of the queue, or its deletion, wakes all receivers. A receiver that has looked does not
//! pass its wake-up on: the next receiver would find no more than it did.

mod remote;
mod wait_list;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kew_engine::Incarnation;
use kew_engine::bus::Awaited;
use kew_engine::wire::{Watched, Woken};
use kew_metrics::Counter;
use tokio::sync::{Notify, oneshot};

use self::remote::Remote;
pub use self::remote::Tell;
use self::wait_list::WaitList;
use crate::broker::lock;
use crate::changes::{ChangeWatch, ChangeWatchers};

/// The receivers that a turn wakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// One receiver that waits for this thing of the entity.
    One(Incarnation, Awaited),
    /// Every receiver that waits for anything of the entity, and every client that uses it. The entity has
    /// changed or is gone.
    Changed(Incarnation),
}

/// The receivers that wait for one thing. Each receives how often all of them have been woken.
type List = WaitList<oneshot::Sender<u64>>;

/// All receivers that wait, by entity and by the thing they wait for.
#[derive(Debug, Default)]
pub struct Watchers {
    /// The number of watches, so that the runner can read it without the lock.
    count: AtomicUsize,
    by_entity: Mutex<HashMap<Incarnation, HashMap<Awaited, List>>>,
    changes: Arc<ChangeWatchers>,
    /// The partition's process, if it is another one.
    remote: Option<Remote>,
    /// How many receivers were woken.
    pub(crate) woken: Counter,
}

impl Watchers {
    /// The receivers of a process that reaches the partition in another one. `tell` says what that one is to hear, in order,
    /// and before the commands that follow. It does not block.
    pub fn remote(tell: Tell) -> Arc<Self> {
        Arc::new(Self {
            changes: Arc::new(ChangeWatchers::remote(Arc::clone(&tell))),
            remote: Some(Remote::new(tell)),
            ..Self::default()
        })
    }

    pub(crate) fn watch(self: &Arc<Self>, entity: Incarnation, awaited: Awaited) -> Watch {
        let mut by_entity = lock(&self.by_entity);
        let lists = by_entity.entry(entity).or_default();
        if let Some(remote) = &self.remote
            && !lists.contains_key(&awaited)
        {
            remote.begins(entity, &awaited);
        }
        let rounds = lists.entry(awaited.clone()).or_default().join();
        drop(by_entity);
        self.count.fetch_add(1, Ordering::Relaxed);
        Watch {
            entity,
            awaited,
            watchers: Arc::clone(self),
            rounds,
            told: Told::No,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn watch_changes(&self, entity: Incarnation, notify: &Arc<Notify>) -> ChangeWatch {
        self.changes.watch(entity, notify)
    }

    /// Wakes receivers. Without any watch, `wakes` is not evaluated.
    pub(crate) fn wake(&self, wakes: impl Iterator<Item = Wake>) {
        if self.count.load(Ordering::Relaxed) == 0 && self.changes.is_empty() {
            return;
        }
        let mut by_entity = lock(&self.by_entity);
        for wake in wakes {
            match wake {
                Wake::One(entity, awaited) => {
                    let lists = by_entity.get_mut(&entity);
                    if let Some(list) = lists.and_then(|lists| lists.get_mut(&awaited)) {
                        self.wake_one(list);
                    }
                }
                Wake::Changed(entity) => {
                    let lists = by_entity.get_mut(&entity).into_iter();
                    for list in lists.flat_map(HashMap::values_mut) {
                        self.wake_list(list);
                    }
                    self.changes.tell(entity);
                }
            }
        }
    }

    /// Wakes a receiver that waits for this, as if something had just come: another one was woken for it, and has gone.
    pub fn pass_on(&self, entity: Incarnation, awaited: &Awaited) {
        let mut by_entity = lock(&self.by_entity);
        let list = by_entity.get_mut(&entity);
        let list = list.and_then(|lists| lists.get_mut(awaited));
        let is_any_woken = list.is_some_and(|list| self.wake_one(list));
        if let Some(remote) = &self.remote
            && !is_any_woken
        {
            remote.passes_on(entity, awaited);
        }
    }

    /// Wakes receivers because the partition's process has said so. `number` counts the wake-ups of its watch.
    pub fn woken(&self, of: Watched, woken: Woken, number: u64) {
        let Watched { entity, awaited } = of;
        let Some(awaited) = awaited else {
            self.changes.tell(entity);
            return;
        };
        let mut by_entity = lock(&self.by_entity);
        let list = by_entity.get_mut(&entity);
        let list = list.and_then(|lists| lists.get_mut(&awaited));
        let is_any_woken = match (list, woken) {
            (None, _) => false,
            (Some(list), Woken::One) => self.wake_one(list),
            (Some(list), Woken::All) => {
                self.wake_list(list);
                true
            }
        };
        let Some(remote) = &self.remote else {
            return;
        };
        remote.was_woken(entity, &awaited, number);
        if !is_any_woken && woken == Woken::One {
            // They have gone meanwhile. Another process may have some.
            remote.passes_on(entity, &awaited);
        }
        let list = by_entity.get(&entity);
        let list = list.and_then(|lists| lists.get(&awaited));
        if list.is_some_and(List::is_any_waiting) {
            remote.waits(entity, &awaited);
        }
    }

    /// Wakes every receiver of every entity, and tells every client of a change: the partition has another owner, which
    /// may have changed anything.
    pub fn wake_all(&self) {
        let mut by_entity = lock(&self.by_entity);
        for list in by_entity.values_mut().flat_map(HashMap::values_mut) {
            self.wake_list(list);
        }
        self.changes.tell_all();
    }

    /// Wakes a receiver of each entity for which `is_meant` holds, so that it looks. Returns whether there may be
    /// more than the `count` that it wakes at most.
    pub(crate) fn wake_at(&self, count: usize, is_meant: impl Fn(Incarnation) -> bool) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut by_entity = lock(&self.by_entity);
        let meant = by_entity
            .iter_mut()
            .filter(|(entity, _)| is_meant(**entity));
        let mut lists = meant.filter_map(|(_, lists)| {
            let mut lists = lists.values_mut();
            lists.find(|list| list.is_any_waiting())
        });
        for list in lists.by_ref().take(count) {
            self.wake_one(list);
        }
        lists.next().is_some()
    }

    fn wake_list(&self, list: &mut List) {
        let woken = list.wake_all();
        let rounds = list.rounds();
        woken.for_each(|waker| self.tell(waker, rounds));
    }

    /// Returns whether one waited.
    fn wake_one(&self, list: &mut List) -> bool {
        let waker = list.wake_one();
        let is_any = waker.is_some();
        if let Some(waker) = waker {
            self.tell(waker, list.rounds());
        }
        is_any
    }

    fn tell(&self, waker: oneshot::Sender<u64>, rounds: u64) {
        self.woken.increment();
        // The receiver is already off the list. If it goes away now, it notices that and passes the wake-up
        // on.
        let _ = waker.send(rounds);
    }

    /// Runs `work` on the list of a watch. The list exists as long as the watch does.
    fn with_list<R>(&self, watch: &Watch, work: impl FnOnce(&mut List) -> R) -> R {
        let mut by_entity = lock(&self.by_entity);
        let lists = by_entity.get_mut(&watch.entity);
        let list = lists.and_then(|lists| lists.get_mut(&watch.awaited));
        work(list.expect("a list lives as long as those who have joined it"))
    }
}

/// Whether a watch was woken since its holder last looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    No,
    /// It was woken while its holder did something else.
    Unheard,
    Heard,
}

/// A wait for something of one entity. Dropping it ends the wait.
///
/// The holder looks first, then waits, and looks again each time it is woken. Between a wake-up and the look
/// it may wait for room for the answer; it then keeps the watch, and with it the wake-up.
#[derive(Debug)]
pub struct Watch {
    entity: Incarnation,
    awaited: Awaited,
    watchers: Arc<Watchers>,
    rounds: u64,
    told: Told,
}

impl Watch {
    /// Waits until the entity may have something, has changed or is gone. A holder that calls this again
    /// must have looked since the last wake-up. Dropping the future loses no wake-up.
    pub async fn woken(&mut self) {
        self.woken_as().await;
    }

    /// The same, and returns who was woken with it.
    pub async fn woken_as(&mut self) -> Woken {
        let rounds = self.rounds;
        self.hear().await;
        match self.rounds == rounds {
            true => Woken::One,
            false => Woken::All,
        }
    }

    async fn hear(&mut self) {
        if self.told != Told::Unheard {
            self.told = Told::No;
            if let Some((ticket, woken)) = self.begin() {
                let waiting = Waiting {
                    watch: self,
                    ticket,
                };
                // The list holds the sender and drops it only by sending.
                if let Ok(rounds) = woken.await {
                    waiting.watch.rounds = rounds;
                }
                waiting.watch.told = Told::Unheard;
            }
        }
        self.told = Told::Heard;
    }

    fn begin(&mut self) -> Option<(u64, oneshot::Receiver<u64>)> {
        let (waker, woken) = oneshot::channel();
        let mut rounds = self.rounds;
        let watchers = &self.watchers;
        let ticket = watchers.with_list(self, |list| {
            let ticket = list.wait(&mut rounds, waker);
            if let Some(remote) = &watchers.remote
                && ticket.is_some()
            {
                remote.waits(self.entity, &self.awaited);
            }
            ticket
        });
        self.rounds = rounds;
        Some((ticket?, woken))
    }

    /// Notes that the holder has looked. From now on it does not pass the last wake-up on.
    pub fn looked(&mut self) {
        self.told = Told::No;
    }
}

/// A watch that waits. Dropping it takes the watch off the list, also if the future is cancelled.
struct Waiting<'a> {
    watch: &'a mut Watch,
    ticket: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.watch.told == Told::Unheard {
            return;
        }
        let watchers = &self.watch.watchers;
        let waited = watchers.with_list(self.watch, |list| list.stop_waiting(self.ticket));
        if !waited {
            self.watch.told = Told::Unheard;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut by_entity = lock(&self.watchers.by_entity);
        if let Some(lists) = by_entity.get_mut(&self.entity)
            && let Some(list) = lists.get_mut(&self.awaited)
        {
            let passes_on = self.told != Told::No;
            let is_any_left = list.leave();
            let is_passed_on = passes_on && is_any_left && self.watchers.wake_one(list);
            if !is_any_left {
                lists.remove(&self.awaited);
                if lists.is_empty() {
                    by_entity.remove(&self.entity);
                }
            }
            if let Some(remote) = &self.watchers.remote {
                if passes_on && !is_passed_on {
                    remote.passes_on(self.entity, &self.awaited);
                }
                if !is_any_left {
                    remote.ends(self.entity, &self.awaited);
                }
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

    fn watches<const N: usize>(watchers: &Arc<Watchers>) -> [Watch; N] {
        [(); N].map(|()| watchers.watch(entity(), Awaited::Message))
    }

    fn message() -> Wake {
        Wake::One(entity(), Awaited::Message)
    }

    fn is_woken(wait: &mut Pin<&mut impl Future<Output = ()>>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        matches!(wait.as_mut().poll(&mut context), Poll::Ready(()))
    }

    #[test]
    fn a_message_wakes_one_and_messages_wake_in_turn() {
        let watchers = Arc::<Watchers>::default();
        let [mut a, mut b, mut c] = watches(&watchers);
        let (mut a, mut b, mut c) = (pin!(a.woken()), pin!(b.woken()), pin!(c.woken()));
        assert!(!is_woken(&mut a) && !is_woken(&mut b) && !is_woken(&mut c));
        watchers.wake([message()].into_iter());
        assert!(is_woken(&mut a) && !is_woken(&mut b) && !is_woken(&mut c));
        watchers.wake([message(), message()].into_iter());
        assert!(is_woken(&mut b) && is_woken(&mut c));
        assert_eq!(watchers.woken.value(), 3);
    }

    #[test]
    fn a_receiver_about_to_wait_looks_again_first_and_once() {
        let watchers = Arc::<Watchers>::default();
        let [mut first, mut second] = watches(&watchers);
        watchers.wake([message()].into_iter());
        assert!(is_woken(&mut pin!(first.woken())));
        assert!(!is_woken(&mut pin!(first.woken())));
        assert!(!is_woken(&mut pin!(second.woken())));
    }

    #[test]
    fn a_receiver_that_leaves_passes_its_wake_up_on_unless_it_has_looked() {
        for (hears, looks, is_passed_on) in [
            (false, false, true),
            (true, false, true),
            (true, true, false),
        ] {
            let watchers = Arc::<Watchers>::default();
            let [mut first, mut second] = watches(&watchers);
            let mut wait = pin!(second.woken());
            {
                let mut gone = pin!(first.woken());
                assert!(!is_woken(&mut gone) && !is_woken(&mut wait));
                watchers.wake([message()].into_iter());
                assert!(!hears || is_woken(&mut gone));
            }
            if looks {
                first.looked();
            }
            assert!(!is_woken(&mut wait));
            drop(first);
            assert_eq!(is_woken(&mut wait), is_passed_on);
        }
    }

    #[test]
    fn one_receiver_of_a_queue_looks_on_behalf_of_all() {
        let watchers = Arc::<Watchers>::default();
        let [mut first, mut second] = watches(&watchers);
        let (mut first, mut second) = (pin!(first.woken()), pin!(second.woken()));
        assert!(!is_woken(&mut first) && !is_woken(&mut second));
        assert!(!watchers.wake_at(1, |_| false));
        assert!(watchers.wake_at(0, |_| true));
        assert!(!is_woken(&mut first) && !is_woken(&mut second));
        assert!(!watchers.wake_at(1, |entity| entity == self::entity()));
        assert!(is_woken(&mut first) && !is_woken(&mut second));
        assert!(!watchers.wake_at(1, |_| true));
        assert!(is_woken(&mut second));
        // Nobody waits: nothing is owed to the next one.
        assert!(!watchers.wake_at(1, |_| true));
        let [mut next] = watches(&watchers);
        assert!(!is_woken(&mut pin!(next.woken())));
    }

    #[test]
    fn a_receiver_that_was_not_woken_passes_nothing_on() {
        let watchers = Arc::<Watchers>::default();
        let [mut first, mut second] = watches(&watchers);
        let mut wait = pin!(second.woken());
        assert!(!is_woken(&mut wait));
        assert!(!is_woken(&mut pin!(first.woken())));
        drop(first);
        assert!(!is_woken(&mut wait));
        assert_eq!(watchers.woken.value(), 0);
    }

    #[test]
    fn a_missed_wake_up_is_delivered_later() {
        let watchers = Arc::<Watchers>::default();
        let [mut watch] = watches(&watchers);
        {
            let mut wait = pin!(watch.woken());
            assert!(!is_woken(&mut wait));
            watchers.wake([message()].into_iter());
        }
        assert!(is_woken(&mut pin!(watch.woken())));
        assert!(!is_woken(&mut pin!(watch.woken())));
    }

    #[test]
    fn each_receiver_is_woken_only_by_its_own_events() {
        let watchers = Arc::<Watchers>::default();
        let of = |id: &str| Awaited::OfSession(id.into());
        let all = [Awaited::Message, Awaited::Session, of("a"), of("b")];
        let mut watches = all.clone().map(|it| watchers.watch(entity(), it));
        let mut waits: Vec<_> = watches.iter_mut().map(|it| Box::pin(it.woken())).collect();
        let mut woken = || -> Vec<bool> {
            let polled = waits.iter_mut().map(|wait| is_woken(&mut wait.as_mut()));
            polled.collect()
        };
        assert_eq!(woken(), [false; 4]);
        watchers.wake([Wake::One(entity(), of("a"))].into_iter());
        assert_eq!(woken(), [false, false, true, false]);
    }

    #[test]
    fn a_change_reaches_receivers_that_do_not_wait() {
        let watchers = Arc::<Watchers>::default();
        let notify = Arc::<Notify>::default();
        let holds_on = watchers.watch_changes(entity(), &notify);
        watchers.wake([message()].into_iter());
        assert!(!holds_on.take());
        watchers.wake([Wake::Changed(entity())].into_iter());
        assert!(holds_on.take());
        assert!(is_woken(&mut pin!(notify.notified())));
    }

    #[test]
    fn a_change_wakes_all_receivers_also_those_about_to_wait() {
        let watchers = Arc::<Watchers>::default();
        let [mut first, mut second] = watches(&watchers);
        let mut session = watchers.watch(entity(), Awaited::Session);
        let (mut first, mut session) = (pin!(first.woken()), pin!(session.woken()));
        assert!(!is_woken(&mut first) && !is_woken(&mut session));
        watchers.wake([Wake::Changed(entity())].into_iter());
        assert!(is_woken(&mut first) && is_woken(&mut session));
        assert!(is_woken(&mut pin!(second.woken())));
        assert!(!is_woken(&mut pin!(second.woken())));
    }

    #[test]
    fn another_owner_wakes_all_receivers_of_all_entities() {
        let watchers = Arc::<Watchers>::default();
        let other = entity().with_sub_queues()[1];
        let mut watches = [entity(), other].map(|it| watchers.watch(it, Awaited::Message));
        let notifies = [entity(), other].map(|_| Arc::<Notify>::default());
        let hold_on = [(entity(), &notifies[0]), (other, &notifies[1])];
        let hold_on = hold_on.map(|(entity, notify)| watchers.watch_changes(entity, notify));
        let mut waits: Vec<_> = watches.iter_mut().map(|it| Box::pin(it.woken())).collect();
        assert!(waits.iter_mut().all(|wait| !is_woken(&mut wait.as_mut())));
        watchers.wake_all();
        assert!(waits.iter_mut().all(|wait| is_woken(&mut wait.as_mut())));
        assert!(hold_on.iter().all(|watch| watch.take()));
    }

    #[test]
    fn receivers_that_left_leave_nothing_behind() {
        let watchers = Arc::<Watchers>::default();
        drop(watches::<3>(&watchers));
        assert_eq!(watchers.count(), 0);
        assert!(lock(&watchers.by_entity).is_empty());
    }
}
