//! The types that a field of a composite can have, and how each is read and written.

use bytes::{BufMut, Bytes, BytesMut};

use super::value::{List, Map, Raw, Symbol, Symbols, Text, Timestamp, Uuid, Value};
use super::writer::{put_described_head, put_sized};
use super::{Array, DecodeError, Descriptor, Reader, code};

/// A type that reads one type of value.
pub trait Decode: Sized {
    /// Reads it.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// Something that can be written, in its smallest encoding.
pub trait Encode {
    /// Writes it.
    fn encode(&self, out: &mut BytesMut);

    /// Whether it would be written as null.
    fn is_null(&self) -> bool {
        false
    }

    /// Whether a field of a declared type can also be null, because null means the same.
    fn is_default(&self) -> bool {
        self.is_null()
    }
}

/// A field: of a type of its own, or an optional one.
pub trait Field: Encode + Sized {
    /// Reads a value that is not null.
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Its value if it is null, if it may be null.
    fn absent() -> Option<Self> {
        None
    }
}

impl<T: Decode + Encode> Field for T {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::decode(reader)
    }
}

impl<T: Decode + Encode> Field for Option<T> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::decode(reader).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Some(value) => value.encode(out),
            None => out.put_u8(code::NULL),
        }
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }
}

/// Reads a value of one type. The arms match its code.
macro_rules! decode {
    ($type:ty, $expected:literal, $reader:ident, $code:ident, { $($codes:pat => $value:expr,)+ }) => {
        impl Decode for $type {
            fn decode($reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let $code = $reader.byte()?;
                match $code {
                    $($codes => $value,)+
                    found => Err(DecodeError::WrongType { expected: $expected, found }),
                }
            }
        }
    };
}

decode!(bool, "a boolean", reader, _code, {
    code::TRUE => Ok(true),
    code::FALSE => Ok(false),
    code::BOOLEAN => super::reader::check_boolean(reader.byte()?),
});
decode!(u8, "a ubyte", reader, _code, { code::UBYTE => reader.byte(), });
decode!(u16, "a ushort", reader, _code, {
    code::USHORT => Ok(u16::from_be_bytes(reader.take()?)),
});
decode!(u32, "a uint", reader, _code, {
    code::UINT0 => Ok(0),
    code::SMALL_UINT => Ok(u32::from(reader.byte()?)),
    code::UINT => Ok(u32::from_be_bytes(reader.take()?)),
});
decode!(u64, "a ulong", reader, _code, {
    code::ULONG0 => Ok(0),
    code::SMALL_ULONG => Ok(u64::from(reader.byte()?)),
    code::ULONG => Ok(u64::from_be_bytes(reader.take()?)),
});
decode!(Timestamp, "a timestamp", reader, _code, {
    code::TIMESTAMP => Ok(Timestamp(i64::from_be_bytes(reader.take()?))),
});
decode!(Bytes, "a binary", reader, code, {
    code::BINARY8 | code::BINARY32 => reader.variable(code),
});
decode!(Text, "a string", reader, code, {
    code::STRING8 | code::STRING32 => Text::from_wire(reader.variable(code)?),
});
decode!(Symbol, "a symbol", reader, code, {
    code::SYMBOL8 | code::SYMBOL32 => Symbol::from_wire(reader.variable(code)?),
});
decode!(Map, "a map", reader, code, {
    code::MAP8 | code::MAP32 => match reader.value_of(code, 0)? {
        Value::Map(map) => Ok(map),
        _ => Err(DecodeError::UnknownCode(code)),
    },
});

impl Decode for Raw {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.raw()
    }
}

impl Field for Symbols {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let found = reader.peek()?;
        let raw = reader.raw()?;
        let is_right = match raw.value() {
            Value::Symbol(_) => true,
            Value::Array(array) => {
                let is_symbol = matches!(array.code, code::SYMBOL8 | code::SYMBOL32);
                array.descriptor.is_none() && (is_symbol || array.is_empty())
            }
            _ => false,
        };
        if !is_right {
            return Err(DecodeError::WrongType {
                expected: "a symbol or an array of symbols",
                found,
            });
        }
        Ok(Self(Some(raw)))
    }

    fn absent() -> Option<Self> {
        Some(Self(None))
    }
}

impl Encode for Symbols {
    fn encode(&self, out: &mut BytesMut) {
        self.0.encode(out);
    }

    fn is_null(&self) -> bool {
        self.0.is_none()
    }
}

impl Encode for bool {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(if *self { code::TRUE } else { code::FALSE });
    }

    fn is_default(&self) -> bool {
        !self
    }
}

impl Encode for u8 {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&[code::UBYTE, *self]);
    }
}

impl Encode for u16 {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(code::USHORT);
        out.put_u16(*self);
    }
}

