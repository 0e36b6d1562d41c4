//! A message that came over AMQP, in the form of Kew's own interface (`docs/operator-api.md`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Symbol, Text, Timestamp, Uuid, Value};
use kew_amqp::message::{BodyKind, Message, MessageId};
use kew_bus_api::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, MessageView};
use kew_client::{MessageState, Received};
use serde_json::Value as Json;

/// The content type of a body that is neither bytes nor text: its sections in AMQP's encoding.
const AMQP_ENCODED: &str = "application/amqp";

/// The last millisecond that the service's times can express, which means never.
const LAST_MS: i64 = 253_402_300_799_000;

/// A lock that this command has taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lock {
    pub(super) token: Uuid,
    pub(super) until: Option<SystemTime>,
}

/// A message, and the lock on it.
pub(super) fn view_of(message: &Received, lock: Option<Lock>) -> MessageView {
    let raw = message.raw();
    let properties = raw.properties().unwrap_or_default();
    let annotations = raw.message_annotations();
    let number = |name: &str| {
        let number = annotations.get(name)?.value().as_integer()?;
        u64::try_from(number).ok()
    };
    let annotation = |name: &str| annotations.get(name)?.value().as_str().map(str::to_owned);
    let text = |text: &Option<Text>| text.as_ref().map(|it| it.as_str().to_owned());
    let symbol = |text: &Option<Symbol>| text.as_ref().map(|it| it.as_str().to_owned());
    let body = plain_body(raw);
    let state = match (lock, message.state()) {
        (Some(_), _) => "locked",
        (None, MessageState::Active) => "active",
        (None, MessageState::Deferred) => "deferred",
        (None, MessageState::Scheduled) => "scheduled",
    };
    let is_told_apart = |name: &str| name == DEAD_LETTER_REASON || name == DEAD_LETTER_DESCRIPTION;
    let custom = message.properties().into_iter();
    let custom = custom.filter(|(name, _)| !is_told_apart(name));
    MessageView {
        sequence_number: number("x-opt-sequence-number").unwrap_or_default(),
        enqueued_sequence_number: number("x-opt-enqueue-sequence-number"),
        state,
        message_id: properties.message_id.as_ref().map(text_of_id),
        session_id: text(&properties.group_id),
        correlation_id: properties.correlation_id.as_ref().map(text_of_id),
        subject: text(&properties.subject),
        to: text(&properties.to),
        reply_to: text(&properties.reply_to),
        reply_to_session_id: text(&properties.reply_to_group_id),
        partition_key: annotation("x-opt-partition-key"),
        content_type: match &body {
            Some(_) => symbol(&properties.content_type),
            None => Some(AMQP_ENCODED.into()),
        },
        content_encoding: symbol(&properties.content_encoding),
        enqueued_at: message.enqueued_at().map(rfc3339_ms),
        expires_at: expires_at(message, properties.absolute_expiry_time),
        scheduled_for: message
            .scheduled_at()
            .filter(|_| message.state() == MessageState::Scheduled)
            .map(rfc3339_ms),
        locked_until: lock.and_then(|lock| lock.until).map(rfc3339_ms),
        lock_token: lock.map(|lock| lock.token.text()),
        delivery_count: message.delivery_count().into(),
        dead_letter_reason: message.dead_letter_reason(),
        dead_letter_description: message.dead_letter_description(),
        dead_letter_source: annotation("x-opt-deadletter-source"),
        properties: custom
            .map(|(name, value)| (name, json_of(&value)))
            .collect(),
        ..MessageView::default()
    }
    .with_body(&body.unwrap_or_else(|| raw.body()))
}

fn expires_at(message: &Received, told: Option<Timestamp>) -> Option<String> {
    let told = told.filter(|at| at.0 < LAST_MS);
    if let Some(ms) = told.and_then(|at| u64::try_from(at.0).ok()) {
        return Some(rfc3339_ms(UNIX_EPOCH + Duration::from_millis(ms)));
    }
    // The longest that a header can say stands for longer ones.
    let longest = Duration::from_millis(u32::MAX.into());
    let life = message.time_to_live().filter(|&life| life < longest)?;
    message.enqueued_at()?.checked_add(life).map(rfc3339_ms)
}

/// The bytes of the body: of all data sections, or of a string or binary value. `None`: it is anything else.
pub(super) fn plain_body(message: &Message) -> Option<Bytes> {
    let mut values = message.body_values().map(|raw| raw.value());
    match message.body_kind() {
        BodyKind::Empty => Some(Bytes::new()),
        BodyKind::Value => match values.next()? {
            Value::String(text) => Some(Bytes::copy_from_slice(text.as_str().as_bytes())),
            Value::Binary(bytes) => Some(bytes),
            Value::Null => Some(Bytes::new()),
            _ => None,
        },
        BodyKind::Data => {
            let mut whole = BytesMut::new();
            for value in values {
                if let Value::Binary(bytes) = value {
                    whole.extend_from_slice(&bytes);
                }
            }
            Some(whole.freeze())
        }
        BodyKind::Sequence => None,
    }
}

/// A value as JSON. Types without a form in JSON become text.
pub(super) fn json_of(value: &Value) -> Json {
    if let Some(whole) = value.as_integer() {
        return whole.into();
    }
    match value {
        Value::Null => Json::Null,
        Value::Boolean(flag) => (*flag).into(),
        Value::Ulong(whole) => (*whole).into(),
        Value::Float(number) => f64::from(*number).into(),
        Value::Double(number) => (*number).into(),
        Value::Char(char) => char.to_string().into(),
        Value::String(text) => text.as_str().into(),
        Value::Symbol(text) => text.as_str().into(),
        Value::Uuid(uuid) => uuid.text().into(),
        Value::Timestamp(at) => {
            let ms = u64::try_from(at.0).unwrap_or_default();
            rfc3339_ms(UNIX_EPOCH + Duration::from_millis(ms)).into()
        }
        Value::Binary(bytes) => STANDARD.encode(bytes).into(),
        other => format!("{other:?}").into(),
    }
}

pub(super) fn text_of_id(id: &MessageId) -> String {
    match id {
        MessageId::String(text) => text.as_str().to_owned(),
        MessageId::Ulong(number) => number.to_string(),
        MessageId::Uuid(uuid) => uuid.text(),
        MessageId::Binary(bytes) => STANDARD.encode(bytes),
    }
}

/// A time in the form of RFC 3339, in UTC and milliseconds.
pub(super) fn rfc3339_ms(time: SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        // The last second of 9999 is beyond the library's range.
        Err(_) => "9999-12-31T23:59:59.000Z".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use kew_amqp::message::{write_data, write_value};

    use super::*;

    #[test]
    fn bodies_of_bytes_and_text_are_plain() {
        let scan = |out: BytesMut| Message::scan(out.freeze()).unwrap();
        let mut data = BytesMut::new();
        write_data(&mut data, b"one ");
        write_data(&mut data, b"two");
        assert_eq!(plain_body(&scan(data)).as_deref(), Some(&b"one two"[..]));
        let mut text = BytesMut::new();
        write_value(&mut text, &Value::String("text".into()));
        assert_eq!(plain_body(&scan(text)).as_deref(), Some(&b"text"[..]));
        let mut number = BytesMut::new();
        write_value(&mut number, &7_i64);
        assert_eq!(plain_body(&scan(number)), None);
    }

    #[test]
    fn times() {
        assert_eq!(rfc3339_ms(UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
    }
}
