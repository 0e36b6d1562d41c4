//! Numbers of all types as three kinds, and which type an operation on two of them has.

use crate::decimal::Decimal;
use crate::value::Value;

/// A number, exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Integer(i128, Integer),
    Single(f32),
    Double(f64),
    Decimal(Decimal),
}

/// The type of an integer, as C# promotes it: smaller types become `Int`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Integer {
    Int,
    Uint,
    Long,
    Ulong,
}

impl Number {
    #[inline]
    pub(crate) fn of(value: Value<'_>) -> Option<Self> {
        let integer = |value: i128, integer| Some(Number::Integer(value, integer));
        match value {
            Value::Byte(it) => integer(it.into(), Integer::Int),
            Value::Short(it) => integer(it.into(), Integer::Int),
            Value::Int(it) => integer(it.into(), Integer::Int),
            Value::Long(it) => integer(it.into(), Integer::Long),
            Value::Ubyte(it) => integer(it.into(), Integer::Int),
            Value::Ushort(it) => integer(it.into(), Integer::Int),
            Value::Uint(it) => integer(it.into(), Integer::Uint),
            Value::Ulong(it) => integer(it.into(), Integer::Ulong),
            Value::Float(it) => Some(Number::Single(it)),
            Value::Double(it) => Some(Number::Double(it)),
            Value::Decimal(it) => Some(Number::Decimal(it)),
            Value::Null
            | Value::Boolean(_)
            | Value::Char(_)
            | Value::Timestamp(_)
            | Value::Duration(_)
            | Value::Uuid(_)
            | Value::Binary(_)
            | Value::Text(_)
            | Value::Symbol(_)
            | Value::Other => None,
        }
    }

    /// The nearest double. Numbers that are equal have the same one.
    #[expect(
        clippy::cast_precision_loss,
        reason = "C# converts integers to doubles in this way"
    )]
    pub(crate) fn to_double(self) -> f64 {
        match self {
            Number::Integer(it, _) => it as f64,
            Number::Single(it) => it.into(),
            Number::Double(it) => it,
            Number::Decimal(it) => it.to_double(),
        }
    }
}

impl Integer {
    /// The type of an operation on two integers. A signed and an unsigned integer of 64 bits have none in C#: they count as
    /// the one that has room for the result.
    pub(crate) fn with(self, other: Self) -> Option<Self> {
        use Integer::{Int, Long, Uint, Ulong};
        match (self, other) {
            (Int, Int) => Some(Int),
            (Uint, Uint) => Some(Uint),
            (Ulong, Ulong | Uint) | (Uint, Ulong) => Some(Ulong),
            (Long, Int | Uint | Long) | (Int | Uint, Long) | (Int, Uint) | (Uint, Int) => {
                Some(Long)
            }
            (Ulong, Int | Long) | (Int | Long, Ulong) => None,
        }
    }

    /// The value with this type, if it has room.
    pub(crate) fn value_of(self, number: i128) -> Option<Value<'static>> {
        match self {
            Integer::Int => i32::try_from(number).ok().map(Value::Int),
            Integer::Uint => u32::try_from(number).ok().map(Value::Uint),
            Integer::Long => i64::try_from(number).ok().map(Value::Long),
            Integer::Ulong => u64::try_from(number).ok().map(Value::Ulong),
        }
    }
}
