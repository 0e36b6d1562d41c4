//! Encodes and reads messages.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map, Value};
use kew_amqp::message::{
    Header, Message, MessageId, Properties, write_application_properties, write_data, write_head,
};

use super::Error;

/// An encoded message: durable, with an id, and with a session id if one is given.
pub fn message(body: &[u8], id: u64, session: Option<&str>) -> Bytes {
    encode(body, id, session, &Map::default())
}

/// An encoded message as [`message`], with the application property `color`, for rules.
pub fn colored_message(body: &[u8], id: u64, color: &str) -> Bytes {
    let properties = Map::build(|map| map.entry("color", color));
    encode(body, id, None, &properties)
}

fn encode(body: &[u8], id: u64, session: Option<&str>, application_properties: &Map) -> Bytes {
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
    if !application_properties.is_empty() {
        write_application_properties(&mut out, application_properties);
    }
    write_data(&mut out, body);
    out.freeze()
}

/// The bytes of a message's body.
pub fn body_of(message: &Message) -> Result<Bytes, Error> {
    match message.body_values().next().map(|raw| raw.value()) {
        Some(Value::Binary(body)) => Ok(body),
        other => Err(Error::Unexpected(format!("the body is {other:?}"))),
    }
}
