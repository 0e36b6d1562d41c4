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
    iso8601_of_ticks(
        since.as_secs().min(SECONDS_MAX) * TICKS_PER_SECOND + u64::from(since.subsec_nanos() / 100),
    )
}

/// How many ticks of 100 ns a second has.
const TICKS_PER_SECOND: u64 = 10_000_000;

/// Ticks of 100 ns from 1970 in the form of access policies: `2026-11-20T10:30:00.1234567Z`.
pub(crate) fn iso8601_of_ticks(ticks: u64) -> String {
    let civil = Civil::from_seconds((ticks / TICKS_PER_SECOND).min(SECONDS_MAX));
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:07}Z",
        civil.year,
        civil.month,
        civil.day,
        civil.hour,
        civil.minute,
        civil.second,
        ticks % TICKS_PER_SECOND
    )
}

/// Reads a time of an access policy, in ticks of 100 ns from 1970: a date, or a date and a time in
/// UTC to the minute, the second, or up to seven digits of it.
pub(crate) fn parse_iso8601(text: &str) -> Option<u64> {
    let (date, time) = match text.split_once('T') {
        None => (text, None),
        Some((date, time)) => (date, Some(time)),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (clock, fraction) = match time {
        None => ([0; 3], ""),
        Some(time) => {
            let time = ["Z", "+00:00", "-00:00"]
                .iter()
                .find_map(|zone| time.strip_suffix(zone))?;
            match time.split_once('.') {
                Some((clock, fraction)) => (numbers(clock, ':', [2; 3])?, fraction),
                None => match numbers(time, ':', [2; 3]) {
                    Some(clock) => (clock, ""),
                    None => {
                        let [hour, minute] = numbers(time, ':', [2; 2])?;
                        ([hour, minute, 0], "")
                    }
                },
            }
        }
    };
    let [hour, minute, second] = clock;
    if hour > 23 || minute > 59 || second > 59 || fraction.len() > 7 {
        return None;
    }
    let mut ticks = 0;
    for place in 0..7 {
        let digit = match fraction.as_bytes().get(place) {
            None => 0,
            Some(digit @ b'0'..=b'9') => u64::from(digit - b'0'),
            Some(_) => return None,
        };
        ticks = ticks * 10 + digit;
    }
    let seconds =
        days_before(year, month, day)? * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    Some(seconds * TICKS_PER_SECOND + ticks)
}

/// Numbers of so many digits each, with `separator` between them.
fn numbers<const N: usize>(text: &str, separator: char, lengths: [usize; N]) -> Option<[u64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part = parts.next()?;
        if part.len() != length || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// How many days lie between 1970 and a day of the calendar, if there is such a day.
fn days_before(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return None,
    };
    if year < 1970 || day < 1 || day > last {
        return None;
    }
    // The same counting from March as above, the other way.
    let from_march = year - u64::from(month <= 2);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let days =
        365 * from_march + from_march / 4 - from_march / 100 + from_march / 400 + day_of_year;
    Some(days - 719_468)
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

    #[test]
    fn times_of_policies() {
        for (text, expected) in [
            ("1970-01-01", Some(0)),
            ("1970-01-01T00:00Z", Some(0)),
            ("1970-01-01T00:00:01Z", Some(10_000_000)),
            ("1970-01-01T00:00:00.1Z", Some(1_000_000)),
            ("1970-01-01T00:00:00.1234567Z", Some(1_234_567)),
            ("2000-02-29T00:00:00+00:00", Some(951_782_400 * 10_000_000)),
            (
                "9999-12-31T23:59:59.9999999Z",
                Some(2_534_023_007_999_999_999),
            ),
            ("1969-12-31", None),
            ("2001-02-29", None),
            ("2001-13-01", None),
            ("2001-00-01", None),
            ("2001-01-00", None),
            ("2001-04-31", None),
            ("2001-1-1", None),
            ("2001-01-01T", None),
            ("2001-01-01T00:00", None),
            ("2001-01-01T24:00Z", None),
            ("2001-01-01T00:60Z", None),
            ("2001-01-01T00:00:60Z", None),
            ("2001-01-01T00:00.5Z", None),
            ("2001-01-01T00:00:00.12345678Z", None),
            ("2001-01-01T00:00:00.xZ", None),
            ("2001-01-01T00:00:00+01:00", None),
            ("+001-01-01", None),
        ] {
            assert_eq!(parse_iso8601(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_of_policies_round_trip(ticks in 0..=2_534_023_007_999_999_999_u64) {
            prop_assert_eq!(parse_iso8601(&iso8601_of_ticks(ticks)), Some(ticks));
        }

        #[test]
        fn reading_never_panics(text in ".{0,40}") {
            let _ = parse_iso8601(&text);
        }

        #[test]
        fn agrees_with_another_implementation(seconds in 0..=SECONDS_MAX) {
            let ours = rfc1123(Timestamp::from_ms(seconds * 1000));
            let other = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
            prop_assert_eq!(std::str::from_utf8(&ours).unwrap(), other);
        }
    }
}
