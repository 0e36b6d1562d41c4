//! Service Bus batches: one transfer with many messages.

use bytes::{Bytes, BytesMut};

use super::{BodyKind, Message, write_data};
use crate::codec::{DecodeError, Value};

/// The message format of a batch. Each data section of its body is one encoded message.
///
/// Source: Azure Service Bus; the SDKs' message batches.
pub const BATCH_FORMAT: u32 = 0x8001_3700;

/// The messages of a batch, in their order. First checks that it is a batch.
pub fn batch_messages(
    batch: &Message,
) -> Result<impl Iterator<Item = Result<Message, DecodeError>>, DecodeError> {
    if batch.body_kind() != BodyKind::Data {
        return Err(DecodeError::NotABatch);
    }
    Ok(batch.body_values().map(|section| match section.value() {
        Value::Binary(bytes) => Message::scan(bytes),
        _ => Err(DecodeError::NotABatch),
    }))
}

/// Writes the body of a batch of encoded messages.
pub fn write_batch<'a>(out: &mut BytesMut, messages: impl IntoIterator<Item = &'a Bytes>) {
    for message in messages {
        write_data(out, message);
    }
}
