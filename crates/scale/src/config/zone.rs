//! The time of the week where peaks are meant.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use kew_scaling::{Day, TimeOfWeek};
use std::time::Duration;

/// A time zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone(TimeZone);

impl Zone {
    pub(super) fn named(name: &str) -> Result<Self, String> {
        let zone = TimeZone::get(name);
        zone.map(Self).map_err(|error| {
            format!(
                "{name:?} is no time zone of this system, such as \"Europe/Berlin\" or \"UTC\": {error}"
            )
        })
    }

    pub(super) fn of_system() -> Result<Self, String> {
        let zone = TimeZone::try_system().map(Self);
        zone.map_err(|error| {
            format!("the time zone of this system is not known: set time_zone: {error}")
        })
    }

    pub(super) fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The time of the week now.
    #[must_use]
    pub fn week_now(&self) -> TimeOfWeek {
        self.week_at(Timestamp::now())
    }

    fn week_at(&self, at: Timestamp) -> TimeOfWeek {
        let there = at.to_zoned(self.0.clone());
        let unsigned = |number: i8| number.unsigned_abs().into();
        let day = match there.weekday() {
            jiff::civil::Weekday::Monday => Day::Monday,
            jiff::civil::Weekday::Tuesday => Day::Tuesday,
            jiff::civil::Weekday::Wednesday => Day::Wednesday,
            jiff::civil::Weekday::Thursday => Day::Thursday,
            jiff::civil::Weekday::Friday => Day::Friday,
            jiff::civil::Weekday::Saturday => Day::Saturday,
            jiff::civil::Weekday::Sunday => Day::Sunday,
        };
        let minute = TimeOfWeek::new(day, unsigned(there.hour()), unsigned(there.minute()));
        let second: u32 = unsigned(there.second());
        minute.plus(Duration::from_secs(second.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_week_is_that_of_the_zone() {
        // A Sunday, in winter.
        let at: Timestamp = "2026-01-18T23:30:15Z".parse().unwrap();
        let found = Zone::utc().week_at(at);
        assert_eq!(found.to_string(), "Sunday 23:30");
        let zone = Zone(TimeZone::fixed(jiff::tz::offset(1)));
        let expected = TimeOfWeek::new(Day::Monday, 0, 30).plus(Duration::from_secs(15));
        assert_eq!(zone.week_at(at), expected);
    }

    #[test]
    fn an_unknown_zone_is_named() {
        let error = Zone::named("Europe/Atlantis").unwrap_err();
        assert!(error.contains("\"Europe/Atlantis\""), "{error}");
    }
}
