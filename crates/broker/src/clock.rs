//! The runner's clock, as a step machine: readings in, timestamps out.
//!
//! Its time is the wall clock at start plus elapsed boot time, never below the last event, slewed
//! towards the wall clock at a stated rate. So a wall clock that jumps by an hour releases no lease
//! early and expires nothing in bulk, and a suspended machine wakes up with its leases run out.

use kew_engine::Timestamp;

/// A reading of the machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Microseconds since 1970-01-01 UTC by the wall clock, which may jump.
    pub wall_us: u64,
    /// Microseconds since boot, suspension included, which never go back.
    pub boot_us: u64,
}

/// Keeps a partition's time.
#[derive(Clone, Debug)]
pub struct Clock {
    shown_us: u64,
    boot_us: u64,
}

impl Clock {
    /// The clock runs at most one part in this many faster or slower than elapsed time to get
    /// closer to the wall clock: an hour's difference is made up in 200 hours.
    pub const SLEW_DIVISOR: u64 = 200;

    /// A clock that starts at the wall clock, or at the last event where that is later.
    pub fn start(reading: ClockReading, last_event_at: Timestamp) -> Self {
        Self {
            shown_us: reading
                .wall_us
                .max(last_event_at.as_ms().saturating_mul(1000)),
            boot_us: reading.boot_us,
        }
    }

    /// The partition's time at a reading: never lower than before.
    pub fn now(&mut self, reading: ClockReading) -> Timestamp {
        let elapsed = reading.boot_us.saturating_sub(self.boot_us);
        self.boot_us += elapsed;
        let straight = self.shown_us.saturating_add(elapsed);
        let slew_max = elapsed / Self::SLEW_DIVISOR;
        self.shown_us = if reading.wall_us >= straight {
            straight + (reading.wall_us - straight).min(slew_max)
        } else {
            straight - (straight - reading.wall_us).min(slew_max)
        };
        Timestamp::from_ms(self.shown_us / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const HOUR: u64 = 3600 * SECOND;

    fn reading(wall_us: u64, boot_us: u64) -> ClockReading {
        ClockReading { wall_us, boot_us }
    }

    fn check(wall_jump: i64) {
        let start = 1000 * HOUR;
        let mut clock = Clock::start(reading(start, 0), Timestamp::ZERO);
        let mut last = Timestamp::ZERO;
        for second in 1..=100u64 {
            let wall = (start + second * SECOND).saturating_add_signed(wall_jump);
            let now = clock.now(reading(wall, second * SECOND));
            assert!(now > last);
            last = now;
        }
        let elapsed_ms = last.as_ms() - start / 1000;
        assert!((99_500..=100_500).contains(&elapsed_ms), "{elapsed_ms} ms");
    }

    #[test]
    fn a_wall_clock_that_jumps_an_hour_moves_it_by_half_a_percent() {
        let hour = i64::try_from(HOUR).unwrap();
        check(hour);
        check(-hour);
        check(0);
    }

    #[test]
    fn it_never_shows_less_than_the_last_event() {
        let last_event_at = Timestamp::from_ms(5000);
        let mut clock = Clock::start(reading(SECOND, 0), last_event_at);
        assert_eq!(clock.now(reading(SECOND, 0)), last_event_at);
        let later = clock.now(reading(SECOND, SECOND));
        assert_eq!(later.as_ms(), 5995, "slewed back, yet going on");
    }

    #[test]
    fn suspension_is_elapsed_time() {
        let mut clock = Clock::start(reading(HOUR, 0), Timestamp::ZERO);
        let now = clock.now(reading(3 * HOUR, 2 * HOUR));
        assert_eq!(now.as_ms(), 3 * HOUR / 1000);
    }
}
