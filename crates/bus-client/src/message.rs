//! Encodes and reads messages.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map, Value};
use kew_amqp::message::{Header, Message, MessageId, Properties, write_data, write_head};

use crate::Error;

/// An encoded message: durable, with an id, and with a session id if one is given.
pub fn message(body: &[u8], id: u64, session: Option<&str>) -> Bytes {
    let header = Header {
        durable: true,
        ..Header::default()
    };
    let properties = Properties {
        message_id: Some(MessageId::Ulong(id)),
        group_id: session.map(Into::into),
        ..Properties::default()
    };
    let mut out = BytesMut::with_capacity(body.len() + 64);
    write_head(&mut out, &header, &Map::default(), &Map::default());
    properties.encode(&mut out);
    write_data(&mut out, body);
    out.freeze()
}

/// The format of a message whose body is a batch of messages.
pub(crate) const BATCH_FORMAT: u32 = 0x8001_3700;

/// A batch: each message in a data section of its own.
pub(crate) fn batch(messages: &[Bytes]) -> Bytes {
    let size: usize = messages.iter().map(|message| message.len() + 16).sum();
    let mut out = BytesMut::with_capacity(size);
    for message in messages {
        write_data(&mut out, message);
    }
    out.freeze()
}

/// The bytes of a message's body.
pub fn body_of(message: &Message) -> Result<Bytes, Error> {
    match message.body_values().next().map(|raw| raw.value()) {
        Some(Value::Binary(body)) => Ok(body),
        other => Err(Error::Unexpected(format!("the body is {other:?}"))),
    }
}

/// How many deliveries of a message failed before.
pub fn delivery_count(message: &Message) -> u32 {
    message.header().map_or(0, |header| header.delivery_count)
}

/// A message's order in its queue.
pub fn sequence_number(message: &Message) -> Option<i64> {
    let annotations = message.message_annotations();
    let number = annotations.get("x-opt-sequence-number")?.value();
    number.as_integer()
}

/// Until when its lock holds, in milliseconds since 1970.
pub fn locked_until_ms(message: &Message) -> Option<i64> {
    match message
        .message_annotations()
        .get("x-opt-locked-until")?
        .value()
    {
        Value::Timestamp(at) => Some(at.0),
        _ => None,
    }
}
