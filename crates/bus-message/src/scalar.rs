//! One encoded value as a rule sees it (AMQP 1.0, 1.6), and back.

use std::ops::RangeInclusive;

use bytes::Bytes;
use kew_amqp::codec::{
    DecodeError, Described, Descriptor, Raw, Symbol, Timestamp as WireTime, Uuid, Value as Amqp,
};
use kew_filter::{Decimal, Value};

/// The descriptor of a span of time in ticks, as .NET sends it.
const TIMESPAN: &str = "com.microsoft:timespan";

/// The first and the last time that SDKs can read: from the beginning of the year 1 to the end of the year 9999.
const TIMES_MS: RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// The nearest time that SDKs can read, in milliseconds since 1970-01-01 UTC.
pub(crate) fn readable_time_ms(ms: i64) -> i64 {
    ms.clamp(*TIMES_MS.start(), *TIMES_MS.end())
}

/// How long a message lives. A life that is too long for the header is the difference of two times.
///
/// Source: AMQP 1.0, 3.2.1 and 3.2.4; .NET's `ServiceBusMessage` sends both times with such a life.
pub fn time_to_live_ms(
    header_ttl_ms: Option<u32>,
    created_at_ms: Option<i64>,
    expires_at_ms: Option<i64>,
) -> Option<u64> {
    let told = header_ttl_ms.map(u64::from);
    match (header_ttl_ms, created_at_ms, expires_at_ms) {
        (Some(u32::MAX), Some(from), Some(until)) => {
            let ms = until.checked_sub(from);
            ms.and_then(|ms| u64::try_from(ms).ok()).or(told)
        }
        (_, _, _) => told,
    }
}

/// The time of expiry that says a life, beside the time of creation.
pub fn expires_at_ms(created_at_ms: i64, life_ms: u64) -> i64 {
    let life_ms = i64::try_from(life_ms).unwrap_or(i64::MAX);
    readable_time_ms(created_at_ms.saturating_add(life_ms))
}

/// The value that these bytes encode, which must be one whole value that was checked. Its text and bytes are borrowed.
/// Lists, maps, arrays and described values other than spans of time are [`Value::Other`].
pub fn value_of(encoded: &[u8]) -> Result<Value<'_>, DecodeError> {
    let decimal = |it: Option<Decimal>| it.map_or(Value::Other, Value::Decimal);
    let text = |it| std::str::from_utf8(it).map_err(|_| DecodeError::NotUtf8);
    Ok(match *encoded {
        [0x40] => Value::Null,
        [0x41] | [0x56, 1] => Value::Boolean(true),
        [0x42] | [0x56, 0] => Value::Boolean(false),
        [0x50, a] => Value::Ubyte(a),
        [0x60, a, b] => Value::Ushort(u16::from_be_bytes([a, b])),
        [0x43] => Value::Uint(0),
        [0x52, a] => Value::Uint(a.into()),
        [0x70, a, b, c, d] => Value::Uint(u32::from_be_bytes([a, b, c, d])),
        [0x44] => Value::Ulong(0),
        [0x53, a] => Value::Ulong(a.into()),
        [0x80, ref rest @ ..] => Value::Ulong(u64::from_be_bytes(fixed(rest)?)),
        [0x51, a] => Value::Byte(i8::from_be_bytes([a])),
        [0x61, a, b] => Value::Short(i16::from_be_bytes([a, b])),
        [0x54, a] => Value::Int(i8::from_be_bytes([a]).into()),
        [0x71, a, b, c, d] => Value::Int(i32::from_be_bytes([a, b, c, d])),
        [0x55, a] => Value::Long(i8::from_be_bytes([a]).into()),
        [0x81, ref rest @ ..] => Value::Long(i64::from_be_bytes(fixed(rest)?)),
        [0x72, a, b, c, d] => Value::Float(f32::from_be_bytes([a, b, c, d])),
        [0x82, ref rest @ ..] => Value::Double(f64::from_be_bytes(fixed(rest)?)),
        [0x74, ref rest @ ..] => decimal(Decimal::from_decimal32(fixed(rest)?)),
        [0x84, ref rest @ ..] => decimal(Decimal::from_decimal64(fixed(rest)?)),
        [0x94, ref rest @ ..] => decimal(Decimal::from_decimal128(fixed(rest)?)),
        [0x73, a, b, c, d] => {
            let number = u32::from_be_bytes([a, b, c, d]);
            Value::Char(char::from_u32(number).ok_or(DecodeError::NotAChar(number))?)
        }
        [0x83, ref rest @ ..] => Value::Timestamp(i64::from_be_bytes(fixed(rest)?)),
        [0x98, ref rest @ ..] => Value::Uuid(fixed(rest)?),
        [0xA0, _, ref bytes @ ..] | [0xB0, _, _, _, _, ref bytes @ ..] => Value::Binary(bytes),
        [0xA1, _, ref bytes @ ..] | [0xB1, _, _, _, _, ref bytes @ ..] => Value::Text(text(bytes)?),
        [0xA3, _, ref bytes @ ..] | [0xB3, _, _, _, _, ref bytes @ ..] => {
            Value::Symbol(text(bytes)?)
        }
        [0x00, ref described @ ..] => timespan_of(described).map_or(Value::Other, Value::Duration),
        [0x45 | 0xC0 | 0xC1 | 0xD0 | 0xD1 | 0xE0 | 0xF0, ..] => Value::Other,
        [] => return Err(DecodeError::Truncated { needed: 1, left: 0 }),
        [code, ..] => return Err(DecodeError::UnknownCode(code)),
    })
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], DecodeError> {
    bytes.try_into().map_err(|_| DecodeError::Truncated {
        needed: N as u64,
        left: bytes.len() as u64,
    })
}