impl Encode for u32 {
    fn encode(&self, out: &mut BytesMut) {
        match (*self, u8::try_from(*self)) {
            (0, _) => out.put_u8(code::UINT0),
            (_, Ok(small)) => out.put_slice(&[code::SMALL_UINT, small]),
            (number, Err(_)) => {
                out.put_u8(code::UINT);
                out.put_u32(number);
            }
        }
    }
}

impl Encode for u64 {
    fn encode(&self, out: &mut BytesMut) {
        match (*self, u8::try_from(*self)) {
            (0, _) => out.put_u8(code::ULONG0),
            (_, Ok(small)) => out.put_slice(&[code::SMALL_ULONG, small]),
            (number, Err(_)) => {
                out.put_u8(code::ULONG);
                out.put_u64(number);
            }
        }
    }
}

impl Encode for i32 {
    fn encode(&self, out: &mut BytesMut) {
        if let Ok(small) = i8::try_from(*self) {
            out.put_u8(code::SMALL_INT);
            out.put_i8(small);
        } else {
            out.put_u8(code::INT);
            out.put_i32(*self);
        }
    }
}

impl Encode for i64 {
    fn encode(&self, out: &mut BytesMut) {
        if let Ok(small) = i8::try_from(*self) {
            out.put_u8(code::SMALL_LONG);
            out.put_i8(small);
        } else {
            out.put_u8(code::LONG);
            out.put_i64(*self);
        }
    }
}

impl Encode for Timestamp {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(code::TIMESTAMP);
        out.put_i64(self.0);
    }
}

impl Encode for Uuid {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(code::UUID);
        out.put_slice(&self.0);
    }
}

impl Encode for Bytes {
    fn encode(&self, out: &mut BytesMut) {
        put_sized(out, code::BINARY8, self);
    }
}

impl Encode for str {
    fn encode(&self, out: &mut BytesMut) {
        put_sized(out, code::STRING8, self.as_bytes());
    }
}

impl Encode for Text {
    fn encode(&self, out: &mut BytesMut) {
        self.as_str().encode(out);
    }
}

impl Encode for Symbol {
    fn encode(&self, out: &mut BytesMut) {
        put_sized(out, code::SYMBOL8, self.as_str().as_bytes());
    }
}

impl Encode for Raw {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(self.as_bytes());
    }
}

impl Encode for List {
    fn encode(&self, out: &mut BytesMut) {
        if self.is_empty() {
            out.put_u8(code::LIST0);
        } else {
            super::writer::put_compound(out, code::LIST8, self.count, &[], &self.items);
        }
    }
}

impl Encode for Map {
    fn encode(&self, out: &mut BytesMut) {
        super::writer::put_compound(out, code::MAP8, self.count, &[], &self.items);
    }
}

impl Encode for Array {
    fn encode(&self, out: &mut BytesMut) {
        let mut constructor = BytesMut::new();
        if let Some(descriptor) = &self.descriptor {
            put_described_head(&mut constructor, descriptor);
        }
        constructor.put_u8(self.code);
        super::writer::put_compound(out, code::ARRAY8, self.count, &constructor, &self.elements);
    }
}

impl Encode for Descriptor {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Code(code) => code.encode(out),
            Self::Symbol(symbol) => symbol.encode(out),
        }
    }
}

impl Encode for Value {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Null => out.put_u8(code::NULL),
            Self::Boolean(value) => value.encode(out),
            Self::Ubyte(value) => value.encode(out),
            Self::Ushort(value) => value.encode(out),
            Self::Uint(value) => value.encode(out),
            Self::Ulong(value) => value.encode(out),
            Self::Byte(value) => put_fixed(out, code::BYTE, &value.to_be_bytes()),
            Self::Short(value) => put_fixed(out, code::SHORT, &value.to_be_bytes()),
            Self::Int(value) => value.encode(out),
            Self::Long(value) => value.encode(out),
            Self::Float(value) => put_fixed(out, code::FLOAT, &value.to_be_bytes()),
            Self::Double(value) => put_fixed(out, code::DOUBLE, &value.to_be_bytes()),
            Self::Decimal32(value) => put_fixed(out, code::DECIMAL32, value),
            Self::Decimal64(value) => put_fixed(out, code::DECIMAL64, value),
            Self::Decimal128(value) => put_fixed(out, code::DECIMAL128, value),
            Self::Char(value) => put_fixed(out, code::CHAR, &u32::from(*value).to_be_bytes()),
            Self::Timestamp(value) => value.encode(out),
            Self::Uuid(value) => value.encode(out),
            Self::Binary(value) => value.encode(out),
            Self::String(value) => value.encode(out),
            Self::Symbol(value) => value.encode(out),
            Self::List(value) => value.encode(out),
            Self::Map(value) => value.encode(out),
            Self::Array(value) => value.encode(out),
            Self::Described(value) => {
                put_described_head(out, &value.descriptor);
                value.value.encode(out);
            }
        }
    }
}

fn put_fixed(out: &mut BytesMut, code: u8, bytes: &[u8]) {
    out.put_u8(code);
    out.put_slice(bytes);
}
