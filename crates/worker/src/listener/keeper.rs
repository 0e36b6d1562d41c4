//! Holds a lease while work on its message runs, and drops the work before the lease ends.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use kew_client::ErrorKind;
use tokio::sync::{Mutex, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::phase::Phase;
use super::shared::{Shared, after};
use crate::error::SourceError;
use crate::source::{Lease, Source};

/// A lease with less than this left is renewed before its work starts.
const NEARLY_OVER: Duration = Duration::from_secs(1);

/// The least time between the end of work and the end of its lease, unless the lease is shorter than twice of it.
const MARGIN_MIN: Duration = Duration::from_millis(500);

/// The least time between two renewals, however short the service's leases are.
const RENEWALS_APART: Duration = Duration::from_millis(100);

/// Why work was dropped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// The lease is about to end and cannot be renewed.
    LeaseEnding,
    /// The lease has ended.
    LeaseLost,
    /// Its longest time was over.
    TimedOut,
    /// The listener stops.
    Stopped,
}

/// What holds for the work of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How long the lease is each time it is renewed.
    pub(crate) lease: Duration,
    /// How long the sender wants the first lease.
    pub(crate) hint: Option<Duration>,
    /// The longest that the work may take.
    pub(crate) handling_time_max: Duration,
    /// When the listener gives up and returns messages.
    pub(crate) returns_in: Phase,
}

/// Runs the work under the lease. The work has ended, or its future is dropped, when this returns; and no renewal
/// is under way.
pub(super) async fn keep<T: Send + Sync + 'static, S: Source, W: Future>(
    shared: &Shared<T, S>,
    lease: &Mutex<S::Lease>,
    limits: Limits,
    work: W,
) -> Result<W::Output, Dropped> {
    let mut phase = shared.phase.subscribe();
    let mut ends_at = lease.lock().await.ends_at();
    // A lease that is nearly over is renewed first, so that no work starts that has no time.
    if needs_renewal(Instant::now(), ends_at, limits.hint) {
        match Box::pin(renew_first(shared, lease, limits)).await {
            Some(renewed) => ends_at = renewed,
            None => return Err(Dropped::LeaseLost),
        }
    }
    // The listener may have stopped meanwhile: no work starts then.
    if *phase.borrow() >= limits.returns_in {
        return Err(Dropped::Stopped);
    }
    let mut work = Box::pin(work);
    // Work that ends without waiting needs no timers.
    let first = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
    if let Poll::Ready(output) = first {
        return Ok(output);
    }
    let (done, is_done) = oneshot::channel();
    let mut renewals = Box::pin(renew(shared, lease, limits, ends_at, is_done));
    let kept = tokio::select! {
        biased;
        output = &mut work => Ok(output),
        lost = &mut renewals => return match lost {
            Renewals::Lost => Err(Dropped::LeaseLost),
            Renewals::Ended | Renewals::Failed => Err(Dropped::LeaseEnding),
        },
        _ = phase.wait_for(|phase| *phase >= limits.returns_in) => Err(Dropped::Stopped),
        () = sleep(limits.handling_time_max) => Err(Dropped::TimedOut),
    };
    drop(work);
    drop(done);
    // A renewal that is under way changes what names the lease: its answer is awaited.
    match (kept, renewals.await) {
        (Err(Dropped::Stopped | Dropped::TimedOut), Renewals::Lost) => Err(Dropped::LeaseLost),
        (kept, Renewals::Ended | Renewals::Failed | Renewals::Lost) => kept,
    }
}

/// Why renewals ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewals {
    /// The work is done.
    Ended,
    /// They failed until the lease was about to end.
    Failed,
    /// The lease is over.
    Lost,
}

/// Whether a lease has to be renewed before work starts.
pub(super) fn needs_renewal(now: Instant, ends_at: Instant, hint: Option<Duration>) -> bool {
    let left = ends_at.saturating_duration_since(now);
    left < NEARLY_OVER || hint.is_some_and(|hint| left < hint)
}

