//! Values that share the bytes of the input.

use std::fmt;

use bytes::{Bytes, BytesMut};

use super::code;
use super::{DecodeError, Descriptor, Encode, Reader};

/// A string: checked UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Text(Bytes);

impl Text {
    /// From a static string.
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    pub(crate) fn from_wire(bytes: Bytes) -> Result<Self, DecodeError> {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(DecodeError::NotUtf8),
        }
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("it was checked when it was made")
    }

    /// A copy to keep: values from the input share the buffer of their whole frame.
    #[must_use]
    pub fn unshared(&self) -> Self {
        self.as_str().into()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

/// A symbol: checked ASCII.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Symbol(Bytes);

impl Symbol {
    /// From a static name.
    ///
    /// # Panics
    ///
    /// If it is not ASCII.
    pub const fn from_static(name: &'static str) -> Self {
        assert!(name.is_ascii(), "a symbol is ASCII");
        Self(Bytes::from_static(name.as_bytes()))
    }

    /// From any ASCII text.
    pub fn new(name: &str) -> Result<Self, DecodeError> {
        Self::from_wire(Bytes::copy_from_slice(name.as_bytes()))
    }

    pub(crate) fn from_wire(bytes: Bytes) -> Result<Self, DecodeError> {
        if bytes.is_ascii() {
            Ok(Self(bytes))
        } else {
            Err(DecodeError::NotAscii)
        }
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("ASCII is UTF-8")
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ":{}", self.as_str())
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<str> for Symbol {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Symbol {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

/// Milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

/// A UUID in network order, which is the order of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

/// One value in encoded form. Its bytes were checked, so its content can be read.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Raw(Bytes);

impl Raw {
    pub(crate) fn checked(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Encodes something, which keeps it.
    pub fn of(value: &impl Encode) -> Self {
        let mut out = BytesMut::new();
        value.encode(&mut out);
        Self(out.freeze())
    }

    /// Takes bytes that must be one value.
    pub fn new(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(&bytes);
        reader.skip()?;
        reader.must_be_empty()?;
        Ok(Self(bytes))
    }

    /// The decoded value.
    pub fn value(&self) -> Value {
        let value = Reader::new(&self.0).value();
        value.expect("it was checked when it was read")
    }

    /// The encoding.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.value(), f)
    }
}

/// A list whose elements are still encoded.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct List {
    pub(crate) count: u32,
    pub(crate) items: Bytes,
}

impl List {
    /// How many elements it has.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its elements.
    pub fn iter(&self) -> impl Iterator<Item = Raw> {
        raws(&self.items)
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A map whose entries are still encoded, in the order of the input.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Map {
    pub(crate) count: u32,
    pub(crate) items: Bytes,
}

impl Map {
    /// How many pairs it has.
    pub fn len(&self) -> u32 {
        self.count / 2
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How large its entries are, encoded, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.items.len()
    }

    /// Its pairs.
    pub fn iter(&self) -> impl Iterator<Item = (Raw, Raw)> {
        let mut raws = raws(&self.items);
        std::iter::from_fn(move || Some((raws.next()?, raws.next()?)))
    }

    /// The pairs whose key is a symbol or a string.
    pub fn named(&self) -> impl Iterator<Item = (&str, Value)> {
        let mut reader = Reader::new(&self.items);
        std::iter::from_fn(move || {
            let name = next_name(&mut reader)?;
            Some((name, reader.value().expect(CHECKED)))
        })
    }

    /// The value of the first key that is this symbol or this string.
    pub fn get(&self, key: &str) -> Option<Raw> {
        let mut reader = Reader::new(&self.items);
        while let Some(name) = next_name(&mut reader) {
            if name == key {
                return Some(reader.raw().expect(CHECKED));
            }
            reader.skip().expect(CHECKED);
        }
        None
    }
}

/// Why what is in a list or a map can be read.
const CHECKED: &str = "it was checked when the whole was read";

/// The next key that is a symbol or a string, among the pairs of a map. Its value follows it.
fn next_name<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
    while !reader.is_empty() {
        if let Some(name) = reader.name().expect(CHECKED) {
            return Some(name);
        }
        reader.skip().expect(CHECKED);
        reader.skip().expect(CHECKED);
    }
    None
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Checked values one after another.
fn raws(items: &Bytes) -> impl Iterator<Item = Raw> {
    let mut reader = Reader::new(items);
    std::iter::from_fn(move || {
        let raw = (!reader.is_empty()).then(|| reader.raw())?;
        Some(raw.expect(CHECKED))
    })
}

/// An array whose elements are still encoded.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Array {
    pub(crate) descriptor: Option<Descriptor>,
    pub(crate) code: u8,
    pub(crate) count: u32,
    pub(crate) elements: Bytes,
}

impl Array {
    pub(crate) fn empty() -> Self {
        Self {
            descriptor: None,
            code: code::NULL,
            count: 0,
            elements: Bytes::new(),
        }
    }

    /// An array of longs.
    pub fn longs(values: impl IntoIterator<Item = i64>) -> Self {
        Self::fixed(code::LONG, values)
    }

    /// An array of timestamps.
    pub fn timestamps(values: impl IntoIterator<Item = Timestamp>) -> Self {
        Self::fixed(code::TIMESTAMP, values.into_iter().map(|value| value.0))
    }

    /// An array of UUIDs.
    pub fn uuids(values: impl IntoIterator<Item = Uuid>) -> Self {
        Self::sized(code::UUID, values.into_iter().map(|value| value.0))
    }

    /// Elements of eight bytes.
    fn fixed(code: u8, values: impl IntoIterator<Item = i64>) -> Self {
        Self::sized(code, values.into_iter().map(i64::to_be_bytes))
    }

    fn sized<const SIZE: usize>(code: u8, values: impl IntoIterator<Item = [u8; SIZE]>) -> Self {
        let mut elements = BytesMut::new();
        let mut count = 0;
        for value in values {
            elements.extend_from_slice(&value);
            count += 1;
        }
        Self {
            descriptor: None,
            code,
            count,
            elements: elements.freeze(),
        }
    }

    /// How many elements it has.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The descriptor of every element, if there is one; the outermost, if there are several.
    pub fn descriptor(&self) -> Option<&Descriptor> {
        self.descriptor.as_ref()
    }

    /// Its elements, without their descriptor.
    pub fn iter(&self) -> impl Iterator<Item = Value> + use<> {
        let (mut left, code, mut count) = (self.elements.clone(), self.code, self.count);
        std::iter::from_fn(move || {
            count = count.checked_sub(1)?;
            let mut reader = Reader::new(&left);
            let value = reader.value_of(code, 0);
            let value = value.expect("it was checked when the array was read");
            let read = reader.position();
            left = left.slice(read..);
            Some(value)
        })
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// A described value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Described {
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// The value, which may be described again.
    pub value: Raw,
}

/// Symbols of a field that may have several: no symbol, a single symbol, or an array.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Symbols(pub(crate) Option<Raw>);

impl Symbols {
    /// An array, also of one.
    pub fn new(symbols: &[Symbol]) -> Self {
        let mut out = BytesMut::new();
        super::write_symbols(&mut out, symbols);
        Self(Some(Raw::checked(out.freeze())))
    }

    /// The symbols.
    pub fn iter(&self) -> impl Iterator<Item = Symbol> {
        let (one, several) = match self.0.as_ref().map(Raw::value) {
            Some(Value::Symbol(symbol)) => (Some(symbol), None),
            Some(Value::Array(array)) => (None, Some(array)),
            _ => (None, None),
        };
        let several = several.into_iter().flat_map(|array| array.iter());
        let symbols = several.filter_map(|value| match value {
            Value::Symbol(symbol) => Some(symbol),
            _ => None,
        });
        one.into_iter().chain(symbols)
    }

    /// Whether this symbol is among them.
    pub fn contains(&self, symbol: &str) -> bool {
        self.iter().any(|own| own == *symbol)
    }
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Any value.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the types of AMQP 1.0, 1.6, under their names")]
pub enum Value {
    Null,
    Boolean(bool),
    Ubyte(u8),
    Ushort(u16),
    Uint(u32),
    Ulong(u64),
    Byte(i8),
    Short(i16),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Decimal32([u8; 4]),
    Decimal64([u8; 8]),
    Decimal128([u8; 16]),
    Char(char),
    Timestamp(Timestamp),
    Uuid(Uuid),
    Binary(Bytes),
    String(Text),
    Symbol(Symbol),
    List(List),
    Map(Map),
    Array(Array),
    Described(Described),
}

impl Value {
    /// A whole number of any width, if it is one and not above `i64::MAX`.
    pub fn as_integer(&self) -> Option<i64> {
        Some(match *self {
            Self::Ubyte(number) => i64::from(number),
            Self::Ushort(number) => i64::from(number),
            Self::Uint(number) => i64::from(number),
            Self::Ulong(number) => i64::try_from(number).ok()?,
            Self::Byte(number) => i64::from(number),
            Self::Short(number) => i64::from(number),
            Self::Int(number) => i64::from(number),
            Self::Long(number) => number,
            _ => return None,
        })
    }

    /// The characters of a string or a symbol.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            Self::Symbol(symbol) => Some(symbol.as_str()),
            _ => None,
        }
    }
}
