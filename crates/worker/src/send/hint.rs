//! How long new messages are to be leased, as the front end says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::policy::{LostLeases, OnLostLeases};

/// How long new messages are to be leased. Clones share it, so a front end and a listener of one process can.
///
/// Senders mark messages with it (property `kew-lease-s`), and listeners lease a marked message for so long at
/// least. As [`OnLostLeases`] it doubles each time that too many leases are lost, up to a maximum. For a listener in
/// another process, send the report to the front end in your own way, and call [`lengthen`](Self::lengthen) there.
#[derive(Clone, Debug)]
pub struct LeaseHint {
    /// 0: messages are not marked.
    seconds: Arc<AtomicU64>,
    first: Duration,
    maximum: Duration,
}

impl LeaseHint {
    /// Marks no messages at first. The first lengthening marks them with `first` or twice the present lease, whichever
    /// is longer, and none marks them with more than `maximum`.
    pub fn new(first: Duration, maximum: Duration) -> Self {
        Self {
            seconds: Arc::default(),
            first,
            maximum: maximum.max(first),
        }
    }

    /// Doubles the hint. `lease` is how long messages are leased now. Returns the new hint.
    pub fn lengthen(&self, lease: Duration) -> Duration {
        let longer = |seconds: u64| {
            let present = Duration::from_secs(seconds).max(lease);
            let longer = present.saturating_mul(2).max(self.first).min(self.maximum);
            longer.as_secs().max(1)
        };
        let before = self
            .seconds
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| Some(longer(it)));
        Duration::from_secs(longer(before.unwrap_or_else(|it| it)))
    }

    /// Marks no messages any more.
    pub fn clear(&self) {
        self.seconds.store(0, Ordering::Relaxed);
    }

    /// The present hint, if there is one.
    pub fn get(&self) -> Option<Duration> {
        self.seconds().map(Duration::from_secs)
    }

    pub(crate) fn seconds(&self) -> Option<u64> {
        Some(self.seconds.load(Ordering::Relaxed)).filter(|it| *it > 0)
    }
}

impl OnLostLeases for LeaseHint {
    fn lost(&self, report: &LostLeases) {
        self.lengthen(report.lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_doubles_to_its_maximum() {
        let seconds = Duration::from_secs;
        let hint = LeaseHint::new(seconds(60), seconds(300));
        assert_eq!(hint.get(), None);
        let lengthened: Vec<u64> = (0..4)
            .map(|_| hint.lengthen(seconds(20)).as_secs())
            .collect();
        assert_eq!(lengthened, [60, 120, 240, 300]);
        assert_eq!(hint.clone().get(), Some(seconds(300)));
        hint.clear();
        assert_eq!(hint.get(), None);
        assert_eq!(hint.lengthen(seconds(100)), seconds(200));
    }
}
