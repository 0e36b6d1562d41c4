//! Loads by name, and recorded ones.

use std::path::Path;

use kew_scaling::simulate::Load;
use kew_scaling::{Day, TimeOfWeek};
use thiserror::Error;

/// A recorded load has at most so many seconds: a week.
const SECONDS_MAX: u32 = 7 * 24 * 3600;
/// The largest count of one second.
const ARRIVALS_MAX: u32 = 10_000_000;
const SEED: u64 = 1;

/// Why there is no such load.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error(
        "{name:?} is none of monday-morning, thursday-afternoon, burst and diurnal, and no file that can be read: {source}"
    )]
    Unreadable {
        /// What was asked for.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// A line of the file is wrong.
    #[error("{file}:{line}: {text:?} is no line of a load: {expected}")]
    Line {
        /// The file.
        file: String,
        /// The line.
        line: usize,
        /// What it has.
        text: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The file has no lines.
    #[error("{0} has no lines: write a second and the messages that arrive in it, such as 0,12")]
    Empty(String),
}

/// One of the four loads by its name, or a file with a second and the messages that arrive in it in each line, separated
/// by a comma. Seconds rise; those that are left out have none. It begins on Monday, 00:00.
///
/// # Errors
///
/// If there is neither, or a line of the file is wrong.
pub fn load(name: &str) -> Result<Load, LoadError> {
    if let Some(load) = Load::all(SEED).into_iter().find(|it| it.name == name) {
        return Ok(load);
    }
    let text =
        std::fs::read_to_string(Path::new(name)).map_err(|source| LoadError::Unreadable {
            name: name.to_owned(),
            source,
        })?;
    parse(name, &text)
}

fn parse(file: &str, text: &str) -> Result<Load, LoadError> {
    let mut arrivals: Vec<u32> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |expected| LoadError::Line {
            file: file.to_owned(),
            line: number + 1,
            text: line.to_owned(),
            expected,
        };
        if line.trim().is_empty() {
            continue;
        }
        let pair = line.split_once(',').and_then(|(second, count)| {
            Some((
                second.trim().parse::<u32>().ok()?,
                count.trim().parse::<u32>().ok()?,
            ))
        });
        let (second, count) =
            pair.ok_or_else(|| wrong("write second,arrivals as whole numbers"))?;
        if second >= SECONDS_MAX {
            return Err(wrong("the second must be below 604800, a week"));
        }
        if count > ARRIVALS_MAX {
            return Err(wrong("at most 10000000 messages can arrive in a second"));
        }
        // Both are below the bounds of a week, so they fit.
        let second = usize::try_from(second).unwrap_or(usize::MAX);
        if second < arrivals.len() {
            return Err(wrong("seconds must rise"));
        }
        arrivals.resize(second, 0);
        arrivals.push(count);
    }
    if arrivals.is_empty() {
        return Err(LoadError::Empty(file.to_owned()));
    }
    Ok(Load {
        name: file.to_owned(),
        begins: TimeOfWeek::new(Day::Monday, 0, 0),
        arrivals,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_that_are_left_out_have_no_arrivals() {
        let load = parse("x.csv", "0,3\n\n 4 , 2\n").unwrap();
        assert_eq!(load.arrivals, [3, 0, 0, 0, 2]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, expected) in [
            ("", "x.csv has no lines"),
            (
                "second,arrivals\n",
                "x.csv:1: \"second,arrivals\" is no line of a load: write second,arrivals as whole",
            ),
            ("0,1\n1;2\n", "x.csv:2: \"1;2\""),
            (
                "1,1\n1,2\n",
                "x.csv:2: \"1,2\" is no line of a load: seconds must rise",
            ),
            ("604800,1\n", "below 604800"),
            ("1,10000001\n", "at most 10000000"),
            ("1,-1\n", "x.csv:1"),
        ] {
            let error = parse("x.csv", text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let error = load("sunday").unwrap_err().to_string();
        assert!(
            error.contains("\"sunday\" is none of monday-morning"),
            "{error}"
        );
    }
}