/// Renews the lease before its work starts, and returns its new end. `None` if there is no time for the work.
async fn renew_first<T: Send + Sync + 'static, S: Source>(
    shared: &Shared<T, S>,
    lease: &Mutex<S::Lease>,
    limits: Limits,
) -> Option<Instant> {
    let mut lease = lease.lock().await;
    let duration = limits
        .hint
        .map_or(limits.lease, |hint| hint.max(limits.lease));
    // A lease that seems over may not be: the clocks of services differ. The service knows.
    let limit = lease.ends_at().max(Instant::now() + NEARLY_OVER);
    let is_renewed = renew_once(shared, &mut *lease, duration, limit)
        .await
        .is_ok();
    shared.counters.renewed(is_renewed);
    let ends_at = lease.ends_at();
    (is_renewed || ends_at > Instant::now() + NEARLY_OVER).then_some(ends_at)
}

/// Asks for a renewal once. One without an answer until then has failed, and slows the listener down.
async fn renew_once<T: Send + Sync + 'static, S: Source>(
    shared: &Shared<T, S>,
    lease: &mut S::Lease,
    duration: Duration,
    until: Instant,
) -> Result<(), SourceError> {
    let began = Instant::now();
    let renewed = timeout_at(until, lease.renew(duration)).await;
    let renewed = renewed.unwrap_or_else(|_| {
        let text = "the service did not answer before the lease ended";
        Err(SourceError::new(ErrorKind::OutcomeUnknown, text))
    });
    shared.observe_request(began, renewed.as_ref().err());
    renewed
}

/// Renews the lease in the middle of the time that is left, until the work is done or there is no time left.
///
/// What holds the lease meanwhile, such as a checkpoint that is being stored, is not waited for beyond that time.
async fn renew<T: Send + Sync + 'static, S: Source>(
    shared: &Shared<T, S>,
    lease: &Mutex<S::Lease>,
    limits: Limits,
    mut ends_at: Instant,
    mut is_done: oneshot::Receiver<()>,
) -> Renewals {
    loop {
        let left = ends_at.saturating_duration_since(Instant::now());
        let gives_up_at = ends_at - margin(left);
        let renews_at = Instant::now() + ((left - margin(left)) / 2).max(RENEWALS_APART);
        tokio::select! {
            biased;
            _ = &mut is_done => return Renewals::Ended,
            () = sleep_until(renews_at) => {}
        }
        let mut failures = 0;
        ends_at = loop {
            let renewed = async {
                let mut lease = lease.lock().await;
                // A checkpoint may have renewed it.
                if lease.ends_at() <= ends_at {
                    renew_once(shared, &mut *lease, limits.lease, gives_up_at).await?;
                }
                Ok::<_, SourceError>(lease.ends_at())
            };
            let renewed = timeout_at(gives_up_at, renewed).await;
            shared.counters.renewed(matches!(renewed, Ok(Ok(_))));
            let error = match renewed {
                Ok(Ok(ends_at)) => break ends_at,
                Ok(Err(error)) if error.is_lease_lost() => return Renewals::Lost,
                Ok(Err(error)) => error,
                Err(_) => return Renewals::Failed,
            };
            tracing::debug!(target: "kew::worker", %error, "a lease was not renewed");
            failures += 1;
            let tries_at = match error.kind() {
                // The same request is of no use, but the work may be done in the time that is left.
                ErrorKind::Refused => gives_up_at,
                _ => after(Instant::now(), shared.request_delay(&error, failures)),
            };
            tokio::select! {
                biased;
                _ = &mut is_done => return Renewals::Ended,
                () = sleep_until(tries_at.min(gives_up_at)) => {}
            }
            if Instant::now() >= gives_up_at {
                return Renewals::Failed;
            }
        };
    }
}

/// How long before its end a lease is given up.
fn margin(left: Duration) -> Duration {
    (left / 10).max(MARGIN_MIN).min(left / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_a_tenth_and_at_most_half() {
        for (left_ms, expected_ms) in [
            (60_000, 6_000),
            (3_000, 500),
            (1_000, 500),
            (600, 300),
            (0, 0),
        ] {
            let margin = margin(Duration::from_millis(left_ms));
            assert_eq!(margin.as_millis(), expected_ms, "{left_ms}");
        }
    }
}
