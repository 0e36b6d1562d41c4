//! What a dequeue task does when its queue is empty.

use std::fmt;
use std::time::Duration;

use crate::source::SourceName;

/// What an idle policy decides by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleState<'a> {
    /// The queue that is empty: a policy can serve several listeners.
    pub source: &'a SourceName,
    /// Which empty receive in a row this is, from 1. A message sets it back.
    pub idle_count: u32,
    /// A random number from 0, and below 1.
    pub chance: f64,
}

/// What an idle task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleAnswer {
    /// How long to sleep. A source that waits for messages is waited for so long instead.
    pub sleep: Duration,
    /// Whether the task can end. Without push the last task of a listener stays in any case, and a task that was
    /// announced work meanwhile stays too.
    pub ends: bool,
}

/// Decides how long an idle task sleeps, and whether it ends.
pub trait Idle: fmt::Debug + Send + Sync + 'static {
    /// The answer to an empty receive.
    fn answer(&self, state: &IdleState<'_>) -> IdleAnswer;
}

/// Sleeps longer each time: `min(minimum + (2^idle count − 1) × random(80–120 ms), maximum)`. A task ends when it
/// slept the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleBackOff {
    /// The shortest sleep. Default 100 ms.
    pub minimum: Duration,
    /// The longest sleep. Default 1 s.
    pub maximum: Duration,
}

impl Default for IdleBackOff {
    fn default() -> Self {
        Self {
            minimum: Duration::from_millis(100),
            maximum: Duration::from_secs(1),
        }
    }
}

impl Idle for IdleBackOff {
    fn answer(&self, state: &IdleState<'_>) -> IdleAnswer {
        let step = Duration::from_millis(80) + Duration::from_millis(40).mul_f64(state.chance);
        let steps = 2_u32.saturating_pow(state.idle_count).saturating_sub(1);
        let grown = self.minimum.saturating_add(step.saturating_mul(steps));
        IdleAnswer {
            sleep: grown.min(self.maximum),
            ends: grown >= self.maximum,
        }
    }
}

/// Always sleeps the same time, and never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steady {
    /// Default 1 s.
    pub interval: Duration,
}

impl Default for Steady {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
        }
    }
}

impl Idle for Steady {
    fn answer(&self, _: &IdleState<'_>) -> IdleAnswer {
        IdleAnswer {
            sleep: self.interval,
            ends: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(policy: &impl Idle, idle_count: u32, chance: f64) -> (u128, bool) {
        let answer = policy.answer(&IdleState {
            source: &SourceName::new("account", "queue"),
            idle_count,
            chance,
        });
        (answer.sleep.as_millis(), answer.ends)
    }

    #[test]
    fn an_idle_task_sleeps_longer_until_it_ends() {
        let policy = IdleBackOff::default();
        for (count, least, most) in [(1, 180, 220), (2, 340, 460), (3, 660, 940)] {
            assert_eq!(answer(&policy, count, 0.0), (least, false), "{count}");
            assert_eq!(answer(&policy, count, 1.0), (most, false), "{count}");
        }
        for count in [4, 31, 32, 33, u32::MAX] {
            assert_eq!(answer(&policy, count, 0.0), (1_000, true), "{count}");
        }
    }

    #[test]
    fn the_bounds_of_sleep_are_settings() {
        let policy = IdleBackOff {
            minimum: Duration::ZERO,
            maximum: Duration::from_millis(300),
        };
        assert_eq!(answer(&policy, 1, 0.5), (100, false));
        assert_eq!(answer(&policy, 2, 0.5), (300, true));
        let steady = Steady::default();
        assert_eq!(answer(&steady, 100, 0.5), (1_000, false));
    }
}
