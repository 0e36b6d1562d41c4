//! What all tasks of a listener share.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::{Instant, sleep_until};
use tracing::Span;

use super::counters::{Counters, State};
use super::events::Event;
use super::finished::Finished;
use super::phase::Phase;
use super::receives::Receives;
use super::returns::Returns;
use super::swiftness::Swiftness;
use super::tasks::Tasks;
use crate::chance::Chance;
use crate::codec::{Codec, CodecError};
use crate::delivery::{Boxed, DynHandler, OfListener, Verify};
use crate::error::SourceError;
use crate::policy::{
    AfterLoss, Idle, LossLimit, LossWindow, LostLeases, OnLostLeases, Pace, RequestOutcome,
    RetryDelay, Visibility, WakeUp,
};
use crate::source::{Incoming, Lease, Meta, Source};

/// Events that a watcher may be behind.
pub(super) const EVENTS_MAX: usize = 1_024;

/// A depth that is not known.
const NO_DEPTH: u64 = u64::MAX;

/// A time that does not come.
const NEVER: Duration = Duration::from_hours(24 * 365);

/// A codec whose futures are in boxes.
pub(crate) trait DynDecode<T>: Send + Sync {
    /// The message, if the codec does not wait.
    fn decode_now(&self, incoming: &Incoming) -> Option<Result<T, CodecError>>;
    fn decode<'a>(&'a self, incoming: &'a Incoming) -> Boxed<'a, Result<T, CodecError>>;
    /// Whether something is to be done after a delete.
    fn cleans_up(&self) -> bool;
    /// It owns what it needs, so that it can begin in one task and end in another. `None` if there is nothing to do.
    fn completed(self: Arc<Self>, incoming: &Incoming) -> Option<Boxed<'static, ()>>;
    fn burying<'a>(&'a self, incoming: &'a Incoming) -> Boxed<'a, Result<(), CodecError>>;
}

/// So that the type of the codec is no part of that of the listener.
pub(super) struct Decode<C>(pub(super) C);

impl<T: Send + Sync + 'static, C: Codec<T>> DynDecode<T> for Decode<C> {
    fn decode_now(&self, incoming: &Incoming) -> Option<Result<T, CodecError>> {
        match C::WAITS {
            true => None,
            false => self.0.decode(incoming).now_or_never(),
        }
    }

    fn decode<'a>(&'a self, incoming: &'a Incoming) -> Boxed<'a, Result<T, CodecError>> {
        Box::pin(self.0.decode(incoming))
    }

    fn cleans_up(&self) -> bool {
        C::CLEANS_UP
    }

    fn completed(self: Arc<Self>, incoming: &Incoming) -> Option<Boxed<'static, ()>> {
        if !C::CLEANS_UP {
            return None;
        }
        let incoming = incoming.clone();
        Some(Box::pin(async move { self.0.completed(&incoming).await }))
    }

    fn burying<'a>(&'a self, incoming: &'a Incoming) -> Boxed<'a, Result<(), CodecError>> {
        Box::pin(self.0.burying(incoming))
    }
}

/// A function that connects a span to a trace.
pub(super) type OnSpan = Box<dyn Fn(&Span, &Meta) + Send + Sync>;

/// What the application chose.
pub(super) struct Settings {
    pub(super) batch_size: u32,
    pub(super) tasks_max: u32,
    pub(super) handlers_max: usize,
    pub(super) delayed_max: usize,
    pub(super) attempts_max: u32,
    pub(super) handling_time_max: Duration,
    pub(super) recheck: Option<Duration>,
    pub(super) has_push: bool,
    pub(super) busy_delay: Duration,
    pub(super) idle: Box<dyn Idle>,
    pub(super) wake_up: Box<dyn WakeUp>,
    pub(super) message_delay: Box<dyn RetryDelay>,
    pub(super) request_delay: Box<dyn RetryDelay>,
    pub(super) after_loss: AfterLoss,
    pub(super) loss_limit: LossLimit,
    pub(super) on_lost_leases: Option<Box<dyn OnLostLeases>>,
    pub(super) verify: Option<Box<dyn Verify>>,
    pub(super) on_span: Option<OnSpan>,
}

pub(super) struct Pacing {
    pub(super) policy: Box<dyn Pace>,
    pub(super) pause: Duration,
}

