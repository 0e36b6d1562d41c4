//! A message as HTTP shows it: the stored message and the queue's facts about it, decoded.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Map, Value};
use kew_amqp::message::{BodyKind, Header, Message, Properties};
use kew_bus_message::Merged;

use crate::messages::outbound::{DEAD_LETTER_SOURCE, Facts, encode, without_lock_token};

/// The content type of a body that is neither bytes nor text: its sections in AMQP's encoding.
const AMQP_ENCODED: &str = "application/amqp";

/// A message that can be shown.
#[derive(Clone, Debug)]
pub(in crate::http) struct Shown {
    pub(in crate::http) facts: Facts,
    pub(in crate::http) properties: Properties,
    pub(in crate::http) annotations: Map,
    application_properties: Map,
    sent_header: Header,
    message: Message,
}

impl Shown {
    /// From the stored bytes: the message, then the changes to its properties. `None` if that is
    /// not a message, which cannot result from any send.
    pub(in crate::http) fn of(facts: Facts, mut stored: Vec<Bytes>) -> Option<Self> {
        if stored.is_empty() {
            return None;
        }
        let overlays = stored.split_off(1);
        let stored = stored.pop()?;
        let sent = Message::scan(stored.clone()).ok()?;
        let sent_header = Merged::of(&sent, &overlays).ok()?.header;
        let [head, rest] = encode(&facts, stored, &overlays)?;
        let mut whole = BytesMut::with_capacity(head.len() + rest.len());
        whole.extend_from_slice(&head);
        whole.extend_from_slice(&rest);
        let message = Message::scan(whole.freeze()).ok()?;
        Some(Self {
            facts,
            properties: message.properties().ok()?,
            annotations: message.message_annotations(),
            application_properties: message.application_properties(),
            sent_header,
            message,
        })
    }

    /// The memory that it takes, as long as any part of its body does.
    pub(in crate::http) fn size_bytes(&self) -> usize {
        self.message.bytes().len()
    }

    /// The application properties with names.
    pub(in crate::http) fn application_properties(&self) -> impl Iterator<Item = (String, Value)> {
        let properties = self.application_properties.iter();
        properties
            .filter_map(|(key, value)| Some((key.value().as_str()?.to_owned(), value.value())))
    }

    /// An application property that is text.
    pub(in crate::http) fn text_property(&self, name: &str) -> Option<String> {
        let value = self.application_properties.get(name)?.value();
        value.as_str().map(str::to_owned)
    }

    /// The bytes of the body: of all data sections, or of a string or binary value. Any other body
    /// is shown in AMQP's encoding.
    pub(in crate::http) fn body(&self) -> Bytes {
        match self.plain_body() {
            Some(body) => body,
            None => self.message.body(),
        }
    }

    fn plain_body(&self) -> Option<Bytes> {
        let mut values = self.message.body_values().map(|raw| raw.value());
        match self.message.body_kind() {
            BodyKind::Empty => Some(Bytes::new()),
            BodyKind::Value => match values.next()? {
                Value::String(text) => Some(Bytes::copy_from_slice(text.as_str().as_bytes())),
                Value::Binary(bytes) => Some(bytes),
                Value::Null => Some(Bytes::new()),
                _ => None,
            },
            BodyKind::Data => {
                let parts: Vec<Bytes> = values
                    .filter_map(|value| match value {
                        Value::Binary(bytes) => Some(bytes),
                        _ => None,
                    })
                    .collect();
                match parts.as_slice() {
                    [one] => Some(one.clone()),
                    parts => Some(parts.concat().into()),
                }
            }
            BodyKind::Sequence => None,
        }
    }

    /// The content type: the sender's, unless the body is shown in AMQP's encoding.
    pub(in crate::http) fn content_type(&self) -> Option<&str> {
        if self.plain_body().is_none() {
            return Some(AMQP_ENCODED);
        }
        self.properties.content_type.as_ref().map(|it| it.as_str())
    }

    /// The body's sections, encoded.
    pub(in crate::http) fn encoded_body(&self) -> Bytes {
        self.message.body()
    }

    /// The footer, encoded.
    pub(in crate::http) fn footer(&self) -> Bytes {
        self.message.footer()
    }

    /// The delivery annotations that its sender gave it.
    pub(in crate::http) fn delivery_annotations(&self) -> Map {
        without_lock_token(self.message.delivery_annotations())
    }

    /// The sender's header, with the time to live that an action gave it, as if the message had not been delivered yet.
    pub(in crate::http) fn sent_header(&self) -> Header {
        Header {
            delivery_count: 0,
            ..self.sent_header.clone()
        }
    }

    /// The sender's partition key.
    pub(in crate::http) fn partition_key(&self) -> Option<String> {
        self.text_annotation("x-opt-partition-key")
    }

    /// The queue that made it a dead letter, if it was forwarded since.
    pub(in crate::http) fn dead_letter_source(&self) -> Option<String> {
        self.text_annotation(DEAD_LETTER_SOURCE)
    }

    fn text_annotation(&self, name: &str) -> Option<String> {
        let value = self.annotations.get(name)?.value();
        value.as_str().map(str::to_owned)
    }
}
