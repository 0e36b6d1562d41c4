//! Times of the week, and peaks that return each week.

use std::fmt;
use std::time::Duration;

const DAY_SECONDS: u32 = 24 * 60 * 60;
const WEEK_SECONDS: u32 = 7 * DAY_SECONDS;

/// A day of the week.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Day {
    /// The first day.
    Monday,
    /// The second day.
    Tuesday,
    /// The third day.
    Wednesday,
    /// The fourth day.
    Thursday,
    /// The fifth day.
    Friday,
    /// The sixth day.
    Saturday,
    /// The last day.
    Sunday,
}

impl Day {
    const ALL: [Self; 7] = [
        Self::Monday,
        Self::Tuesday,
        Self::Wednesday,
        Self::Thursday,
        Self::Friday,
        Self::Saturday,
        Self::Sunday,
    ];
}

/// Seconds since Monday, 00:00, where the peaks are meant. The caller knows the time zone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TimeOfWeek(u32);

impl TimeOfWeek {
    /// The time of a day. Hours and minutes beyond a day belong to the next one.
    #[must_use]
    pub fn new(day: Day, hour: u32, minute: u32) -> Self {
        let seconds = u64::from(hour) * 3600 + u64::from(minute) * 60;
        Self(day as u32 * DAY_SECONDS).plus(Duration::from_secs(seconds))
    }

    /// The time of the week `after` later.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        let sum = (u64::from(self.0) + after.as_secs()) % u64::from(WEEK_SECONDS);
        Self(u32::try_from(sum).expect("a remainder is below the divisor, which is a u32"))
    }

    /// Whole seconds since Monday, 00:00.
    #[must_use]
    pub fn since_monday(self) -> u32 {
        self.0
    }

    /// How long after `earlier` this time comes, less than a week.
    fn since(self, earlier: Self) -> u32 {
        (self.0 + WEEK_SECONDS - earlier.0) % WEEK_SECONDS
    }
}

impl fmt::Display for TimeOfWeek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = Day::ALL
            .into_iter()
            .rfind(|day| *day as u32 * DAY_SECONDS <= self.0)
            .unwrap_or(Day::Monday);
        let minutes = (self.0 % DAY_SECONDS) / 60;
        write!(f, "{day:?} {:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// A time of the week at which a number of instances must be ready, whatever the queues say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peak {
    /// When the instances must be ready. They are started earlier by the time that a start takes.
    pub from: TimeOfWeek,
    /// When the peak ends. A time before `from` is in the next week.
    pub until: TimeOfWeek,
    /// How many instances must be ready.
    pub instances: u32,
}

impl Peak {
    /// Whether the instances are needed at `now`, if each takes `start_delay` to start.
    pub(crate) fn is_on(&self, now: TimeOfWeek, start_delay: Duration) -> bool {
        let begins = self.from.since(TimeOfWeek(0).plus(start_delay));
        let begins = TimeOfWeek(begins);
        now.since(begins) < self.until.since(begins)
    }
}

impl fmt::Display for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, until, .. } = self;
        write!(f, "{from} to {until}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_begins_early_by_the_time_of_a_start() {
        let peak = Peak {
            from: TimeOfWeek::new(Day::Monday, 8, 0),
            until: TimeOfWeek::new(Day::Monday, 10, 0),
            instances: 3,
        };
        let delay = Duration::from_secs(60);
        let on = |day, hour, minute| peak.is_on(TimeOfWeek::new(day, hour, minute), delay);
        assert!(!on(Day::Monday, 7, 58));
        assert!(on(Day::Monday, 7, 59));
        assert!(on(Day::Monday, 9, 59));
        assert!(!on(Day::Monday, 10, 0));
        assert!(!on(Day::Tuesday, 8, 30));
        assert_eq!(peak.to_string(), "Monday 08:00 to Monday 10:00");
    }

    #[test]
    fn a_peak_may_span_the_end_of_the_week() {
        let peak = Peak {
            from: TimeOfWeek::new(Day::Monday, 0, 0),
            until: TimeOfWeek::new(Day::Monday, 1, 0),
            instances: 1,
        };
        let delay = Duration::from_secs(600);
        assert!(peak.is_on(TimeOfWeek::new(Day::Sunday, 23, 55), delay));
        assert!(peak.is_on(TimeOfWeek::new(Day::Monday, 0, 30), delay));
        assert!(!peak.is_on(TimeOfWeek::new(Day::Sunday, 23, 49), delay));
        let late = Peak {
            from: TimeOfWeek::new(Day::Sunday, 22, 0),
            ..peak
        };
        assert!(late.is_on(TimeOfWeek::new(Day::Monday, 0, 59), Duration::ZERO));
        assert!(!late.is_on(TimeOfWeek::new(Day::Monday, 1, 0), Duration::ZERO));
    }
}
