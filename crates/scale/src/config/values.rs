//! Values that TOML writes as text, or with bounds.

use std::ops::RangeInclusive;
use std::time::Duration;

use kew_scaling::{Day, TimeOfWeek};

const HOURS_MAX: u32 = 24;

/// A time with its unit, between both bounds.
pub(super) fn duration(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let wrong = || {
        format!("{text:?} is no time: write a whole number with ms, s, m, h or d, such as \"90s\"")
    };
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(0);
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let found = number.saturating_mul(unit_ms);
    let found = Duration::from_millis(found);
    match found {
        found if found < least => Err(format!("{text:?} is below the minimum of {}", Shown(least))),
        found if found > most => Err(format!("{text:?} is above the maximum of {}", Shown(most))),
        found => Ok(found),
    }
}

/// A time in its largest whole unit.
pub(super) struct Shown(pub(super) Duration);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
        let seconds = self.0.as_secs();
        let unit = units.iter().find(|(unit, _)| {
            self.0.subsec_millis() == 0 && seconds > 0 && seconds.is_multiple_of(*unit)
        });
        match unit {
            Some((unit, name)) => write!(f, "{}{name}", seconds / unit),
            None => write!(f, "{}ms", self.0.as_millis()),
        }
    }
}

/// A day of the week by its first three letters.
pub(super) fn day(text: &str) -> Result<Day, String> {
    Ok(match text {
        "mon" => Day::Monday,
        "tue" => Day::Tuesday,
        "wed" => Day::Wednesday,
        "thu" => Day::Thursday,
        "fri" => Day::Friday,
        "sat" => Day::Saturday,
        "sun" => Day::Sunday,
        _ => {
            return Err(format!(
                "{text:?} is no day: write mon, tue, wed, thu, fri, sat or sun"
            ));
        }
    })
}

/// A time of a day: hour and minute. 24:00 is its end.
pub(super) fn time(text: &str) -> Result<(u32, u32), String> {
    let digits = |text: &str| match text.len() {
        2 if text.bytes().all(|it| it.is_ascii_digit()) => text.parse::<u32>().ok(),
        _ => None,
    };
    let parts = text.split_once(':');
    let parts = parts.and_then(|(hour, minute)| Some((digits(hour)?, digits(minute)?)));
    let fits = |(hour, minute): &(u32, u32)| {
        (*hour < HOURS_MAX && *minute < 60) || (*hour, *minute) == (HOURS_MAX, 0)
    };
    parts.filter(fits).ok_or_else(|| {
        format!("{text:?} is no time of a day: write hour and minute, 00:00 to 24:00")
    })
}

/// When a time of a day comes that follows `from` on that day.
pub(super) fn following(day: Day, from: (u32, u32), until: (u32, u32)) -> TimeOfWeek {
    let days = if until < from { HOURS_MAX } else { 0 };
    TimeOfWeek::new(day, until.0 + days, until.1)
}

/// A name of a group: it is part of the log's lines.
pub(super) fn group_name(text: &str) -> Result<(), String> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    match text.chars().all(is_part) && (1..=64).contains(&text.len()) {
        true => Ok(()),
        false => Err(format!(
            "{text:?} is no name of a group: write 1 to 64 letters, digits, dots, hyphens and underscores"
        )),
    }
}

/// Characters of a name of a queue or topic of Service Bus at most, and of a subscription.
const ENTITY_MAX: usize = 260;
pub(super) const SUBSCRIPTION_MAX: usize = 50;
const SUBSCRIPTIONS: &str = "/subscriptions/";

/// A name that a queue of Queue Storage or Service Bus can have, or a subscription with its topic.
pub(super) fn queue_name(text: &str) -> Result<(), String> {
    let is_part = |it: char| it.is_alphanumeric() || matches!(it, '-' | '_' | '.' | '/');
    let is_name = |name: &str, most: usize| {
        name.chars().all(is_part)
            && name.starts_with(char::is_alphanumeric)
            && name.ends_with(char::is_alphanumeric)
            && name.chars().count() <= most
            && !name.contains("//")
    };
    let is_right = match text.to_lowercase().split_once(SUBSCRIPTIONS) {
        None => is_name(text, ENTITY_MAX),
        Some((topic, subscription)) => {
            is_name(topic, ENTITY_MAX)
                && is_name(subscription, SUBSCRIPTION_MAX)
                && !subscription.contains('/')
        }
    };
    is_right.then_some(()).ok_or_else(|| {
        format!(
            "{text:?} can be no name: write letters, digits, \"-\", \"_\", \".\" and \"/\" with a letter or digit at both \
             ends, at most {ENTITY_MAX} characters, or a subscription as \"TOPIC/subscriptions/NAME\" with at most \
             {SUBSCRIPTION_MAX} in NAME"
        )
    })
}

