//! What can be wrong with bytes that should be values.

/// Bytes that are no AMQP value, or not the one that belongs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A value goes on where the bytes end.
    #[error("a value needs {needed} bytes where {left} are left")]
    Truncated {
        /// Size of what should follow.
        needed: u64,
        /// Size of what does.
        left: u64,
    },
    /// A list, map or array whose elements end before it does.
    #[error("{0} bytes follow the last element of a compound value")]
    Surplus(u64),
    /// Not a code of the specification.
    #[error("0x{0:02x} is no format code")]
    UnknownCode(u8),
    /// A value of another type than belongs there.
    #[error("{expected} was expected, and a value with code 0x{found:02x} found")]
    WrongType {
        /// What belongs there.
        expected: &'static str,
        /// The code that is there.
        found: u8,
    },
    /// More elements than bytes, or too many of no bytes.
    #[error("{count} elements are claimed, at most {limit} are allowed there")]
    TooManyElements {
        /// The claim.
        count: u32,
        /// What is allowed.
        limit: u64,
    },
    /// A map with a key that has no value.
    #[error("a map has {0} elements, which is odd")]
    OddMap(u32),
    /// Values within values within values.
    #[error("values nest more than {} deep", super::DEPTH_MAX)]
    TooDeep,
    /// A string that is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// A symbol that is not ASCII.
    #[error("a symbol is not ASCII")]
    NotAscii,
    /// A character that is no Unicode scalar value.
    #[error("0x{0:x} is no character")]
    NotAChar(u32),
    /// A boolean that is neither 0 nor 1.
    #[error("a boolean is 0x{0:02x}")]
    NotABoolean(u8),
    /// A composite value where another belongs, or one that nobody knows.
    #[error("the descriptor 0x{0:x} does not belong there")]
    UnknownDescriptor(u64),
    /// The same for a descriptor that is a symbol.
    #[error("the descriptor symbol does not belong there")]
    UnknownDescriptorSymbol,
    /// A mandatory field that is null or absent.
    #[error("the mandatory field {0} is missing")]
    MissingField(&'static str),
    /// A field with a value that the specification does not list.
    #[error("the field {field} is {value}, which is no choice for it")]
    BadChoice {
        /// Which field.
        field: &'static str,
        /// What it says.
        value: u64,
    },
    /// A composite with more fields than the specification gives it.
    #[error("{0} fields follow the last one that is known")]
    UnknownFields(u32),
    /// A delivery tag of more than 32 bytes.
    #[error("a delivery tag has {0} bytes, 32 are allowed")]
    LongTag(usize),
    /// A section of a message that is there twice or after one that comes later.
    #[error("the message section 0x{0:x} is repeated or out of order")]
    SectionOrder(u64),
    /// A batch that has anything but data sections, or none.
    #[error("the body of a batch is not made of data sections")]
    NotABatch,
}
