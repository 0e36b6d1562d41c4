//! A decoded message, and how the files of cases write one.

use std::collections::BTreeMap;

use kew_filter::{Decimal, Message, OwnedValue, SystemProperty, Value, same_name};

#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) user: Vec<(String, OwnedValue)>,
    pub(crate) system: BTreeMap<SystemProperty, OwnedValue>,
}

impl Message for Sample {
    fn user(&self, name: &str) -> Option<Value<'_>> {
        let exact = self.user.iter().find(|(it, _)| it == name);
        let found = exact.or_else(|| self.user.iter().find(|(it, _)| same_name(it, name)));
        found.map(|(_, value)| value.as_value())
    }

    fn system(&self, property: SystemProperty) -> Value<'_> {
        self.system
            .get(&property)
            .map_or(Value::Null, OwnedValue::as_value)
    }

    fn visit_user(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (name, value) in &self.user {
            visit(name, value.as_value());
        }
    }
}

impl Sample {
    /// Reads `color='red', size=int 5, sys.Label='a'`.
    pub(crate) fn read(text: &str) -> Self {
        let mut sample = Sample::default();
        for part in parts(text) {
            let (name, value) = part.split_once('=').unwrap_or_else(|| panic!("{part}"));
            let value = value_of(value.trim());
            match name.trim().strip_prefix("sys.") {
                Some(name) => {
                    let property = SystemProperty::named(name).expect(name);
                    sample.system.insert(property, value);
                }
                None => sample.user.push((name.trim().to_owned(), value)),
            }
        }
        sample
    }
}

/// What stands between the commas that are not in a text.
pub(crate) fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_inside = false;
    for next in text.chars() {
        is_inside ^= next == '\'';
        match next {
            ',' if !is_inside => parts.push(String::new()),
            _ => parts.last_mut().expect("one at least").push(next),
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Reads `'text'`, `true`, `null` or a type with a value, such as `int 5`.
pub(crate) fn value_of(text: &str) -> OwnedValue {
    let inside = |text: &str| {
        let text = text.strip_prefix('\'').and_then(|it| it.strip_suffix('\''));
        text.expect("a text in quotation marks").replace("''", "'")
    };
    if text.starts_with('\'') {
        return OwnedValue::Text(inside(text).into());
    }
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    OwnedValue::Plain(match kind {
        "null" => Value::Null,
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        "byte" => Value::Byte(rest.parse().unwrap()),
        "short" => Value::Short(rest.parse().unwrap()),
        "int" => Value::Int(rest.parse().unwrap()),
        "long" => Value::Long(rest.parse().unwrap()),
        "ubyte" => Value::Ubyte(rest.parse().unwrap()),
        "ushort" => Value::Ushort(rest.parse().unwrap()),
        "uint" => Value::Uint(rest.parse().unwrap()),
        "ulong" => Value::Ulong(rest.parse().unwrap()),
        "float" => Value::Float(rest.parse().unwrap()),
        "double" => Value::Double(rest.parse().unwrap()),
        "decimal" => Value::Decimal(decimal_of(rest)),
        "timestamp" => Value::Timestamp(rest.parse().unwrap()),
        "duration" => Value::Duration(rest.parse().unwrap()),
        "uuid" => Value::Uuid([rest.parse().unwrap(); 16]),
        "char" => Value::Char(inside(rest).chars().next().unwrap()),
        "symbol" => return OwnedValue::Symbol(inside(rest).into()),
        "binary" => return OwnedValue::Binary(inside(rest).as_bytes().into()),
        "list" => Value::Other,
        other => panic!("no type {other:?}"),
    })
}

fn decimal_of(text: &str) -> Decimal {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{}{fraction}", whole.trim_start_matches('-'));
    let exponent = -i16::try_from(fraction.len()).unwrap();
    Decimal::new(text.starts_with('-'), digits.parse().unwrap(), exponent).unwrap()
}

/// How a file of cases writes a value.
pub(crate) fn shown(value: Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Boolean(it) => it.to_string(),
        Value::Text(text) => format!("'{text}'"),
        Value::Symbol(text) => format!("symbol '{text}'"),
        Value::Char(it) => format!("char '{it}'"),
        Value::Byte(it) => format!("byte {it}"),
        Value::Short(it) => format!("short {it}"),
        Value::Int(it) => format!("int {it}"),
        Value::Long(it) => format!("long {it}"),
        Value::Ubyte(it) => format!("ubyte {it}"),
        Value::Ushort(it) => format!("ushort {it}"),
        Value::Uint(it) => format!("uint {it}"),
        Value::Ulong(it) => format!("ulong {it}"),
        Value::Float(it) => format!("float {it}"),
        Value::Double(it) => format!("double {it}"),
        Value::Decimal(it) => format!("decimal {it}"),
        Value::Timestamp(it) => format!("timestamp {it}"),
        Value::Duration(it) => format!("duration {it}"),
        Value::Uuid(it) => format!("uuid {}", it[0]),
        Value::Binary(it) => format!("binary '{}'", String::from_utf8_lossy(it)),
        Value::Other => "list".to_owned(),
    }
}

/// The ids of an evaluation: the first one consists of bytes 1.
pub(crate) fn ids(nth: u32) -> [u8; 16] {
    [u8::try_from(nth + 1).unwrap(); 16]
}
