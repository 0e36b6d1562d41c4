//! `QueueMessagesList`, the answer of Put Message, Get Messages and Peek Messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use kew_engine::{BodyEncoding, Timestamp, Token};
use kew_xml::{DECLARATION, put_text};

use crate::limits::TEXT_SIZE_BYTES_MAX;
use crate::{date, id};

/// What a document needs besides texts, in bytes: for itself, and for each message.
const ENVELOPE_SIZE_BYTES: usize = 128;
const MESSAGE_SIZE_BYTES: usize = 512;

/// A field of a message, as XML shows it.
pub(super) enum Field {
    MessageId(Token),
    InsertionTime(Timestamp),
    ExpirationTime(Timestamp),
    PopReceipt(Token),
    TimeNextVisible(Timestamp),
    DequeueCount(u32),
}

/// What a list of that many messages may well need: texts are as long as they may be, and have few
/// characters that are escaped.
pub(super) fn size_bytes(message_count: u32) -> usize {
    let message_count = usize::try_from(message_count).unwrap_or(usize::MAX);
    message_count.saturating_mul(MESSAGE_SIZE_BYTES + TEXT_SIZE_BYTES_MAX)
}

/// Begins a list of that many messages with that many bytes of text in all.
pub(super) fn begin(message_count: usize, text_size_bytes: usize) -> BytesMut {
    let size_bytes = ENVELOPE_SIZE_BYTES + message_count * MESSAGE_SIZE_BYTES + text_size_bytes;
    let mut out = BytesMut::with_capacity(size_bytes);
    out.put_slice(DECLARATION);
    if message_count > 0 {
        out.put_slice(b"<QueueMessagesList>");
    } else {
        out.put_slice(b"<QueueMessagesList />");
    }
    out
}

/// Ends a list that has messages.
pub(super) fn end(mut out: BytesMut) -> BytesMut {
    out.put_slice(b"</QueueMessagesList>");
    out
}

pub(super) fn put(out: &mut BytesMut, field: Field) {
    match field {
        Field::MessageId(message) => {
            out.put_slice(b"<MessageId>");
            out.put_slice(&id::guid(message.as_bytes()));
            out.put_slice(b"</MessageId>");
        }
        Field::InsertionTime(at) => {
            out.put_slice(b"<InsertionTime>");
            out.put_slice(&date::rfc1123(at));
            out.put_slice(b"</InsertionTime>");
        }
        Field::ExpirationTime(at) => {
            out.put_slice(b"<ExpirationTime>");
            out.put_slice(&date::rfc1123(at));
            out.put_slice(b"</ExpirationTime>");
        }
        Field::PopReceipt(receipt) => {
            out.put_slice(b"<PopReceipt>");
            out.put_slice(&id::pop_receipt(&receipt));
            out.put_slice(b"</PopReceipt>");
        }
        Field::TimeNextVisible(at) => {
            out.put_slice(b"<TimeNextVisible>");
            out.put_slice(&date::rfc1123(at));
            out.put_slice(b"</TimeNextVisible>");
        }
        Field::DequeueCount(count) => {
            out.put_slice(b"<DequeueCount>");
            out.put_slice(count.to_string().as_bytes());
            out.put_slice(b"</DequeueCount>");
        }
    }
}

/// Writes the text of a message: as it is, or as Base64 if the message was put as bytes.
pub(super) fn put_body(out: &mut BytesMut, encoding: BodyEncoding, body: &Bytes) {
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
