//! Incoming messages.
//!
//! The stored form is a whole encoded message: the client's header, delivery annotations and
//! message annotations, and the bare message byte for byte. A message without an id gets one,
//! because SDKs cannot settle a message without. The lock token of a message that its sender
//! received before is removed: it does not belong to the new message.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode, Map, Value, hex};
use kew_amqp::error::{Error, condition};
use kew_amqp::message::{
    BATCH_FORMAT, Message, MessageId, Properties, batch_messages, write_application_properties,
    write_head,
};
use kew_bus_message::{MESSAGE_ID_LENGTH_MAX, SCHEDULED_ENQUEUE_TIME, time_to_live_ms};
use kew_engine::Timestamp;
use kew_engine::bus::{BusMessage, ITEMS_MAX};

use super::outbound::without_lock_token;
use crate::ground::refusal::bus_condition;

/// The largest size of a message without its body, in bytes: this part is copied with every copy of
/// the message, and is read by each peek.
///
/// Source: Service Bus, *Quotas*, message property size.
const HEADER_SIZE_BYTES_MAX: usize = 64 * 1024;

/// The largest application property, with its name, in bytes.
///
/// Source: the same.
const PROPERTY_SIZE_BYTES_MAX: usize = 32 * 1024;

/// The messages of a transfer: one, or those of a batch.
pub(crate) fn messages_of(payload: &Bytes, format: u32) -> Result<Vec<BusMessage>, Error> {
    // The payload may share the buffer of the socket, which must not live as long as the message:
    // all stored bytes are copied.
    let transfer = Message::scan(payload.clone())?;
    match format {
        0 => Ok(vec![stored(&transfer)?]),
        BATCH_FORMAT => {
            let messages = batch_messages(&transfer)?
                .take(ITEMS_MAX + 1)
                .map(|message| stored(&message?))
                .collect::<Result<Vec<_>, Error>>()?;
            if messages.is_empty() {
                let text = "a batch without messages";
                return Err(Error::new(bus_condition::ARGUMENT_ERROR, text));
            }
            Ok(messages)
        }
        other => Err(Error::new(
            condition::NOT_IMPLEMENTED,
            format!("message format {other:#x} is not supported: use 0 or {BATCH_FORMAT:#x}"),
        )),
    }
}

/// One encoded message, for example of a request to schedule it.
pub(crate) fn message_of(encoded: &Bytes) -> Result<BusMessage, Error> {
    stored(&Message::scan(encoded.clone())?)
}

fn stored(message: &Message) -> Result<BusMessage, Error> {
    let header = message.header()?;
    let annotations = message.message_annotations();
    check_sizes(message)?;
    let mut properties = message.properties()?;
    let mut body = BytesMut::with_capacity(message.bytes().len() + 64);
    let of_delivery = without_lock_token(message.delivery_annotations());
    write_head(&mut body, &header, &of_delivery, &annotations);
    if properties.message_id.is_some() {
        body.extend_from_slice(&message.bare_and_footer());
    } else {
        properties.message_id = Some(MessageId::String(new_id()?.into()));
        write_with_properties(&mut body, &properties, message);
    }
    let message_id = properties.message_id.as_ref().map(id_text);
    let is_too_long = |id: &str| id.chars().count() > MESSAGE_ID_LENGTH_MAX;
    if message_id.as_deref().is_some_and(is_too_long) {
        let text = format!("the message id is longer than {MESSAGE_ID_LENGTH_MAX} characters");
        return Err(Error::new(bus_condition::ARGUMENT_OUT_OF_RANGE, text));
    }
    let [created, expires] = [properties.creation_time, properties.absolute_expiry_time];
    let life_ms = time_to_live_ms(header.ttl, created.map(|at| at.0), expires.map(|at| at.0));
    Ok(BusMessage {
        body: body.freeze(),
        message_id,
        session: properties.group_id.map(|id| id.as_str().into()),
        time_to_live_ms: life_ms,
        scheduled_at: scheduled_at(&annotations)?,
    })
}

