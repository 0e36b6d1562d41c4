//! One message: from its lease to its settlement.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use kew_client::ErrorKind;
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{Instrument as _, Span};

use super::counters::Present;
use super::events::Event;
use super::finished::Done;
use super::keeper::{Dropped, Limits, keep};
use super::phase::Phase;
use super::settle::{Settlement, TRIES_FOR_MIN, settle};
use super::shared::{Shared, lock};
use crate::delivery::Delivery;
use crate::error::SourceError;
use crate::failure::{self, Failure, MAX_DELIVERY_COUNT_EXCEEDED};
use crate::policy::AfterLoss;
use crate::source::{Attempt, Burial, HISTORY_MAX, Incoming, Lease, Meta, Source};

/// How long a codec may clean up after a message.
const CLEAN_UP_MAX: Duration = Duration::from_mins(1);

/// Deliveries above the limit after which a message is buried without a handler. A delivery is no failure: the answer
/// to a receive may have been lost, or another listener may have stopped.
const UNHANDLED_MARGIN: u32 = 3;

/// What is known of a message while it is handled.
struct Work<T, S: Source> {
    shared: Arc<Shared<T, S>>,
    lease: Arc<Mutex<S::Lease>>,
    incoming: Incoming,
    meta: Arc<Meta>,
    /// Set when the message could be decoded.
    message: std::sync::Mutex<Option<Arc<T>>>,
}

/// Handles a message, and settles it. The message keeps its place until then.
pub(super) async fn handle<T: Send + Sync + 'static, S: Source>(
    shared: Arc<Shared<T, S>>,
    lease: S::Lease,
    place: Option<OwnedSemaphorePermit>,
) {
    let incoming = lease.incoming().clone();
    let work = Work {
        meta: incoming.meta.clone(),
        incoming,
        lease: Arc::new(Mutex::new(lease)),
        message: std::sync::Mutex::new(None),
        shared: shared.clone(),
    };
    let _in_flight = Present::new(&shared.counters.in_flight);
    let span = work.span();
    work.run(place).instrument(span).await;
}

