//! Messages in the encoding of AMQP, for programs that must keep all of a message.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map, Symbol, hex};
use kew_amqp::message::{Header, Message as Scanned, MessageId, Properties, write_head};

use crate::error::Error;

/// What a data section takes beside its bytes.
const SECTION_SIZE: usize = 8;

const PARTITION_KEY: &str = "x-opt-partition-key";

/// A message to be sent exactly as it is: with every section, and the type of every value.
///
/// A [`Message`](super::Message) is simpler, and holds what most applications use.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    bytes: Bytes,
    properties: Properties,
    partition_key: Option<String>,
}

impl Encoded {
    /// A message in the encoding of AMQP 1.0, 3.2. Fails if the bytes are something else.
    pub fn new(bytes: Bytes) -> Result<Self, Error> {
        let wrong = |error| Error::refused(format!("the bytes are no message of AMQP: {error}"));
        let scanned = Scanned::scan(bytes).map_err(wrong)?;
        scanned.header().map_err(wrong)?;
        let properties = scanned.properties().map_err(wrong)?;
        let partition_key = scanned.message_annotations().get(PARTITION_KEY);
        let partition_key = partition_key.and_then(|key| key.value().as_str().map(str::to_owned));
        Ok(Self {
            bytes: scanned.bytes().clone(),
            properties,
            partition_key,
        })
    }

    /// The message as it is sent.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How much a batch grows by it, in bytes.
    pub(super) fn size_in_batch(&self) -> usize {
        self.bytes.len() + SECTION_SIZE
    }

    /// The message id as a text, whatever its type.
    pub(super) fn id(&self) -> String {
        match &self.properties.message_id {
            Some(MessageId::String(id)) => id.as_str().to_owned(),
            Some(MessageId::Ulong(id)) => id.to_string(),
            Some(MessageId::Uuid(id)) => hex(&id.0),
            Some(MessageId::Binary(id)) => hex(id),
            None => String::new(),
        }
    }

    pub(super) fn session_id(&self) -> Option<&str> {
        self.properties.group_id.as_ref().map(|id| id.as_str())
    }

    pub(super) fn partition_key(&self) -> Option<&str> {
        self.partition_key.as_deref()
    }

    /// Its id, session and partition, which say where a batch goes that begins with it.
    pub(super) fn envelope(&self) -> Bytes {
        let header = Header {
            durable: true,
            ..Header::default()
        };
        let annotations = Map::build(|map| {
            if let Some(key) = &self.partition_key {
                map.entry(&Symbol::from_static(PARTITION_KEY), key.as_str());
            }
        });
        let routing = Properties {
            message_id: self.properties.message_id.clone(),
            group_id: self.properties.group_id.clone(),
            ..Properties::default()
        };
        let mut out = BytesMut::new();
        write_head(&mut out, &header, &Map::default(), &annotations);
        routing.encode(&mut out);
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use kew_amqp::codec::Uuid;

    use super::super::message::Message;
    use super::*;

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&b"nothing"[..], b"\x00\x53\x75"] {
            assert!(
                Encoded::new(Bytes::from_static(bytes)).is_err(),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn ids_of_every_type_are_texts() {
        for (id, expected) in [
            (MessageId::Ulong(5), "5"),
            (MessageId::Uuid(Uuid([0xa0; 16])), &*"a0".repeat(16)),
            (MessageId::Binary(Bytes::from_static(b"\x00\xff")), "00ff"),
        ] {
            let mut out = BytesMut::new();
            let properties = Properties {
                message_id: Some(id),
                ..Properties::default()
            };
            properties.encode(&mut out);
            assert_eq!(Encoded::new(out.freeze()).unwrap().id(), expected);
        }
    }

    #[test]
    fn where_a_batch_goes_is_read() {
        let message = Message {
            id: Some("id".to_owned()),
            session_id: Some("s".to_owned()),
            partition_key: Some("s".to_owned()),
            ..Message::new("body")
        };
        let encoded = Encoded::new(message.encode().unwrap()).unwrap();
        assert_eq!(encoded.id(), "id");
        assert_eq!(encoded.session_id(), Some("s"));
        assert_eq!(encoded.partition_key(), Some("s"));
        let envelope = Encoded::new(encoded.envelope()).unwrap();
        assert_eq!(envelope.session_id(), Some("s"));
        assert_eq!(envelope.partition_key(), Some("s"));
    }
}
