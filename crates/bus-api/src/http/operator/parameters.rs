//! Parameters of an operator's request, and answers in JSON.

use std::ops::RangeInclusive;

use hyper::StatusCode;
use kew_engine::SequenceNumber;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::answers::{Answer, HttpError, JSON, with_body};
use super::super::call::Call;

/// The body of a request; an empty one has no fields.
pub(super) fn body_of<T: DeserializeOwned + Default>(call: &Call) -> Result<T, HttpError> {
    if call.body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&call.body)
        .map_err(|error| HttpError::bad_request(format!("the body is not valid: {error}")))
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Result<Answer, HttpError> {
    let body = serde_json::to_vec(value).map_err(|_| HttpError::internal())?;
    Ok(with_body(status, JSON, body))
}

/// The parameter `number`.
pub(super) fn number_of(call: &Call) -> Result<SequenceNumber, HttpError> {
    let number = call
        .head
        .parameter("number")
        .and_then(|text| text.parse().ok());
    number
        .map(SequenceNumber::named)
        .ok_or_else(|| HttpError::bad_request("number must be a sequence number"))
}

pub(super) fn optional_number(
    call: &Call,
    name: &str,
    default: u64,
    range: RangeInclusive<u64>,
) -> Result<u64, HttpError> {
    let Some(text) = call.head.parameter(name) else {
        return Ok(default);
    };
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (first, last) = (range.start(), range.end());
        HttpError::bad_request(format!("{name} must be a number from {first} to {last}"))
    })
}

pub(super) fn flag(call: &Call, name: &str, default: bool) -> Result<bool, HttpError> {
    match call.head.parameter(name) {
        None => Ok(default),
        Some("true" | "1") => Ok(true),
        Some("false" | "0") => Ok(false),
        Some(_) => Err(HttpError::bad_request(format!(
            "{name} must be true or false"
        ))),
    }
}
