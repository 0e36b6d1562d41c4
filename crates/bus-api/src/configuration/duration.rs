//! Durations in ISO 8601, as .NET reads and writes them, in milliseconds; those of rules, which may be negative, in ticks
//! of 100 ns.

/// The longest duration of .NET, which the service uses for "never ends".
const FOREVER: &str = "P10675199DT2H48M5.4775807S";

/// From here on a duration counts as endless. SDKs whose own types are narrower send back slightly
/// less than [`FOREVER`], which is about 9.2e14.
const FOREVER_MS_MIN: u128 = 900_000_000_000_000;

const TICKS_PER_MS: u128 = 10_000;
const SECOND: u128 = 1000 * TICKS_PER_MS;
const MINUTE: u128 = 60 * SECOND;
const HOUR: u128 = 60 * MINUTE;
const DAY: u128 = 24 * HOUR;

/// How many digits of a second are ticks.
const FRACTION_DIGITS: usize = 7;

/// Reads a duration such as `P1DT1H1M1.5S`; [`u64::MAX`] for an endless one. Years have 365 days
/// and months 30, as in .NET. Fractions of a millisecond are dropped.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let ms = total(text)? / TICKS_PER_MS;
    let is_endless = ms >= FOREVER_MS_MIN;
    Some(if is_endless {
        u64::MAX
    } else {
        u64::try_from(ms).unwrap_or(u64::MAX)
    })
}

/// Reads a duration in ticks, which may have a minus before it. `None`, too, if it is longer than .NET's longest.
pub(crate) fn parse_ticks(text: &str) -> Option<i64> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let ticks = i128::try_from(total(text)?).ok()?;
    i64::try_from(if is_negative { -ticks } else { ticks }).ok()
}

fn total(text: &str) -> Option<u128> {
    let text = text.strip_prefix('P')?;
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    if text.is_empty() || text.ends_with('T') {
        return None;
    }
    let date_units = [('Y', 365 * DAY), ('M', 30 * DAY), ('D', DAY)];
    let time_units = [('H', HOUR), ('M', MINUTE), ('S', SECOND)];
    Some(sum(date, date_units)?.saturating_add(sum(time, time_units)?))
}

/// The sum of numbers with these units, in their order.
fn sum(part: &str, units: [(char, u128); 3]) -> Option<u128> {
    let mut rest = part;
    let mut total: u128 = 0;
    for (unit, ticks) in units {
        let Some((number, after)) = rest.split_once(unit) else {
            continue;
        };
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) if unit == 'S' => (whole, ticks_of(fraction)?),
            _ => (number, 0),
        };
        let whole = whole_number(whole)?.saturating_mul(ticks);
        total = total.saturating_add(whole).saturating_add(fraction);
        rest = after;
    }
    rest.is_empty().then_some(total)
}

/// A number in digits. A number that is too large becomes the largest.
fn whole_number(text: &str) -> Option<u128> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u128::MAX))
}

/// The digits behind a point, as many as a tick has.
fn ticks_of(fraction: &str) -> Option<u128> {
    whole_number(fraction)?;
    let digits = fraction.bytes().chain(std::iter::repeat(b'0'));
    let digits = digits.take(FRACTION_DIGITS);
    Some(digits.fold(0, |ticks, digit| ticks * 10 + u128::from(digit - b'0')))
}

/// Writes a duration as .NET does: `PT1M`, `P1DT2H`, `PT0S`.
pub(crate) fn format(ms: u64) -> String {
    match ms {
        u64::MAX => FOREVER.to_owned(),
        ms => written(u128::from(ms) * TICKS_PER_MS),
    }
}

/// The same for ticks, with a minus before a negative one.
pub(crate) fn format_ticks(ticks: i64) -> String {
    let sign = if ticks < 0 { "-" } else { "" };
    format!("{sign}{}", written(ticks.unsigned_abs().into()))
}

fn written(ticks: u128) -> String {
    let days = ticks / DAY;
    let mut text = if days > 0 {
        format!("P{days}D")
    } else {
        "P".to_owned()
    };
    let mut rest = ticks % DAY;
    if rest == 0 && days > 0 {
        return text;
    }
    text.push('T');
    for (unit, ticks) in [('H', HOUR), ('M', MINUTE)] {
        let count = rest / ticks;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
        rest %= ticks;
    }
    if rest > 0 || text.ends_with('T') {
        let seconds = format!("{}.{:0FRACTION_DIGITS$}", rest / SECOND, rest % SECOND);
        text.push_str(seconds.trim_end_matches('0').trim_end_matches('.'));
        text.push('S');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;
    const DAY_MS: u64 = 24 * HOUR_MS;

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
    #[test]
    fn ticks_may_be_negative() {
        for (ticks, text) in [
            (0, "PT0S"),
            (1, "PT0.0000001S"),
            (-1, "-PT0.0000001S"),
            (937_800_000_000, "P1DT2H3M"),
            (-15_000_000, "-PT1.5S"),
            (i64::MAX, FOREVER),
        ] {
            assert_eq!(format_ticks(ticks), text);
            assert_eq!(parse_ticks(text), Some(ticks));
        }
        let least = "-P10675199DT2H48M5.4775808S";
        assert_eq!(format_ticks(i64::MIN), least);
        assert_eq!(parse_ticks(least), Some(i64::MIN));
        for text in [
            "P10675199DT2H48M5.4775808S",
            "P999999999999Y",
            "--PT1S",
            "-",
            "1",
        ] {
            assert_eq!(parse_ticks(text), None, "{text}");
        }
    }
}