/// What all tasks of a listener share. Tasks hold it, and so do handles.
pub(crate) struct Shared<T, S: Source> {
    pub(super) source: S,
    pub(super) codec: Arc<dyn DynDecode<T>>,
    pub(super) handlers: Vec<Box<dyn DynHandler<T, S::Lease>>>,
    pub(super) settings: Settings,
    pub(super) places: Arc<Semaphore>,
    /// Places of messages that were handled and are being deleted.
    deletes: Arc<Semaphore>,
    /// Whose turn it is to take places.
    pub(super) turn: tokio::sync::Mutex<()>,
    pub(super) delayed: Arc<Semaphore>,
    pub(super) tasks: Tasks,
    pub(super) receives: Receives,
    pub(super) counters: Counters,
    pub(super) phase: watch::Sender<Phase>,
    /// Tasks of all kinds that run.
    pub(super) running: watch::Sender<usize>,
    /// Work came to an idle queue.
    pub(super) woken: Notify,
    /// Work was announced: one task that sleeps looks at once.
    pub(super) work: Notify,
    pub(super) events: broadcast::Sender<Arc<Event<T>>>,
    pub(super) finished: Mutex<Finished>,
    pub(super) returns: Mutex<Returns>,
    /// An earlier message comes back than was known.
    pub(super) returns_changed: Notify,
    pub(super) visibility: Mutex<Box<dyn Visibility>>,
    pub(super) pacing: Mutex<Pacing>,
    pub(super) losses: Mutex<LossWindow>,
    pub(super) swiftness: Swiftness,
    pub(super) chance: Chance,
    depth: AtomicU64,
}

