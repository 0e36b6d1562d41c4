//! The values of rules: as `kew-client` sends them over ATOM, and as `kew-filter` compares them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_client::{FilterValue, Uuid};
use kew_filter::{Decimal, OwnedValue, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::portable::{shown, value_of_rule};

/// The type of values that no other type keeps as they are.
const XML: &str = "xml";

/// A value as XML Schema has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct XmlValue {
    #[serde(rename = "type")]
    kind: String,
    text: String,
}

/// A value of the service as JSON that [`of_json`] reads as the same.
pub(super) fn json_of(value: &FilterValue) -> Json {
    let typed = of_service(value).map(|value| shown(value.as_value()));
    let is_exact = |json: &Json| of_json(json).is_ok_and(|read| read == *value);
    match (typed.filter(is_exact), value.kind_and_text()) {
        (Some(json), _) => json,
        (None, Some((kind, text))) => {
            let kind = kind.to_owned();
            json!({XML: XmlValue { kind, text }})
        }
        (None, None) => Json::Null,
    }
}

/// Reads a value of a rule, or says what is wrong with it.
pub(super) fn of_json(json: &Json) -> Result<FilterValue, String> {
    let Some(value) = json.get(XML) else {
        return of_command_line(&value_of_rule(json)?);
    };
    let value: Result<XmlValue, _> = serde_json::from_value(value.clone());
    let XmlValue { kind, text } = value.map_err(|error| format!("{XML}: {error}"))?;
    Ok(FilterValue::Other { kind, text })
}

/// A value of the command line for the service. The error says why it has none.
pub(super) fn of_command_line(value: &OwnedValue) -> Result<FilterValue, String> {
    let other = |kind: &str, text: String| FilterValue::Other {
        kind: kind.to_owned(),
        text,
    };
    Ok(match value.as_value() {
        Value::Boolean(it) => FilterValue::Boolean(it),
        Value::Byte(it) => other("byte", it.to_string()),
        Value::Short(it) => other("short", it.to_string()),
        Value::Int(it) => FilterValue::Int(it),
        Value::Long(it) => FilterValue::Long(it),
        Value::Ubyte(it) => other("unsignedByte", it.to_string()),
        Value::Ushort(it) => other("unsignedShort", it.to_string()),
        Value::Uint(it) => other("unsignedInt", it.to_string()),
        Value::Ulong(it) => other("unsignedLong", it.to_string()),
        Value::Float(it) => other("float", it.to_string()),
        Value::Double(it) => FilterValue::Double(it),
        Value::Timestamp(ms) => FilterValue::Time(time_of(ms)),
        Value::Duration(ticks) => FilterValue::Span(ticks),
        Value::Uuid(id) => FilterValue::Uuid(Uuid(id)),
        Value::Binary(bytes) => other("base64Binary", STANDARD.encode(bytes)),
        Value::Text(text) | Value::Symbol(text) => FilterValue::Text(text.to_owned()),
        Value::Null => FilterValue::Null,
        Value::Char(it) => other("char", u32::from(it).to_string()),
        value @ (Value::Decimal(_) | Value::Other) => {
            return Err(format!(
                "a rule cannot have a value of type {}",
                value.type_name()
            ));
        }
    })
}

/// A value of the service as a filter compares it. `None`: it has no such type.
pub(super) fn of_service(value: &FilterValue) -> Option<OwnedValue> {
    let plain = |value: Value<'static>| Some(OwnedValue::Plain(value));
    match value {
        FilterValue::Null => plain(Value::Null),
        FilterValue::Text(text) => Some(OwnedValue::Text(text.as_str().into())),
        FilterValue::Boolean(it) => plain(Value::Boolean(*it)),
        FilterValue::Int(it) => plain(Value::Int(*it)),
        FilterValue::Long(it) => plain(Value::Long(*it)),
        FilterValue::Double(it) => plain(Value::Double(*it)),
        FilterValue::Time(time) => plain(Value::Timestamp(ms_of(*time))),
        FilterValue::Span(ticks) => plain(Value::Duration(*ticks)),
        FilterValue::Uuid(id) => plain(Value::Uuid(id.0)),
        FilterValue::Other { kind, text } => of_other(kind, text.trim()),
        _ => None,
    }
}

fn of_other(kind: &str, text: &str) -> Option<OwnedValue> {
    let value = match kind {
        "byte" => Value::Byte(text.parse().ok()?),
        "short" => Value::Short(text.parse().ok()?),
        "unsignedByte" => Value::Ubyte(text.parse().ok()?),
        "unsignedShort" => Value::Ushort(text.parse().ok()?),
        "unsignedInt" => Value::Uint(text.parse().ok()?),
        "unsignedLong" => Value::Ulong(text.parse().ok()?),
        "float" => Value::Float(text.parse().ok()?),
        "char" => Value::Char(char::from_u32(text.parse().ok()?)?),
        "decimal" => Value::Decimal(decimal(text)?),
        "base64Binary" => return Some(OwnedValue::Binary(STANDARD.decode(text).ok()?.into())),
        _ => return None,
    };
    Some(OwnedValue::Plain(value))
}

