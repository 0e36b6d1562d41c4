//! Versions of the protocol: dates, compared as dates.
//!
//! A request names its version in `x-ms-version`; limits and features follow from it by comparison
//! with the constants here. A version newer than all known ones is treated as the newest and echoed
//! unchanged, so that a new SDK does not need a new server. An older date that was never a version
//! is refused, as in Azure.

use std::fmt;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::query::Query;

/// The header that names the version.
pub(crate) const X_MS_VERSION: HeaderName = HeaderName::from_static("x-ms-version");

/// A version of the protocol. Later ones compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32);

impl Version {
    const fn of(year: u32, month: u32, day: u32) -> Self {
        Self(year * 10_000 + month * 100 + day)
    }

    /// The version of a request without the header.
    pub(crate) const OLDEST: Self = Self::of(2008, 10, 27);
    /// Changed the string to sign; added delivery counts, the version in answers, metadata names
    /// that are identifiers, and metadata in listings.
    pub(crate) const V2009_09_19: Self = Self::of(2009, 9, 19);
    /// Added Update Message, texts of 64 KiB, hidden puts, and longer visibility timeouts.
    pub(crate) const V2011_08_18: Self = Self::of(2011, 8, 18);
    /// Brought shared access signatures and access policies.
    pub(crate) const V2012_02_12: Self = Self::of(2012, 2, 12);
    /// Added CORS, statistics, and minute metrics; replaced account name and queue addresses in
    /// listings with the service's endpoint.
    pub(crate) const V2013_08_15: Self = Self::of(2013, 8, 15);
    /// Signs a content length of zero as an empty line.
    pub(crate) const V2015_02_21: Self = Self::of(2015, 2, 21);
    /// Added the account SAS, its addresses and protocols, and error codes for them.
    pub(crate) const V2015_04_05: Self = Self::of(2015, 4, 5);
    /// Put Message answers with the message; empty headers are signed.
    pub(crate) const V2016_05_31: Self = Self::of(2016, 5, 31);
    /// Lifted the maximum time to live.
    pub(crate) const V2017_07_29: Self = Self::of(2017, 7, 29);
    /// Brought bearer tokens.
    pub(crate) const V2017_11_09: Self = Self::of(2017, 11, 9);
    /// Echoes the client's request id.
    pub(crate) const V2019_02_02: Self = Self::of(2019, 2, 2);
    /// Answers a missing credential with a challenge.
    pub(crate) const V2019_12_12: Self = Self::of(2019, 12, 12);
    /// Signs the encryption scope in the SAS of an account.
    pub(crate) const V2020_12_06: Self = Self::of(2020, 12, 6);
    /// Explains why a client is not authorized.
    pub(crate) const V2024_08_04: Self = Self::of(2024, 8, 4);
    /// Brought user delegation keys and their signatures.
    pub(crate) const V2025_07_05: Self = Self::of(2025, 7, 5);
    /// The newest version known.
    pub(crate) const NEWEST: Self = Self::of(2026, 10, 6);

    /// Reads `x-ms-version`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let &[y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1] = text else {
            return None;
        };
        let number = |digits: &[u8]| {
            digits.iter().try_fold(0, |number, digit| {
                digit
                    .is_ascii_digit()
                    .then(|| number * 10 + u32::from(digit - b'0'))
            })
        };
        let (year, month, day) = (
            number(&[y0, y1, y2, y3])?,
            number(&[m0, m1])?,
            number(&[d0, d1])?,
        );
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let version = Self::of(year, month, day);
        if version >= Self::NEWEST {
            return Some(Self::NEWEST);
        }
        KNOWN.contains(&version).then_some(version)
    }

    /// The version of a request and what its answer carries as `x-ms-version`.
    ///
    /// Without the header it is the oldest, and nothing is echoed before 2009-09-19. `Err` has the
    /// invalid value.
    pub(crate) fn of_request(header: Option<&HeaderValue>) -> Result<Self, &HeaderValue> {
        match header {
            None => Ok(Self::OLDEST),
            Some(value) => Self::parse(value.as_bytes()).ok_or(value),
        }
    }
}

