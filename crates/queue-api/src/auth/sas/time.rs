//! The times in a shared access signature, and its period.
//!
//! Source: *Formatting DateTime values*: a date, or a date with a time to the minute, the second or a
//! fraction of one, ending in `Z` or an offset.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_engine::Timestamp;

use crate::date;
use crate::error::Error;

/// Ticks of 100 ns in a second.
const TICKS_PER_SECOND: u64 = 10_000_000;

/// A moment in ticks of 100 ns since 1970, the precision of stored policies.
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

    /// Reads one of the forms. Moments before 1970 become 1970: all of them are in the past.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let ticks = date::parse_iso8601_with_offset(text)?;
        Some(Self(u64::try_from(ticks).unwrap_or(0)))
    }

    /// In the form of error texts.
    pub(crate) fn rfc1123(self) -> String {
        let text = date::rfc1123(Timestamp::from_ms(self.0 / 10_000));
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// The period of a credential: from `start`, or without a start, until before `expiry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) start: Option<Ticks>,
    pub(crate) expiry: Ticks,
}

impl Frame {
    /// Refuses with `AuthenticationFailed`, naming the period and the server's time.
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
