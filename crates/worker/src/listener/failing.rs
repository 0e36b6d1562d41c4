//! A message whose attempt failed: it comes back after a delay, or is buried.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use kew_client::ErrorKind;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout_at};

use super::counters::Present;
use super::events::Event;
use super::finished::Done;
use super::handling::Work;
use super::keeper::{Dropped, keep};
use super::phase::Phase;
use super::settle::{Settlement, TRIES_FOR_MIN, settle};
use super::shared::lock;
use crate::error::SourceError;
use crate::failure::{Failure, MAX_DELIVERY_COUNT_EXCEEDED};
use crate::source::{Attempt, Burial, HISTORY_MAX, Lease, Source};

/// Deliveries above the limit after which a message is buried without a handler. A delivery is no failure: the answer
/// to a receive may have been lost, or another listener may have stopped.
const UNHANDLED_MARGIN: u32 = 3;

impl<T: Send + Sync + 'static, S: Source> Work<T, S> {
    /// How many attempts failed before this one: those of the history, where there is one. Other deliveries were
    /// returned by a stop, or had no answer. Without a history each delivery counts, and where the service counts
    /// them too and buries by itself.
    fn failed_before(&self) -> u32 {
        let (deliveries, noted) = (
            self.incoming.meta.attempt - 1,
            self.incoming.meta.history.len(),
        );
        match u32::try_from(noted) {
            // A longer history is cut.
            Ok(noted @ 1..) if S::CHOOSES_LEASE && noted < HISTORY_MAX => noted.min(deliveries),
            _ => deliveries,
        }
    }

    /// Whether the message is buried without a handler: its last failure could not be settled, or it ended its
    /// process or lost its lease too often.
    pub(super) fn is_exhausted(&self) -> bool {
        let most = self.shared.settings.attempts_max;
        let has_failed = !self.incoming.meta.history.is_empty() && self.failed_before() >= most;
        has_failed || self.incoming.meta.attempt > most.saturating_add(UNHANDLED_MARGIN)
    }

    /// Of a message that ended its process, or its lease, too often.
    pub(super) fn exhausted(&self) -> Failure {
        let (attempt, most) = (
            self.incoming.meta.attempt,
            self.shared.settings.attempts_max,
        );
        let last = self
            .incoming
            .meta
            .history
            .last()
            .map(|it| it.error.as_str());
        let last = last.unwrap_or("no error was reported");
        let text = format!("delivery {attempt} is above the limit of {most}; the last: {last}");
        Failure::of_type(MAX_DELIVERY_COUNT_EXCEEDED, text).permanent(MAX_DELIVERY_COUNT_EXCEEDED)
    }

    /// An attempt failed: the message is buried if it was the last one, and comes back otherwise.
    pub(super) async fn failed(&self, failure: &Failure, place: Option<OwnedSemaphorePermit>) {
        let (shared, attempt) = (&self.shared, self.incoming.meta.attempt);
        shared.counters.failed.increment();
        tracing::warn!(target: "kew::worker", attempt, error = %failure, "a message failed");
        let history = self.incoming.meta.history_with(failure.attempt(attempt));
        if failure.is_permanent() || self.failed_before() + 1 >= shared.settings.attempts_max {
            let burial = failure.burial(history.clone());
            match self.bury(&burial).await {
                Ok(()) => {
                    shared.counters.buried.increment();
                    let reason = burial.reason;
                    return shared.emit(|| Event::Buried {
                        message: self.message(),
                        meta: self.incoming.meta.clone(),
                        reason,
                    });
                }
                Err(error) => {
                    if self.lease.lock().await.is_buried() {
                        // Only the delete is missing: it is not handled again.
                        lock(&shared.finished).add(&self.incoming.meta.key, Done::Buried);
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
            meta: self.incoming.meta.clone(),
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
        if delay.is_zero() {
            self.receives_ended().await;
        }
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
}