impl Version {
    /// The version in a shared access signature, for a request without the header: the version to
    /// use (`api-version`), or else that of the signature (`sv`). If it is invalid, the signature
    /// is not valid either, and the newest version explains that.
    pub(crate) fn named_in_query(headers: &HeaderMap, query: &Query<'_>) -> Option<Self> {
        // With another credential the query might not be signed.
        if headers.contains_key(X_MS_VERSION)
            || headers.contains_key(AUTHORIZATION)
            || query.value("sig").is_none()
        {
            return None;
        }
        let named = query.value("api-version").or_else(|| query.value("sv"))?;
        Some(Self::parse(named.as_bytes()).unwrap_or(Self::NEWEST))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(date) = self;
        write!(
            f,
            "{:04}-{:02}-{:02}",
            date / 10_000,
            date / 100 % 100,
            date % 100
        )
    }
}

/// Every version that was released before the newest.
const KNOWN: [Version; 50] = [
    Version::OLDEST,
    Version::of(2009, 4, 14),
    Version::of(2009, 7, 17),
    Version::V2009_09_19,
    Version::V2011_08_18,
    Version::V2012_02_12,
    Version::V2013_08_15,
    Version::of(2014, 2, 14),
    Version::V2015_02_21,
    Version::V2015_04_05,
    Version::of(2015, 7, 8),
    Version::of(2015, 12, 11),
    Version::V2016_05_31,
    Version::of(2017, 4, 17),
    Version::V2017_07_29,
    Version::V2017_11_09,
    Version::of(2018, 3, 28),
    Version::of(2018, 11, 9),
    Version::V2019_02_02,
    Version::of(2019, 7, 7),
    Version::of(2019, 10, 10),
    Version::V2019_12_12,
    Version::of(2020, 2, 10),
    Version::of(2020, 4, 8),
    Version::of(2020, 6, 12),
    Version::of(2020, 8, 4),
    Version::of(2020, 10, 2),
    Version::V2020_12_06,
    Version::of(2021, 2, 12),
    Version::of(2021, 4, 10),
    Version::of(2021, 6, 8),
    Version::of(2021, 8, 6),
    Version::of(2021, 10, 4),
    Version::of(2021, 12, 2),
    Version::of(2022, 11, 2),
    Version::of(2023, 1, 3),
    Version::of(2023, 5, 3),
    Version::of(2023, 8, 3),
    Version::of(2023, 11, 3),
    Version::of(2024, 2, 4),
    Version::of(2024, 5, 4),
    Version::V2024_08_04,
    Version::of(2024, 11, 4),
    Version::of(2025, 1, 5),
    Version::of(2025, 5, 5),
    Version::V2025_07_05,
    Version::of(2025, 11, 5),
    Version::of(2026, 2, 6),
    Version::of(2026, 4, 6),
    Version::of(2026, 6, 6),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Option<Version>) {
        assert_eq!(Version::parse(text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn known_versions_are_themselves() {
        check("2008-10-27", Some(Version::OLDEST));
        check("2009-09-19", Some(Version::V2009_09_19));
        check("2026-10-06", Some(Version::NEWEST));
        assert!(KNOWN.is_sorted());
    }

    #[test]
    fn newer_dates_are_served_as_the_newest() {
        check("2026-10-07", Some(Version::NEWEST));
        check("2099-01-01", Some(Version::NEWEST));
    }

    #[test]
    fn invalid_versions_are_refused() {
        for text in [
            "",
            "2008-10-26",
            "2020-01-01",
            "2099-13-01",
            "2099-01-00",
            "2099-1-1",
            "2099-01-01 ",
            "20990101",
            "latest",
        ] {
            check(text, None);
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics(text: Vec<u8>) {
            let _ = Version::parse(&text);
        }
    }
}
