//! When something is tried again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::{Error, ErrorKind};

/// How often and when an operation is tried again that the service could not carry out.
///
/// Only what has certainly not happened is tried again, and what may be done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// After the first try. Default 3.
    pub retries: u32,
    /// The longest pause before the first of them. Each further one is twice as long. Default 400 ms.
    pub first_delay: Duration,
    /// The longest pause at all. Default 30 s.
    pub delay_max: Duration,
    /// The shortest pause after the service said that it is busy, and not how long (`Retry-After`). Default 4 s.
    pub busy_delay: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            retries: 3,
            first_delay: Duration::from_millis(400),
            delay_max: Duration::from_secs(30),
            busy_delay: Duration::from_secs(4),
        }
    }
}

impl Retry {
    /// Tries until it succeeds, or fails in a way that another try does not change.
    pub(crate) async fn run<T, F>(
        &self,
        deadline: Instant,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut failures = 0;
        loop {
            match attempt().await {
                Ok(done) => return Ok(done),
                Err(error) => {
                    failures += 1;
                    self.pause(error, failures, deadline).await?;
                }
            }
        }
    }

    /// The same for what may be done twice: it is tried again also when the outcome is unknown.
    pub(crate) async fn run_repeatable<T, F>(
        &self,
        deadline: Instant,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut failures = 0;
        loop {
            let error = match attempt().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            failures += 1;
            let delay = match error.kind() {
                ErrorKind::TryAgainLater | ErrorKind::OutcomeUnknown => {
                    self.delay_of_any(&error, failures)
                }
                ErrorKind::Refused => None,
            };
            self.wait(error, delay, deadline).await?;
        }
    }

    /// Waits before the next try. Fails with the error if there is none.
    pub(crate) async fn pause(
        &self,
        error: Error,
        failures: u32,
        deadline: Instant,
    ) -> Result<(), Error> {
        let delay = self.delay(&error, failures);
        self.wait(error, delay, deadline).await
    }

    /// Waits that long, if there is time for it.
    async fn wait(
        &self,
        error: Error,
        delay: Option<Duration>,
        deadline: Instant,
    ) -> Result<(), Error> {
        match delay {
            Some(delay) if Instant::now() + delay < deadline => {
                tracing::debug!(target: "kew::client", %error, ?delay, "trying again");
                sleep(delay).await;
                Ok(())
            }
            Some(_) | None => Err(error),
        }
    }

    /// How long to wait after failure number `failures` (from 1) before the next try. `None`: give up.
    pub(crate) fn delay(&self, error: &Error, failures: u32) -> Option<Duration> {
        match error.kind() {
            ErrorKind::TryAgainLater => self.delay_of_any(error, failures),
            ErrorKind::Refused | ErrorKind::OutcomeUnknown => None,
        }
    }

    /// The same, whatever kind the error has.
    fn delay_of_any(&self, error: &Error, failures: u32) -> Option<Duration> {
        if failures > self.retries {
            return None;
        }
        let delay = self.spread(failures, random());
        Some(match (error.retry_after(), error.is_busy()) {
            (Some(asked), _) => delay.max(asked.min(self.delay_max)),
            (None, true) => delay.max(self.busy_delay),
            (None, false) => delay,
        })
    }

    /// How long to wait before a connection is made again that has failed so often.
    pub(crate) fn reconnect_delay(&self, failures: u32) -> Duration {
        match failures {
            0 => Duration::ZERO,
            failures => self.spread(failures, random()),
        }
    }

    /// Exponential, between half and all of it, so that clients that failed together come back apart.
    fn spread(&self, failures: u32, random: u32) -> Duration {
        let whole = self
            .first_delay
            .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
            .min(self.delay_max);
        let half = whole / 2;
        half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

/// Without a random number all wait their whole time, which does no harm.
fn random() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Effect, StorageRefusal};

    #[test]
    fn delays_grow_and_are_bounded() {
        let retry = Retry::default();
        let range = |failures| {
            let [least, most] = [0, u32::MAX].map(|random| retry.spread(failures, random));
            (least.as_millis(), most.as_millis())
        };
        assert_eq!(range(1), (200, 400));
        assert_eq!(range(3), (800, 1_600));
        assert_eq!(range(100), (15_000, 30_000));
        assert_eq!(retry.reconnect_delay(0), Duration::ZERO);
    }

    #[test]
    fn only_what_has_not_happened_is_tried_again() {
        let retry = Retry::default();
        let tries = |error: &Error, failures| retry.delay(error, failures).is_some();
        assert!(tries(&Error::later("x"), 3) && !tries(&Error::later("x"), 4));
        assert!(!tries(&Error::refused("x"), 1) && !tries(&Error::unknown("x"), 1));
        let busy = Error::of_status(503, None, "", Effect::Change);
        assert_eq!(retry.delay(&busy, 1), Some(retry.busy_delay));
    }

    #[test]
    fn a_busy_service_can_say_how_long() {
        let retry = Retry::default();
        let delay = |seconds: Option<u64>| {
            let answer = StorageRefusal {
                status: 503,
                code: None,
                request_id: None,
                retry_after: seconds.map(Duration::from_secs),
            };
            let busy = Error::of_storage(answer, "", Effect::Change);
            retry.delay(&busy, 1).unwrap()
        };
        assert_eq!(delay(Some(1)), Duration::from_secs(1));
        assert_eq!(delay(Some(9_999)), retry.delay_max);
        assert_eq!(delay(None), retry.busy_delay);
        assert!(delay(Some(0)) <= retry.first_delay);
    }
}
