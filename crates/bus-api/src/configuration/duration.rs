//! Durations in ISO 8601, as .NET reads and writes them, in milliseconds.

/// The longest duration of .NET, which the service uses for "never ends".
const FOREVER: &str = "P10675199DT2H48M5.4775807S";

/// From here on a duration counts as endless. SDKs whose own types are narrower send back slightly
/// less than [`FOREVER`], which is about 9.2e14.
const FOREVER_MS_MIN: u64 = 900_000_000_000_000;

const SECOND_MS: u64 = 1000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Reads a duration such as `P1DT1H1M1.5S`; [`u64::MAX`] for an endless one. Years have 365 days
/// and months 30, as in .NET. Fractions of a millisecond are dropped.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let text = text.strip_prefix('P')?;
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    if text.is_empty() || text.ends_with('T') {
        return None;
    }
    let date_units = [('Y', 365 * DAY_MS), ('M', 30 * DAY_MS), ('D', DAY_MS)];
    let time_units = [('H', HOUR_MS), ('M', MINUTE_MS), ('S', SECOND_MS)];
    let total = sum(date, date_units)?.saturating_add(sum(time, time_units)?);
    Some(if total >= FOREVER_MS_MIN {
        u64::MAX
    } else {
        total
    })
}

/// The sum of numbers with these units, in their order.
fn sum(part: &str, units: [(char, u64); 3]) -> Option<u64> {
    let mut rest = part;
    let mut total: u64 = 0;
    for (unit, unit_ms) in units {
        let Some((number, after)) = rest.split_once(unit) else {
            continue;
        };
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) if unit == 'S' => (whole, thousandths(fraction)?),
            _ => (number, 0),
        };
        let whole = whole_number(whole)?.saturating_mul(unit_ms);
        total = total.saturating_add(whole).saturating_add(fraction);
        rest = after;
    }
    rest.is_empty().then_some(total)
}

/// A number in digits. A number that is too large becomes the largest.
fn whole_number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// The first three digits behind a point.
fn thousandths(fraction: &str) -> Option<u64> {
    whole_number(fraction)?;
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    Some(digits.fold(0, |ms, digit| ms * 10 + u64::from(digit - b'0')))
}

/// Writes a duration as .NET does: `PT1M`, `P1DT2H`, `PT0S`.
pub(crate) fn format(ms: u64) -> String {
    if ms == u64::MAX {
        return FOREVER.to_owned();
    }
    let days = ms / DAY_MS;
    let mut text = if days > 0 {
        format!("P{days}D")
    } else {
        "P".to_owned()
    };
    let mut rest = ms % DAY_MS;
    if rest == 0 && days > 0 {
        return text;
    }
    text.push('T');
    for (unit, unit_ms) in [('H', HOUR_MS), ('M', MINUTE_MS)] {
        let count = rest / unit_ms;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
        rest %= unit_ms;
    }
    if rest > 0 || text.ends_with('T') {
        let seconds = format!("{}.{:03}", rest / SECOND_MS, rest % SECOND_MS);
        text.push_str(seconds.trim_end_matches('0').trim_end_matches('.'));
        text.push('S');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_iso_8601() {
        for (text, ms) in [
            ("PT5S", Some(5_000)),
            ("P1DT1H1M1.5S", Some(90_061_500)),
            ("PT0.0019S", Some(1)),
            ("P1Y2M", Some(425 * DAY_MS)),
            ("PT90M", Some(90 * MINUTE_MS)),
            (FOREVER, Some(u64::MAX)),
            ("P10675199DT2H48M5.477580S", Some(u64::MAX)),
            ("P99999999999999999999999D", Some(u64::MAX)),
            ("P", None),
            ("PT", None),
            ("P1DT", None),
            ("5S", None),
            ("PTxS", None),
            ("PT-1S", None),
            ("-PT1S", None),
            ("PT1S1M", None),
            ("PT1.5M", None),
            ("PT1.S", None),
            ("PT.5S", None),
            ("PTS", None),
            ("", None),
            ("00:01:00", None),
        ] {
            assert_eq!(parse(text), ms, "{text}");
        }
    }

    #[test]
    fn written_values_are_read_back() {
        for (ms, text) in [
            (0, "PT0S"),
            (1, "PT0.001S"),
            (60_000, "PT1M"),
            (90_061_500, "P1DT1H1M1.5S"),
            (10_000, "PT10S"),
            (14 * DAY_MS, "P14D"),
            (DAY_MS + HOUR_MS, "P1DT1H"),
            (u64::MAX, FOREVER),
        ] {
            assert_eq!(format(ms), text);
            assert_eq!(parse(text), Some(ms));
        }
    }
}
