//! Leases that ended before their messages were deleted.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::source::SourceName;

/// What becomes of work that was done while its message could not be deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterLoss {
    /// The result counts: this listener completes the redelivery without a handler. It remembers 10,000 such
    /// messages, and forgets them with the process; another process does the work again. Use an idempotency store
    /// where that matters.
    #[default]
    Keep,
    /// The result is discarded, and the redelivery is handled again.
    Redo,
}

/// A report of many lost leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostLeases {
    /// The queue.
    pub source: SourceName,
    /// How many deletes were refused because the lease had ended.
    pub count: u32,
    /// Within this time.
    pub within: Duration,
    /// How long messages are leased now.
    pub lease: Duration,
}

/// Is told when many leases are lost: the front end, which has new messages leased for longer.
pub trait OnLostLeases: Send + Sync + 'static {
    /// Must return quickly; it is called on a task of the listener.
    fn lost(&self, report: &LostLeases);
}

impl<F: Fn(&LostLeases) + Send + Sync + 'static> OnLostLeases for F {
    fn lost(&self, report: &LostLeases) {
        self(report);
    }
}

/// How many losses within which time are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LossLimit {
    pub(crate) count: u32,
    pub(crate) within: Duration,
}

impl Default for LossLimit {
    fn default() -> Self {
        Self {
            count: 10,
            within: Duration::from_mins(5),
        }
    }
}

/// Counts losses within a time.
#[derive(Debug, Default)]
pub(crate) struct LossWindow(VecDeque<Instant>);

impl LossWindow {
    /// Counts one. Whether that makes too many; then it counts anew.
    pub(crate) fn add(&mut self, limit: LossLimit, now: Instant) -> bool {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) > limit.within;
        while self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        let is_too_many = self.0.len() >= limit.count.max(1) as usize;
        if is_too_many {
            self.0.clear();
        }
        is_too_many
    }
}

impl fmt::Display for LostLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, within, .. } = self;
        let queue = &self.source.queue;
        write!(
            f,
            "{count} leases of {queue} ended within {within:?} before their messages were deleted"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_losses_within_the_time_count() {
        let limit = LossLimit {
            count: 3,
            within: Duration::from_secs(10),
        };
        let (mut window, begin) = (LossWindow::default(), Instant::now());
        let told: Vec<bool> = [0, 5, 11, 12, 13, 14, 15]
            .map(|second| window.add(limit, begin + Duration::from_secs(second)))
            .to_vec();
        assert_eq!(told, [false, false, false, true, false, false, true]);
    }
}
