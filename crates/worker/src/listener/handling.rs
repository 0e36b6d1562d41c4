//! One message: from its lease to its settlement.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout};
use tracing::{Instrument as _, Span};

use super::counters::Present;
use super::events::Event;
use super::finished::Done;
use super::keeper::{Dropped, Limits, keep};
use super::phase::Phase;
use super::settle::{Settlement, settle};
use super::shared::{Shared, lock};
use crate::delivery::Delivery;
use crate::error::SourceError;
use crate::failure::{self, Failure};
use crate::policy::AfterLoss;
use crate::source::{Incoming, Lease, Meta, Source};

/// How long a codec may clean up after a message.
const CLEAN_UP_MAX: Duration = Duration::from_mins(1);

/// What is known of a message while it is handled.
pub(super) struct Work<T, S: Source> {
    pub(super) shared: Arc<Shared<T, S>>,
    pub(super) lease: Arc<Mutex<S::Lease>>,
    pub(super) incoming: Incoming,
    pub(super) meta: Arc<Meta>,
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

    pub(super) fn limits(&self, handling_time_max: Duration, returns_in: Phase) -> Limits {
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
    pub(super) async fn comes_back_after_lease(&self) {
        let ends_at = self.lease.lock().await.ends_at();
        let left = ends_at.saturating_duration_since(Instant::now());
        self.shared.comes_back(left);
        self.shared.comes_back(self.shared.lease());
    }

    pub(super) async fn lost(&self) {
        self.comes_back_after_lease().await;
        tracing::warn!(target: "kew::worker", "a lease ended while its handler ran");
        self.shared.lost_lease();
        let meta = self.meta.clone();
        self.shared.emit(|| Event::LeaseLost { meta });
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

    pub(super) fn message(&self) -> Option<Arc<T>> {
        lock(&self.message).clone()
    }
}
