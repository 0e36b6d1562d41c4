//! How busy the processors are with the instances.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Ticks are too coarse for less.
const SHORTEST: Duration = Duration::from_secs(1);

/// What the instances have used until the last measurement.
#[derive(Debug)]
pub(super) struct Processors {
    /// How many there are for them.
    count: f64,
    ticks_per_second: f64,
    /// When, and the ticks of each instance by its number.
    before: Option<(Instant, BTreeMap<u64, u64>)>,
    share: Option<f64>,
}

impl Processors {
    /// Those that this process may use, and its instances with it.
    pub(super) fn of_system() -> Self {
        let count = kew_metrics::processors().unwrap_or(1.0);
        Self::new(count, rustix::param::clock_ticks_per_second())
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a tick is a hundredth of a second"
    )]
    fn new(count: f64, ticks_per_second: u64) -> Self {
        Self {
            count,
            ticks_per_second: ticks_per_second.max(1) as f64,
            before: None,
            share: None,
        }
    }

    /// Sees the ticks that each instance has used since its start, and returns the share of the processors that they used
    /// together since the last time. An instance that is new does not count yet.
    #[expect(clippy::cast_precision_loss, reason = "ticks of a look are few")]
    pub(super) fn see(&mut self, now: Instant, used: BTreeMap<u64, u64>) -> Option<f64> {
        if let Some((at, before)) = &self.before {
            let seconds = now.saturating_duration_since(*at);
            if seconds < SHORTEST {
                return self.share;
            }
            let more = used.iter().filter_map(|(number, now)| {
                let before = before.get(number)?;
                now.checked_sub(*before)
            });
            let ticks = more.sum::<u64>() as f64;
            let share = ticks / self.ticks_per_second / seconds.as_secs_f64() / self.count;
            let known = used.keys().any(|it| before.contains_key(it));
            self.share = known.then_some(share.min(1.0));
        }
        self.before = Some((now, used));
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_all_instances_since_the_last_look() {
        // Two processors with 100 ticks a second.
        let mut processors = Processors::new(2.0, 100);
        let began = Instant::now();
        let mut see = |ms, used: &[(u64, u64)]| {
            let now = began + Duration::from_millis(ms);
            processors.see(now, used.iter().copied().collect())
        };
        assert_eq!(see(0, &[(1, 5000)]), None);
        // One and a half seconds of processors in one.
        assert_eq!(see(1000, &[(1, 5150), (2, 90)]), Some(0.75));
        assert_eq!(see(1500, &[(1, 9999)]), Some(0.75), "that is too early");
        assert_eq!(see(3000, &[(1, 5150), (2, 190)]), Some(0.25));
        // The first one has ended, and another one has started.
        assert_eq!(see(5000, &[(2, 590), (3, 70)]), Some(1.0));
        assert_eq!(see(6000, &[(4, 70)]), None);
        assert_eq!(see(7000, &[]), None);
    }
}
