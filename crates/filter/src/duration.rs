//! Durations as texts, in the form that .NET gives them.

/// Ticks of 100 ns in a second.
const TICKS_PER_SECOND: i64 = 10_000_000;

/// Digits of the smallest part of a second, a tick.
const FRACTION_DIGITS: usize = 7;

/// Digits of the most days that a duration can have.
const DIGITS_MAX: usize = 8;

/// The ticks of `[-][days.]hours:minutes[:seconds[.fraction]]`, or of a number of days. `None` if the text is none of
/// these, or beyond about 10,675,199 days.
///
/// Source: .NET, `TimeSpan.Parse`.
pub(crate) fn ticks_of(text: &str) -> Option<i64> {
    let text = text.trim();
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let ticks = match text.split_once(':') {
        None => days(text)?,
        Some((first, rest)) => {
            let (whole_days, hours) = match first.split_once('.') {
                Some((of_days, hours)) => (days(of_days)?, hours),
                None => (0, first),
            };
            let (minutes, seconds) = match rest.split_once(':') {
                Some((minutes, seconds)) => (minutes, seconds),
                None => (rest, "0"),
            };
            let of_day = within(hours, 24)? * 3_600 + within(minutes, 60)? * 60;
            let of_day = of_day * TICKS_PER_SECOND + seconds_of(seconds)?;
            whole_days.checked_add(of_day)?
        }
    };
    Some(if is_negative { -ticks } else { ticks })
}

fn days(text: &str) -> Option<i64> {
    number(text)?.checked_mul(24 * 3_600 * TICKS_PER_SECOND)
}

fn within(text: &str, limit: i64) -> Option<i64> {
    number(text).filter(|number| *number < limit)
}

fn number(text: &str) -> Option<i64> {
    let is_number =
        (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// The ticks of seconds with up to seven decimal places.
fn seconds_of(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = within(whole, 60)?;
    if fraction.len() > FRACTION_DIGITS {
        return None;
    }
    let ticks =
        number(&format!("{fraction:0<FRACTION_DIGITS$}")).filter(|_| !fraction.is_empty())?;
    Some(whole * TICKS_PER_SECOND + ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 864_000_000_000;

    #[test]
    fn texts_of_dotnet_are_durations() {
        for (text, ticks) in [
            ("00:10:00", 6_000_000_000),
            ("0:0:0", 0),
            ("23:59", DAY - 600_000_000),
            ("1.00:00:00", DAY),
            ("14", 14 * DAY),
            (" 00:00:01.5 ", 15_000_000),
            ("00:00:00.0000001", 1),
            ("-00:00:01", -10_000_000),
            ("-1.02:03:04.0500000", -(DAY + 73_840_500_000)),
            // The largest one of .NET.
            ("10675199.02:48:05.4775807", i64::MAX),
        ] {
            assert_eq!(ticks_of(text), Some(ticks), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not() {
        for text in [
            "",
            "-",
            ":",
            "a",
            "PT10M",
            "10m",
            "24:00",
            "00:60",
            "00:00:60",
            "1:2:3:4",
            "1.",
            "1.2",
            ".1:00",
            "00:00:00.",
            "00:00:00.12345678",
            "00:00:-1",
            "+1",
            "1 :00",
            "00::00",
            "--1",
            "999999999",
            "10675199.02:48:05.4775808",
            "10675200",
            "٣",
        ] {
            assert_eq!(ticks_of(text), None, "{text:?}");
        }
    }
}
