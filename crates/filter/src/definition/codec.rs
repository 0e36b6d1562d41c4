//! The bytes of a definition.
//!
//! ```text
//! definition  = version: 1 filter action
//! filter      = 0 (true) | 1 (false) | 2 count {equality} | 3 sql
//! equality    = 0 text(name) value | 1 property text
//! action      = 0 (none) | 1 sql
//! sql         = text level count {text(name) value}
//! level       = 0 (none) | 1 number
//! property    = byte, see `property_code`
//! value       = byte (its type, see `type_code`), then: nothing | big-endian bytes | text | bytes
//! decimal     = sign: 0 or 1, coefficient: 16 bytes, exponent: 2 bytes
//! text, bytes = number (length in bytes), content
//! count       = number
//! number      = 7 bits a byte, the lowest first, each byte but the last with 0x80; in as few bytes as possible
//! ```
//!
//! There is one form for each definition. Decoding allocates nothing by a length that it has not compared with the bytes
//! that are left.

use thiserror::Error;

use super::{DefinitionError, Equality, FilterDefinition, SqlDefinition};
use crate::decimal::Decimal;
use crate::limits::{DEFINITION_BYTES_MAX, EQUALITIES_MAX, PARAMETERS_MAX};
use crate::message::SystemProperty;
use crate::value::{OwnedValue, Value};

/// The version that is written, and the only one so far.
const VERSION: u8 = 1;

/// Bytes that are not a definition.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// A later version.
    #[error("the version {0} of a rule's definition is not known, expected {VERSION}")]
    Version(u8),
    /// More bytes than a definition has.
    #[error("a rule's definition has {0} bytes, the maximum is {DEFINITION_BYTES_MAX}")]
    TooLarge(usize),
    /// It ends too early.
    #[error("a rule's definition ends too early")]
    Truncated,
    /// Something follows it.
    #[error("{0} bytes follow a rule's definition")]
    Surplus(usize),
    /// A code that this version does not know.
    #[error("{code} is not a {what} of a rule's definition")]
    Code {
        /// What it should be.
        what: &'static str,
        /// The code.
        code: u8,
    },
    /// A number that takes more bytes than it needs, or is too large.
    #[error("a number of a rule's definition is not in its shortest form, or too large")]
    Number,
    /// More entries than there may be.
    #[error("a rule's definition has {count} entries in a list, the maximum is {max}")]
    Count {
        /// How many.
        count: u32,
        /// How many there may be.
        max: usize,
    },
    /// A text that is not UTF-8.
    #[error("a text of a rule's definition is not UTF-8")]
    NotUtf8,
    /// A value that its type does not have.
    #[error("a {0} of a rule's definition has a value that does not exist")]
    Value(&'static str),
    /// What may not be stored.
    #[error(transparent)]
    Refused(DefinitionError),
}

pub(super) fn encode(filter: &FilterDefinition, action: Option<&SqlDefinition>) -> Vec<u8> {
    let mut out = vec![VERSION];
    match filter {
        FilterDefinition::True => out.push(0),
        FilterDefinition::False => out.push(1),
        FilterDefinition::Correlation(all) => {
            out.push(2);
            put_length(&mut out, all.len());
            for equality in all {
                match equality {
                    Equality::User { name, value } => {
                        out.push(0);
                        put_bytes(&mut out, name.as_bytes());
                        put_value(&mut out, value.as_value());
                    }
                    Equality::System { property, text } => {
                        out.push(1);
                        out.push(property_code(*property));
                        put_bytes(&mut out, text.as_bytes());
                    }
                }
            }
        }
        FilterDefinition::Sql(sql) => {
            out.push(3);
            put_sql(&mut out, sql);
        }
    }
    match action {
        None => out.push(0),
        Some(sql) => {
            out.push(1);
            put_sql(&mut out, sql);
        }
    }
    out
}

fn put_sql(out: &mut Vec<u8>, sql: &SqlDefinition) {
    put_bytes(out, sql.text.as_bytes());
    match sql.compatibility_level {
        None => out.push(0),
        Some(level) => {
            out.push(1);
            put_number(out, level);
        }
    }
    put_length(out, sql.parameters.len());
    for (name, value) in &sql.parameters {
        put_bytes(out, name.as_bytes());
        put_value(out, value.as_value());
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u32) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            out.push(low & 0x7F);
            return;
        }
        out.push(low | 0x80);
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    // A longer one makes the whole too large, and is refused by its size.
    put_number(out, u32::try_from(length).unwrap_or(u32::MAX));
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn type_code(value: Value<'_>) -> u8 {
    match value {
        Value::Null => 0,
        Value::Boolean(false) => 1,
        Value::Boolean(true) => 2,
        Value::Byte(_) => 3,
        Value::Short(_) => 4,
        Value::Int(_) => 5,
        Value::Long(_) => 6,
        Value::Ubyte(_) => 7,
        Value::Ushort(_) => 8,
        Value::Uint(_) => 9,
        Value::Ulong(_) => 10,
        Value::Float(_) => 11,
        Value::Double(_) => 12,
        Value::Decimal(_) => 13,
        Value::Char(_) => 14,
        Value::Timestamp(_) => 15,
        Value::Duration(_) => 16,
        Value::Uuid(_) => 17,
        Value::Binary(_) => 18,
        Value::Text(_) => 19,
        Value::Symbol(_) => 20,
        // It is refused before, and when it is read.
        Value::Other => u8::MAX,
    }
}

