//! I10, for clocks: a lease lasts as long as requested, even if the wall clock jumps.

use kew_broker::{Clock, ClockReading};
use kew_engine::Timestamp;

use super::{Violation, promise, violated};

/// Follows a partition's time over one life of its process.
///
/// It may run faster or slower than elapsed time by the clock's stated rate, and no more: so no
/// jump of the wall clock ends a lease early or makes messages expire in bulk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timekeeping {
    began: ClockReading,
    shown_at_start: Timestamp,
}

impl Timekeeping {
    pub(crate) fn start(reading: ClockReading, shown: Timestamp) -> Self {
        Self {
            began: reading,
            shown_at_start: shown,
        }
    }

    pub(crate) fn check(&self, reading: ClockReading, shown: Timestamp) -> Result<(), Violation> {
        let elapsed_us = reading.boot_us - self.began.boot_us;
        let slew_us = elapsed_us / Clock::SLEW_DIVISOR;
        let start_ms = self.shown_at_start.as_ms();
        // The shown time is cut to milliseconds at both ends.
        let least = start_ms + (elapsed_us - slew_us) / 1000;
        let most = start_ms + (elapsed_us + slew_us) / 1000 + 1;
        if !(least.saturating_sub(1)..=most).contains(&shown.as_ms()) {
            return violated!(
                promise::TIME,
                "{elapsed_us} µs after {} it is {shown}, and the wall clock shows {} µs",
                self.shown_at_start,
                reading.wall_us
            );
        }
        Ok(())
    }
}
