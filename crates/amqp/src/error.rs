//! Errors as AMQP sends them (AMQP 1.0, 2.8.14 to 2.8.18).

use std::fmt;

use bytes::BytesMut;

use crate::codec::{
    Composite, Decode, DecodeError, Encode, ListReader, ListWriter, Map, Reader, Symbol, Text,
};

/// Why something was refused or ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// The kind of error. See [`condition`].
    pub condition: Symbol,
    /// For a person to read.
    pub description: Option<Text>,
    /// More about it.
    pub info: Option<Map>,
}

impl Composite for Error {
    const CODE: u64 = 0x1d;
    const NAME: &'static str = "amqp:error:list";

    fn read_fields(list: &mut ListReader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            condition: list
                .next_field()?
                .ok_or(DecodeError::MissingField("condition"))?,
            description: list.next_field::<Option<Text>>()?.flatten(),
            info: list.next_field::<Option<Map>>()?.flatten(),
        })
    }

    /// Always all three: the Python SDK reads the third without checking whether it is present.
    fn write_fields(&self, list: &mut ListWriter<'_>) {
        list.field(&self.condition);
        list.with(|out| self.description.encode(out));
        list.with(|out| self.info.encode(out));
    }
}

impl Decode for Error {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::read(reader)
    }
}

impl Encode for Error {
    fn encode(&self, out: &mut BytesMut) {
        self.write(out);
    }
}

impl Error {
    /// An error of a known kind, with a text.
    pub fn new(condition: &'static str, description: impl Into<String>) -> Self {
        Self {
            condition: Symbol::from_static(condition),
            description: Some(description.into().into()),
            info: None,
        }
    }

    /// The same error with only its kind.
    pub(crate) fn bare(&self) -> Self {
        Self {
            condition: self.condition.clone(),
            description: None,
            info: None,
        }
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::new(condition::DECODE_ERROR, error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.condition)?;
        match &self.description {
            Some(description) => write!(f, ": {description}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// The conditions of the specification.
#[expect(
    missing_docs,
    reason = "AMQP 1.0, 2.8.15 to 2.8.18 and 4.5.8, under their names"
)]
pub mod condition {
    pub const INTERNAL_ERROR: &str = "amqp:internal-error";
    pub const NOT_FOUND: &str = "amqp:not-found";
    pub const UNAUTHORIZED_ACCESS: &str = "amqp:unauthorized-access";
    pub const DECODE_ERROR: &str = "amqp:decode-error";
    pub const RESOURCE_LIMIT_EXCEEDED: &str = "amqp:resource-limit-exceeded";
    pub const NOT_ALLOWED: &str = "amqp:not-allowed";
    pub const INVALID_FIELD: &str = "amqp:invalid-field";
    pub const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
    pub const RESOURCE_LOCKED: &str = "amqp:resource-locked";
    pub const PRECONDITION_FAILED: &str = "amqp:precondition-failed";
    pub const RESOURCE_DELETED: &str = "amqp:resource-deleted";
    pub const ILLEGAL_STATE: &str = "amqp:illegal-state";
    pub const FRAME_SIZE_TOO_SMALL: &str = "amqp:frame-size-too-small";
    pub const CONNECTION_FORCED: &str = "amqp:connection:forced";
    pub const FRAMING_ERROR: &str = "amqp:connection:framing-error";
    pub const CONNECTION_REDIRECT: &str = "amqp:connection:redirect";
    pub const WINDOW_VIOLATION: &str = "amqp:session:window-violation";
    pub const ERRANT_LINK: &str = "amqp:session:errant-link";
    pub const HANDLE_IN_USE: &str = "amqp:session:handle-in-use";
    pub const UNATTACHED_HANDLE: &str = "amqp:session:unattached-handle";
    pub const DETACH_FORCED: &str = "amqp:link:detach-forced";
    pub const TRANSFER_LIMIT_EXCEEDED: &str = "amqp:link:transfer-limit-exceeded";
    pub const MESSAGE_SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
    pub const LINK_REDIRECT: &str = "amqp:link:redirect";
    pub const STOLEN: &str = "amqp:link:stolen";
    pub const TRANSACTION_UNKNOWN_ID: &str = "amqp:transaction:unknown-id";
    pub const TRANSACTION_ROLLBACK: &str = "amqp:transaction:rollback";
    pub const TRANSACTION_TIMEOUT: &str = "amqp:transaction:timeout";
}
