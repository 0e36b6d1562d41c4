//! The times in a shared access signature, and the frame that they make.
//!
//! Source: *Formatting DateTime values*: a date, or a date with a time to the minute, the second or a
//! fraction of one, ending in `Z` or an offset.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_engine::Timestamp;

use crate::date;
use crate::error::Error;

/// Ticks of 100 ns in a second.
const TICKS_PER_SECOND: u64 = 10_000_000;

/// A moment in ticks of 100 ns since 1970, as fine as policies are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticks(pub(crate) u64);

impl Ticks {
    pub(crate) fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(0).plus(since)
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        let ticks = duration
            .as_secs()
            .saturating_mul(TICKS_PER_SECOND)
            .saturating_add(u64::from(duration.subsec_nanos() / 100));
        Self(self.0.saturating_add(ticks))
    }

    /// Reads one of the forms. Moments before 1970 are taken as 1970: all of them are past.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut rest = Rest(text.as_bytes());
        let year = rest.number(4, 1..=9999)?;
        rest.sign(b'-')?;
        let month = rest.number(2, 1..=12)?;
        rest.sign(b'-')?;
        let day = rest.number(2, 1..=days_in(year, month))?;
        let mut seconds = days_since_epoch(year, month, day) * 86_400;
        let mut fraction = 0;
        if !rest.0.is_empty() {
            rest.sign(b'T')?;
            seconds += rest.number(2, 0..=23)? * 3600;
            rest.sign(b':')?;
            seconds += rest.number(2, 0..=59)? * 60;
            if rest.sign(b':').is_some() {
                seconds += rest.number(2, 0..=59)?;
                if rest.sign(b'.').is_some() {
                    fraction = rest.fraction()?;
                }
            }
            seconds -= rest.offset_seconds()?;
        }
        if !rest.0.is_empty() {
            return None;
        }
        let Ok(seconds) = u64::try_from(seconds) else {
            return Some(Self(0));
        };
        Some(Self(seconds * TICKS_PER_SECOND + fraction))
    }

    /// In the form that people read in errors.
    pub(crate) fn rfc1123(self) -> String {
        let text = date::rfc1123(Timestamp::from_ms(self.0 / 10_000));
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// What is left to read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn sign(&mut self, sign: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[sign])?;
        Some(())
    }

    fn number(&mut self, digits: usize, bounds: RangeInclusive<i64>) -> Option<i64> {
        let (text, rest) = self.0.split_at_checked(digits)?;
        let mut number = 0;
        for byte in text {
            if !byte.is_ascii_digit() {
                return None;
            }
            number = number * 10 + i64::from(byte - b'0');
        }
        self.0 = rest;
        bounds.contains(&number).then_some(number)
    }

    /// One to seven digits after the point, in ticks.
    fn fraction(&mut self) -> Option<u64> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit());
        let count = digits.count();
        if !(1..=7).contains(&count) {
            return None;
        }
        let number = self.number(count, 0..=i64::MAX)?;
        let scale = 10_u64.checked_pow(u32::try_from(7 - count).ok()?)?;
        Some(u64::try_from(number).ok()? * scale)
    }

    /// `Z`, or how far the time is ahead of it.
    fn offset_seconds(&mut self) -> Option<i64> {
        if self.sign(b'Z').is_some() {
            return Some(0);
        }
        let sign = if self.sign(b'+').is_some() {
            1
        } else {
            self.sign(b'-')?;
            -1
        };
        let hours = self.number(2, 0..=14)?;
        self.sign(b':')?;
        let minutes = self.number(2, 0..=59)?;
        Some(sign * (hours * 3600 + minutes * 60))
    }
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a day of the years 1 to 9999.
const fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    // Years are counted from March, so that the leap day is the last day of a year.
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

/// When a credential is good: from `start`, or ever since, to before `expiry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) start: Option<Ticks>,
    pub(crate) expiry: Ticks,
}

impl Frame {
    /// Refuses with `AuthenticationFailed`, naming the frame and the server's time.
    pub(crate) fn check(self, now: SystemTime) -> Result<(), Error> {
        let current = Ticks::of(now);
        if self.start.is_none_or(|start| start <= current) && current < self.expiry {
            return Ok(());
        }
        Err(Error::authentication_failed(format!(
            "Signature not valid in the specified time frame: Start [{}] - Expiry [{}] - Current [{}]",
            self.start.map(Ticks::rfc1123).unwrap_or_default(),
            self.expiry.rfc1123(),
            current.rfc1123()
        )))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(Ticks::parse(text), expected.map(Ticks), "{text}");
    }

    #[test]
    fn every_form_is_read() {
        const DAY: u64 = 1_561_420_800 * TICKS_PER_SECOND;
        check("2019-06-25", Some(DAY));
        check("2019-06-25T20:45Z", Some(DAY + 74_700 * TICKS_PER_SECOND));
        check(
            "2019-06-25T20:45:09Z",
            Some(DAY + 74_709 * TICKS_PER_SECOND),
        );
        check(
            "2019-06-25T20:45:09.5Z",
            Some(DAY + 74_709 * TICKS_PER_SECOND + 5_000_000),
        );
        check(
            "2019-06-25T20:45:09.0000001Z",
            Some(DAY + 74_709 * TICKS_PER_SECOND + 1),
        );
        check("2019-06-25T02:00+02:00", Some(DAY));
        check("2019-06-24T20:30:00-03:30", Some(DAY));
        check("2000-02-29", Some(951_782_400 * TICKS_PER_SECOND));
        check("1969-12-31T23:59Z", Some(0));
        check("0001-01-01", Some(0));
    }

    #[test]
    fn nothing_else_is() {
        for text in [
            "",
            "2019",
            "2019-6-25",
            "2019-02-29",
            "1900-02-29",
            "2019-06-25T",
            "2019-06-25T20:45",
            "2019-06-25T20Z",
            "2019-06-25 20:45Z",
            "2019-06-25T24:00Z",
            "2019-06-25T20:60Z",
            "2019-06-25T20:45:60Z",
            "2019-06-25T20:45:00.Z",
            "2019-06-25T20:45:00.12345678Z",
            "2019-06-25T20:45Z ",
            "2019-06-25T20:45ZZ",
            "2019-06-25Z",
            "0000-01-01",
            "+019-01-01",
            "Tue, 25 Jun 2019 20:45:00 GMT",
        ] {
            check(text, None);
        }
    }

    proptest! {
        #[test]
        fn agrees_with_how_dates_are_written(seconds in 0_u64..253_402_300_800) {
            let time = UNIX_EPOCH + Duration::new(seconds, 1_234_500);
            prop_assert_eq!(Ticks::parse(&date::iso8601(time)), Some(Ticks::of(time)));
        }

        #[test]
        fn reading_never_panics(text in ".{0,40}") {
            let _ = Ticks::parse(&text);
        }
    }
}
