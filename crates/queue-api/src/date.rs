//! Dates as the protocol writes them.
//!
//! Formatting is plain arithmetic on days, some ten nanoseconds: cheaper than a cache would be.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_engine::Timestamp;

const SECONDS_PER_DAY: u64 = 86_400;

/// The last second that has an RFC 1123 form: 9999-12-31 23:59:59. Messages that never expire show
/// it as their expiry.
const SECONDS_MAX: u64 = 253_402_300_799;

/// A calendar day and a time of day, in UTC.
struct Civil {
    year: u64,
    month: u64,
    day: u64,
    weekday: &'static [u8; 3],
    hour: u64,
    minute: u64,
    second: u64,
}

impl Civil {
    /// `seconds` counts from 1970 and is at most [`SECONDS_MAX`].
    fn from_seconds(seconds: u64) -> Self {
        let days = seconds / SECONDS_PER_DAY;
        let time = seconds % SECONDS_PER_DAY;
        // Years are counted from March, so that the leap day is the last day of a year, and in eras
        // of 400 years, which all have the same number of days.
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let day_of_era = shifted % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            weekday: match days % 7 {
                0 => b"Thu",
                1 => b"Fri",
                2 => b"Sat",
                3 => b"Sun",
                4 => b"Mon",
                5 => b"Tue",
                _ => b"Wed",
            },
            hour: time / 3600,
            minute: time / 60 % 60,
            second: time % 60,
        }
    }

    const fn month_name(&self) -> &'static [u8; 3] {
        match self.month {
            1 => b"Jan",
            2 => b"Feb",
            3 => b"Mar",
            4 => b"Apr",
            5 => b"May",
            6 => b"Jun",
            7 => b"Jul",
            8 => b"Aug",
            9 => b"Sep",
            10 => b"Oct",
            11 => b"Nov",
            _ => b"Dec",
        }
    }
}

/// The last decimal digit of `number`.
const fn digit(number: u64) -> u8 {
    b'0' + (number % 10) as u8
}

/// The moment in RFC 1123 form, cut to whole seconds: `Fri, 31 Dec 9999 23:59:59 GMT`. A later
/// moment, and never, is shown as that one.
pub(crate) fn rfc1123(at: Timestamp) -> [u8; 29] {
    let civil = Civil::from_seconds((at.as_ms() / 1000).min(SECONDS_MAX));
    let [w0, w1, w2] = *civil.weekday;
    let [m0, m1, m2] = *civil.month_name();
    let Civil {
        year,
        day,
        hour,
        minute,
        second,
        ..
    } = civil;
    [
        w0,
        w1,
        w2,
        b',',
        b' ',
        digit(day / 10),
        digit(day),
        b' ',
        m0,
        m1,
        m2,
        b' ',
        digit(year / 1000),
        digit(year / 100),
        digit(year / 10),
        digit(year),
        b' ',
        digit(hour / 10),
        digit(hour),
        b':',
        digit(minute / 10),
        digit(minute),
        b':',
        digit(second / 10),
        digit(second),
        b' ',
        b'G',
        b'M',
        b'T',
    ]
}

/// The moment in the form of error bodies, with seven digits of the second:
/// `2019-06-25T20:45:00.0958207Z`.
pub(crate) fn iso8601(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let civil = Civil::from_seconds(since.as_secs().min(SECONDS_MAX));
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:07}Z",
        civil.year,
        civil.month,
        civil.day,
        civil.hour,
        civil.minute,
        civil.second,
        since.subsec_nanos() / 100
    )
}

/// Reads the date of a request: RFC 1123, or one of the two older forms that HTTP allows.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text.trim()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(ms: u64, expected: &str) {
        assert_eq!(
            std::str::from_utf8(&rfc1123(Timestamp::from_ms(ms))).unwrap(),
            expected
        );
    }

    #[test]
    fn rfc1123_form() {
        check(0, "Thu, 01 Jan 1970 00:00:00 GMT");
        check(1_561_495_500_958, "Tue, 25 Jun 2019 20:45:00 GMT");
        check(951_782_400_000, "Tue, 29 Feb 2000 00:00:00 GMT");
        check(253_402_300_799_000, "Fri, 31 Dec 9999 23:59:59 GMT");
        check(253_402_300_800_000, "Fri, 31 Dec 9999 23:59:59 GMT");
        check(Timestamp::NEVER.as_ms(), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn iso8601_form() {
        let at = UNIX_EPOCH + Duration::new(1_561_495_500, 95_820_700);
        assert_eq!(iso8601(at), "2019-06-25T20:45:00.0958207Z");
    }

    #[test]
    fn older_forms_are_read() {
        let at = Some(UNIX_EPOCH + Duration::from_secs(784_111_777));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), at);
        assert_eq!(parse("Sunday, 06-Nov-94 08:49:37 GMT"), at);
        assert_eq!(parse("Sun Nov  6 08:49:37 1994"), at);
        assert_eq!(parse("1994-11-06T08:49:37Z"), None);
    }

    proptest! {
        #[test]
        fn agrees_with_another_implementation(seconds in 0..=SECONDS_MAX) {
            let ours = rfc1123(Timestamp::from_ms(seconds * 1000));
            let other = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
            prop_assert_eq!(std::str::from_utf8(&ours).unwrap(), other);
        }
    }
}
