//! Parameters of the query that several operations have, with their bounds.

use std::ops::RangeInclusive;
use std::time::Duration;

use kew_engine::{Token, VisibilityTimeout};

use crate::error::{Error, REASON_POP_RECEIPT};
use crate::id::{PopReceipt, parse_pop_receipt};
use crate::query::Query;

/// The longest time that an operation may take, in seconds, and the default.
const TIMEOUT_SECONDS_MAX: u64 = 30;

/// The same as a duration.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(TIMEOUT_SECONDS_MAX);

/// A parameter that is a whole number within bounds.
///
/// Refuses with `InvalidQueryParameterValue` a text that is not a number, and with
/// `OutOfRangeQueryParameterValue` a number out of bounds.
pub(crate) fn number(
    query: &Query<'_>,
    name: &'static str,
    bounds: RangeInclusive<u32>,
) -> Result<Option<u32>, Error> {
    let Some(text) = query.value(name) else {
        return Ok(None);
    };
    if !is_integer(&text) {
        return Err(Error::invalid_query(name, text, REASON_INTEGER));
    }
    // A number that does not fit the type is out of bounds too.
    match text.parse().ok().filter(|value| bounds.contains(value)) {
        Some(value) => Ok(Some(value)),
        None => Err(Error::OutOfRangeQueryParameterValue {
            name,
            value: text.into(),
            minimum: (*bounds.start()).into(),
            maximum: (*bounds.end()).into(),
        }),
    }
}

/// The reason for refusing a text that is not a number.
pub(crate) const REASON_INTEGER: &str = "The value is not an integer.";

/// Whether it is a decimal integer of any size, with or without a sign.
pub(crate) fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// `numofmessages` of Get Messages and Peek Messages: 1 to 32, default 1.
pub(crate) fn message_count(query: &Query<'_>) -> Result<u32, Error> {
    Ok(number(query, "numofmessages", 1..=32)?.unwrap_or(1))
}

/// `visibilitytimeout`, in seconds.
pub(crate) fn visibility_timeout(
    query: &Query<'_>,
    bounds: RangeInclusive<u32>,
) -> Result<Option<VisibilityTimeout>, Error> {
    let Some(seconds) = number(query, "visibilitytimeout", bounds)? else {
        return Ok(None);
    };
    VisibilityTimeout::from_seconds(seconds)
        .map(Some)
        .map_err(|error| Error::OutOfRangeQueryParameterValue {
            name: "visibilitytimeout",
            value: error.seconds.to_string().into(),
            minimum: 0,
            maximum: VisibilityTimeout::SECONDS_MAX.into(),
        })
}

/// `popreceipt`, which Update Message and Delete Message need: the receipt, or why it is valid for
/// no message. That error is reported only after it is certain that the queue exists.
pub(crate) fn pop_receipt(query: &Query<'_>) -> Result<Result<Token, Error>, Error> {
    let Some(text) = query.value("popreceipt") else {
        return Err(Error::MissingRequiredQueryParameter { name: "popreceipt" });
    };
    Ok(match parse_pop_receipt(&text) {
        PopReceipt::Own(receipt) => Ok(receipt),
        PopReceipt::Foreign => Err(Error::MessageNotFound),
        PopReceipt::Malformed => Err(Error::invalid_query("popreceipt", text, REASON_POP_RECEIPT)),
    })
}

/// `timeout`, in seconds: how long the operation may take. Values above 30, and 0, count as 30.
///
/// Source: *Setting timeouts for Queue Storage operations*.
pub(crate) fn timeout(query: &Query<'_>) -> Result<Duration, Error> {
    let seconds = match query.value("timeout") {
        None => TIMEOUT_SECONDS_MAX,
        Some(text) if is_integer(&text) && !text.starts_with('-') => match text.parse() {
            Ok(seconds @ 1..=TIMEOUT_SECONDS_MAX) => seconds,
            Ok(_) | Err(_) => TIMEOUT_SECONDS_MAX,
        },
        Some(text) => {
            return Err(Error::invalid_query(
                "timeout",
                text,
                "The value is not a number of seconds.",
            ));
        }
    };
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
        match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => error.wire().code.to_owned(),
        }
    }

    fn check_count(query: &str, expected: &str) {
        let query = Query::parse(Some(query)).unwrap();
        assert_eq!(outcome(message_count(&query)), expected, "{query:?}");
    }

    #[test]
    fn message_counts() {
        check_count("", "1");
        check_count("numofmessages=1", "1");
        check_count("NumOfMessages=32", "32");
        for number in ["0", "33", "-1", "100", "99999999999999999999", "-0"] {
            check_count(
                &format!("numofmessages={number}"),
                "OutOfRangeQueryParameterValue",
            );
        }
        for text in ["", "a", "1.0", "%2B1", "0x1", "-", "1%20"] {
            check_count(
                &format!("numofmessages={text}"),
                "InvalidQueryParameterValue",
            );
        }
    }

    #[test]
    fn timeouts() {
        for (query, expected) in [
            ("", "30s"),
            ("timeout=0", "30s"),
            ("timeout=1", "1s"),
            ("timeout=30", "30s"),
            ("timeout=31", "30s"),
            ("timeout=99999999999999999999999", "30s"),
            ("timeout=-1", "InvalidQueryParameterValue"),
            ("timeout=", "InvalidQueryParameterValue"),
            ("timeout=soon", "InvalidQueryParameterValue"),
        ] {
            assert_eq!(
                outcome(timeout(&Query::parse(Some(query)).unwrap())),
                expected,
                "{query}"
            );
        }
    }

    #[test]
    fn receipts() {
        for (query, expected) in [
            ("", "MissingRequiredQueryParameter"),
            ("popreceipt=", "InvalidQueryParameterValue"),
            ("popreceipt=invalid", "InvalidQueryParameterValue"),
            ("popreceipt=abcd", "MessageNotFound"),
            ("popreceipt=AgAAAAMAAAAAAAAAzpYJ2yQg1QE=", "MessageNotFound"),
        ] {
            let query = Query::parse(Some(query)).unwrap();
            assert_eq!(outcome(pop_receipt(&query).flatten()), expected);
        }
        let query = Query::parse(Some("popreceipt=%2B%2B%2b%2b+++++++++++++++++A==")).unwrap();
        assert!(pop_receipt(&query).flatten().is_ok());
    }
}