fn put_value(out: &mut Vec<u8>, value: Value<'_>) {
    out.push(type_code(value));
    match value {
        Value::Null | Value::Boolean(_) | Value::Other => {}
        Value::Byte(it) => out.extend(it.to_be_bytes()),
        Value::Short(it) => out.extend(it.to_be_bytes()),
        Value::Int(it) => out.extend(it.to_be_bytes()),
        Value::Long(it) | Value::Timestamp(it) | Value::Duration(it) => {
            out.extend(it.to_be_bytes());
        }
        Value::Ubyte(it) => out.push(it),
        Value::Ushort(it) => out.extend(it.to_be_bytes()),
        Value::Uint(it) => out.extend(it.to_be_bytes()),
        Value::Ulong(it) => out.extend(it.to_be_bytes()),
        Value::Float(it) => out.extend(it.to_bits().to_be_bytes()),
        Value::Double(it) => out.extend(it.to_bits().to_be_bytes()),
        Value::Decimal(it) => {
            let (is_negative, coefficient, exponent) = it.parts();
            out.push(u8::from(is_negative));
            out.extend(coefficient.to_be_bytes());
            out.extend(exponent.to_be_bytes());
        }
        Value::Char(it) => out.extend(u32::from(it).to_be_bytes()),
        Value::Uuid(it) => out.extend(it),
        Value::Binary(bytes) => put_bytes(out, bytes),
        Value::Text(text) | Value::Symbol(text) => put_bytes(out, text.as_bytes()),
    }
}

/// A code for each system property, also of those that no correlation filter names: a code is never used twice.
fn property_code(property: SystemProperty) -> u8 {
    match property {
        SystemProperty::MessageId => 0,
        SystemProperty::CorrelationId => 1,
        SystemProperty::To => 2,
        SystemProperty::ReplyTo => 3,
        SystemProperty::Label => 4,
        SystemProperty::SessionId => 5,
        SystemProperty::ReplyToSessionId => 6,
        SystemProperty::ContentType => 7,
        SystemProperty::TimeToLive => 8,
        SystemProperty::ScheduledEnqueueTimeUtc => 9,
        SystemProperty::PartitionKey => 10,
        SystemProperty::ViaPartitionKey => 11,
        SystemProperty::EnqueuedTimeUtc => 12,
        SystemProperty::ExpiresAtUtc => 13,
        SystemProperty::SequenceNumber => 14,
        SystemProperty::EnqueuedSequenceNumber => 15,
        SystemProperty::DeliveryCount => 16,
        SystemProperty::DeadLetterSource => 17,
        SystemProperty::Size => 18,
        SystemProperty::State => 19,
        SystemProperty::LockToken => 20,
        SystemProperty::LockedUntilUtc => 21,
    }
}

pub(super) fn decode(
    bytes: &[u8],
) -> Result<(FilterDefinition, Option<SqlDefinition>), DecodeError> {
    let mut reader = Reader { left: bytes };
    match reader.byte()? {
        VERSION => {}
        other => return Err(DecodeError::Version(other)),
    }
    let filter = match reader.byte()? {
        0 => FilterDefinition::True,
        1 => FilterDefinition::False,
        2 => FilterDefinition::Correlation(reader.several(EQUALITIES_MAX, Reader::equality)?),
        3 => FilterDefinition::Sql(reader.sql()?),
        code => {
            return Err(DecodeError::Code {
                what: "filter",
                code,
            });
        }
    };
    let action = match reader.byte()? {
        0 => None,
        1 => Some(reader.sql()?),
        code => {
            return Err(DecodeError::Code {
                what: "action",
                code,
            });
        }
    };
    match reader.left.len() {
        0 => Ok((filter, action)),
        surplus => Err(DecodeError::Surplus(surplus)),
    }
}

struct Reader<'b> {
    left: &'b [u8],
}

