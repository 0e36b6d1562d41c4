//! One message: from its lease to its settlement.
//!
//! What is known of it is shared, so that a task can go on with what another one began: see `batch`.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{CatchUnwind, join_all};
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout};
use tracing::{Instrument as _, Span};

use super::events::Event;
use super::finished::Done;
use super::keeper::{Dropped, Limits, keep};
use super::phase::Phase;
use super::settle::{Settlement, settle};
use super::shared::{Shared, lock};
use crate::delivery::{Boxed, Delivery, DynHandler};
use crate::error::SourceError;
use crate::failure::{self, Failure};
use crate::policy::AfterLoss;
use crate::source::{Incoming, Lease, Source};

/// How long a codec may clean up after a message.
const CLEAN_UP_MAX: Duration = Duration::from_mins(1);

/// What is known of a message while it is handled.
pub(super) struct Work<T, S: Source> {
    pub(super) shared: Arc<Shared<T, S>>,
    pub(super) lease: Arc<Mutex<S::Lease>>,
    pub(super) incoming: Incoming,
    /// Set when the message could be decoded.
    message: std::sync::Mutex<Option<Arc<T>>>,
}

/// It is in flight as long as anybody works on it.
impl<T, S: Source> Drop for Work<T, S> {
    fn drop(&mut self) {
        self.shared.counters.in_flight.change(1, 0);
    }
}

/// Handles a message, and settles it. It has a place until then: that of a handler, or of a delete.
pub(super) async fn handle<T: Send + Sync + 'static, S: Source>(
    shared: Arc<Shared<T, S>>,
    lease: S::Lease,
    place: Option<OwnedSemaphorePermit>,
) {
    let work = Work::new(shared, lease);
    let span = work.span();
    work.run(place).instrument(span).await;
}

