//! Application properties as headers.
//!
//! A string has double quotes, with the escapes of JSON. Numbers, `true`, `false` and dates in the
//! form of RFC 1123 have none. Anything else is a string without its quotes.
//!
//! Source: Service Bus, REST, *Message headers and properties*.

use kew_amqp::codec::{Timestamp as WireTime, Value};
use kew_engine::Timestamp;

use super::super::answers::times;

/// The value of a header.
pub(in super::super) fn read(text: &str) -> Value {
    let text = text.trim();
    if let Ok(text) = serde_json::from_str::<String>(text) {
        return Value::String(text.into());
    }
    match text {
        "true" => return Value::Boolean(true),
        "false" => return Value::Boolean(false),
        _ => {}
    }
    if let Some(number) = read_number(text) {
        return number;
    }
    if let Ok(at) = httpdate::parse_http_date(text) {
        let since = at.duration_since(std::time::SystemTime::UNIX_EPOCH);
        let ms = since.unwrap_or_default().as_millis();
        return Value::Timestamp(WireTime(i64::try_from(ms).unwrap_or(i64::MAX)));
    }
    Value::String(text.into())
}

/// A number as in JSON, in the smallest type that can hold it.
fn read_number(text: &str) -> Option<Value> {
    let number: serde_json::Number = serde_json::from_str(text).ok()?;
    of_number(&number)
}

/// A number of JSON.
pub(super) fn of_number(number: &serde_json::Number) -> Option<Value> {
    if let Some(whole) = number.as_i64() {
        return Some(i32::try_from(whole).map_or(Value::Long(whole), Value::Int));
    }
    match number.as_u64() {
        Some(whole) => Some(Value::Ulong(whole)),
        None => number.as_f64().map(Value::Double),
    }
}

/// A value as a header, if a header can express it. It is ASCII and has no control characters.
pub(super) fn write(value: &Value) -> Option<String> {
    if let Some(whole) = value.as_integer() {
        return Some(whole.to_string());
    }
    Some(match value {
        Value::Boolean(flag) => flag.to_string(),
        Value::Ulong(whole) => whole.to_string(),
        Value::Float(number) if number.is_finite() => number.to_string(),
        Value::Double(number) if number.is_finite() => number.to_string(),
        Value::Char(char) => quoted(&char.to_string()),
        Value::String(text) => quoted(text.as_str()),
        Value::Symbol(text) => quoted(text.as_str()),
        Value::Uuid(uuid) => quoted(&uuid.text()),
        Value::Timestamp(at) => {
            times::rfc1123(Timestamp::from_ms(u64::try_from(at.0).unwrap_or_default()))
        }
        _ => return None,
    })
}

/// A string in quotes, escaped as in JSON, with all characters that are not ASCII escaped too.
fn quoted(text: &str) -> String {
    ascii_json(&serde_json::Value::from(text).to_string())
}

/// JSON that a header can hold: characters that are not ASCII occur only within strings, where they
/// can be escaped.
pub(super) fn ascii_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for char in json.chars() {
        if char.is_ascii() && !char.is_ascii_control() {
            out.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

/// The bytes of a UUID in text form.
pub(super) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|char| *char != '-').collect();
    if digits.len() != 32 || text.len() > 36 {
        return None;
    }
    u128::from_str_radix(&digits, 16)
        .ok()
        .map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_a_round_trip() {
        for (text, value) in [
            ("\"High\"", Value::String("High".into())),
            ("\"12\"", Value::String("12".into())),
            ("12", Value::Int(12)),
            ("-5000000000", Value::Long(-5_000_000_000)),
            ("1.5", Value::Double(1.5)),
            ("true", Value::Boolean(true)),
            (
                "\"a \\\"b\\\" \\u00e4\\ud83d\\ude00\\n\"",
                Value::String("a \"b\" ä😀\n".into()),
            ),
            (
                "Sun, 06 Nov 1994 08:49:37 GMT",
                Value::Timestamp(WireTime(784_111_777_000)),
            ),
        ] {
            assert_eq!(read(text), value, "{text}");
            assert_eq!(write(&value).as_deref(), Some(text));
        }
        assert_eq!(read(" High "), Value::String("High".into()));
        assert_eq!(read("\"open"), Value::String("\"open".into()));
        assert_eq!(write(&Value::Null), None);
        assert_eq!(write(&Value::Double(f64::NAN)), None);
    }

    #[test]
    fn uuids_are_read_and_written() {
        let text = "00010203-0405-0607-0809-0a0b0c0d0eff";
        assert_eq!(
            kew_amqp::codec::Uuid(parse_uuid(text).unwrap()).text(),
            text
        );
        for wrong in [
            "",
            "x",
            "00010203-0405-0607-0809-0a0b0c0d0e",
            "+0010203-0405-0607-0809-0a0b0c0d0eff0",
        ] {
            assert_eq!(parse_uuid(wrong), None, "{wrong}");
        }
    }
}
