//! How long to wait before something is tried again.

use std::fmt;
use std::time::Duration;

/// Decides how long to wait before another try.
pub trait RetryDelay: fmt::Debug + Send + Sync + 'static {
    /// The delay after failure number `failures`, from 1. `chance` is a random number from 0, and below 1.
    fn delay(&self, failures: u32, chance: f64) -> Duration;
}

/// Exponential with jitter: `min(first × 2^(failures − 1), maximum) × (½ + chance / 2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// The longest delay after the first failure.
    pub first: Duration,
    /// The longest delay at all.
    pub maximum: Duration,
}

impl BackOff {
    /// Of a message whose handler failed: 1 s, up to 10 minutes.
    pub const MESSAGES: Self = Self {
        first: Duration::from_secs(1),
        maximum: Duration::from_mins(10),
    };

    /// Of a request that failed: 1 s, up to 30 s.
    pub const REQUESTS: Self = Self {
        first: Duration::from_secs(1),
        maximum: Duration::from_secs(30),
    };
}

impl RetryDelay for BackOff {
    fn delay(&self, failures: u32, chance: f64) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let whole = self.first.saturating_mul(doubled).min(self.maximum);
        whole.mul_f64(0.5 + chance / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_to_a_maximum_with_jitter() {
        let range = |failures| {
            [0.0, 1.0].map(|chance| BackOff::MESSAGES.delay(failures, chance).as_millis())
        };
        assert_eq!(range(0), [500, 1_000]);
        assert_eq!(range(1), [500, 1_000]);
        assert_eq!(range(2), [1_000, 2_000]);
        assert_eq!(range(5), [8_000, 16_000]);
        assert_eq!(range(u32::MAX), [300_000, 600_000]);
        let request = BackOff::REQUESTS.delay(100, 1.0);
        assert_eq!(request, Duration::from_secs(30));
    }
}
