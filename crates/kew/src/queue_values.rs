//! Values of the command line, checked where they are read.

use std::time::Duration;

/// A queue's name: 3 to 63 of `a-z`, `0-9` and single hyphens within.
///
/// Source: *Naming queues and metadata*.
pub(crate) fn queue_name(text: &str) -> Result<String, String> {
    let in_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !(3..=63).contains(&text.len()) {
        return Err("a queue's name has 3 to 63 characters".into());
    }
    if !text.bytes().all(in_name) {
        return Err("a queue's name has lower-case letters, digits and hyphens only".into());
    }
    if text.starts_with('-') || text.ends_with('-') || text.contains("--") {
        return Err("hyphens in a queue's name stand alone between letters or digits".into());
    }
    Ok(text.to_owned())
}

/// `NAME=VALUE`; the name is an identifier and the value what HTTP can carry.
pub(crate) fn metadata_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("metadata is NAME=VALUE")?;
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let goes_on_well = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !starts_well || !goes_on_well {
        return Err("the name begins with a letter or _ and has letters, digits and _".into());
    }
    if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err("the value can have visible ASCII characters and spaces only".into());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// A message's id or receipt: anything that can be sent.
pub(crate) fn message_part(text: &str) -> Result<String, String> {
    if text.is_empty() || text == "." || text == ".." {
        return Err("that is no id or receipt: take those that get prints".into());
    }
    Ok(text.to_owned())
}

/// A number with `ms`, `s`, `m`, `h` or `d`; seconds without.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let wrong = || "a duration is a number with ms, s, m, h or d, for example 90s".to_owned();
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let ms = number.checked_mul(unit_ms).filter(|&ms| ms < 1 << 53);
    ms.map(Duration::from_millis)
        .ok_or_else(|| "the duration is too long".to_owned())
}

/// A duration for the service, which counts in seconds.
pub(crate) fn whole_seconds(text: &str) -> Result<u32, String> {
    let duration = duration(text)?;
    if duration.subsec_millis() != 0 {
        return Err("the service counts in whole seconds".into());
    }
    u32::try_from(duration.as_secs()).map_err(|_| "the duration is too long".to_owned())
}

/// Seconds, or -1 for `never`.
pub(crate) fn time_to_live(text: &str) -> Result<i64, String> {
    if text == "never" {
        return Ok(-1);
    }
    whole_seconds(text).map(i64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let ms = |text| duration(text).map(|duration| duration.as_millis()).ok();
        for (text, expected) in [
            ("0", Some(0)),
            ("30", Some(30_000)),
            ("250ms", Some(250)),
            ("2m", Some(120_000)),
            ("7d", Some(604_800_000)),
            ("", None),
            ("s", None),
            ("-1", None),
            ("1.5s", None),
            ("1w", None),
            ("99999999999999999999d", None),
            ("9999999999999d", None),
        ] {
            assert_eq!(ms(text), expected, "{text}");
        }
        assert_eq!(whole_seconds("1h"), Ok(3600));
        assert!(whole_seconds("1ms").is_err());
        assert_eq!(time_to_live("never"), Ok(-1));
    }

    #[test]
    fn names() {
        for good in ["abc", "a-b-c", "0a9"] {
            assert!(queue_name(good).is_ok(), "{good}");
        }
        for bad in ["", "ab", "Abc", "a--b", "-abc", "abc-", "a/b", "a.b", "äbc"] {
            assert!(queue_name(bad).is_err(), "{bad}");
        }
        assert!(metadata_pair("a_1=x = y").is_ok());
        for bad in ["a", "=x", "1a=x", "a-b=x", "a=\n", "a=ä"] {
            assert!(metadata_pair(bad).is_err(), "{bad}");
        }
    }
}
