//! Whether messages are handled so swiftly that a task for each would cost more than the work itself.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Work that takes no longer is swift. To start a task and to wake it up takes a good part of this.
pub(super) const SWIFT_MAX: Duration = Duration::from_micros(50);

/// How many messages in a row have to be handled swiftly before the next is expected to be.
const IN_A_ROW: u32 = 8;

/// How many messages in a row were handled swiftly.
#[derive(Debug, Default)]
pub(crate) struct Swiftness(AtomicU32);

impl Swiftness {
    /// A message was handled in this time.
    pub(crate) fn observe(&self, handled_for: Duration) {
        let in_a_row = self.0.load(Ordering::Relaxed);
        let now = match handled_for <= SWIFT_MAX {
            true => (in_a_row + 1).min(IN_A_ROW),
            false => 0,
        };
        // Mostly nothing changes, and no other thread has to hear of it.
        if now != in_a_row {
            self.0.store(now, Ordering::Relaxed);
        }
    }

    /// A handler waits for something.
    pub(crate) fn waits(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether the next message is expected to be handled swiftly.
    pub(crate) fn is_expected(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= IN_A_ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_slow_counts_more_than_many_that_are_swift() {
        let swiftness = Swiftness::default();
        let handled = |count, duration| {
            for _ in 0..count {
                swiftness.observe(duration);
            }
            swiftness.is_expected()
        };
        assert!(!handled(IN_A_ROW - 1, SWIFT_MAX) && handled(1, SWIFT_MAX));
        assert!(handled(100, Duration::ZERO) && !handled(1, SWIFT_MAX * 2));
        assert!(!handled(IN_A_ROW - 1, SWIFT_MAX) && handled(1, SWIFT_MAX));
        swiftness.waits();
        assert!(!swiftness.is_expected());
    }
}