fn check_sizes(message: &Message) -> Result<(), Error> {
    let too_large = |what: &str, size_bytes: usize, limit_bytes: usize| {
        let text =
            format!("{what} of {size_bytes} bytes is above the maximum of {limit_bytes} bytes");
        Err(Error::new(condition::MESSAGE_SIZE_EXCEEDED, text))
    };
    let size_bytes = message.bytes().len() - message.body().len();
    if size_bytes > HEADER_SIZE_BYTES_MAX {
        let what = "a message header with all of its properties";
        return too_large(what, size_bytes, HEADER_SIZE_BYTES_MAX);
    }
    // No property is larger than all of them together.
    if size_bytes <= PROPERTY_SIZE_BYTES_MAX {
        return Ok(());
    }
    let properties = message.application_properties();
    let mut sizes = properties
        .iter()
        .map(|(key, value)| key.as_bytes().len() + value.as_bytes().len());
    match sizes.find(|&size_bytes| size_bytes > PROPERTY_SIZE_BYTES_MAX) {
        Some(size_bytes) => too_large(
            "an application property",
            size_bytes,
            PROPERTY_SIZE_BYTES_MAX,
        ),
        None => Ok(()),
    }
}

/// The message again, with other properties.
fn write_with_properties(out: &mut BytesMut, properties: &Properties, message: &Message) {
    properties.encode(out);
    write_application_properties(out, &message.application_properties());
    out.extend_from_slice(&message.body());
    out.extend_from_slice(&message.footer());
}

fn scheduled_at(annotations: &Map) -> Result<Option<Timestamp>, Error> {
    match annotations
        .get(SCHEDULED_ENQUEUE_TIME)
        .map(|raw| raw.value())
    {
        None | Some(Value::Null) => Ok(None),
        // A time before 1970 has passed.
        Some(Value::Timestamp(at)) => Ok(u64::try_from(at.0).ok().map(Timestamp::from_ms)),
        Some(_) => Err(Error::new(
            bus_condition::ARGUMENT_ERROR,
            format!("the annotation {SCHEDULED_ENQUEUE_TIME} is not a timestamp"),
        )),
    }
}

/// An id in the form for comparing duplicates: ids of different types may be equal.
/// The text by which duplicates are detected: what rules see of the id, also where the message is forwarded to.
fn id_text(id: &MessageId) -> Box<str> {
    match id {
        MessageId::String(text) => text.as_str().into(),
        MessageId::Ulong(number) => number.to_string().into(),
        MessageId::Uuid(uuid) => uuid.text().into(),
        MessageId::Binary(bytes) => hex(bytes).into(),
    }
}

/// An id for a message whose sender set none.
fn new_id() -> Result<String, Error> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| {
        let text = "the operating system gave no random bytes";
        Error::new(bus_condition::SERVER_BUSY, text)
    })?;
    Ok(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use kew_amqp::codec::Timestamp as WireTime;
    use kew_amqp::message::{Header, write_data, write_head};

    use super::*;

    /// Every SDK sends both times beside the header, which has no room for a life of more than 49.7 days.
    #[test]
    fn a_life_that_the_header_cannot_say_is_the_difference_of_two_times() {
        let year = 365 * 86_400_000;
        let of = |ttl, created: Option<i64>, expires: Option<i64>| {
            let header = Header {
                ttl: Some(ttl),
                ..Header::default()
            };
            let properties = Properties {
                creation_time: created.map(WireTime),
                absolute_expiry_time: expires.map(WireTime),
                ..Properties::default()
            };
            let mut encoded = BytesMut::new();
            write_head(&mut encoded, &header, &Map::default(), &Map::default());
            properties.encode(&mut encoded);
            write_data(&mut encoded, b"body");
            message_of(&encoded.freeze()).unwrap().time_to_live_ms
        };
        let longest = u64::from(u32::MAX);
        assert_eq!(of(u32::MAX, Some(5), Some(5 + year)), Some(31_536_000_000));
        assert_eq!(of(u32::MAX, Some(5), None), Some(longest));
        assert_eq!(of(u32::MAX, None, Some(5)), Some(longest));
        assert_eq!(of(u32::MAX, Some(5), Some(4)), Some(longest));
        assert_eq!(of(7_000, Some(5), Some(5 + year)), Some(7_000));
    }
}
