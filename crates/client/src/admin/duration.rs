//! Durations in ISO 8601, as .NET reads and writes them: in days and smaller units, down to 100 ns.

use std::time::Duration;

/// The longest duration of .NET, which the service uses for "never ends".
pub(super) const FOREVER: Duration = Duration::new(922_337_203_685, 477_580_700);

const DAY_S: u64 = 24 * 3_600;

const TICKS_PER_S: u64 = 10_000_000;

/// Reads a duration such as `P1DT1H1M1.5S`.
///
/// Years and months have no length of their own; the service does not send them.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('P')?;
    if text.is_empty() || text.ends_with('T') {
        return None;
    }
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    let date = sum(date, &[('D', DAY_S)])?;
    let time = sum(time, &[('H', 3_600), ('M', 60), ('S', 1)])?;
    date.checked_add(time)
}

/// The sum of numbers with these units, in their order.
fn sum(part: &str, units: &[(char, u64)]) -> Option<Duration> {
    let mut rest = part;
    let mut total = Duration::ZERO;
    for &(unit, unit_s) in units {
        let Some((number, after)) = rest.split_once(unit) else {
            continue;
        };
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) if unit == 'S' => (whole, nanoseconds(fraction)?),
            Some(_) | None => (number, 0),
        };
        let seconds = whole_number(whole)?.checked_mul(unit_s)?;
        total = total.checked_add(Duration::new(seconds, fraction))?;
        rest = after;
    }
    rest.is_empty().then_some(total)
}

fn whole_number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// The first nine digits behind a point.
fn nanoseconds(fraction: &str) -> Option<u32> {
    let is_number = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    is_number.then(|| digits.fold(0, |ns, digit| ns * 10 + u32::from(digit - b'0')))
}

/// Reads a duration in ticks of 100 ns, which may have a minus before it.
pub(super) fn parse_ticks(text: &str) -> Option<i64> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let ticks = i128::try_from(parse(text)?.as_nanos() / 100).ok()?;
    i64::try_from(if is_negative { -ticks } else { ticks }).ok()
}

/// Writes a duration in ticks of 100 ns, with a minus before it if it is negative.
pub(super) fn format_ticks(ticks: i64) -> String {
    let sign = if ticks < 0 { "-" } else { "" };
    let ticks = ticks.unsigned_abs();
    let below_a_second = u32::try_from(ticks % TICKS_PER_S).unwrap_or_default();
    let duration = Duration::new(ticks / TICKS_PER_S, below_a_second * 100);
    format!("{sign}{}", written(duration))
}

/// Writes a duration as .NET does: `PT1M`, `P1DT2H`, `PT0S`. What is longer than [`FOREVER`] becomes that, and
/// parts of 100 ns are dropped.
pub(super) fn format(duration: Duration) -> String {
    written(duration.min(FOREVER))
}

fn written(duration: Duration) -> String {
    let (days, rest) = (duration.as_secs() / DAY_S, duration.as_secs() % DAY_S);
    let ticks = duration.subsec_nanos() / 100;
    let (hours, minutes, seconds) = (rest / 3_600, rest % 3_600 / 60, rest % 60);
    let mut text = "P".to_owned();
    if days > 0 {
        text.push_str(&format!("{days}D"));
    }
    if rest == 0 && ticks == 0 && days > 0 {
        return text;
    }
    text.push('T');
    for (count, unit) in [(hours, 'H'), (minutes, 'M')] {
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if seconds > 0 || ticks > 0 || text.ends_with('T') {
        let seconds = format!("{seconds}.{ticks:07}");
        text.push_str(seconds.trim_end_matches('0').trim_end_matches('.'));
        text.push('S');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_the_service_writes_them() {
        let ms = Duration::from_millis;
        for (text, duration) in [
            ("PT0S", Duration::ZERO),
            ("PT1M", ms(60_000)),
            ("PT5.5S", ms(5_500)),
            ("PT0.0000001S", Duration::from_nanos(100)),
            ("P1D", ms(86_400_000)),
            ("P14DT1H2M3.004S", ms(1_213_323_004)),
            ("P10675199DT2H48M5.4775807S", FOREVER),
        ] {
            assert_eq!(parse(text), Some(duration), "{text}");
            assert_eq!(format(duration), text);
        }
        // As Python sends the longest one back.
        assert_eq!(
            parse("P10675199DT10085.477581S"),
            Some(FOREVER + Duration::from_nanos(300))
        );
        assert_eq!(format(Duration::MAX), "P10675199DT2H48M5.4775807S");
        assert_eq!(format(Duration::from_nanos(199)), "PT0.0000001S");
    }

    #[test]
    fn ticks_may_be_negative() {
        for (ticks, text) in [
            (0, "PT0S"),
            (-1, "-PT0.0000001S"),
            (937_800_000_000, "P1DT2H3M"),
            (-15_000_000, "-PT1.5S"),
            (i64::MAX, "P10675199DT2H48M5.4775807S"),
            (i64::MIN, "-P10675199DT2H48M5.4775808S"),
        ] {
            assert_eq!(format_ticks(ticks), text);
            assert_eq!(parse_ticks(text), Some(ticks));
        }
        for text in ["P10675199DT2H48M5.4775808S", "--PT1S", "-", "1"] {
            assert_eq!(parse_ticks(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration() {
        for text in [
            "",
            "P",
            "PT",
            "P1DT",
            "1D",
            "P1",
            "P1Y",
            "P1M",
            "PT1S1M",
            "PT1.5M",
            "PT1.S",
            "PT-1S",
            "PT.5S",
            "P1H",
            "PT1D",
            "P99999999999999999999D",
            "P18446744073709551615D",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
