//! The sections with fields of their own.

use bytes::{Bytes, BytesMut};

use crate::codec::{
    Composite, Decode, DecodeError, Encode, Map, Reader, Symbol, Text, Timestamp, Uuid, Value,
    code, composite, write_described,
};

composite! {
    /// How to transfer a message.
    #[derive(Default)]
    pub struct Header = 0x70 "amqp:header:list" {
        /// Whether it outlives a crash.
        durable: bool = false,
        /// Higher values first. 4 is usual.
        priority: Option<u8>,
        /// After how many milliseconds it expires.
        ttl: Option<u32>,
        /// Whether no other receiver has acquired it before.
        first_acquirer: bool = false,
        /// How many deliveries have failed.
        delivery_count: u32 = 0,
    }
}

composite! {
    /// What its producer says about a message.
    #[derive(Default)]
    pub struct Properties = 0x73 "amqp:properties:list" {
        /// Its id.
        message_id: Option<MessageId>,
        /// The user who produced it.
        user_id: Option<Bytes>,
        /// The node that it is sent to.
        to: Option<Text>,
        /// Its subject.
        subject: Option<Text>,
        /// The node for answers.
        reply_to: Option<Text>,
        /// The message that it answers.
        correlation_id: Option<MessageId>,
        /// The type of the body.
        content_type: Option<Symbol>,
        /// How the body is encoded.
        content_encoding: Option<Symbol>,
        /// When it expires.
        absolute_expiry_time: Option<Timestamp>,
        /// When it was made.
        creation_time: Option<Timestamp>,
        /// The group that it belongs to.
        group_id: Option<Text>,
        /// Its place in the group.
        group_sequence: Option<u32>,
        /// The group for answers.
        reply_to_group_id: Option<Text>,
    }
}

/// The id of a message, of one of the four possible types. An answer keeps the type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MessageId {
    /// A number.
    Ulong(u64),
    /// A UUID.
    Uuid(Uuid),
    /// Bytes.
    Binary(Bytes),
    /// A text.
    String(Text),
}

impl Decode for MessageId {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let found = reader.peek()?;
        match reader.value()? {
            Value::Ulong(number) => Ok(Self::Ulong(number)),
            Value::Uuid(uuid) => Ok(Self::Uuid(uuid)),
            Value::Binary(bytes) => Ok(Self::Binary(bytes)),
            Value::String(text) => Ok(Self::String(text)),
            _ => Err(DecodeError::WrongType {
                expected: "a message id",
                found,
            }),
        }
    }
}

impl Encode for MessageId {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Ulong(number) => number.encode(out),
            Self::Uuid(uuid) => uuid.encode(out),
            Self::Binary(bytes) => bytes.encode(out),
            Self::String(text) => text.encode(out),
        }
    }
}

/// The sections that are read to be checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sections {
    /// The header.
    pub header: Header,
    /// The message annotations.
    pub message_annotations: Map,
    /// The properties.
    pub properties: Properties,
}

/// Skips the value of a section and checks it.
pub(super) fn check(
    section: u64,
    reader: &mut Reader<'_>,
    sections: &mut Sections,
) -> Result<(), DecodeError> {
    match section {
        super::HEADER => Header::read_list(reader).map(|it| sections.header = it),
        super::PROPERTIES => Properties::read_list(reader).map(|it| sections.properties = it),
        super::DATA => Bytes::decode(reader).map(drop),
        super::AMQP_SEQUENCE => match reader.peek()? {
            code::LIST0 | code::LIST8 | code::LIST32 => reader.skip(),
            found => Err(DecodeError::WrongType {
                expected: "a list",
                found,
            }),
        },
        super::AMQP_VALUE => reader.skip(),
        super::MESSAGE_ANNOTATIONS => {
            Map::decode(reader).map(|it| sections.message_annotations = it)
        }
        _ => Map::decode(reader).map(drop),
    }
}

/// Writes a section of a body of bytes.
pub fn write_data(out: &mut BytesMut, data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    write_described(out, super::DATA, |out| data.encode(out));
}
