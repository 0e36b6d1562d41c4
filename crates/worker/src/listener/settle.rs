//! Settles a message, as often as it takes while its lease holds.

use std::time::Duration;

use kew_client::ErrorKind;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::shared::{Shared, after};
use crate::error::SourceError;
use crate::source::{Attempt, Burial, Lease, Source};

/// A settlement is tried for so long at least: a lease that seems over may not be, because clocks differ.
pub(super) const TRIES_FOR_MIN: Duration = Duration::from_secs(1);

/// What is to become of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Settlement<'a> {
    /// Its work is done.
    Complete,
    /// It comes back after the delay.
    Release {
        delay: Duration,
        history: &'a [Attempt],
    },
    /// It failed for good.
    Bury(&'a Burial),
}

/// Settles. If this fails, the message is still there, or its outcome is unknown.
pub(super) async fn settle<T: Send + Sync + 'static, S: Source>(
    shared: &Shared<T, S>,
    lease: &Mutex<S::Lease>,
    settlement: Settlement<'_>,
) -> Result<(), SourceError> {
    let mut lease = lease.lock().await;
    let ends_at = tries_until(Instant::now(), &*lease);
    match settle_once(shared, &mut *lease, settlement, ends_at).await {
        Ok(()) => Ok(()),
        // It is large, and rare.
        Err(error) => Box::pin(settle_on(shared, &mut *lease, settlement, ends_at, error)).await,
    }
}

/// Until when a settlement is tried that begins now.
pub(super) fn tries_until(now: Instant, lease: &impl Lease) -> Instant {
    lease.ends_at().max(now + TRIES_FOR_MIN)
}

/// What a try without an answer in time ends with.
pub(super) fn no_answer() -> SourceError {
    let text = "the service did not answer before the lease ended";
    SourceError::new(ErrorKind::OutcomeUnknown, text)
}

async fn settle_once<T: Send + Sync + 'static, S: Source>(
    shared: &Shared<T, S>,
    lease: &mut S::Lease,
    settlement: Settlement<'_>,
    ends_at: Instant,
) -> Result<(), SourceError> {
    let began = Instant::now();
    let settled = async {
        match settlement {
            Settlement::Complete => lease.complete().await,
            // They are large, and rare.
            Settlement::Release { delay, history } => Box::pin(lease.release(delay, history)).await,
            Settlement::Bury(burial) => Box::pin(lease.bury(burial)).await,
        }
    };
    let settled = timeout_at(ends_at, settled).await;
    let settled = settled.unwrap_or_else(|_| Err(no_answer()));
    shared.observe_request(began, settled.as_ref().err());
    settled
}

/// Goes on after a first try that failed.
pub(super) async fn settle_on<T: Send + Sync + 'static, S: Source>(
    shared: &Shared<T, S>,
    lease: &mut S::Lease,
    settlement: Settlement<'_>,
    ends_at: Instant,
    mut error: SourceError,
) -> Result<(), SourceError> {
    let mut failures = 0;
    loop {
        failures += 1;
        let delay = shared.request_delay(&error, failures);
        if error.kind() == ErrorKind::Refused || after(Instant::now(), delay) >= ends_at {
            return Err(error);
        }
        sleep(delay).await;
        let settled = settle_once(shared, lease, settlement, ends_at).await;
        error = match (settled, error.kind()) {
            (Ok(()), _) => return Ok(()),
            // There is no lease any more: perhaps because an earlier try was carried out.
            (Err(lost), ErrorKind::OutcomeUnknown) if lost.is_lease_lost() => return Err(error),
            (Err(error), _) => error,
        };
    }
}