/// A number such as `-1.50`.
fn decimal(text: &str) -> Option<Decimal> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = format!("{whole}{fraction}");
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let coefficient = digits.parse().ok().filter(|_| is_number)?;
    let exponent = i16::try_from(fraction.len()).ok()?;
    Decimal::new(is_negative, coefficient, -exponent)
}

fn time_of(ms: i64) -> SystemTime {
    let span = Duration::from_millis(ms.unsigned_abs());
    let time = match ms < 0 {
        true => UNIX_EPOCH.checked_sub(span),
        false => UNIX_EPOCH.checked_add(span),
    };
    time.unwrap_or(UNIX_EPOCH)
}

fn ms_of(time: SystemTime) -> i64 {
    let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => ms(after),
        Err(before) => -ms(before.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_every_value_of_the_service() {
        let other = |kind: &str, text: &str| FilterValue::Other {
            kind: kind.into(),
            text: text.into(),
        };
        let time = |ms, ns| FilterValue::Time(time_of(ms) + Duration::from_nanos(ns));
        for (value, text) in [
            (FilterValue::Null, "null"),
            (FilterValue::from("a"), r#""a""#),
            (FilterValue::Boolean(true), "true"),
            (FilterValue::Int(5), r#"{"int":5}"#),
            (
                FilterValue::Long(i64::MAX),
                r#"{"long":"9223372036854775807"}"#,
            ),
            (FilterValue::Double(0.5), r#"{"double":0.5}"#),
            (FilterValue::Span(-7), r#"{"timespan_ticks":-7}"#),
            (time(1_500, 0), r#"{"timestamp_ms":1500}"#),
            (other("unsignedInt", "7"), r#"{"uint":7}"#),
            (other("char", "228"), r#"{"char":"ä"}"#),
            (other("base64Binary", "AP8="), r#"{"binary":"AP8="}"#),
            // The typed values would lose something.
            (
                other("decimal", "1.50"),
                r#"{"xml":{"text":"1.50","type":"decimal"}}"#,
            ),
            (
                other("unsignedInt", "007"),
                r#"{"xml":{"text":"007","type":"unsignedInt"}}"#,
            ),
            (
                other("anyURI", "x"),
                r#"{"xml":{"text":"x","type":"anyURI"}}"#,
            ),
        ] {
            let json = json_of(&value);
            assert_eq!(json.to_string(), text);
            assert_eq!(of_json(&json), Ok(value));
        }
        let fine = json_of(&time(1_500, 100));
        assert_eq!(fine["xml"]["text"], "1970-01-01T00:00:01.5000001Z");
        assert_eq!(fine["xml"]["type"], "dateTime");
        for (json, named) in [
            (json!(7), "has no type"),
            (json!({"color": 7}), "\"color\" is not a type"),
            (json!({"list": []}), "cannot have a value of type"),
            (json!({"xml": {"type": "int"}}), "missing field `text`"),
            (
                json!({"xml": {"type": "int", "text": "7", "more": 1}}),
                "more",
            ),
        ] {
            let error = of_json(&json).unwrap_err();
            assert!(error.contains(named), "{json}: {error}");
        }
    }

    #[test]
    fn values_come_back_from_the_service() {
        for value in [
            Value::Boolean(true),
            Value::Byte(-1),
            Value::Short(-2),
            Value::Int(-3),
            Value::Long(-4),
            Value::Ubyte(1),
            Value::Ushort(2),
            Value::Uint(3),
            Value::Ulong(4),
            Value::Float(0.5),
            Value::Double(0.25),
            Value::Timestamp(-1_500),
            Value::Timestamp(1_500),
            Value::Duration(-7),
            Value::Uuid([7; 16]),
            Value::Binary(b"ab"),
            Value::Text("text"),
            Value::Char('ä'),
            Value::Null,
        ] {
            let value = value.to_owned();
            let sent = of_command_line(&value).unwrap();
            assert_eq!(of_service(&sent), Some(value), "{sent:?}");
        }
        assert!(of_command_line(&Value::Other.to_owned()).is_err());
        let decimal = |text: &str| {
            of_service(&FilterValue::Other {
                kind: "decimal".into(),
                text: text.into(),
            })
        };
        let expected = Decimal::new(true, 150, -2).expect("it has few digits");
        let expected = OwnedValue::Plain(Value::Decimal(expected));
        assert_eq!(decimal("-1.50"), Some(expected));
        assert_eq!((decimal("+1"), decimal("1.5.0")), (None, None));
        let odd = FilterValue::Other {
            kind: "anyURI".into(),
            text: "x".into(),
        };
        assert_eq!(of_service(&odd), None);
    }
}
