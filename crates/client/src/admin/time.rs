//! Times in ISO 8601.

use std::time::{SystemTime, UNIX_EPOCH};

/// Reads a time; the inner `None` is one before 1970, with which the service says "never".
pub(super) fn parse(text: &str) -> Option<Option<SystemTime>> {
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(Some(SystemTime::from(time)).filter(|it| *it >= UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_as_the_service_writes_them() {
        let time =
            |seconds, nanoseconds| Some(Some(UNIX_EPOCH + Duration::new(seconds, nanoseconds)));
        assert_eq!(parse("2019-06-25T20:45:00Z"), time(1_561_495_500, 0));
        let exact = parse("2019-06-25T20:45:00.1234567Z");
        assert_eq!(exact, time(1_561_495_500, 123_456_700));
        assert_eq!(parse("0001-01-01T00:00:00Z"), Some(None));
        assert_eq!(parse("yesterday"), None);
    }
}
