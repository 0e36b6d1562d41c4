//! Dates in the forms of the protocol. The calendar is jiff's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::SignedDuration;
use jiff::civil::{DateTime, Weekday};
use kew_engine::Timestamp;

/// The last second with an RFC 1123 form: 9999-12-31 23:59:59. It is the shown expiry of messages
/// that never expire.
const SECONDS_MAX: u64 = 253_402_300_799;

/// How many ticks of 100 ns a second has.
const TICKS_PER_SECOND: u64 = 10_000_000;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Date and time in UTC a number of seconds after 1970, up to the end of the year 9999.
///
/// A [`jiff::Timestamp`] does not work: it ends a day before that year does.
fn civil(seconds: u64) -> DateTime {
    let since = SignedDuration::from_secs(seconds.min(SECONDS_MAX).cast_signed());
    EPOCH
        .checked_add(since)
        .expect("the calendar has the last second of 9999")
}

const fn weekday_name(weekday: Weekday) -> &'static [u8; 3] {
    match weekday {
        Weekday::Monday => b"Mon",
        Weekday::Tuesday => b"Tue",
        Weekday::Wednesday => b"Wed",
        Weekday::Thursday => b"Thu",
        Weekday::Friday => b"Fri",
        Weekday::Saturday => b"Sat",
        Weekday::Sunday => b"Sun",
    }
}

const fn month_name(month: i8) -> &'static [u8; 3] {
    match month {
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

/// Writes the last digits of a number, as many as fit.
fn put_digits(place: &mut [u8], number: i16) {
    let mut number = number.unsigned_abs();
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The moment in RFC 1123 form, cut to whole seconds: `Fri, 31 Dec 9999 23:59:59 GMT`. A later
/// moment, or none, is shown as that one.
///
/// Every message in an answer has up to three dates, so this works without a formatter.
pub(crate) fn rfc1123(at: Timestamp) -> [u8; 29] {
    let at = civil(at.as_ms() / 1000);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    text[..3].copy_from_slice(weekday_name(at.weekday()));
    text[8..11].copy_from_slice(month_name(at.month()));
    put_digits(&mut text[5..7], at.day().into());
    put_digits(&mut text[12..16], at.year());
    put_digits(&mut text[17..19], at.hour().into());
    put_digits(&mut text[20..22], at.minute().into());
    put_digits(&mut text[23..25], at.second().into());
    text
}

/// The moment in the form of error bodies, with seven digits of the second:
/// `2019-06-25T20:45:00.0958207Z`.
pub(crate) fn iso8601(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    iso8601_of_ticks(
        since.as_secs().min(SECONDS_MAX) * TICKS_PER_SECOND + u64::from(since.subsec_nanos() / 100),
    )
}

/// Ticks of 100 ns from 1970 in the form of access policies: `2026-11-20T10:30:00.1234567Z`.
pub(crate) fn iso8601_of_ticks(ticks: u64) -> String {
    let whole = civil(ticks / TICKS_PER_SECOND);
    format!("{whole}.{:07}Z", ticks % TICKS_PER_SECOND)
}

/// Reads a time of an access policy, in ticks of 100 ns from 1970: a date, or a date and a time in
/// UTC to the minute, to the second, or with up to seven digits of it.
pub(crate) fn parse_iso8601(text: &str) -> Option<u64> {
    let zones = ["Z", "+00:00", "-00:00"];
    let is_utc = !text.contains('T') || zones.iter().any(|zone| text.ends_with(zone));
    let ticks = parse_iso8601_with_offset(text).filter(|_| is_utc)?;
    u64::try_from(ticks).ok()
}

/// Reads a time as [`parse_iso8601`] does, with an offset from UTC of up to 14 hours instead of `Z`, and
/// of the years 1 to 9999: before 1970 the ticks are negative.
pub(crate) fn parse_iso8601_with_offset(text: &str) -> Option<i64> {
    let mut rest = Rest(text.as_bytes());
    let year = rest.number::<i16>(4).filter(|&year| year > 0)?;
    rest.sign(b'-')?;
    let month = rest.number(2)?;
    rest.sign(b'-')?;
    let day = rest.number(2)?;
    let (mut hour, mut minute, mut second) = (0, 0, 0);
    let (mut fraction, mut offset_seconds) = (0, 0);
    if !rest.0.is_empty() {
        rest.sign(b'T')?;
        hour = rest.number(2)?;
        rest.sign(b':')?;
        minute = rest.number(2)?;
        if rest.sign(b':').is_some() {
            second = rest.number(2)?;
            if rest.sign(b'.').is_some() {
                fraction = rest.fraction()?;
            }
        }
        offset_seconds = rest.offset_seconds()?;
    }
    if !rest.0.is_empty() {
        return None;
    }
    // This refuses impossible dates and times.
    let local = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    let seconds = local.duration_since(EPOCH).as_secs() - offset_seconds;
    Some(seconds * TICKS_PER_SECOND.cast_signed() + fraction)
}

/// The part of a time that is not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn sign(&mut self, sign: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[sign])?;
        Some(())
    }

    /// A number of so many digits.
    fn number<T: TryFrom<i64>>(&mut self, digits: usize) -> Option<T> {
        let (text, rest) = self.0.split_at_checked(digits)?;
        let mut number = 0;
        for byte in text {
            if !byte.is_ascii_digit() {
                return None;
            }
            number = number * 10 + i64::from(byte - b'0');
        }
        self.0 = rest;
        T::try_from(number).ok()
    }

    /// One to seven digits after the point, in ticks.
    fn fraction(&mut self) -> Option<i64> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit());
        let count = digits.count();
        if !(1..=7).contains(&count) {
            return None;
        }
        let scale = 10_i64.pow(u32::try_from(7 - count).ok()?);
        Some(self.number::<i64>(count)? * scale)
    }

    /// The offset of the time from `Z`.
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
        let hours = self
            .number::<i64>(2)
            .filter(|hours| (0..=14).contains(hours))?;
        self.sign(b':')?;
        let minutes = self
            .number::<i64>(2)
            .filter(|minutes| (0..=59).contains(minutes))?;
        Some(sign * (hours * 3600 + minutes * 60))
    }
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
            ("2001-01-01T00:00:00.Z", None),
            ("2001-01-01T00:00:00.12345678Z", None),
            ("2001-01-01T00:00:00.xZ", None),
            ("2001-01-01T00:00:00+01:00", None),
            ("2001-01-01T00:00:00Z+00:00", None),
            ("2001-01-01Z", None),
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
