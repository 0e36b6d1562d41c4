//! The reader: bounded, without memory of its own.

use std::ops::Range;

use bytes::Bytes;

use super::code;
use super::value::{Array, Described, List, Map, Raw, Symbol, Text, Timestamp, Uuid, Value};
use super::{DEPTH_MAX, DecodeError, Descriptor, Field, ZERO_WIDTH_ELEMENTS_MAX};

/// Reads values from bytes. The values share these bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    source: &'a Bytes,
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    /// Begins at the first byte.
    pub fn new(source: &'a Bytes) -> Self {
        Self {
            source,
            at: 0,
            end: source.len(),
        }
    }

    /// Reads a part of the bytes. The part must lie within them.
    pub fn within(source: &'a Bytes, part: Range<usize>) -> Self {
        let end = part.end.min(source.len());
        let at = part.start.min(end);
        Self { source, at, end }
    }

    /// Where the next byte is.
    pub fn position(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// Whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// All remaining bytes.
    pub fn rest(&self) -> Bytes {
        self.source.slice(self.at..self.end)
    }

    /// The next code, which stays.
    pub fn peek(&self) -> Result<u8, DecodeError> {
        match self.source.get(self.at) {
            Some(&code) if self.at < self.end => Ok(code),
            _ => Err(self.truncated(1)),
        }
    }

    /// Skips one value, and checks all of it.
    pub fn skip(&mut self) -> Result<(), DecodeError> {
        self.skip_value(0)
    }

    /// The next value as it is encoded, checked.
    pub fn raw(&mut self) -> Result<Raw, DecodeError> {
        let begin = self.at;
        self.skip()?;
        Ok(Raw::checked(self.source.slice(begin..self.at)))
    }

    /// The next value. The content of lists, maps and arrays is checked and stays encoded.
    pub fn value(&mut self) -> Result<Value, DecodeError> {
        let code = self.byte()?;
        if code == code::DESCRIBED {
            let descriptor = self.descriptor_value()?;
            let begin = self.at;
            self.skip_value(1)?;
            let value = Raw::checked(self.source.slice(begin..self.at));
            return Ok(Value::Described(Described { descriptor, value }));
        }
        self.value_of(code, 0)
    }

    /// The characters of the next value, if it is a symbol or a string. Another value stays.
    pub(crate) fn name(&mut self) -> Result<Option<&'a str>, DecodeError> {
        let code = self.peek()?;
        if !matches!(
            code,
            code::STRING8 | code::STRING32 | code::SYMBOL8 | code::SYMBOL32
        ) {
            return Ok(None);
        }
        self.at += 1;
        let size = self.size(code)?;
        let name = std::str::from_utf8(self.slice(size)?);
        name.map(Some).map_err(|_| DecodeError::NotUtf8)
    }

    /// The descriptor of a described value. The value follows it.
    pub fn descriptor(&mut self) -> Result<Descriptor, DecodeError> {
        match self.byte()? {
            code::DESCRIBED => self.descriptor_value(),
            found => Err(DecodeError::WrongType {
                expected: "a described value",
                found,
            }),
        }
    }

    /// The fields of a list. The reader itself continues after the list at once.
    pub fn list(&mut self) -> Result<ListReader<'a>, DecodeError> {
        let code = self.byte()?;
        let (end, count) = match code {
            code::LIST0 => (self.at, 0),
            code::LIST8 | code::LIST32 => self.compound(code)?,
            found => {
                return Err(DecodeError::WrongType {
                    expected: "a list",
                    found,
                });
            }
        };
        let fields = ListReader {
            reader: Reader { end, ..*self },
            left: count,
        };
        self.at = end;
        Ok(fields)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let code = self.peek()?;
        self.at += 1;
        Ok(code)
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let short = self.truncated(N as u64);
        let bytes = self.slice(N)?;
        bytes.try_into().map_err(|_| short)
    }

    pub(crate) fn slice(&mut self, size: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.ahead(size)?;
        let slice = self.source.get(self.at..end).ok_or(self.truncated(0))?;
        self.at = end;
        Ok(slice)
    }

    /// The bytes of a value that begins with its size, in one byte or in four.
    pub(crate) fn variable(&mut self, code: u8) -> Result<Bytes, DecodeError> {
        let size = self.size(code)?;
        let end = self.ahead(size)?;
        let bytes = self.source.slice(self.at..end);
        self.at = end;
        Ok(bytes)
    }

    fn ahead(&self, size: usize) -> Result<usize, DecodeError> {
        if size > self.remaining() {
            return Err(self.truncated(size as u64));
        }
        Ok(self.at + size)
    }

    fn truncated(&self, needed: u64) -> DecodeError {
        DecodeError::Truncated {
            needed,
            left: self.remaining() as u64,
        }
    }

    /// A size or a count: of one byte if the code's second highest bit is set, else of four.
    fn number(&mut self, code: u8) -> Result<u32, DecodeError> {
        if is_wide(code) {
            Ok(u32::from_be_bytes(self.take()?))
        } else {
            Ok(u32::from(self.byte()?))
        }
    }

    fn size(&mut self, code: u8) -> Result<usize, DecodeError> {
        let size = self.number(code)?;
        usize::try_from(size).map_err(|_| self.truncated(u64::from(size)))
    }

    /// Where a list, map or array ends, and how many elements it declares. Each takes at least a
    /// byte.
    fn compound(&mut self, code: u8) -> Result<(usize, u32), DecodeError> {
        let size = self.size(code)?;
        let end = self.ahead(size)?;
        let mut inside = Reader { end, ..*self };
        let count = inside.number(code)?;
        self.at = inside.at;
        let limit = inside.remaining() as u64;
        let is_array = matches!(code, code::ARRAY8 | code::ARRAY32);
        if u64::from(count) > limit && !is_array {
            return Err(DecodeError::TooManyElements { count, limit });
        }
        Ok((end, count))
    }

    fn descriptor_value(&mut self) -> Result<Descriptor, DecodeError> {
        match self.byte()? {
            code::SMALL_ULONG => Ok(Descriptor::Code(u64::from(self.byte()?))),
            code::ULONG0 => Ok(Descriptor::Code(0)),
            code::ULONG => Ok(Descriptor::Code(u64::from_be_bytes(self.take()?))),
            code @ (code::SYMBOL8 | code::SYMBOL32) => {
                Ok(Descriptor::Symbol(Symbol::from_wire(self.variable(code)?)?))
            }
            found => Err(DecodeError::WrongType {
                expected: "a descriptor",
                found,
            }),
        }
    }

    fn skip_value(&mut self, depth: usize) -> Result<(), DecodeError> {
        let code = self.byte()?;
        if code == code::DESCRIBED {
            self.descriptor_value()?;
            return self.skip_value(deeper(depth)?);
        }
        self.skip_body(code, depth)
    }

    /// Skips the body that follows a code.
    fn skip_body(&mut self, code: u8, depth: usize) -> Result<(), DecodeError> {
        match code {
            code::BOOLEAN => check_boolean(self.byte()?).map(drop),
            code::CHAR => check_char(u32::from_be_bytes(self.take()?)).map(drop),
            code::BINARY8 | code::BINARY32 => {
                let size = self.size(code)?;
                self.slice(size).map(drop)
            }
            code::STRING8 | code::STRING32 => {
                let size = self.size(code)?;
                let text = std::str::from_utf8(self.slice(size)?);
                text.map(drop).map_err(|_| DecodeError::NotUtf8)
            }
            code::SYMBOL8 | code::SYMBOL32 => {
                let size = self.size(code)?;
                let is_ascii = self.slice(size)?.is_ascii();
                is_ascii.then_some(()).ok_or(DecodeError::NotAscii)
            }
            code::LIST8 | code::LIST32 => {
                let (end, count) = self.compound(code)?;
                self.skip_elements(end, count, depth)
            }
            code::MAP8 | code::MAP32 => {
                let (end, count) = self.compound(code)?;
                if !count.is_multiple_of(2) {
                    return Err(DecodeError::OddMap(count));
                }
                self.skip_elements(end, count, depth)
            }
            code::ARRAY8 | code::ARRAY32 => self.array(code, depth).map(drop),
            _ => {
                let width = code::fixed_width(code).ok_or(DecodeError::UnknownCode(code))?;
                self.slice(width).map(drop)
            }
        }
    }

    fn skip_elements(&mut self, end: usize, count: u32, depth: usize) -> Result<(), DecodeError> {
        let depth = deeper(depth)?;
        let mut inside = Reader { end, ..*self };
        for _ in 0..count {
            inside.skip_value(depth)?;
        }
        inside.must_be_empty()?;
        self.at = end;
        Ok(())
    }

    pub(crate) fn must_be_empty(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            surplus => Err(DecodeError::Surplus(surplus as u64)),
        }
    }

    fn array(&mut self, code: u8, depth: usize) -> Result<Array, DecodeError> {
        let mut depth = deeper(depth)?;
        let (end, count) = self.compound(code)?;
        let mut inside = Reader { end, ..*self };
        self.at = end;
        if count == 0 && inside.is_empty() {
            return Ok(Array::empty());
        }
        let mut descriptor = None;
        let mut element = inside.byte()?;
        while element == code::DESCRIBED {
            depth = deeper(depth)?;
            let outermost = inside.descriptor_value()?;
            descriptor.get_or_insert(outermost);
            element = inside.byte()?;
        }
        let elements = inside.rest();
        inside.skip_array_elements(element, count, depth)?;
        Ok(Array {
            descriptor,
            code: element,
            count,
            elements,
        })
    }

    fn skip_array_elements(
        &mut self,
        code: u8,
        count: u32,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let is_checked = !matches!(code, code::BOOLEAN | code::CHAR);
        match code::fixed_width(code) {
            Some(0) => {
                let limit = u64::from(ZERO_WIDTH_ELEMENTS_MAX);
                if u64::from(count) > limit {
                    return Err(DecodeError::TooManyElements { count, limit });
                }
            }
            Some(width) if is_checked => {
                let size = u64::from(count) * width as u64;
                let size = usize::try_from(size).map_err(|_| self.truncated(size))?;
                self.slice(size)?;
            }
            _ => {
                let limit = self.remaining() as u64;
                if u64::from(count) > limit {
                    return Err(DecodeError::TooManyElements { count, limit });
                }
                for _ in 0..count {
                    self.skip_body(code, depth)?;
                }
            }
        }
        self.must_be_empty()
    }

    /// The value that follows a code, checked.
    pub(crate) fn value_of(&mut self, code: u8, depth: usize) -> Result<Value, DecodeError> {
        Ok(match code {
            code::NULL => Value::Null,
            code::TRUE => Value::Boolean(true),
            code::FALSE => Value::Boolean(false),
            code::BOOLEAN => Value::Boolean(check_boolean(self.byte()?)?),
            code::UBYTE => Value::Ubyte(self.byte()?),
            code::USHORT => Value::Ushort(u16::from_be_bytes(self.take()?)),
            code::UINT0 => Value::Uint(0),
            code::SMALL_UINT => Value::Uint(u32::from(self.byte()?)),
            code::UINT => Value::Uint(u32::from_be_bytes(self.take()?)),
            code::ULONG0 => Value::Ulong(0),
            code::SMALL_ULONG => Value::Ulong(u64::from(self.byte()?)),
            code::ULONG => Value::Ulong(u64::from_be_bytes(self.take()?)),
            code::BYTE => Value::Byte(i8::from_be_bytes(self.take()?)),
            code::SHORT => Value::Short(i16::from_be_bytes(self.take()?)),
            code::SMALL_INT => Value::Int(i32::from(i8::from_be_bytes(self.take()?))),
            code::INT => Value::Int(i32::from_be_bytes(self.take()?)),
            code::SMALL_LONG => Value::Long(i64::from(i8::from_be_bytes(self.take()?))),
            code::LONG => Value::Long(i64::from_be_bytes(self.take()?)),
            code::FLOAT => Value::Float(f32::from_be_bytes(self.take()?)),
            code::DOUBLE => Value::Double(f64::from_be_bytes(self.take()?)),
            code::DECIMAL32 => Value::Decimal32(self.take()?),
            code::DECIMAL64 => Value::Decimal64(self.take()?),
            code::DECIMAL128 => Value::Decimal128(self.take()?),
            code::CHAR => Value::Char(check_char(u32::from_be_bytes(self.take()?))?),
            code::TIMESTAMP => Value::Timestamp(Timestamp(i64::from_be_bytes(self.take()?))),
            code::UUID => Value::Uuid(Uuid(self.take()?)),
            code::BINARY8 | code::BINARY32 => Value::Binary(self.variable(code)?),
            code::STRING8 | code::STRING32 => Value::String(Text::from_wire(self.variable(code)?)?),
            code::SYMBOL8 | code::SYMBOL32 => {
                Value::Symbol(Symbol::from_wire(self.variable(code)?)?)
            }
            code::LIST0 => Value::List(List::default()),
            code::LIST8 | code::LIST32 | code::MAP8 | code::MAP32 => {
                let whole = self.clone();
                self.skip_body(code, depth)?;
                let mut inside = whole;
                let (end, count) = inside.compound(code)?;
                let items = self.source.slice(inside.at..end);
                match code {
                    code::LIST8 | code::LIST32 => Value::List(List { count, items }),
                    _ => Value::Map(Map { count, items }),
                }
            }
            code::ARRAY8 | code::ARRAY32 => Value::Array(self.array(code, depth)?),
            _ => return Err(DecodeError::UnknownCode(code)),
        })
    }
}

fn is_wide(code: u8) -> bool {
    code & 0x10 != 0
}

fn deeper(depth: usize) -> Result<usize, DecodeError> {
    if depth + 1 > DEPTH_MAX {
        return Err(DecodeError::TooDeep);
    }
    Ok(depth + 1)
}

pub(crate) fn check_boolean(byte: u8) -> Result<bool, DecodeError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(DecodeError::NotABoolean(other)),
    }
}

fn check_char(number: u32) -> Result<char, DecodeError> {
    char::from_u32(number).ok_or(DecodeError::NotAChar(number))
}

/// Reads the fields of a list one by one.
#[derive(Debug)]
pub struct ListReader<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl ListReader<'_> {
    /// The next field, or `None` if it is null or the list has ended.
    pub fn next_field<T: Field>(&mut self) -> Result<Option<T>, DecodeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        if self.reader.peek()? == code::NULL {
            self.reader.byte()?;
            return Ok(None);
        }
        T::read(&mut self.reader).map(Some)
    }

    /// Checks that no field is left.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.left > 0 {
            return Err(DecodeError::UnknownFields(self.left));
        }
        self.reader.must_be_empty()
    }
}