/// The ticks of a described value, if it is a span of time.
fn timespan_of(described: &[u8]) -> Option<i64> {
    let named = match described {
        [0xA3, _, rest @ ..] | [0xB3, _, _, _, _, rest @ ..] => rest,
        _ => return None,
    };
    match value_of(named.strip_prefix(TIMESPAN.as_bytes())?).ok()? {
        Value::Long(ticks) => Some(ticks),
        _ => None,
    }
}

/// A value of a rule in AMQP's types. `None` for what a rule cannot have.
pub fn amqp_of(value: Value<'_>) -> Option<Amqp> {
    Some(match value {
        Value::Null => Amqp::Null,
        Value::Boolean(it) => Amqp::Boolean(it),
        Value::Byte(it) => Amqp::Byte(it),
        Value::Short(it) => Amqp::Short(it),
        Value::Int(it) => Amqp::Int(it),
        Value::Long(it) => Amqp::Long(it),
        Value::Ubyte(it) => Amqp::Ubyte(it),
        Value::Ushort(it) => Amqp::Ushort(it),
        Value::Uint(it) => Amqp::Uint(it),
        Value::Ulong(it) => Amqp::Ulong(it),
        Value::Float(it) => Amqp::Float(it),
        Value::Double(it) => Amqp::Double(it),
        Value::Decimal(it) => Amqp::Decimal128(it.to_decimal128()?),
        Value::Char(it) => Amqp::Char(it),
        Value::Timestamp(ms) => Amqp::Timestamp(WireTime(readable_time_ms(ms))),
        Value::Duration(ticks) => Amqp::Described(Described {
            descriptor: Descriptor::Symbol(Symbol::from_static(TIMESPAN)),
            value: Raw::of(&ticks),
        }),
        Value::Uuid(id) => Amqp::Uuid(Uuid(id)),
        Value::Binary(bytes) => Amqp::Binary(Bytes::copy_from_slice(bytes)),
        Value::Text(text) => Amqp::String(text.into()),
        Value::Symbol(text) => Amqp::Symbol(Symbol::new(text).ok()?),
        Value::Other => return None,
    })
}
