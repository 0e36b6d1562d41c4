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
    let ends_at = lease.ends_at().max(Instant::now() + TRIES_FOR_MIN);
    let (mut failures, mut unknown) = (0, None);
    loop {
        let began = Instant::now();
        let settled = async {
            match settlement {
                Settlement::Complete => lease.complete().await,
                // They are large, and rare.
                Settlement::Release { delay, history } => {
                    Box::pin(lease.release(delay, history)).await
                }
                Settlement::Bury(burial) => Box::pin(lease.bury(burial)).await,
            }
        };
        let settled = timeout_at(ends_at, settled).await.unwrap_or_else(|_| {
            let text = "the service did not answer before the lease ended";
            Err(SourceError::new(ErrorKind::OutcomeUnknown, text))
        });
        shared.observe_request(began, settled.as_ref().err());
        let error = match (settled, unknown.take()) {
            (Ok(()), _) => return Ok(()),
            // There is no lease any more: perhaps because an earlier try was carried out.
            (Err(error), Some(unknown)) if error.is_lease_lost() => return Err(unknown),
            (Err(error), _) => error,
        };
        failures += 1;
        let delay = shared.request_delay(&error, failures);
        if error.kind() == ErrorKind::Refused || after(Instant::now(), delay) >= ends_at {
            return Err(error);
        }
        if error.kind() == ErrorKind::OutcomeUnknown {
            unknown = Some(error);
        }
        sleep(delay).await;
    }
}
