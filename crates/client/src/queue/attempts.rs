//! How long each try of an operation may take.

use std::time::Duration;

use crate::retry::Retry;

/// The shortest first try that the client chooses by itself: a connection has to be made in it, too.
const FIRST_MIN: Duration = Duration::from_secs(2);

/// The service's own limit, which it also takes for longer ones.
///
/// Source: *Setting timeouts for Queue Storage operations*.
const SERVICE_LIMIT_S: u64 = 30;

/// The limits of the tries of one operation, each twice as long as the one before.
#[derive(Debug)]
pub(super) struct Attempts(Option<Duration>);

impl Attempts {
    /// The operation's own limit is the only one.
    pub(super) fn unlimited() -> Self {
        Self(None)
    }

    /// The first try takes so long at most.
    pub(super) fn growing(first: Duration) -> Self {
        Self(Some(first))
    }

    /// All tries together take about so long.
    pub(super) fn within(timeout: Duration, retry: Retry) -> Self {
        let parts = 2_u32.saturating_pow(retry.retries.saturating_add(1)) - 1;
        Self(Some((timeout / parts).max(FIRST_MIN)))
    }

    /// How long the next try may take; `None` for as long as the operation.
    pub(super) fn next_limit(&mut self) -> Option<Duration> {
        let limit = self.0;
        self.0 = limit.map(|limit| limit.saturating_mul(2));
        limit
    }
}

/// How long the service may take for a try with so much time, in whole seconds, so that it answers before the client
/// gives up. `None`: its own limit is shorter, or the time is less than a second.
pub(super) fn service_limit(left: Duration) -> Option<u64> {
    Some(left.as_secs()).filter(|seconds| (1..SERVICE_LIMIT_S).contains(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seconds(mut attempts: Attempts) -> [Option<u64>; 4] {
        [(); 4].map(|()| attempts.next_limit().map(|it| it.as_secs()))
    }

    #[test]
    fn each_try_has_twice_the_time_of_the_one_before() {
        let retry = |retries| Retry {
            retries,
            ..Retry::default()
        };
        let within = |timeout, retries| seconds(Attempts::within(timeout, retry(retries)));
        assert_eq!(within(SECOND * 60, 3), [4, 8, 16, 32].map(Some));
        assert_eq!(within(SECOND * 60, 0), [60, 120, 240, 480].map(Some));
        assert_eq!(within(SECOND, u32::MAX), [2, 4, 8, 16].map(Some));
        assert_eq!(seconds(Attempts::growing(SECOND)), [1, 2, 4, 8].map(Some));
        assert_eq!(seconds(Attempts::unlimited()), [None; 4]);
        let longest = Duration::MAX.as_secs();
        assert_eq!(
            seconds(Attempts::growing(Duration::MAX)),
            [Some(longest); 4]
        );
    }

    #[test]
    fn the_service_is_told_limits_below_its_own() {
        let told = |ms| service_limit(Duration::from_millis(ms));
        assert_eq!(
            [999, 1_000, 3_999, 29_999, 30_000].map(told),
            [None, Some(1), Some(3), Some(29), None]
        );
    }
}
