//! Values of AMQP as JSON, with their types.
//!
//! Texts, booleans and null are those of JSON. Any other value is an object with one member, whose name is its type:
//! `{"long": 7}`. Every value is read again as it was written, to the last bit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map, Raw, Symbol, Timestamp, Value, write_list};
use kew_client::uuid_of;
use serde_json::{Value as Json, json};

/// The largest number that every reader of JSON keeps. A larger one is written as a text.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// A value with its type.
pub(super) fn write(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Boolean(flag) => json!(flag),
        Value::String(text) => json!(text.as_str()),
        Value::Ubyte(number) => json!({"ubyte": number}),
        Value::Ushort(number) => json!({"ushort": number}),
        Value::Uint(number) => json!({"uint": number}),
        Value::Ulong(number) => json!({"ulong": whole(i128::from(*number))}),
        Value::Byte(number) => json!({"byte": number}),
        Value::Short(number) => json!({"short": number}),
        Value::Int(number) => json!({"int": number}),
        Value::Long(number) => json!({"long": whole(i128::from(*number))}),
        Value::Float(number) => {
            let bits = format!("0x{:08x}", number.to_bits());
            json!({"float": decimal(f64::from(*number), bits)})
        }
        Value::Double(number) => {
            let bits = format!("0x{:016x}", number.to_bits());
            json!({"double": decimal(*number, bits)})
        }
        Value::Decimal32(bytes) => json!({"decimal32": STANDARD.encode(bytes)}),
        Value::Decimal64(bytes) => json!({"decimal64": STANDARD.encode(bytes)}),
        Value::Decimal128(bytes) => json!({"decimal128": STANDARD.encode(bytes)}),
        Value::Char(char) => json!({"char": char}),
        Value::Timestamp(at) => json!({"timestamp_ms": whole(i128::from(at.0))}),
        Value::Uuid(uuid) => json!({"uuid": uuid.text()}),
        Value::Binary(bytes) => json!({"binary": STANDARD.encode(bytes)}),
        Value::Symbol(text) => json!({"symbol": text.as_str()}),
        Value::List(list) => {
            let items: Vec<Json> = list.iter().map(|item| write(&item.value())).collect();
            json!({"list": items})
        }
        Value::Map(map) => {
            let pairs = map.iter();
            let pairs: Vec<[Json; 2]> = pairs
                .map(|(key, value)| [write(&key.value()), write(&value.value())])
                .collect();
            json!({"map": pairs})
        }
        // They have types of types: their encoding is simpler than any form in JSON.
        Value::Array(_) | Value::Described(_) => {
            json!({"amqp": STANDARD.encode(Raw::of(value).as_bytes())})
        }
    }
}

fn whole(number: i128) -> Json {
    match (
        i64::try_from(number),
        number.unsigned_abs() <= u128::from(EXACT_MAX),
    ) {
        (Ok(number), true) => json!(number),
        _ => json!(number.to_string()),
    }
}

/// A number, or its bits if a number of JSON would not be read as the same.
fn decimal(number: f64, bits: String) -> Json {
    let is_exact = |text: &String| {
        let read: Result<f64, _> = serde_json::from_str(text);
        read.is_ok_and(|read| read.to_bits() == number.to_bits())
    };
    let written = serde_json::Number::from_f64(number);
    match written.filter(|it| is_exact(&it.to_string())) {
        Some(number) => number.into(),
        None => bits.into(),
    }
}

/// Reads a value, or says what is wrong with it.
pub(super) fn read(json: &Json) -> Result<Value, String> {
    match json {
        Json::Null => Ok(Value::Null),
        Json::Bool(flag) => Ok(Value::Boolean(*flag)),
        Json::String(text) => Ok(Value::String(text.as_str().into())),
        Json::Number(number) => Err(format!(
            "the number {number} has no type: write {{\"long\": {number}}} or {{\"double\": {number}}}"
        )),
        Json::Array(_) => Err("a list is written as {\"list\": [...]}".into()),
        Json::Object(members) => {
            let mut members = members.iter();
            match (members.next(), members.next()) {
                (Some((kind, content)), None) => read_typed(kind, content)
                    .ok_or_else(|| format!("{content} is not a value of the type {kind:?}"))?,
                _ => Err("a value is an object with one member, the type".into()),
            }
        }
    }
}

