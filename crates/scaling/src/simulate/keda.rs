//! The rule of KEDA, the peer in comparisons.

use std::collections::VecDeque;
use std::time::Duration;

use crate::observation::{Moment, Observation};
use crate::simulate::run::Scaler;

/// `ceil(depth / target)` instances, with KEDA's defaults: it looks every 30 s, stops the last instance 300 s after the
/// last message, and Kubernetes lets the number fall to the largest wish of the last 300 s.
///
/// It is better here than in a cluster: it goes from zero to any number in one step, and Kubernetes starts as many
/// instances as wished at once.
///
/// Source: KEDA, *ScaledObject specification* (pollingInterval, cooldownPeriod); Kubernetes, *Horizontal Pod Autoscaling*
/// (stabilizationWindowSeconds).
#[derive(Clone, Debug)]
pub struct Keda {
    target: u32,
    maximum: u32,
    stabilization: Duration,
    wishes: VecDeque<(Duration, u32)>,
    active: Option<Duration>,
}

const POLLING: Duration = Duration::from_secs(30);
const COOL_DOWN: Duration = Duration::from_secs(300);

impl Keda {
    /// The rule with `target` messages for an instance, from zero to `maximum` instances.
    #[must_use]
    pub fn new(target: u32, maximum: u32) -> Self {
        Self {
            target: target.max(1),
            maximum,
            stabilization: COOL_DOWN,
            wishes: VecDeque::new(),
            active: None,
        }
    }

    /// Without the window of Kubernetes: the number follows the depth at once, except to zero.
    #[must_use]
    pub fn without_stabilization(mut self) -> Self {
        self.stabilization = Duration::ZERO;
        self
    }
}

impl Scaler for Keda {
    fn every(&self) -> Duration {
        POLLING
    }

    fn has_push(&self) -> bool {
        false
    }

    fn scale(&mut self, now: Moment, seen: &Observation) -> Option<(u32, u32)> {
        let readings = seen.sources.iter().map(|it| it.reading);
        let depth = readings
            .map(|it| it.map(|it| it.backlog))
            .sum::<Option<u64>>()?;
        let at = now.elapsed;
        let wish = depth.div_ceil(u64::from(self.target));
        let wish = u32::try_from(wish).unwrap_or(u32::MAX).min(self.maximum);
        if depth > 0 {
            self.active = Some(at);
        }
        self.wishes.push_back((at, wish));
        let is_old = |it: &(Duration, u32)| at.saturating_sub(it.0) > self.stabilization;
        while self.wishes.front().is_some_and(is_old) {
            self.wishes.pop_front();
        }
        let since = self.active.map(|it| at.saturating_sub(it));
        let is_active = since.is_some_and(|it| it < COOL_DOWN);
        let largest = self.wishes.iter().map(|it| it.1).max().unwrap_or(wish);
        let wanted = if is_active { largest.max(1) } else { 0 };
        Some((wanted, u32::MAX))
    }
}
