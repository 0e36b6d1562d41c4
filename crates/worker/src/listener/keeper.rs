//! Holds a lease while work on its message runs, and drops the work before the lease ends.

use std::future::Future;
use std::time::Duration;

use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::counters::Counters;
use super::phase::Phase;
use crate::source::Lease;

/// A lease with less than this left is renewed before its work starts.
const NEARLY_OVER: Duration = Duration::from_secs(1);

/// The least time between the end of work and the end of its lease, unless the lease is shorter than twice of it.
const MARGIN_MIN: Duration = Duration::from_millis(500);

/// The pause between two renewals of which the first failed.
const RENEWAL_PAUSE: Duration = Duration::from_millis(500);

/// The least time between two renewals, however short the service's leases are.
const RENEWALS_APART: Duration = Duration::from_millis(100);

/// How work ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept<O> {
    /// By itself.
    Done(O),
    /// It was dropped, because the lease is about to end and cannot be renewed.
    LeaseEnding,
    /// It was dropped, because the lease has ended.
    LeaseLost,
    /// It was dropped after its longest time.
    TimedOut,
    /// It was dropped, because the listener stops.
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
pub(crate) async fn keep<L: Lease, W: Future>(
    lease: &Mutex<L>,
    limits: Limits,
    phase: &watch::Receiver<Phase>,
    counters: &Counters,
    work: W,
) -> Kept<W::Output> {
    let (done, is_done) = oneshot::channel();
    let renewals = renew(lease, limits, counters, is_done);
    let mut renewals = Box::pin(renewals);
    // A lease that is nearly over is renewed first, so that no work starts that has no time.
    let begins_at = lease.lock().await.ends_at();
    if needs_renewal(begins_at, limits.hint) && !renew_first(lease, limits, counters).await {
        return Kept::LeaseLost;
    }
    let mut work = Box::pin(work);
    let mut phase = phase.clone();
    let kept = tokio::select! {
        biased;
        output = &mut work => Kept::Done(output),
        lost = &mut renewals => return match lost {
            Renewals::Lost => Kept::LeaseLost,
            Renewals::Ended | Renewals::Failed => Kept::LeaseEnding,
        },
        // A listener that does not exist any more stops too.
        _ = phase.wait_for(|phase| *phase >= limits.returns_in) => Kept::Stopped,
        () = sleep(limits.handling_time_max) => Kept::TimedOut,
    };
    drop(work);
    drop(done);
    // A renewal that is under way changes what names the lease: its answer is awaited.
    match (kept, renewals.await) {
        (Kept::Stopped | Kept::TimedOut, Renewals::Lost) => Kept::LeaseLost,
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

fn needs_renewal(ends_at: Instant, hint: Option<Duration>) -> bool {
    let left = ends_at.saturating_duration_since(Instant::now());
    left < NEARLY_OVER || hint.is_some_and(|hint| left < hint)
}

async fn renew_first<L: Lease>(lease: &Mutex<L>, limits: Limits, counters: &Counters) -> bool {
    let mut lease = lease.lock().await;
    let duration = limits
        .hint
        .map_or(limits.lease, |hint| hint.max(limits.lease));
    // A lease that seems over may not be: the clocks of services differ. The service knows.
    let limit = lease.ends_at().max(Instant::now() + NEARLY_OVER);
    let renewed = timeout_at(limit, lease.renew(duration)).await;
    let is_renewed = matches!(renewed, Ok(Ok(())));
    counters.renewed(is_renewed);
    is_renewed || lease.ends_at() > Instant::now() + NEARLY_OVER
}

/// Renews the lease in the middle of the time that is left, until the work is done or there is no time left.
async fn renew<L: Lease>(
    lease: &Mutex<L>,
    limits: Limits,
    counters: &Counters,
    mut is_done: oneshot::Receiver<()>,
) -> Renewals {
    loop {
        let ends_at = lease.lock().await.ends_at();
        let left = ends_at.saturating_duration_since(Instant::now());
        let gives_up_at = ends_at - margin(left);
        let renews_at = Instant::now() + ((left - margin(left)) / 2).max(RENEWALS_APART);
        tokio::select! {
            biased;
            _ = &mut is_done => return Renewals::Ended,
            () = sleep_until(renews_at) => {}
        }
        loop {
            let renewed = async {
                let mut lease = lease.lock().await;
                // A checkpoint may have renewed it.
                match lease.ends_at() > ends_at {
                    true => Ok(()),
                    false => lease.renew(limits.lease).await,
                }
            };
            let renewed = timeout_at(gives_up_at, renewed).await;
            counters.renewed(matches!(renewed, Ok(Ok(()))));
            match renewed {
                Ok(Ok(())) => break,
                Ok(Err(error)) if error.is_lease_lost() => return Renewals::Lost,
                Ok(Err(error)) => {
                    tracing::debug!(target: "kew::worker", %error, "a lease was not renewed");
                }
                Err(_) => return Renewals::Failed,
            }
            let tries_at = Instant::now() + RENEWAL_PAUSE;
            tokio::select! {
                biased;
                _ = &mut is_done => return Renewals::Ended,
                () = sleep_until(tries_at.min(gives_up_at)) => {}
            }
            if Instant::now() >= gives_up_at {
                return Renewals::Failed;
            }
        }
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