impl<T: Send + Sync + 'static, S: Source> Shared<T, S> {
    pub(super) fn new(
        source: S,
        codec: Arc<dyn DynDecode<T>>,
        handlers: Vec<Box<dyn DynHandler<T, S::Lease>>>,
        settings: Settings,
        visibility: Box<dyn Visibility>,
        pace: Box<dyn Pace>,
        chance: Chance,
    ) -> Self {
        Self {
            source,
            codec,
            handlers,
            places: Arc::new(Semaphore::new(settings.handlers_max)),
            deletes: Arc::new(Semaphore::new(settings.handlers_max)),
            turn: tokio::sync::Mutex::default(),
            delayed: Arc::new(Semaphore::new(settings.delayed_max)),
            settings,
            tasks: Tasks::default(),
            receives: Receives::default(),
            counters: Counters::default(),
            phase: watch::Sender::new(Phase::Running),
            running: watch::Sender::new(0),
            woken: Notify::new(),
            work: Notify::new(),
            events: broadcast::Sender::new(EVENTS_MAX),
            finished: Mutex::default(),
            returns: Mutex::default(),
            returns_changed: Notify::new(),
            visibility: Mutex::new(visibility),
            pacing: Mutex::new(Pacing {
                policy: pace,
                pause: Duration::ZERO,
            }),
            losses: Mutex::default(),
            swiftness: Swiftness::default(),
            chance,
            depth: AtomicU64::new(NO_DEPTH),
        }
    }

    /// Runs a task of the listener. Its future is dropped if the listener is aborted.
    pub(super) fn spawn(
        self: &Arc<Self>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::JoinHandle<()> {
        let running = Running::new(self.clone());
        let mut phase = self.phase.subscribe();
        // It is large, and is moved several times on its way into a task.
        let task = Box::pin(task);
        tokio::spawn(async move {
            let _running = running;
            tokio::select! {
                biased;
                _ = phase.wait_for(|phase| *phase == Phase::Aborted) => {}
                () = task => {}
            }
        })
    }

    pub(super) fn is_watched(&self) -> bool {
        self.events.receiver_count() > 0
    }

    /// Tells watchers. The event is made only if there is one.
    pub(super) fn emit(&self, event: impl FnOnce() -> Event<T>) {
        if self.is_watched() {
            // The last one may have gone meanwhile.
            let _ = self.events.send(Arc::new(event()));
        }
    }

    /// Gives places of handlers that have ended to others, while the service deletes the messages. If too many are being
    /// deleted, they keep these places: that bounds the messages that the listener holds. They also keep them where each
    /// delete is a request: running handlers need the connections to renew their leases.
    pub(super) fn places_to_delete(
        &self,
        places: Option<OwnedSemaphorePermit>,
    ) -> Option<OwnedSemaphorePermit> {
        if !S::Lease::COMPLETES_TOGETHER {
            return places;
        }
        let count = places.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match self.deletes.clone().try_acquire_many_owned(count) {
            Ok(deletes) => Some(deletes),
            Err(_) => places,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Moves on to a later phase. Whether it was an earlier one.
    pub(super) fn advance(&self, to: Phase) -> bool {
        self.phase.send_if_modified(|phase| {
            let is_earlier = *phase < to;
            if is_earlier {
                *phase = to;
            }
            is_earlier
        })
    }

    pub(super) fn lease(&self) -> Duration {
        lock(&self.visibility).lease()
    }

    /// A message of this listener can be received again after this time, and nobody announces it. It may take up to
    /// a second longer, because services hide messages for whole seconds.
    pub(super) fn comes_back(&self, delay: Duration) {
        if !self.settings.has_push {
            return;
        }
        let seconds = delay
            .as_secs()
            .saturating_add(u64::from(delay.subsec_nanos() > 0));
        let at = after(Instant::now(), Duration::from_secs(seconds));
        if lock(&self.returns).add(at) {
            self.returns_changed.notify_one();
        }
    }

    /// Waits until a message comes back. To drop the future loses nothing.
    pub(super) async fn came_back(&self) {
        loop {
            let first = lock(&self.returns).first();
            tokio::select! {
                () = sleep_until(first.unwrap_or_else(Instant::now)), if first.is_some() => {
                    return lock(&self.returns).forget_until(Instant::now());
                }
                () = self.returns_changed.notified() => {}
            }
        }
    }

    pub(super) fn pause(&self) -> Duration {
        lock(&self.pacing).pause
    }

    /// Takes in how long a request took, which decides on the pace of all tasks.
    pub(super) fn observe_request(&self, began: Instant, error: Option<&SourceError>) {
        self.observe_answer(began.elapsed(), error);
    }

    /// The same, of a request that took so long.
    pub(super) fn observe_answer(&self, took: Duration, error: Option<&SourceError>) {
        self.counters.requests.increment();
        let outcome = match error {
            None => RequestOutcome::Succeeded,
            Some(error) if error.kind() == kew_client::ErrorKind::Refused => {
                // The service answered, so it is not slow.
                self.counters.failed_requests.increment();
                RequestOutcome::Succeeded
            }
            Some(_) => {
                self.counters.failed_requests.increment();
                RequestOutcome::Failed
            }
        };
        let mut pacing = lock(&self.pacing);
        let pause = pacing.policy.observe(took, outcome);
        if pause > pacing.pause {
            tracing::warn!(target: "kew::worker", ?pause, "requests became slow: pausing between them");
        }
        pacing.pause = pause;
    }

    /// How long to wait after a request that failed.
    pub(super) fn request_delay(&self, error: &SourceError, failures: u32) -> Duration {
        let chance = self.chance.fraction();
        let delay = self.settings.request_delay.delay(failures, chance);
        match error.is_busy() {
            true => delay.max(self.settings.busy_delay),
            false => delay,
        }
    }

    /// Counts a lease that ended before its message was deleted, and tells the front end of too many.
    pub(super) fn lost_lease(&self) {
        self.counters.lost_leases.increment();
        let limit = self.settings.loss_limit;
        let is_too_many = lock(&self.losses).add(limit, Instant::now());
        if !is_too_many {
            return;
        }
        let report = LostLeases {
            source: self.source.name().clone(),
            count: limit.count,
            within: limit.within,
            lease: self.lease(),
        };
        tracing::warn!(target: "kew::worker", "{report}");
        if let Some(told) = &self.settings.on_lost_leases {
            told.lost(&report);
        }
    }

    /// Asks the service how many messages the queue holds.
    pub(super) async fn read_depth(&self) -> Result<Option<u64>, SourceError> {
        let began = Instant::now();
        let depth = self.source.depth().await;
        match &depth {
            // No request was made.
            Ok(None) => {}
            read => self.observe_request(began, read.as_ref().err()),
        }
        let depth = depth?;
        self.depth
            .store(depth.unwrap_or(NO_DEPTH), Ordering::Relaxed);
        Ok(depth)
    }

    pub(super) fn state(&self) -> State {
        let counters = &self.counters;
        let depth = self.depth.load(Ordering::Relaxed);
        State {
            depth: Some(depth).filter(|depth| *depth != NO_DEPTH),
            active_tasks: self.tasks.active(),
            total_tasks: self.tasks.total(),
            in_flight: counters.in_flight.value(),
            delayed: counters.delayed.value(),
            deleting: (self.settings.handlers_max - self.deletes.available_permits()) as u64,
            requests: counters.requests.value(),
            failed_requests: counters.failed_requests.value(),
            empty_polls: counters.empty_polls.value(),
            received: counters.received.value(),
            completed: counters.completed.value(),
            failed: counters.failed.value(),
            buried: counters.buried.value(),
            returned: counters.returned.value(),
            stopped_handlers: counters.stopped_handlers.value(),
            lost_leases: counters.lost_leases.value(),
            unsettled: counters.unsettled.value(),
            renewals: counters.renewals.value(),
            wake_ups: counters.wake_ups.value(),
            announcements: counters.announcements.value(),
            lease: self.lease(),
            pause: self.pause(),
        }
    }
}

impl<T: Send + Sync + 'static, S: Source> OfListener for Shared<T, S> {
    fn observe(&self, began: Instant, error: Option<&SourceError>) {
        self.observe_request(began, error);
    }

    fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}

/// One more task that runs, until it is dropped.
struct Running<T, S: Source>(Arc<Shared<T, S>>);

impl<T, S: Source> Running<T, S> {
    fn new(shared: Arc<Shared<T, S>>) -> Self {
        shared.running.send_modify(|running| *running += 1);
        Self(shared)
    }
}

impl<T, S: Source> Drop for Running<T, S> {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

/// The time so much later; one that does not come if there is no such time.
pub(super) fn after(now: Instant, delay: Duration) -> Instant {
    now.checked_add(delay).unwrap_or_else(|| now + NEVER)
}

/// A panic while a lock was held leaves values that are still whole.
pub(super) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
