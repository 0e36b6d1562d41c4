//! `QueueMessagesList`, the answer of Put Message, Get Messages and Peek Messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use kew_engine::{BodyEncoding, Timestamp, Token};
use kew_xml::{DECLARATION, put_text};

use crate::limits::TEXT_SIZE_BYTES_MAX;
use crate::version::Version;
use crate::{date, id};

/// The size of a document besides texts, in bytes: for itself, and for each message.
const ENVELOPE_SIZE_BYTES: usize = 128;
const MESSAGE_SIZE_BYTES: usize = 512;

/// A message of a list. What is `None` has no element.
pub(super) struct Listed<'a> {
    pub(super) message: Token,
    pub(super) inserted_at: Timestamp,
    pub(super) expires_at: Timestamp,
    /// The receipt, and the time until which the message is hidden.
    pub(super) lease: Option<(Token, Timestamp)>,
    pub(super) delivery_count: Option<u32>,
    pub(super) text: Option<(BodyEncoding, &'a Bytes)>,
}

/// The likely size of a list with that many messages: texts of the maximum length, with few escaped
/// characters.
pub(super) fn size_bytes(message_count: u32) -> usize {
    let message_count = usize::try_from(message_count).unwrap_or(usize::MAX);
    message_count.saturating_mul(MESSAGE_SIZE_BYTES + TEXT_SIZE_BYTES_MAX)
}

/// A delivery count as a version shows it: the oldest versions do not.
pub(super) fn delivery_count(count: u32, version: Version) -> Option<u32> {
    (version >= Version::V2009_09_19).then_some(count)
}

/// The list of these messages.
pub(super) fn document<'a>(
    messages: impl ExactSizeIterator<Item = Listed<'a>> + Clone,
) -> BytesMut {
    let texts = messages.clone().filter_map(|listed| listed.text);
    let text_size_bytes: usize = texts.map(|(_, text)| text.len()).sum();
    let size_bytes = ENVELOPE_SIZE_BYTES + messages.len() * MESSAGE_SIZE_BYTES + text_size_bytes;
    let mut out = BytesMut::with_capacity(size_bytes);
    out.put_slice(DECLARATION);
    if messages.len() == 0 {
        out.put_slice(b"<QueueMessagesList />");
        return out;
    }
    out.put_slice(b"<QueueMessagesList>");
    for listed in messages {
        out.put_slice(b"<QueueMessage>");
        listed.put(&mut out);
        out.put_slice(b"</QueueMessage>");
    }
    out.put_slice(b"</QueueMessagesList>");
    out
}

impl Listed<'_> {
    fn put(&self, out: &mut BytesMut) {
        put_element(out, "MessageId", &id::guid(self.message.as_bytes()));
        put_element(out, "InsertionTime", &date::rfc1123(self.inserted_at));
        put_element(out, "ExpirationTime", &date::rfc1123(self.expires_at));
        if let Some((receipt, visible_at)) = &self.lease {
            put_element(out, "PopReceipt", &id::pop_receipt(receipt));
            put_element(out, "TimeNextVisible", &date::rfc1123(*visible_at));
        }
        if let Some(count) = self.delivery_count {
            put_element(out, "DequeueCount", count.to_string().as_bytes());
        }
        if let Some((encoding, text)) = self.text {
            put_body(out, encoding, text);
        }
    }
}

/// An element whose text needs no escapes.
fn put_element(out: &mut BytesMut, name: &str, text: &[u8]) {
    out.put_u8(b'<');
    out.put_slice(name.as_bytes());
    out.put_u8(b'>');
    out.put_slice(text);
    out.put_slice(b"</");
    out.put_slice(name.as_bytes());
    out.put_u8(b'>');
}

/// Writes the text of a message: unchanged, or as Base64 if the message was put as bytes.
fn put_body(out: &mut BytesMut, encoding: BodyEncoding, body: &Bytes) {
    if body.is_empty() {
        out.put_slice(b"<MessageText />");
        return;
    }
    out.put_slice(b"<MessageText>");
    match encoding {
        BodyEncoding::Text => put_text(out, body),
        BodyEncoding::Raw => out.put_slice(STANDARD.encode(body).as_bytes()),
    }
    out.put_slice(b"</MessageText>");
}
