//! How soon the next instance may start after some have ended by themselves.

use std::time::Duration;

use tokio::time::Instant;

/// An instance that ends within this time has failed to start.
const EARLY: Duration = Duration::from_secs(10);
const FIRST_DELAY: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Delays starts while instances end early: 1 s, then twice as long each time, up to 60 s.
#[derive(Debug, Default)]
pub(super) struct Pace {
    delay: Duration,
    /// When the next one may start.
    next: Option<Instant>,
}

impl Pace {
    /// An instance has ended by itself at this age. Returns the new delay, if it was too early.
    ///
    /// Instances that were started together and end together count as one failure.
    pub(super) fn ended(&mut self, now: Instant, age: Duration) -> Option<Duration> {
        if age >= EARLY {
            return None;
        }
        self.failed(now)
    }

    /// An instance could not be started, or ended early.
    pub(super) fn failed(&mut self, now: Instant) -> Option<Duration> {
        if self.wait(now).is_some() {
            return None;
        }
        self.delay = (self.delay * 2).clamp(FIRST_DELAY, DELAY_MAX);
        self.next = Some(now + self.delay);
        Some(self.delay)
    }

    /// An instance that was started after the last failure has this age.
    pub(super) fn lives(&mut self, now: Instant, age: Duration) {
        let since = self.next.map(|next| now.saturating_duration_since(next));
        if age >= EARLY && since.is_some_and(|since| since >= age) {
            *self = Self::default();
        }
    }

    /// How long to wait before the next start, if at all.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let left = self.next?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn each_early_end_doubles_the_delay_up_to_a_minute() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        assert_eq!(pace.wait(now), None);
        let mut delays = Vec::new();
        for _ in 0..8 {
            let delay = pace.ended(now, seconds(9)).unwrap();
            assert_eq!(pace.wait(now), Some(delay));
            // Another of those that were started together.
            assert_eq!(pace.ended(now, seconds(9)), None);
            now += delay;
            assert_eq!(pace.wait(now), None);
            delays.push(delay.as_secs());
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn an_instance_that_lives_ends_the_delays() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        assert_eq!(pace.ended(now, seconds(10)), None);
        pace.failed(now);
        now += seconds(1);
        pace.failed(now);
        now += seconds(2);
        // One that was there before says nothing.
        pace.lives(now, seconds(3600));
        now += seconds(10);
        pace.lives(now, seconds(10));
        assert_eq!(pace.failed(now), Some(seconds(1)));
    }
}
