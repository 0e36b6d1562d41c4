//! The fields in the body of a request.

use bytes::Bytes;
use kew_amqp::codec::{Map, Value};
use kew_amqp::error::Error;
use kew_engine::bus::ITEMS_MAX;
use kew_engine::{SequenceNumber, Timestamp, Token};

use crate::ground::refusal::bus_condition;
use crate::messages::outbound::token;

/// An error that names the field.
pub(super) fn wrong(field: &str, allowed: &str) -> Error {
    let text = format!("the field '{field}' of the request must be {allowed}");
    Error::new(bus_condition::ARGUMENT_ERROR, text)
}

pub(super) use crate::messages::request::present as value;

pub(super) fn text(body: &Map, field: &str) -> Result<Option<Box<str>>, Error> {
    match value(body, field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str().into())),
        Some(_) => Err(wrong(field, "a string")),
    }
}

/// A whole number that is not negative.
pub(super) fn number(body: &Map, field: &str) -> Result<u64, Error> {
    let number = value(body, field).and_then(|value| value.as_integer());
    let number = number.and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| wrong(field, "a whole number that is not negative"))
}

/// The same, capped at the largest count.
pub(super) fn count(body: &Map, field: &str) -> Result<u32, Error> {
    number(body, field).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

pub(super) fn time(body: &Map, field: &str) -> Result<Timestamp, Error> {
    match value(body, field) {
        Some(Value::Timestamp(at)) => {
            Ok(Timestamp::from_ms(u64::try_from(at.0).unwrap_or_default()))
        }
        _ => Err(wrong(field, "a timestamp")),
    }
}

pub(super) fn binary(value: Value, field: &str) -> Result<Bytes, Error> {
    match value {
        Value::Binary(bytes) => Ok(bytes),
        _ => Err(wrong(field, "a binary")),
    }
}

/// The elements of an array or list, or a single value.
pub(super) fn elements(body: &Map, field: &str) -> Result<Vec<Value>, Error> {
    let elements: Vec<Value> = match value(body, field) {
        Some(Value::Array(array)) => array.iter().take(ITEMS_MAX + 1).collect(),
        Some(Value::List(list)) => list
            .iter()
            .take(ITEMS_MAX + 1)
            .map(|raw| raw.value())
            .collect(),
        Some(_) | None => return Err(wrong(field, "an array")),
    };
    if elements.is_empty() || elements.len() > ITEMS_MAX {
        return Err(wrong(
            field,
            &format!("an array of 1 to {ITEMS_MAX} elements"),
        ));
    }
    Ok(elements)
}

pub(super) fn tokens(body: &Map, field: &str) -> Result<Vec<Token>, Error> {
    let tokens = elements(body, field)?
        .into_iter()
        .map(|element| match element {
            Value::Uuid(uuid) => Ok(token(uuid)),
            _ => Err(wrong(field, "an array of UUIDs")),
        });
    tokens.collect()
}

pub(super) fn sequence_numbers(body: &Map, field: &str) -> Result<Vec<SequenceNumber>, Error> {
    let numbers = elements(body, field)?.into_iter().map(|element| {
        let number = element
            .as_integer()
            .and_then(|number| u64::try_from(number).ok());
        let number = number.map(SequenceNumber::named);
        number.ok_or_else(|| wrong(field, "an array of sequence numbers"))
    });
    numbers.collect()
}