/// A name that a queue of Queue Storage can have.
pub(super) fn storage_queue_name(text: &str) -> Result<(), String> {
    let is_part = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    let is_right = text.chars().all(is_part)
        && (3..=63).contains(&text.len())
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--");
    is_right.then_some(()).ok_or_else(|| {
        format!(
            "{text:?} can be no name in Queue Storage: write 3 to 63 small letters, digits and single hyphens, with a \
             letter or digit at both ends"
        )
    })
}

/// A name in Kubernetes: it is part of a path.
pub(super) fn kubernetes_name(text: &str) -> Result<(), String> {
    let is_part =
        |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, '-' | '.');
    let ends = |it: char| it.is_ascii_alphanumeric();
    match text.chars().all(is_part)
        && text.starts_with(ends)
        && text.ends_with(ends)
        && text.len() <= 253
    {
        true => Ok(()),
        false => Err(format!(
            "{text:?} is no name in Kubernetes: write small letters, digits, hyphens and dots"
        )),
    }
}

/// Whether an environment variable can have this name in a shell.
pub(super) fn is_variable_name(text: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    !text.starts_with(|it: char| it.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(is_part)
}

/// A range of ports that programs may choose, such as `23400-23499`.
pub(super) fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let expected = || {
        format!(
            "ports is {text:?}: write the first and the last of 1024 to 65535, such as \"23400-23499\""
        )
    };
    let (first, last) = text.split_once('-').ok_or_else(expected)?;
    let number = |it: &str| it.parse::<u16>().ok().filter(|it| *it >= 1024);
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bounds() {
        let parse = |text| duration(text, Duration::from_secs(1), Duration::from_hours(1));
        assert_eq!(parse("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("2m"), Ok(Duration::from_mins(2)));
        for (text, named) in [
            ("", "is no time"),
            ("10", "is no time"),
            ("s", "is no time"),
            ("1.5s", "is no time"),
            ("-1s", "is no time"),
            ("99999999999999999999s", "is no time"),
            ("999ms", "below the minimum of 1s"),
            ("61m", "above the maximum of 1h"),
            ("18446744073709551615d", "above the maximum of 1h"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
        assert_eq!(Shown(Duration::from_millis(1500)).to_string(), "1500ms");
        assert_eq!(Shown(Duration::from_secs(90)).to_string(), "90s");
        assert_eq!(Shown(Duration::from_hours(48)).to_string(), "2d");
    }

    #[test]
    fn times_of_a_day() {
        assert_eq!(time("08:05"), Ok((8, 5)));
        assert_eq!(time("24:00"), Ok((24, 0)));
        for text in ["8:00", "24:01", "12:60", "12", "+1:00", "aa:bb", ""] {
            assert!(time(text).is_err(), "{text}");
        }
        let at = |day, hour| TimeOfWeek::new(day, hour, 0);
        let found = following(Day::Monday, (22, 0), (6, 0));
        assert_eq!(found, at(Day::Tuesday, 6));
        let found = following(Day::Monday, (6, 0), (22, 0));
        assert_eq!(found, at(Day::Monday, 22));
    }

    #[test]
    fn a_day_has_three_letters() {
        assert_eq!(day("fri"), Ok(Day::Friday));
        for text in ["friday", "Fri", "", "day"] {
            let error = day(text).unwrap_err();
            assert!(
                error.ends_with("write mon, tue, wed, thu, fri, sat or sun"),
                "{error}"
            );
        }
    }

    #[test]
    fn names_of_queues() {
        let long = "a".repeat(260);
        let subscription = format!("{long}/Subscriptions/{}", "b".repeat(50));
        for text in [
            "q",
            "a/b.c_d-1",
            "Büro",
            &long,
            &subscription,
            "t/subscriptions/s",
        ] {
            assert_eq!(queue_name(text), Ok(()), "{text}");
        }
        for text in [
            "",
            "a b",
            "-a",
            "a/",
            "a//b",
            "a\n",
            "a?",
            "$x",
            &format!("{long}a"),
            &format!("{subscription}b"),
            "t/subscriptions/",
            "t/subscriptions/a/b",
            "/subscriptions/s",
        ] {
            assert!(queue_name(text).is_err(), "{text}");
        }
        for text in ["abc", "a-1-b", &"a".repeat(63)] {
            assert_eq!(storage_queue_name(text), Ok(()), "{text}");
        }
        for text in [
            "ab",
            "Abc",
            "a--b",
            "-ab",
            "ab-",
            "a.b",
            "a/b",
            &"a".repeat(64),
        ] {
            assert!(storage_queue_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_groups() {
        assert_eq!(group_name("billing-2.eu_west"), Ok(()));
        for text in ["", "a b", "a\n", &"a".repeat(65)] {
            assert!(group_name(text).is_err(), "{text}");
        }
    }
}