impl<T: Send + Sync + 'static, S: Source> Work<T, S> {
    fn span(&self) -> Span {
        let (name, meta) = (self.shared.source.name(), &self.meta);
        let trace = meta.trace.as_ref().map(ToString::to_string);
        let span = tracing::info_span!(
            target: "kew::worker",
            "process",
            messaging.destination.name = &*name.queue,
            messaging.message.id = meta.id,
            messaging.attempt = meta.attempt,
            traceparent = trace,
        );
        if let Some(on_span) = &self.shared.settings.on_span {
            on_span(&span, meta);
        }
        span
    }

    async fn run(&self, place: Option<OwnedSemaphorePermit>) {
        let (shared, key) = (&self.shared, &self.meta.key);
        // What is rare is in boxes, here and below, so that the task of each message is small.
        if shared.phase() != Phase::Running {
            return Box::pin(self.give_back()).await;
        }
        let finished = lock(&shared.finished).get(key);
        if let Some(done) = finished {
            return Box::pin(self.delete_finished(done)).await;
        }
        if self.is_exhausted() {
            let failure = self.exhausted();
            return Box::pin(self.failed(&failure, place)).await;
        }
        let began = Instant::now();
        let limits = self.limits(shared.settings.handling_time_max, Phase::Returning);
        let counters = &shared.counters;
        let attempt = AssertUnwindSafe(self.attempt()).catch_unwind();
        let kept = keep(shared, &*self.lease, limits, attempt).await;
        let handled_for = began.elapsed();
        lock(&shared.visibility).observe(handled_for);
        counters.handled_for.observe_duration(handled_for);
        match kept {
            Ok(Ok(Ok(()))) => self.succeeded(handled_for).await,
            Ok(Ok(Err(failure))) => Box::pin(self.failed(&failure, place)).await,
            Ok(Err(panic)) => {
                let failure = Failure::of_panic(&*panic);
                Box::pin(self.failed(&failure, place)).await;
            }
            Err(why) => Box::pin(self.dropped(why, place)).await,
        }
    }

    /// The handlers were dropped before their end.
    async fn dropped(&self, why: Dropped, place: Option<OwnedSemaphorePermit>) {
        let shared = &self.shared;
        shared.counters.stopped_handlers.increment();
        let failure = match why {
            Dropped::LeaseLost => return self.lost().await,
            Dropped::Stopped => return self.give_back().await,
            Dropped::LeaseEnding => {
                let text = "its lease could not be renewed, so the handler was stopped";
                Failure::of_type("LeaseEnded", text)
            }
            Dropped::TimedOut => {
                let limit = shared.settings.handling_time_max;
                let text = format!("the handler took longer than {limit:?} and was stopped");
                Failure::of_type("HandlingTimeExceeded", text)
            }
        };
        self.failed(&failure, place).await;
    }

    fn limits(&self, handling_time_max: Duration, returns_in: Phase) -> Limits {
        // The hint is a property of the message: anybody may have set it.
        let hint = self.meta.lease_hint().filter(|_| S::CHOOSES_LEASE);
        let maximum = lock(&self.shared.visibility).maximum();
        Limits {
            lease: self.shared.lease(),
            hint: hint.map(|hint| hint.min(maximum)),
            handling_time_max,
            returns_in,
        }
    }

    /// Verifies, decodes, and runs all handlers to their end.
    async fn attempt(&self) -> Result<(), Failure> {
        failure::forget_panic();
        let shared = &self.shared;
        if let Some(verify) = &shared.settings.verify {
            verify
                .verify(&self.incoming)
                .map_err(Failure::not_authentic)?;
        }
        if let Some(why) = &self.meta.unreadable {
            return Err(Failure::malformed(why));
        }
        let decoded = shared.codec.decode(&self.incoming).await;
        let message = Arc::new(decoded.map_err(Failure::of_codec)?);
        *lock(&self.message) = Some(message.clone());
        let (lease, phase) = (self.lease.clone(), shared.phase.subscribe());
        let delivery = Delivery::new(message, self.meta.clone(), lease, phase, shared.clone());
        // Each runs to its end: a handler is not dropped because another one failed or panicked.
        let handlers = shared.handlers.iter().map(|handler| {
            let delivery = delivery.clone();
            async move {
                let handled = async move { handler.handle_boxed(delivery).await };
                let handled = AssertUnwindSafe(handled).catch_unwind().await;
                handled.unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)))
            }
        });
        join_all(handlers).await.into_iter().collect()
    }

    /// All handlers succeeded: the one place where a message is deleted after its work.
    async fn succeeded(&self, handled_for: Duration) {
        let shared = &self.shared;
        match settle(shared, &self.lease, Settlement::Complete).await {
            Ok(()) => {
                self.clean_up().await;
                if let Some(message) = self.message() {
                    shared.emit(|| Event::Completed {
                        message,
                        meta: self.meta.clone(),
                        handled_for,
                    });
                }
            }
            Err(error) => Box::pin(self.unsettled(&error)).await,
        }
    }

    /// Its work is done; an earlier lease ended before the delete.
    async fn delete_finished(&self, done: Done) {
        match (
            settle(&self.shared, &self.lease, Settlement::Complete).await,
            done,
        ) {
            (Ok(()), Done::Handled) => self.clean_up().await,
            // Who digs it up needs what belongs to it.
            (Ok(()), Done::Buried) => {}
            (Err(error), Done::Handled | Done::Buried) => {
                self.comes_back_after_lease().await;
                tracing::warn!(target: "kew::worker", %error, "a finished message was not deleted");
            }
        }
    }

    /// After the delete of a message that was handled.
    async fn clean_up(&self) {
        self.shared.counters.completed.increment();
        let cleaned = async { self.shared.codec.completed(&self.incoming).await };
        let cleaned = AssertUnwindSafe(timeout(CLEAN_UP_MAX, cleaned)).catch_unwind();
        if !matches!(cleaned.await, Ok(Ok(()))) {
            tracing::warn!(target: "kew::worker", "the clean-up after a message failed");
        }
    }

    async fn unsettled(&self, error: &SourceError) {
        let shared = &self.shared;
        self.comes_back_after_lease().await;
        tracing::warn!(target: "kew::worker", %error, "a message was handled and could not be deleted");
        shared.counters.unsettled.increment();
        match shared.settings.after_loss {
            AfterLoss::Keep => lock(&shared.finished).add(&self.meta.key, Done::Handled),
            AfterLoss::Redo => {}
        }
        if error.is_lease_lost() {
            shared.lost_lease();
        }
        if let Some(message) = self.message() {
            shared.emit(|| Event::Unsettled {
                message,
                meta: self.meta.clone(),
                error: error.to_string(),
            });
        }
    }

    /// The message comes back when its lease ends. A request without an answer may have lengthened it.
    async fn comes_back_after_lease(&self) {
        let ends_at = self.lease.lock().await.ends_at();
        let left = ends_at.saturating_duration_since(Instant::now());
        self.shared.comes_back(left);
        self.shared.comes_back(self.shared.lease());
    }

    async fn lost(&self) {
        self.comes_back_after_lease().await;
        tracing::warn!(target: "kew::worker", "a lease ended while its handler ran");
        self.shared.lost_lease();
        let meta = self.meta.clone();
        self.shared.emit(|| Event::LeaseLost { meta });
    }

    /// How many attempts failed before this one: those of the history, where there is one. Other deliveries were
    /// returned by a stop, or had no answer. Without a history each delivery counts, and where the service counts
    /// them too and buries by itself.
    fn failed_before(&self) -> u32 {
        let (deliveries, noted) = (self.meta.attempt - 1, self.meta.history.len());
        match u32::try_from(noted) {
            // A longer history is cut.
            Ok(noted @ 1..) if S::CHOOSES_LEASE && noted < HISTORY_MAX => noted.min(deliveries),
            _ => deliveries,
        }
    }

    /// Whether the message is buried without a handler: its last failure could not be settled, or it ended its
    /// process or lost its lease too often.
    fn is_exhausted(&self) -> bool {
        let most = self.shared.settings.attempts_max;
        let has_failed = !self.meta.history.is_empty() && self.failed_before() >= most;
        has_failed || self.meta.attempt > most.saturating_add(UNHANDLED_MARGIN)
    }

    /// Of a message that ended its process, or its lease, too often.
    fn exhausted(&self) -> Failure {
        let (attempt, most) = (self.meta.attempt, self.shared.settings.attempts_max);
        let last = self.meta.history.last().map(|it| it.error.as_str());
        let last = last.unwrap_or("no error was reported");
        let text = format!("delivery {attempt} is above the limit of {most}; the last: {last}");
        Failure::of_type(MAX_DELIVERY_COUNT_EXCEEDED, text).permanent(MAX_DELIVERY_COUNT_EXCEEDED)
    }

    async fn failed(&self, failure: &Failure, place: Option<OwnedSemaphorePermit>) {
        let (shared, attempt) = (&self.shared, self.meta.attempt);
        shared.counters.failed.increment();
        tracing::warn!(target: "kew::worker", attempt, error = %failure, "a message failed");
        let history = self.meta.history_with(failure.attempt(attempt));
        if failure.is_permanent() || self.failed_before() + 1 >= shared.settings.attempts_max {
            let burial = failure.burial(history.clone());
            match self.bury(&burial).await {
                Ok(()) => {
                    shared.counters.buried.increment();
                    let reason = burial.reason;
                    return shared.emit(|| Event::Buried {
                        message: self.message(),
                        meta: self.meta.clone(),
                        reason,
                    });
                }
                Err(error) => {
                    if self.lease.lock().await.is_buried() {
                        // Only the delete is missing: it is not handled again.
                        lock(&shared.finished).add(&self.meta.key, Done::Buried);
                        shared.counters.buried.increment();
                    }
                    if error.is_lease_lost() {
                        return self.lost().await;
                    }
                    // Nothing is lost: it comes back, and is buried then.
                    tracing::error!(target: "kew::worker", %error, "a message could not be buried");
                }
            }
        }
        let chance = shared.chance.fraction();
        let by_policy = || shared.settings.message_delay.delay(attempt, chance);
        let delay = failure.delay().unwrap_or_else(by_policy);
        shared.emit(|| Event::Failed {
            message: self.message(),
            meta: self.meta.clone(),
            error: failure.to_string(),
            delay,
        });
        self.release_after(delay, &history, place).await;
    }

    /// Buries the message, after its codec has seen to it that what it refers to stays.
    async fn bury(&self, burial: &Burial) -> Result<(), SourceError> {
        let shared = &self.shared;
        let ends_at = self.lease.lock().await.ends_at();
        let ends_at = ends_at.max(Instant::now() + TRIES_FOR_MIN);
        let kept = async { shared.codec.burying(&self.incoming).await };
        let why = match AssertUnwindSafe(timeout_at(ends_at, kept))
            .catch_unwind()
            .await
        {
            Ok(Ok(Ok(()))) => {
                return settle(shared, &self.lease, Settlement::Bury(burial)).await;
            }
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(_)) => "the codec took longer than the lease".to_owned(),
            Err(_) => "the codec panicked".to_owned(),
        };
        Err(SourceError::new(ErrorKind::TryAgainLater, why))
    }

    /// Returns a message that failed. A service that cannot hide it has it held here for the delay.
    async fn release_after(
        &self,
        delay: Duration,
        history: &[Attempt],
        place: Option<OwnedSemaphorePermit>,
    ) {
        let shared = &self.shared;
        let hides = self.lease.lock().await.hides_released();
        let mut is_stopped = false;
        if !hides && !delay.is_zero() {
            // Its place goes to another message, unless too many wait already or must not be overtaken.
            let delayed = match S::IS_ORDERED {
                true => None,
                false => shared.delayed.clone().try_acquire_owned().ok(),
            };
            let _place = place.filter(|_| delayed.is_none());
            let _delayed = Present::new(&shared.counters.delayed);
            let limits = self.limits(Duration::MAX, Phase::Finishing);
            match keep(shared, &*self.lease, limits, sleep(delay)).await {
                Err(Dropped::LeaseLost) => return self.lost().await,
                Err(Dropped::Stopped) => is_stopped = true,
                Ok(()) | Err(Dropped::LeaseEnding | Dropped::TimedOut) => {}
            }
        }
        let delay = if hides { delay } else { Duration::ZERO };
        let release = Settlement::Release { delay, history };
        match settle(shared, &self.lease, release).await {
            Ok(()) if is_stopped => shared.counters.returned.increment(),
            Ok(()) => shared.comes_back(delay),
            Err(error) if error.is_lease_lost() => self.lost().await,
            Err(error) => {
                shared.comes_back(delay);
                self.comes_back_after_lease().await;
                tracing::warn!(target: "kew::worker", %error, "a message returns when its lease ends");
            }
        }
    }

    /// Returns a message that was not handled to its end, because the listener stops.
    async fn give_back(&self) {
        let release = Settlement::Release {
            delay: Duration::ZERO,
            history: &self.meta.history,
        };
        match settle(&self.shared, &self.lease, release).await {
            Ok(()) => {
                self.shared.counters.returned.increment();
                let meta = self.meta.clone();
                self.shared.emit(|| Event::Returned { meta });
            }
            Err(error) => {
                tracing::warn!(target: "kew::worker", %error, "a message returns when its lease ends");
            }
        }
    }

    fn message(&self) -> Option<Arc<T>> {
        lock(&self.message).clone()
    }
}