/// `None`: the content does not fit the type.
fn read_typed(kind: &str, content: &Json) -> Option<Result<Value, String>> {
    let text = content.as_str();
    let value = match kind {
        "ubyte" => Value::Ubyte(integer(content)?),
        "ushort" => Value::Ushort(integer(content)?),
        "uint" => Value::Uint(integer(content)?),
        "ulong" => Value::Ulong(integer(content)?),
        "byte" => Value::Byte(integer(content)?),
        "short" => Value::Short(integer(content)?),
        "int" => Value::Int(integer(content)?),
        "long" => Value::Long(integer(content)?),
        "float" => Value::Float(float(content)?),
        "double" => Value::Double(double(content)?),
        "decimal32" => Value::Decimal32(fixed(text?)?),
        "decimal64" => Value::Decimal64(fixed(text?)?),
        "decimal128" => Value::Decimal128(fixed(text?)?),
        "char" => Value::Char(only_char(text?)?),
        "timestamp_ms" => Value::Timestamp(Timestamp(integer(content)?)),
        "uuid" => Value::Uuid(uuid_of(text?)?),
        "binary" => Value::Binary(STANDARD.decode(text?).ok()?.into()),
        "symbol" => Value::Symbol(Symbol::new(text?).ok()?),
        "list" => return Some(list(content.as_array()?)),
        "map" => return map(content.as_array()?),
        "amqp" => Raw::new(Bytes::from(STANDARD.decode(text?).ok()?))
            .ok()?
            .value(),
        _ => return Some(Err(format!("{kind:?} is not a type of AMQP"))),
    };
    Some(Ok(value))
}

fn integer<T: TryFrom<i128>>(content: &Json) -> Option<T> {
    let number: i128 = match content {
        Json::String(text) => text.parse().ok()?,
        content => match (content.as_i64(), content.as_u64()) {
            (Some(number), _) => number.into(),
            (None, number) => number?.into(),
        },
    };
    T::try_from(number).ok()
}

