//! Errors of decoding.

/// Bytes that are not an AMQP value, or not the value that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A value continues after the end of the bytes.
    #[error("a value needs {needed} bytes, but only {left} are left")]
    Truncated {
        /// The size of the value's remaining part.
        needed: u64,
        /// The size of the remaining bytes.
        left: u64,
    },
    /// A list, map or array that has bytes left after its last element.
    #[error("{0} bytes follow the last element of a compound value")]
    Surplus(u64),
    /// Not a code of the specification.
    #[error("0x{0:02x} is not a format code")]
    UnknownCode(u8),
    /// A value of an unexpected type.
    #[error("expected {expected}, found a value with code 0x{found:02x}")]
    WrongType {
        /// The expected type.
        expected: &'static str,
        /// The code that was found.
        found: u8,
    },
    /// More elements than bytes, or too many elements without bytes.
    #[error("{count} elements are declared, at most {limit} are allowed there")]
    TooManyElements {
        /// The claim.
        count: u32,
        /// The allowed number.
        limit: u64,
    },
    /// A map with a key that has no value.
    #[error("a map has {0} elements, and must have an even number")]
    OddMap(u32),
    /// Values within values within values.
    #[error("values are nested more than {} levels deep", super::DEPTH_MAX)]
    TooDeep,
    /// A string that is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// A symbol that is not ASCII.
    #[error("a symbol is not ASCII")]
    NotAscii,
    /// A character that is not a Unicode scalar value.
    #[error("0x{0:x} is not a character")]
    NotAChar(u32),
    /// A boolean that is neither 0 nor 1.
    #[error("a boolean is 0x{0:02x}, and must be 0x00 or 0x01")]
    NotABoolean(u8),
    /// An unknown composite value, or one that is not allowed there.
    #[error("the descriptor 0x{0:x} is not allowed there")]
    UnknownDescriptor(u64),
    /// The same, with a symbol as descriptor.
    #[error("the descriptor symbol is not allowed there")]
    UnknownDescriptorSymbol,
    /// A mandatory field that is null or absent.
    #[error("the mandatory field {0} is missing")]
    MissingField(&'static str),
    /// A field with a value that the specification does not list.
    #[error("the field {field} has the invalid value {value}")]
    BadChoice {
        /// Which field.
        field: &'static str,
        /// The value that was found.
        value: u64,
    },
    /// A composite with more fields than the specification defines.
    #[error("{0} unknown fields follow the last known field")]
    UnknownFields(u32),
    /// A delivery tag of more than 32 bytes.
    #[error("a delivery tag has {0} bytes, at most 32 are allowed")]
    LongTag(usize),
    /// A section of a message that is repeated or comes too late.
    #[error("the message section 0x{0:x} is repeated or out of order")]
    SectionOrder(u64),
    /// A batch that has other sections than data sections, or none.
    #[error("the body of a batch must consist of data sections")]
    NotABatch,
}
