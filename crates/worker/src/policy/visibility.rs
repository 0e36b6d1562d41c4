//! How long messages are leased, where the listener can choose.

use std::fmt;
use std::time::Duration;

/// Decides how long messages are leased: the visibility timeout of Queue Storage.
pub trait Visibility: fmt::Debug + Send + 'static {
    /// Takes in how long a message was handled, also if its handler was stopped.
    fn observe(&mut self, handled_for: Duration);

    /// How long to lease the next messages. At least 1 s and at most 7 days, in whole seconds, rounded up.
    fn lease(&self) -> Duration;

    /// The longest lease that a message can ask for with a hint. Default 7 days, the most of Queue Storage.
    fn maximum(&self) -> Duration {
        Duration::from_hours(7 * 24)
    }
}

/// Follows the measured handling times: `2 × (mean + 4 × deviation)`, between two bounds.
///
/// Mean and mean deviation are moving averages with the weights 1/8 and 1/4, as TCP estimates round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    /// The shortest lease, and the first one. Default 30 s.
    pub minimum: Duration,
    /// The longest lease. Default 2 h.
    pub maximum: Duration,
    mean: Option<Duration>,
    deviation: Duration,
}

impl Adaptive {
    /// Between these bounds.
    pub fn between(minimum: Duration, maximum: Duration) -> Self {
        Self {
            minimum,
            maximum: maximum.max(minimum),
            mean: None,
            deviation: Duration::ZERO,
        }
    }
}

impl Default for Adaptive {
    fn default() -> Self {
        Self::between(Duration::from_secs(30), Duration::from_hours(2))
    }
}

impl Visibility for Adaptive {
    fn observe(&mut self, handled_for: Duration) {
        // So that no sum overflows.
        let handled_for = handled_for.min(self.maximum);
        match self.mean {
            None => {
                self.mean = Some(handled_for);
                self.deviation = handled_for / 2;
            }
            Some(mean) => {
                let error = handled_for.abs_diff(mean);
                self.deviation = (self.deviation * 3 + error) / 4;
                self.mean = Some((mean * 7 + handled_for) / 8);
            }
        }
    }

    fn lease(&self) -> Duration {
        let Some(mean) = self.mean else {
            return self.minimum;
        };
        let estimate = (mean + self.deviation * 4) * 2;
        // Both are settings, and a clamp panics if they are the wrong way round.
        estimate.min(self.maximum).max(self.minimum)
    }

    fn maximum(&self) -> Duration {
        self.maximum
    }
}

/// Always the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(pub Duration);

impl Visibility for Fixed {
    fn observe(&mut self, _: Duration) {}

    fn lease(&self) -> Duration {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_the_wrong_way_round_are_no_panic() {
        let mut visibility = Adaptive {
            minimum: Duration::from_mins(2),
            maximum: Duration::from_mins(1),
            ..Adaptive::default()
        };
        visibility.observe(Duration::from_secs(20));
        assert_eq!(visibility.lease(), Duration::from_mins(2));
    }

    #[test]
    fn leases_follow_handling_times() {
        let mut visibility = Adaptive::default();
        assert_eq!(visibility.lease(), Duration::from_secs(30));
        visibility.observe(Duration::from_secs(20));
        assert_eq!(visibility.lease(), Duration::from_secs(120));
        for _ in 0..100 {
            visibility.observe(Duration::from_secs(20));
        }
        assert_eq!(visibility.lease().as_secs(), 40, "without variation");
        visibility.observe(Duration::from_secs(60));
        let lease = visibility.lease().as_secs();
        assert!((120..=140).contains(&lease), "{lease}");
        for _ in 0..100 {
            visibility.observe(Duration::from_millis(1));
        }
        assert_eq!(visibility.lease(), Duration::from_secs(30));
        visibility.observe(Duration::MAX);
        assert_eq!(visibility.lease(), Duration::from_hours(2));
        assert_eq!(Fixed(Duration::from_secs(5)).lease().as_secs(), 5);
    }
}