impl<'b> Reader<'b> {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, left) = self
            .left
            .split_first_chunk()
            .ok_or(DecodeError::Truncated)?;
        self.left = left;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<u32, DecodeError> {
        let mut number = 0;
        for shift in (0..u32::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u32::from(byte & 0x7F);
            if (bits << shift) >> shift != bits {
                return Err(DecodeError::Number);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                let is_shortest = byte != 0 || shift == 0;
                return is_shortest.then_some(number).ok_or(DecodeError::Number);
            }
        }
        Err(DecodeError::Number)
    }

    fn bytes(&mut self) -> Result<&'b [u8], DecodeError> {
        let length = self.number()?;
        let length = usize::try_from(length).map_err(|_| DecodeError::Truncated)?;
        let (taken, left) = self
            .left
            .split_at_checked(length)
            .ok_or(DecodeError::Truncated)?;
        self.left = left;
        Ok(taken)
    }

    fn text(&mut self) -> Result<Box<str>, DecodeError> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(Into::into).map_err(|_| DecodeError::NotUtf8)
    }

    /// The entries of a list.
    fn several<T>(
        &mut self,
        max: usize,
        read: impl Fn(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.number()?;
        if usize::try_from(count).map_or(true, |count| count > max) {
            return Err(DecodeError::Count { count, max });
        }
        (0..count).map(|_| read(self)).collect()
    }

    fn sql(&mut self) -> Result<SqlDefinition, DecodeError> {
        let text = self.text()?;
        let compatibility_level = match self.byte()? {
            0 => None,
            1 => Some(self.number()?),
            code => {
                return Err(DecodeError::Code {
                    what: "level",
                    code,
                });
            }
        };
        let parameters = self.several(PARAMETERS_MAX, |reader| {
            Ok((reader.text()?, reader.value()?))
        })?;
        Ok(SqlDefinition {
            text,
            parameters,
            compatibility_level,
        })
    }

    fn equality(&mut self) -> Result<Equality, DecodeError> {
        match self.byte()? {
            0 => Ok(Equality::User {
                name: self.text()?,
                value: self.value()?,
            }),
            1 => Ok(Equality::System {
                property: self.property()?,
                text: self.text()?,
            }),
            code => Err(DecodeError::Code {
                what: "condition",
                code,
            }),
        }
    }

    fn property(&mut self) -> Result<SystemProperty, DecodeError> {
        let code = self.byte()?;
        let mut all = SystemProperty::ALL.iter().copied();
        let what = "system property";
        all.find(|it| property_code(*it) == code)
            .ok_or(DecodeError::Code { what, code })
    }

    fn value(&mut self) -> Result<OwnedValue, DecodeError> {
        let code = self.byte()?;
        Ok(OwnedValue::Plain(match code {
            0 => Value::Null,
            1 => Value::Boolean(false),
            2 => Value::Boolean(true),
            3 => Value::Byte(i8::from_be_bytes(self.array()?)),
            4 => Value::Short(i16::from_be_bytes(self.array()?)),
            5 => Value::Int(i32::from_be_bytes(self.array()?)),
            6 => Value::Long(i64::from_be_bytes(self.array()?)),
            7 => Value::Ubyte(self.byte()?),
            8 => Value::Ushort(u16::from_be_bytes(self.array()?)),
            9 => Value::Uint(u32::from_be_bytes(self.array()?)),
            10 => Value::Ulong(u64::from_be_bytes(self.array()?)),
            11 => Value::Float(f32::from_bits(u32::from_be_bytes(self.array()?))),
            12 => Value::Double(f64::from_bits(u64::from_be_bytes(self.array()?))),
            13 => Value::Decimal(self.decimal()?),
            14 => {
                let number = u32::from_be_bytes(self.array()?);
                Value::Char(char::from_u32(number).ok_or(DecodeError::Value("char"))?)
            }
            15 => Value::Timestamp(i64::from_be_bytes(self.array()?)),
            16 => Value::Duration(i64::from_be_bytes(self.array()?)),
            17 => Value::Uuid(self.array()?),
            18 => return Ok(OwnedValue::Binary(self.bytes()?.into())),
            19 => return Ok(OwnedValue::Text(self.text()?)),
            20 => return Ok(OwnedValue::Symbol(self.text()?)),
            code => return Err(DecodeError::Code { what: "type", code }),
        }))
    }

    fn decimal(&mut self) -> Result<Decimal, DecodeError> {
        let is_negative = match self.byte()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Value("sign")),
        };
        let coefficient = u128::from_be_bytes(self.array()?);
        let exponent = i16::from_be_bytes(self.array()?);
        let decimal = Decimal::new(is_negative, coefficient, exponent);
        decimal.ok_or(DecodeError::Value("decimal"))
    }
}
