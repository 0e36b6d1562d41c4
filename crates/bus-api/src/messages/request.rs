//! Requests and their answers over a pair of links: of `$cbs` and of `$management`.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{DecodeError, Encode, Map, Raw, Text, Value};
use kew_amqp::message::{
    BodyKind, Header, Message, MessageId, Properties, write_application_properties, write_head,
    write_value,
};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) asked: Asked,
    /// `operation`, or empty.
    pub(crate) operation: String,
    pub(crate) properties: Map,
    /// Null if the body is not a value.
    pub(crate) body: Value,
}

/// The request that an answer belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    id: Option<MessageId>,
    pub(crate) reply_to: Option<Text>,
}

impl Request {
    pub(crate) fn read(payload: &[u8]) -> Result<Self, DecodeError> {
        let message = Message::scan(Bytes::copy_from_slice(payload))?;
        let properties = message.properties()?;
        let application = message.application_properties();
        let body = match message.body_kind() {
            BodyKind::Value => message.body_values().next(),
            _ => None,
        };
        Ok(Self {
            asked: Asked {
                id: properties.message_id,
                reply_to: properties.reply_to,
            },
            operation: text_of(&application, "operation").unwrap_or_default(),
            properties: application,
            body: body.map_or(Value::Null, |raw| raw.value()),
        })
    }
}

/// A string in a map.
pub(crate) fn text_of(map: &Map, key: &str) -> Option<String> {
    map.get(key)?.value().as_str().map(str::to_owned)
}

/// The value of a field, if it is present and not null.
pub(crate) fn present(map: &Map, field: &str) -> Option<Value> {
    let value = map.get(field).map(|raw| raw.value());
    value.filter(|value| *value != Value::Null)
}

/// An answer, encoded: `write_properties` are its application properties.
pub(crate) fn encode_answer(asked: &Asked, properties: &Map, body: &Raw) -> Bytes {
    let mut out = BytesMut::new();
    write_head(
        &mut out,
        &Header::default(),
        &Map::default(),
        &Map::default(),
    );
    let answer = Properties {
        correlation_id: asked.id.clone(),
        to: asked.reply_to.clone(),
        ..Properties::default()
    };
    answer.encode(&mut out);
    write_application_properties(&mut out, properties);
    write_value(&mut out, body);
    out.freeze()
}
