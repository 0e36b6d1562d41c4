//! The runner's clock, as a step machine: readings in, timestamps out.
//!
//! Its time is the wall clock at start plus elapsed boot time, never below the last event, slewed
//! towards the wall clock at a stated rate. So a wall clock that jumps by an hour releases no lease
//! early and expires nothing in bulk, and a suspended machine wakes up with its leases run out.

use std::time::Duration;

use kew_engine::Timestamp;
use kew_log::BootTime;

/// A reading of the machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Microseconds since 1970-01-01 UTC by the wall clock, which may jump.
    pub wall_us: u64,
    /// Microseconds since boot, suspension included, which never go back.
    pub boot_us: u64,
}

/// A moment, as a partition sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The partition's time: what decisions and the log know. It can jump when the owner changes.
    pub time: Timestamp,
    /// The machine's: for retries and intervals.
    pub boot: BootTime,
}

/// What a thread has spent since some moment, by two clocks.
///
/// While the machine runs something else, only the first one goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The time that has passed.
    pub elapsed: Duration,
    /// The processor time that the thread has used.
    pub on_processor: Duration,
}

impl Spent {
    /// What it has spent since an earlier reading of the same clocks.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            elapsed: self.elapsed.saturating_sub(earlier.elapsed),
            on_processor: self.on_processor.saturating_sub(earlier.on_processor),
        }
    }
}

/// When something is due: at the earlier of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// In the partition's time.
    pub time: Option<Timestamp>,
    /// In the machine's.
    pub boot: Option<BootTime>,
}

impl Due {
    /// Due at one more moment of the machine's time.
    #[must_use]
    pub fn or_at(self, boot: Option<BootTime>) -> Self {
        Self {
            boot: self.boot.into_iter().chain(boot).min(),
            ..self
        }
    }

    /// How long until then; `None` if nothing is due.
    pub fn wait(self, now: Moment) -> Option<Duration> {
        let time = self.time.map(|at| {
            let ms = at.as_ms().saturating_sub(now.time.as_ms());
            Duration::from_millis(ms)
        });
        let boot = self.boot.map(|at| {
            let us = at.as_us().saturating_sub(now.boot.as_us());
            Duration::from_micros(us)
        });
        time.into_iter().chain(boot).min()
    }
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

    /// The moment of a reading: neither time is lower than before.
    pub fn now(&mut self, reading: ClockReading) -> Moment {
        let elapsed = reading.boot_us.saturating_sub(self.boot_us);
        self.boot_us += elapsed;
        let straight = self.shown_us.saturating_add(elapsed);
        let slew_max = elapsed / Self::SLEW_DIVISOR;
        self.shown_us = if reading.wall_us >= straight {
            straight + (reading.wall_us - straight).min(slew_max)
        } else {
            straight - (straight - reading.wall_us).min(slew_max)
        };
        Moment {
            time: Timestamp::from_ms(self.shown_us / 1000),
            boot: BootTime::from_us(self.boot_us),
        }
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
            let now = clock.now(reading(wall, second * SECOND)).time;
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
        assert_eq!(clock.now(reading(SECOND, 0)).time, last_event_at);
        let later = clock.now(reading(SECOND, SECOND)).time;
        assert_eq!(later.as_ms(), 5995, "slewed back, yet going on");
    }

    #[test]
    fn suspension_is_elapsed_time() {
        let mut clock = Clock::start(reading(HOUR, 0), Timestamp::ZERO);
        let now = clock.now(reading(3 * HOUR, 2 * HOUR));
        assert_eq!(now.time.as_ms(), 3 * HOUR / 1000);
        assert_eq!(now.boot.as_us(), 2 * HOUR);
    }

    #[test]
    fn what_is_due_first_in_either_time_is_waited_for() {
        let now = Moment {
            time: Timestamp::from_ms(1_000_000),
            boot: BootTime::from_us(50_000),
        };
        let due = Due::default();
        assert_eq!(due.wait(now), None);
        let due = due.or_at(Some(BootTime::from_us(90_000)));
        assert_eq!(due.wait(now), Some(Duration::from_millis(40)));
        assert_eq!(due.or_at(Some(BootTime::NEVER)), due);
        let time = Some(Timestamp::from_ms(1_000_030));
        let due = Due { time, ..due };
        assert_eq!(due.wait(now), Some(Duration::from_millis(30)));
        let late = due.or_at(Some(BootTime::ZERO));
        assert_eq!(late.wait(now), Some(Duration::ZERO));
    }
}
