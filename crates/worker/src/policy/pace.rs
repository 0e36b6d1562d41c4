//! How a listener slows down when its service does.

use std::fmt;
use std::time::Duration;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// It succeeded.
    Succeeded,
    /// It had no result, or the service gave up on it.
    Failed,
}

/// Decides on a pause between the requests of a listener, by how long requests take.
pub trait Pace: fmt::Debug + Send + 'static {
    /// Takes in a request, and returns the pause before each next one.
    fn observe(&mut self, took: Duration, outcome: RequestOutcome) -> Duration;
}

/// Slows down when requests that were fast time out.
///
/// A request that fails after ten times its usual time, and after [`least`](Self::least) at least, doubles the
/// pause, from [`first`](Self::first) up to [`maximum`](Self::maximum). A success halves it, and below
/// `first / 8` it is gone. The usual time is a moving average of successes with the weight 1/8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowDown {
    /// The first pause. Default 1 s.
    pub first: Duration,
    /// The longest pause. Default 60 s.
    pub maximum: Duration,
    /// A failure that came sooner is not a time-out. Default 1 s.
    pub least: Duration,
    usual: Option<Duration>,
    pause: Duration,
}

impl Default for SlowDown {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            maximum: Duration::from_mins(1),
            least: Duration::from_secs(1),
            usual: None,
            pause: Duration::ZERO,
        }
    }
}

impl Pace for SlowDown {
    fn observe(&mut self, took: Duration, outcome: RequestOutcome) -> Duration {
        match outcome {
            RequestOutcome::Succeeded => {
                let usual = self.usual.unwrap_or(took);
                self.usual = Some((usual * 7 + took) / 8);
                self.pause /= 2;
                if self.pause < self.first / 8 {
                    self.pause = Duration::ZERO;
                }
            }
            RequestOutcome::Failed => {
                let was_fast = self
                    .usual
                    .is_some_and(|usual| took > usual.saturating_mul(10));
                if was_fast && took >= self.least {
                    // Both are settings, and a clamp panics if they are the wrong way round.
                    let pause = self.pause.saturating_mul(2);
                    self.pause = pause.max(self.first).min(self.maximum);
                }
            }
        }
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::RequestOutcome::{Failed, Succeeded};
    use super::*;

    const FAST: Duration = Duration::from_millis(5);
    const SLOW: Duration = Duration::from_secs(10);

    #[test]
    fn fast_requests_that_time_out_slow_a_listener_down() {
        let mut pace = SlowDown::default();
        assert_eq!(
            pace.observe(SLOW, Failed),
            Duration::ZERO,
            "it never was fast"
        );
        assert_eq!(pace.observe(FAST, Succeeded), Duration::ZERO);
        assert_eq!(pace.observe(FAST, Failed), Duration::ZERO, "no time-out");
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(pace.observe(SLOW, Failed), Duration::from_secs(seconds));
        }
        assert_eq!(pace.observe(FAST, Succeeded), Duration::from_secs(30));
        let mut successes = 1;
        while pace.observe(FAST, Succeeded) > Duration::ZERO {
            successes += 1;
        }
        assert_eq!(successes, 8);
    }

    #[test]
    fn bounds_the_wrong_way_round_are_no_panic() {
        let mut pace = SlowDown {
            first: Duration::from_mins(2),
            ..SlowDown::default()
        };
        pace.observe(FAST, Succeeded);
        assert_eq!(pace.observe(SLOW, Failed), Duration::from_mins(1));
    }

    #[test]
    fn a_service_that_always_was_slow_is_not_slowed_down_further() {
        let mut pace = SlowDown::default();
        pace.observe(Duration::from_secs(3), Succeeded);
        assert_eq!(pace.observe(SLOW, Failed), Duration::ZERO);
    }
}