impl<T: Send + Sync + 'static, S: Source> Work<T, S> {
    pub(super) fn new(shared: Arc<Shared<T, S>>, lease: S::Lease) -> Self {
        shared.counters.in_flight.change(0, 1);
        let incoming = lease.incoming().clone();
        Self {
            incoming,
            lease: Arc::new(Mutex::new(lease)),
            message: std::sync::Mutex::new(None),
            shared,
        }
    }

    pub(super) fn span(&self) -> Span {
        let (name, meta) = (self.shared.source.name(), &self.incoming.meta);
        let span = tracing::info_span!(
            target: "kew::worker",
            "process",
            messaging.destination.name = &*name.queue,
            messaging.message.id = meta.id,
            messaging.attempt = meta.attempt,
            traceparent = meta.trace.as_ref().map(display),
        );
        if let Some(on_span) = &self.shared.settings.on_span {
            on_span(&span, meta);
        }
        span
    }

    pub(super) async fn run(&self, place: Option<OwnedSemaphorePermit>) {
        let shared = &self.shared;
        // What is rare is in boxes, here and below, so that the task of each message is small.
        if shared.phase() != Phase::Running {
            return Box::pin(self.give_back()).await;
        }
        if let Some(done) = self.finished() {
            return Box::pin(self.delete_finished(done)).await;
        }
        if self.is_exhausted() {
            let failure = self.exhausted();
            return Box::pin(self.failed(&failure, place)).await;
        }
        self.run_attempt(Instant::now(), self.attempt(), place)
            .await;
    }

    /// What was done with it before an earlier lease ended.
    pub(super) fn finished(&self) -> Option<Done> {
        lock(&self.shared.finished).get(&self.incoming.meta.key)
    }

    /// Runs an attempt to its end under the lease, and settles the message.
    pub(super) async fn run_attempt(
        &self,
        began: Instant,
        attempt: impl Future<Output = Result<(), Failure>> + Send,
        place: Option<OwnedSemaphorePermit>,
    ) {
        let shared = &self.shared;
        let limits = self.limits(shared.settings.handling_time_max, Phase::Returning);
        let attempt = AssertUnwindSafe(attempt).catch_unwind();
        let kept = keep(shared, &*self.lease, limits, attempt).await;
        let handled_for = began.elapsed();
        self.handled(handled_for);
        match kept {
            Ok(Ok(Ok(()))) => {
                let _place = shared.places_to_delete(place);
                self.forget_message();
                self.succeeded(handled_for).await;
            }
            Ok(Ok(Err(failure))) => Box::pin(self.failed(&failure, place)).await,
            Ok(Err(panic)) => {
                let failure = Failure::of_panic(&*panic);
                Box::pin(self.failed(&failure, place)).await;
            }
            Err(why) => Box::pin(self.dropped(why, place)).await,
        }
    }

    /// An attempt has ended.
    pub(super) fn handled(&self, handled_for: Duration) {
        let shared = &self.shared;
        shared.swiftness.observe(handled_for);
        lock(&shared.visibility).observe(handled_for);
        shared.counters.handled_for.observe_duration(handled_for);
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
        Limits {
            lease: self.shared.lease(),
            hint: self.hint(),
            handling_time_max,
            returns_in,
        }
    }

    /// How long the sender wants the first lease.
    pub(super) fn hint(&self) -> Option<Duration> {
        // It is a property of the message: anybody may have set it.
        let hint = self
            .incoming
            .meta
            .lease_hint()
            .filter(|_| S::CHOOSES_LEASE)?;
        Some(hint.min(lock(&self.shared.visibility).maximum()))
    }

    /// Verifies, decodes, and runs all handlers to their end.
    pub(super) async fn attempt(&self) -> Result<(), Failure> {
        failure::forget_panic();
        let shared = &self.shared;
        if let Some(verify) = &shared.settings.verify {
            verify
                .verify(&self.incoming)
                .map_err(Failure::not_authentic)?;
        }
        if let Some(why) = &self.incoming.meta.unreadable {
            return Err(Failure::malformed(why));
        }
        let decoded = match shared.codec.decode_now(&self.incoming) {
            Some(decoded) => decoded,
            None => shared.codec.decode(&self.incoming).await,
        };
        let message = Arc::new(decoded.map_err(Failure::of_codec)?);
        *lock(&self.message) = Some(message.clone());
        let (meta, lease) = (self.incoming.meta.clone(), self.lease.clone());
        let delivery = Delivery::new(message, meta, lease, shared.clone());
        match &*shared.handlers {
            [only] => contained(&**only, delivery).await,
            // Each runs to its end: a handler is not dropped because another one failed or panicked.
            all => {
                let all = all.iter().map(|it| contained(&**it, delivery.clone()));
                join_all(all).await.into_iter().collect()
            }
        }
    }

    /// All handlers succeeded, and nothing but the delete is left. Frees what nobody needs for that: many messages wait
    /// for it, and memory that was used just now is quicker than other memory.
    pub(super) fn forget_all(&mut self) {
        self.forget_message();
        let lease = Arc::get_mut(&mut self.lease).map(Mutex::get_mut);
        if let (Some(lease), false) = (lease, self.shared.codec.cleans_up()) {
            lease.handled();
            self.incoming.body = Bytes::new();
        }
    }

    /// The same as far as it can be freed while others have the message too.
    fn forget_message(&self) {
        if !self.shared.is_watched() {
            let message = lock(&self.message).take();
            // A message that panics when it is dropped was handled nevertheless.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(message)));
        }
    }

    /// All handlers succeeded.
    pub(super) async fn succeeded(&self, handled_for: Duration) {
        let deleted = settle(&self.shared, &self.lease, Settlement::Complete).await;
        self.ended(deleted, handled_for).await;
    }

    /// After the delete of a message whose handlers all succeeded, or after its last try.
    pub(super) async fn ended(&self, deleted: Result<(), SourceError>, handled_for: Duration) {
        match deleted {
            Ok(()) => self.completed(handled_for).await,
            Err(error) => Box::pin(self.unsettled(&error)).await,
        }
    }

    /// It was handled, and deleted.
    async fn completed(&self, handled_for: Duration) {
        self.clean_up().await;
        self.tell_completed(handled_for);
    }

    /// Nothing is left to do for it.
    pub(super) fn tell_completed(&self, handled_for: Duration) {
        if self.shared.is_watched()
            && let Some(message) = self.message()
        {
            self.shared.emit(|| Event::Completed {
                message,
                meta: self.incoming.meta.clone(),
                handled_for,
            });
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
        let Some(mut cleaning) = self.begin_clean_up() else {
            return;
        };
        // What ends without waiting needs no timer.
        let first = poll_fn(|context| Poll::Ready(cleaning.poll_unpin(context))).await;
        match first {
            Poll::Ready(cleaned) => warn_unless_clean(cleaned.is_ok()),
            Poll::Pending => end_clean_up(cleaning).await,
        }
    }

    /// Counts a message that was deleted, and has its codec clean up, if that does.
    pub(super) fn begin_clean_up(&self) -> Option<CleanUp> {
        self.shared.counters.completed.increment();
        let cleaning = self.shared.codec.clone().completed(&self.incoming)?;
        Some(AssertUnwindSafe(cleaning).catch_unwind())
    }

    async fn unsettled(&self, error: &SourceError) {
        let shared = &self.shared;
        self.comes_back_after_lease().await;
        tracing::warn!(target: "kew::worker", %error, "a message was handled and could not be deleted");
        shared.counters.unsettled.increment();
        match shared.settings.after_loss {
            AfterLoss::Keep => lock(&shared.finished).add(&self.incoming.meta.key, Done::Handled),
            AfterLoss::Redo => {}
        }
        if error.is_lease_lost() {
            shared.lost_lease();
        }
        if let Some(message) = self.message() {
            shared.emit(|| Event::Unsettled {
                message,
                meta: self.incoming.meta.clone(),
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
        let meta = self.incoming.meta.clone();
        self.shared.emit(|| Event::LeaseLost { meta });
    }

    /// Returns a message that was not handled to its end, because the listener stops.
    async fn give_back(&self) {
        let release = Settlement::Release {
            delay: Duration::ZERO,
            history: &self.incoming.meta.history,
        };
        self.receives_ended().await;
        match settle(&self.shared, &self.lease, release).await {
            Ok(()) => {
                self.shared.counters.returned.increment();
                let meta = self.incoming.meta.clone();
                self.shared.emit(|| Event::Returned { meta });
            }
            Err(error) => {
                tracing::warn!(target: "kew::worker", %error, "a message returns when its lease ends");
            }
        }
    }

    /// Before a message is returned by a listener that stops: nothing of the listener is to receive it again. A task of
    /// an ordered source waits for its message, and receives nothing before that is settled.
    pub(super) async fn receives_ended(&self) {
        if !S::IS_ORDERED && self.shared.phase() != Phase::Running {
            self.shared.receives.ended().await;
        }
    }

    pub(super) fn message(&self) -> Option<Arc<T>> {
        lock(&self.message).clone()
    }
}

/// What a codec does after a message was deleted.
pub(super) type CleanUp = CatchUnwind<AssertUnwindSafe<Boxed<'static, ()>>>;

/// Goes on with one that waits.
pub(super) async fn end_clean_up(cleaning: CleanUp) {
    let cleaned = timeout(CLEAN_UP_MAX, cleaning).await;
    warn_unless_clean(matches!(cleaned, Ok(Ok(()))));
}

pub(super) fn warn_unless_clean(is_clean: bool) {
    if !is_clean {
        tracing::warn!(target: "kew::worker", "the clean-up after a message failed");
    }
}

/// Runs a handler to its end, and makes a failure of a panic.
async fn contained<T, L>(
    handler: &dyn DynHandler<T, L>,
    delivery: Delivery<T, L>,
) -> Result<(), Failure> {
    let handled = async move { handler.handle_boxed(delivery).await };
    let handled = AssertUnwindSafe(handled).catch_unwind().await;
    handled.unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)))
}
