//! Log lines that are limited to one a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Lets one line a second through, and counts the others.
#[derive(Debug, Default)]
pub struct OnceASecond {
    second: AtomicU64,
    untold: AtomicU64,
}

impl OnceASecond {
    /// Counts one. Returns how many there were since the last line, if another line is due.
    pub fn note(&self, now: SystemTime) -> Option<u64> {
        let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.untold.fetch_add(1, Ordering::Relaxed);
        let is_told = self.second.swap(second, Ordering::Relaxed) == second;
        (!is_told).then(|| self.untold.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_is_logged_once_a_second() {
        let log = OnceASecond::default();
        let at = |second| UNIX_EPOCH + Duration::from_secs(second);
        assert_eq!(log.note(at(5)), Some(1));
        assert_eq!([log.note(at(5)), log.note(at(5))], [None, None]);
        assert_eq!(log.note(at(6)), Some(3));
    }
}
