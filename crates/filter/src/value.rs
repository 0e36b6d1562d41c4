//! Values of properties, with the types that AMQP gives them.

use crate::decimal::Decimal;

/// A value of a message, as it is read from it: texts and bytes are borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// `null`. A property with this value exists.
    Null,
    /// `boolean`.
    Boolean(bool),
    /// `byte`.
    Byte(i8),
    /// `short`.
    Short(i16),
    /// `int`.
    Int(i32),
    /// `long`. Integers in an expression have this type.
    Long(i64),
    /// `ubyte`.
    Ubyte(u8),
    /// `ushort`.
    Ushort(u16),
    /// `uint`.
    Uint(u32),
    /// `ulong`.
    Ulong(u64),
    /// `float`.
    Float(f32),
    /// `double`. Numbers with a point or an exponent have this type in an expression.
    Double(f64),
    /// `decimal32`, `decimal64` and `decimal128`.
    Decimal(Decimal),
    /// `char`. It counts as a text of one character.
    Char(char),
    /// `timestamp`: milliseconds since 1970-01-01 UTC.
    Timestamp(i64),
    /// A span of time in ticks of 100 ns, as .NET sends it (`com.microsoft:timespan`).
    Duration(i64),
    /// `uuid`, in the order of its text.
    Uuid([u8; 16]),
    /// `binary`.
    Binary(&'a [u8]),
    /// `string`.
    Text(&'a str),
    /// `symbol`. It counts as a text.
    Symbol(&'a str),
    /// A value of any other type, such as a list. It exists, and compares with nothing.
    Other,
}

impl<'a> Value<'a> {
    /// The name of its type in errors.
    pub fn type_name(self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Boolean(_) => "boolean",
            Value::Byte(_) => "byte",
            Value::Short(_) => "short",
            Value::Int(_) => "int",
            Value::Long(_) => "long",
            Value::Ubyte(_) => "ubyte",
            Value::Ushort(_) => "ushort",
            Value::Uint(_) => "uint",
            Value::Ulong(_) => "ulong",
            Value::Float(_) => "float",
            Value::Double(_) => "double",
            Value::Decimal(_) => "decimal",
            Value::Char(_) => "char",
            Value::Timestamp(_) => "timestamp",
            Value::Duration(_) => "duration",
            Value::Uuid(_) => "uuid",
            Value::Binary(_) => "binary",
            Value::Text(_) => "text",
            Value::Symbol(_) => "symbol",
            Value::Other => "a type that cannot be compared",
        }
    }

    /// The text of a string or symbol.
    pub fn as_text(self) -> Option<&'a str> {
        match self {
            Value::Text(text) | Value::Symbol(text) => Some(text),
            Value::Null
            | Value::Boolean(_)
            | Value::Byte(_)
            | Value::Short(_)
            | Value::Int(_)
            | Value::Long(_)
            | Value::Ubyte(_)
            | Value::Ushort(_)
            | Value::Uint(_)
            | Value::Ulong(_)
            | Value::Float(_)
            | Value::Double(_)
            | Value::Decimal(_)
            | Value::Char(_)
            | Value::Timestamp(_)
            | Value::Duration(_)
            | Value::Uuid(_)
            | Value::Binary(_)
            | Value::Other => None,
        }
    }

    /// A copy that borrows nothing.
    pub fn to_owned(self) -> OwnedValue {
        match self {
            Value::Text(text) => OwnedValue::Text(text.into()),
            Value::Symbol(text) => OwnedValue::Symbol(text.into()),
            Value::Binary(bytes) => OwnedValue::Binary(bytes.into()),
            Value::Null => OwnedValue::Plain(Value::Null),
            Value::Boolean(it) => OwnedValue::Plain(Value::Boolean(it)),
            Value::Byte(it) => OwnedValue::Plain(Value::Byte(it)),
            Value::Short(it) => OwnedValue::Plain(Value::Short(it)),
            Value::Int(it) => OwnedValue::Plain(Value::Int(it)),
            Value::Long(it) => OwnedValue::Plain(Value::Long(it)),
            Value::Ubyte(it) => OwnedValue::Plain(Value::Ubyte(it)),
            Value::Ushort(it) => OwnedValue::Plain(Value::Ushort(it)),
            Value::Uint(it) => OwnedValue::Plain(Value::Uint(it)),
            Value::Ulong(it) => OwnedValue::Plain(Value::Ulong(it)),
            Value::Float(it) => OwnedValue::Plain(Value::Float(it)),
            Value::Double(it) => OwnedValue::Plain(Value::Double(it)),
            Value::Decimal(it) => OwnedValue::Plain(Value::Decimal(it)),
            Value::Char(it) => OwnedValue::Plain(Value::Char(it)),
            Value::Timestamp(it) => OwnedValue::Plain(Value::Timestamp(it)),
            Value::Duration(it) => OwnedValue::Plain(Value::Duration(it)),
            Value::Uuid(it) => OwnedValue::Plain(Value::Uuid(it)),
            Value::Other => OwnedValue::Plain(Value::Other),
        }
    }
}

/// A value that borrows nothing: of a constant, a parameter or a change.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValue {
    /// A value without text or bytes.
    Plain(Value<'static>),
    /// `string`.
    Text(Box<str>),
    /// `symbol`.
    Symbol(Box<str>),
    /// `binary`.
    Binary(Box<[u8]>),
}

impl OwnedValue {
    /// The value.
    pub fn as_value(&self) -> Value<'_> {
        match self {
            OwnedValue::Plain(value) => *value,
            OwnedValue::Text(text) => Value::Text(text),
            OwnedValue::Symbol(text) => Value::Symbol(text),
            OwnedValue::Binary(bytes) => Value::Binary(bytes),
        }
    }
}
