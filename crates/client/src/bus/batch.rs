//! Messages that are sent together, and are taken together or not at all.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map};
use kew_amqp::message::{Header, write_batch, write_head};

use super::message::Message;
use crate::error::Error;

/// What a data section takes beside its bytes.
const SECTION_SIZE: usize = 8;

/// Messages that are sent together. All of them are accepted, or none.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What describes the whole: that of its first message.
    envelope: Bytes,
    messages: Vec<Bytes>,
    size_bytes: usize,
    size_bytes_max: usize,
}

impl Batch {
    pub(super) fn new(size_bytes_max: usize) -> Self {
        Self {
            envelope: Bytes::new(),
            messages: Vec::new(),
            size_bytes: 0,
            size_bytes_max,
        }
    }

    /// Adds a message. Says whether there was room for it.
    ///
    /// Fails if the message cannot be written at all.
    pub fn try_add(&mut self, message: &Message) -> Result<bool, Error> {
        let encoded = message.encode()?;
        let envelope = match self.messages.is_empty() {
            true => envelope_of(message)?,
            false => Bytes::new(),
        };
        let size_bytes = self.size_bytes + envelope.len() + encoded.len() + SECTION_SIZE;
        if size_bytes > self.size_bytes_max {
            return Ok(false);
        }
        if self.messages.is_empty() {
            self.envelope = envelope;
        }
        self.size_bytes = size_bytes;
        self.messages.push(encoded);
        Ok(true)
    }

    /// How many messages it has.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// How large it is, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.size_bytes);
        out.extend_from_slice(&self.envelope);
        write_batch(&mut out, &self.messages);
        out.freeze()
    }
}

/// The id, the session and the partition of a message, which say where the batch goes.
fn envelope_of(message: &Message) -> Result<Bytes, Error> {
    let mut out = BytesMut::new();
    let routing = Message {
        id: message.id.clone(),
        session_id: message.session_id.clone(),
        partition_key: message.partition_key.clone(),
        ..Message::default()
    };
    let header = Header {
        durable: true,
        ..Header::default()
    };
    write_head(&mut out, &header, &Map::default(), &routing.annotations());
    routing.amqp_properties()?.encode(&mut out);
    Ok(out.freeze())
}

#[cfg(test)]
mod tests {
    use kew_amqp::message::{Message as Scanned, batch_messages};

    use super::*;

    #[test]
    fn a_batch_holds_what_fits_and_is_as_large_as_it_says() {
        let mut batch = Batch::new(1_000);
        let message = Message {
            id: Some("first".to_owned()),
            ..Message::new(vec![7; 300])
        };
        let mut added = 0;
        while batch.try_add(&message).unwrap() {
            added += 1;
        }
        assert_eq!((added, batch.len()), (2, 2));
        let encoded = batch.encode();
        assert!(encoded.len() <= batch.size_bytes() && batch.size_bytes() <= 1_000);
        let scanned = Scanned::scan(encoded).unwrap();
        let id = scanned.properties().unwrap().message_id;
        assert_eq!(id, message.amqp_properties().unwrap().message_id);
        assert_eq!(batch_messages(&scanned).unwrap().count(), 2);
    }
}
