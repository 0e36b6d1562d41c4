//! Points in time, as texts of HTTP and of JSON.

use std::time::{Duration, SystemTime};

use kew_engine::Timestamp;

/// The last second of the year 9999, which is the last that these texts can express. Later times
/// are shown as this one, as in Azure.
const LAST_S: u64 = 253_402_300_799;

/// In the form of RFC 1123, in whole seconds.
pub(in crate::http) fn rfc1123(at: Timestamp) -> String {
    let seconds = (at.as_ms() / 1000).min(LAST_S);
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// In the form of RFC 3339, in UTC and milliseconds.
pub(in crate::http) fn rfc3339(at: Timestamp) -> String {
    let ms = at.as_ms().min(LAST_S * 1000);
    let time = i64::try_from(ms)
        .ok()
        .map(jiff::Timestamp::from_millisecond);
    match time {
        Some(Ok(time)) => time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        // The last second of 9999 is beyond the library's range.
        _ => "9999-12-31T23:59:59.000Z".to_owned(),
    }
}

/// The same in whole seconds.
pub(in crate::http) fn rfc3339_seconds(at: Timestamp) -> String {
    let text = rfc3339(at);
    let whole = text
        .split_once('.')
        .map_or(text.as_str(), |(whole, _)| whole);
    format!("{whole}Z")
}

/// Reads either form. Times before 1970 become 1970.
pub(in crate::http) fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let from_ms = |ms: u128| Timestamp::from_ms(u64::try_from(ms).unwrap_or(u64::MAX));
    if let Ok(time) = httpdate::parse_http_date(text) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        return Some(from_ms(since.unwrap_or_default().as_millis()));
    }
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(from_ms(
        u128::try_from(time.as_millisecond()).unwrap_or_default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_written() {
        let at = Timestamp::from_ms(784_111_777_000);
        assert_eq!(rfc1123(at), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(rfc3339(at), "1994-11-06T08:49:37.000Z");
        assert_eq!(rfc3339_seconds(at), "1994-11-06T08:49:37Z");
        for text in [
            " Sun, 06 Nov 1994 08:49:37 GMT",
            "1994-11-06T08:49:37Z",
            "1994-11-06T09:49:37+01:00",
        ] {
            assert_eq!(parse(text), Some(at), "{text}");
        }
        assert_eq!(parse("1960-01-01T00:00:00Z"), Some(Timestamp::ZERO));
        assert_eq!(parse("tomorrow"), None);
        assert_eq!(rfc3339(Timestamp::NEVER), "9999-12-31T23:59:59.000Z");
        assert_eq!(rfc1123(Timestamp::NEVER), "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
