//! Names of objects: the day, and 128 random bits.
//!
//! Nobody can guess a name, and a name from a message reaches nothing outside the folder. The day lets a sweep pass over
//! what is young.

use chrono::{DateTime, NaiveDate, Utc};

use crate::error::Error;

/// How a day is written.
const DAY: &str = "%Y-%m-%d";

/// How many hexadecimal digits follow the day.
const DIGITS: usize = 32;

/// What the name of the mark has after that of its object.
const KEPT: &str = ".kept";

/// A name that no other object has.
pub(crate) fn new(now: DateTime<Utc>) -> Result<String, Error> {
    let day = now.format(DAY);
    Ok(format!("{day}/{}", random()?))
}

/// 128 random bits.
pub(crate) fn random() -> Result<String, Error> {
    let mut bytes = [0; DIGITS / 2];
    getrandom::fill(&mut bytes).map_err(Error::unavailable)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// What a file of a day is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    /// An object, by the random part of its name.
    Object(u128),
    /// The mark of the object with this random part.
    Mark(u128),
}

/// Which of ours a file of a day is, if any.
pub(crate) fn file_of(file: &str) -> Option<File> {
    match file.strip_suffix(KEPT) {
        Some(digits) => number_of(digits).map(File::Mark),
        None => number_of(file).map(File::Object),
    }
}

/// The name of the object of a day with this random part.
pub(crate) fn in_day(day: &str, number: u128) -> String {
    format!("{day}/{number:032x}")
}

/// The name of the mark of an object that is kept. It lies beside the object.
pub(crate) fn mark_of(name: &str) -> String {
    format!("{name}{KEPT}")
}

/// Whether a text is the name of an object.
pub(crate) fn is_valid(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(day, digits)| day_of(day).is_some() && is_random(digits))
}

/// The day that a folder is named for.
pub(crate) fn day_of(folder: &str) -> Option<NaiveDate> {
    let day = NaiveDate::parse_from_str(folder, DAY).ok()?;
    // Not with a sign, with spaces, or without a zero.
    (day.format(DAY).to_string() == folder).then_some(day)
}

/// Whether the last part of a name is one of ours.
fn is_random(digits: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digits.len() == DIGITS && digits.bytes().all(is_digit)
}

fn number_of(digits: &str) -> Option<u128> {
    let number = u128::from_str_radix(digits, 16).ok()?;
    is_random(digits).then_some(number)
}

/// Whether a file of a folder is a write that was never finished: the name of an object or a mark, `#` and a number.
pub(crate) fn is_unfinished(file: &str) -> bool {
    file.split_once('#').is_some_and(|(name, number)| {
        is_random(name.strip_suffix(KEPT).unwrap_or(name))
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_names_are_valid() {
        let now = DateTime::from_timestamp(1_795_000_000, 0).unwrap();
        let name = new(now).unwrap();
        assert!(name.starts_with("2026-11-18/") && is_valid(&name), "{name}");
        assert_ne!(new(now).unwrap(), name);
    }

    #[test]
    fn other_names_are_not() {
        let digits = "0123456789abcdef0123456789abcdef";
        assert!(is_valid(&format!("2026-11-18/{digits}")));
        for bad in [
            digits.to_owned(),
            format!("../{digits}"),
            format!("2026-11-18/../{digits}"),
            format!("2026-11-31/{digits}"),
            format!("2026-1-8/{digits}"),
            format!("+2026-11-18/{digits}"),
            format!(" 2026-11-18/{digits}"),
            format!("2026-11-18/{}", digits.to_uppercase()),
            format!("2026-11-18/{digits}0"),
            format!("2026-11-18//{digits}"),
            format!("2026-11-18/{}", "é".repeat(16)),
        ] {
            assert!(!is_valid(&bad), "{bad}");
        }
        assert!(is_unfinished(&format!("{digits}#1")) && !is_unfinished(digits));
        assert!(!is_unfinished("other#1"));
        assert!(is_unfinished(&format!("{}#1", mark_of(digits))));
        assert!(!is_random(&mark_of(digits)) && !is_unfinished(&mark_of(digits)));
    }

    #[test]
    fn a_file_of_a_day_is_an_object_or_a_mark() {
        let digits = "00023456789abcdef0123456789abcdf";
        let name = format!("2026-11-18/{digits}");
        let Some(File::Object(number)) = file_of(digits) else {
            panic!("{:?}", file_of(digits));
        };
        assert_eq!(in_day("2026-11-18", number), name);
        assert_eq!(file_of(&mark_of(digits)), Some(File::Mark(number)));
        for other in [
            format!("{digits}0"),
            format!("+{}", &digits[1..]),
            digits.to_uppercase(),
            format!("{digits}#1"),
            mark_of("readme"),
            mark_of(&mark_of(digits)),
        ] {
            assert_eq!(file_of(&other), None, "{other}");
        }
    }
}
