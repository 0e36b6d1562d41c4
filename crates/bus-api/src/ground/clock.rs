//! The clock for the expiry of tokens, and for jobs and locks.

use std::time::{SystemTime, UNIX_EPOCH};

/// The clock that the server was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(pub(crate) fn() -> SystemTime);

impl Clock {
    pub(crate) fn now(self) -> SystemTime {
        (self.0)()
    }

    /// Now, in seconds since 1970.
    pub(crate) fn now_s(self) -> u64 {
        self.now_ms() / 1000
    }

    /// Now, in milliseconds since 1970.
    pub(crate) fn now_ms(self) -> u64 {
        let since = self.now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
    }
}