fn double(content: &Json) -> Option<f64> {
    match content {
        Json::String(text) => {
            let bits = text.strip_prefix("0x").filter(|bits| bits.len() == 16)?;
            u64::from_str_radix(bits, 16).ok().map(f64::from_bits)
        }
        content => content.as_f64(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a number is refused if it is not one of this type"
)]
fn float(content: &Json) -> Option<f32> {
    match content {
        Json::String(text) => {
            let bits = text.strip_prefix("0x").filter(|bits| bits.len() == 8)?;
            u32::from_str_radix(bits, 16).ok().map(f32::from_bits)
        }
        content => {
            let number = content.as_f64()?;
            let narrow = number as f32;
            (f64::from(narrow).to_bits() == number.to_bits()).then_some(narrow)
        }
    }
}

fn fixed<const SIZE: usize>(text: &str) -> Option<[u8; SIZE]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

fn only_char(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

fn list(items: &[Json]) -> Result<Value, String> {
    let items: Vec<Value> = items.iter().map(read).collect::<Result<_, _>>()?;
    let mut out = BytesMut::new();
    write_items(&mut out, &items);
    let list = Raw::new(out.freeze()).map_err(|error| error.to_string())?;
    Ok(list.value())
}

/// A list with all its items, nulls at its end too.
pub(super) fn write_items(out: &mut BytesMut, items: &[Value]) {
    write_list(out, |list| {
        for item in items {
            list.with(|out| item.encode(out));
        }
    });
}

fn map(pairs: &[Json]) -> Option<Result<Value, String>> {
    let mut read_pairs = Vec::new();
    for pair in pairs {
        let [key, value] = pair.as_array()?.as_slice() else {
            return None;
        };
        match (read(key), read(value)) {
            (Ok(key), Ok(value)) => read_pairs.push((key, value)),
            (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
        }
    }
    let map = Map::build(|map| {
        for (key, value) in &read_pairs {
            map.entry(key, value);
        }
    });
    Some(Ok(Value::Map(map)))
}

#[cfg(test)]
mod tests {
    use kew_amqp::codec::{Array, Uuid};

    use super::*;

    fn values() -> Vec<Value> {
        let list = |items: &[Value]| {
            let mut out = BytesMut::new();
            write_items(&mut out, items);
            Raw::new(out.freeze()).unwrap().value()
        };
        vec![
            Value::Null,
            Value::Boolean(true),
            Value::String("\u{0}ä\"\u{1f600}".into()),
            Value::Ubyte(u8::MAX),
            Value::Ushort(u16::MAX),
            Value::Uint(u32::MAX),
            Value::Ulong(u64::MAX),
            Value::Ulong(EXACT_MAX),
            Value::Byte(i8::MIN),
            Value::Short(i16::MIN),
            Value::Int(i32::MIN),
            Value::Long(i64::MIN),
            Value::Long(-7),
            Value::Float(0.1),
            Value::Float(f32::from_bits(0x7fc0_0001)),
            Value::Double(0.1),
            Value::Double(-0.0),
            Value::Double(f64::INFINITY),
            Value::Double(f64::from_bits(0x7ff8_0000_0000_0001)),
            Value::Decimal32([1, 2, 3, 4]),
            Value::Decimal64([1; 8]),
            Value::Decimal128([255; 16]),
            Value::Char('\u{1f600}'),
            Value::Timestamp(Timestamp(-1)),
            Value::Timestamp(Timestamp(i64::MAX)),
            Value::Uuid(Uuid([7; 16])),
            Value::Binary(Bytes::from_static(b"\x00\xff")),
            Value::Symbol(Symbol::from_static("s")),
            Value::Array(Array::longs([1, 2])),
            list(&[]),
            list(&[Value::Long(1), list(&[Value::Null]), Value::Null]),
            Value::Map(Map::build(|map| {
                map.entry(&Value::Symbol(Symbol::from_static("k")), &Value::Int(1));
                map.entry(&Value::Long(1), &list(&[Value::Boolean(false)]));
            })),
        ]
    }

    #[test]
    fn every_type_is_read_as_it_was_written() {
        for value in values() {
            let text = write(&value).to_string();
            let read = read(&serde_json::from_str(&text).unwrap()).unwrap();
            assert_eq!(Raw::of(&read), Raw::of(&value), "{text}");
        }
    }

    #[test]
    fn any_number_keeps_its_bits() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            bits = bits.rotate_left(7).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ 1;
            for value in [
                Value::Double(f64::from_bits(bits)),
                Value::Float(f32::from_bits((bits >> 32) as u32)),
            ] {
                let text = write(&value).to_string();
                let read = read(&serde_json::from_str(&text).unwrap()).unwrap();
                assert_eq!(Raw::of(&read), Raw::of(&value), "{text}");
            }
        }
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        for (text, named) in [
            ("7", "{\"long\": 7}"),
            ("[]", "{\"list\""),
            ("{}", "one member"),
            (r#"{"long": 1, "int": 1}"#, "one member"),
            (r#"{"ubyte": 256}"#, "ubyte"),
            (r#"{"int": "x"}"#, "int"),
            (r#"{"float": 0.1}"#, "float"),
            (r#"{"double": "0x1"}"#, "double"),
            (r#"{"char": "ab"}"#, "char"),
            (r#"{"uuid": "x"}"#, "uuid"),
            (r#"{"binary": "?"}"#, "binary"),
            (r#"{"decimal32": "AA=="}"#, "decimal32"),
            (r#"{"symbol": "é"}"#, "symbol"),
            (r#"{"map": [["k"]]}"#, "map"),
            (r#"{"amqp": "AA=="}"#, "amqp"),
            (r#"{"number": 1}"#, "not a type"),
            (r#"{"list": [7]}"#, "no type"),
        ] {
            let error = read(&serde_json::from_str(text).unwrap()).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
