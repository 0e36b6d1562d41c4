//! Messages that are sent together, and are taken together or not at all.

use bytes::{Bytes, BytesMut};
use kew_amqp::message::write_batch;

use super::encoded::Encoded;
use super::message::Message;
use crate::error::Error;

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
        Ok(self.try_add_encoded(&Encoded::new(message.encode()?)?))
    }

    /// Adds a message that is sent exactly as it is. Says whether there was room for it.
    pub fn try_add_encoded(&mut self, message: &Encoded) -> bool {
        let envelope = match self.messages.is_empty() {
            true => message.envelope(),
            false => Bytes::new(),
        };
        let size_bytes = self.size_bytes + envelope.len() + message.size_in_batch();
        if size_bytes > self.size_bytes_max {
            return false;
        }
        if self.messages.is_empty() {
            self.envelope = envelope;
        }
        self.size_bytes = size_bytes;
        self.messages.push(message.bytes().clone());
        true
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
