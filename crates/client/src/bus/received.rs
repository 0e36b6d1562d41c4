//! Messages that came.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{DecodeError, Map, Text, Timestamp, Value, hex};
use kew_amqp::message::{BodyKind, Message as Scanned, MessageId, Sections};

use super::message::{Message, time_of};

/// The property with the reason of a dead letter.
const DEAD_LETTER_REASON: &str = "DeadLetterReason";

/// The property with the description of a dead letter.
const DEAD_LETTER_DESCRIPTION: &str = "DeadLetterErrorDescription";

/// In what state a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// It can be received, or is locked.
    Active,
    /// It can be received by its sequence number.
    Deferred,
    /// It becomes visible later.
    Scheduled,
}

/// A message that came, with all that it brought.
#[derive(Clone, Debug)]
pub struct Received(Box<Parts>);

/// They are large, and a message is moved often.
#[derive(Clone, Debug, Default)]
struct Parts {
    scanned: Scanned,
    sections: Sections,
    annotations: Annotations,
}

/// What the service says of a message, and its partition key.
#[derive(Clone, Debug, Default)]
struct Annotations {
    sequence_number: Option<i64>,
    enqueued_at: Option<SystemTime>,
    scheduled_at: Option<SystemTime>,
    locked_until: Option<SystemTime>,
    state: Option<i64>,
    partition_key: Option<Text>,
}

impl Annotations {
    /// Reads all of them at once: they are looked at for each message.
    fn of(map: &Map) -> Self {
        let mut read = Self::default();
        for (name, value) in map.named() {
            let time = || match value {
                Value::Timestamp(at @ Timestamp(_)) => time_of(at),
                _ => None,
            };
            match name {
                "x-opt-sequence-number" => read.sequence_number = value.as_integer(),
                "x-opt-enqueued-time" => read.enqueued_at = time(),
                "x-opt-scheduled-enqueue-time" => read.scheduled_at = time(),
                "x-opt-locked-until" => read.locked_until = time(),
                "x-opt-message-state" => read.state = value.as_integer(),
                "x-opt-partition-key" => read.partition_key = value.as_str().map(Text::from),
                _ => {}
            }
        }
        read
    }
}

impl Received {
    pub(super) fn read(payload: Bytes) -> Result<Self, DecodeError> {
        // They are read into their place.
        let mut parts = Box::<Parts>::default();
        parts.scanned = Scanned::scan_into(payload, &mut parts.sections)?;
        parts.annotations = Annotations::of(&parts.sections.message_annotations);
        Ok(Self(parts))
    }

    /// The bytes of the body. Empty if it is not made of bytes: see [`Received::body_kind`].
    pub fn body(&self) -> Bytes {
        if let Some(data) = self.0.scanned.data() {
            return data;
        }
        let mut parts = self
            .0
            .scanned
            .body_values()
            .filter_map(|part| match part.value() {
                Value::Binary(bytes) if self.body_kind() == BodyKind::Data => Some(bytes),
                _ => None,
            });
        let (first, second) = (parts.next(), parts.next());
        match (first, second) {
            (first, None) => first.unwrap_or_default(),
            (first, second) => {
                let mut whole = BytesMut::new();
                for part in first.into_iter().chain(second).chain(parts) {
                    whole.extend_from_slice(&part);
                }
                whole.freeze()
            }
        }
    }

    /// Whether the body is bytes, a value or lists.
    pub fn body_kind(&self) -> BodyKind {
        self.0.scanned.body_kind()
    }

    /// The id that the sender gave it. One that is no text is shown as one.
    pub fn id(&self) -> Option<String> {
        self.0
            .sections
            .properties
            .message_id
            .as_ref()
            .map(text_of_id)
    }

    /// The message session that it belongs to.
    pub fn session_id(&self) -> Option<&str> {
        self.0
            .sections
            .properties
            .group_id
            .as_ref()
            .map(|id| id.as_str())
    }

    /// The message that it answers, or whatever else it belongs to.
    pub fn correlation_id(&self) -> Option<String> {
        self.0
            .sections
            .properties
            .correlation_id
            .as_ref()
            .map(text_of_id)
    }

    /// What it is about.
    pub fn subject(&self) -> Option<&str> {
        self.0
            .sections
            .properties
            .subject
            .as_ref()
            .map(|it| it.as_str())
    }

    /// What the body is.
    pub fn content_type(&self) -> Option<&str> {
        self.0
            .sections
            .properties
            .content_type
            .as_ref()
            .map(|it| it.as_str())
    }

    /// Its order in its entity.
    pub fn sequence_number(&self) -> Option<i64> {
        self.0.annotations.sequence_number
    }

    /// When it arrived.
    pub fn enqueued_at(&self) -> Option<SystemTime> {
        self.0.annotations.enqueued_at
    }

    /// When it becomes or became visible, if it was scheduled.
    pub fn scheduled_at(&self) -> Option<SystemTime> {
        self.0.annotations.scheduled_at
    }

    /// How many deliveries failed before this one.
    pub fn delivery_count(&self) -> u32 {
        self.0.sections.header.delivery_count
    }

    /// After how long it is worth nothing, counted from its arrival. A life that is too long for the header (49.7 days) is
    /// the difference of two times.
    pub fn time_to_live(&self) -> Option<Duration> {
        let ms = self.0.sections.header.ttl?;
        let properties = &self.0.sections.properties;
        let life_ms = match (properties.creation_time, properties.absolute_expiry_time) {
            (Some(created), Some(expires)) if ms == u32::MAX => expires.0.checked_sub(created.0),
            (_, _) => None,
        };
        let life_ms = life_ms.and_then(|ms| u64::try_from(ms).ok());
        Some(Duration::from_millis(life_ms.unwrap_or(u64::from(ms))))
    }

    /// In what state it is. Only messages that are peeked say something else than active.
    pub fn state(&self) -> MessageState {
        match self.0.annotations.state {
            Some(1) => MessageState::Deferred,
            Some(2) => MessageState::Scheduled,
            Some(_) | None => MessageState::Active,
        }
    }

    /// What the application says of it.
    pub fn properties(&self) -> Vec<(String, Value)> {
        let properties = self.0.scanned.application_properties();
        let pairs = properties.named();
        pairs
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// One of these properties.
    pub fn property(&self, name: &str) -> Option<Value> {
        let properties = self.0.scanned.application_properties();
        properties.get(name).map(|value| value.value())
    }

    /// Why it is a dead letter, if it is one.
    pub fn dead_letter_reason(&self) -> Option<String> {
        self.text(DEAD_LETTER_REASON)
    }

    /// More about why it is a dead letter.
    pub fn dead_letter_description(&self) -> Option<String> {
        self.text(DEAD_LETTER_DESCRIPTION)
    }

    /// All of it, as it came.
    pub fn raw(&self) -> &Scanned {
        &self.0.scanned
    }

    /// The same message, to be sent again. What the service says of it is left out, and so is its schedule.
    pub fn to_message(&self) -> Message {
        let text = |text: &Option<Text>| text.as_ref().map(|it| it.as_str().to_owned());
        Message {
            body: self.body(),
            id: self.id(),
            session_id: text(&self.0.sections.properties.group_id),
            correlation_id: self.correlation_id(),
            subject: text(&self.0.sections.properties.subject),
            content_type: self.content_type().map(str::to_owned),
            to: text(&self.0.sections.properties.to),
            reply_to: text(&self.0.sections.properties.reply_to),
            reply_to_session_id: text(&self.0.sections.properties.reply_to_group_id),
            partition_key: text(&self.0.annotations.partition_key),
            time_to_live: self.time_to_live(),
            scheduled_at: None,
            properties: self.properties(),
        }
    }

    pub(super) fn locked_until(&self) -> Option<SystemTime> {
        self.0.annotations.locked_until
    }

    fn text(&self, property: &str) -> Option<String> {
        let value = self.property(property)?;
        value.as_str().map(str::to_owned)
    }
}

fn text_of_id(id: &MessageId) -> String {
    match id {
        MessageId::String(text) => text.as_str().to_owned(),
        MessageId::Ulong(number) => number.to_string(),
        MessageId::Uuid(uuid) => hex(&uuid.0),
        MessageId::Binary(bytes) => hex(bytes),
    }
}

#[cfg(test)]
mod tests {
    use kew_amqp::message::write_data;

    use super::*;

    #[test]
    fn a_message_that_is_sent_again_is_the_same() {
        let message = Message {
            id: Some("id".to_owned()),
            session_id: Some("s".to_owned()),
            partition_key: Some("s".to_owned()),
            time_to_live: Some(Duration::from_secs(3)),
            properties: vec![("n".to_owned(), Value::Boolean(true))],
            ..Message::new("body")
        };
        let received = Received::read(message.encode().unwrap()).unwrap();
        assert_eq!(received.to_message(), message);
        assert_eq!(received.property("n"), Some(Value::Boolean(true)));
        assert_eq!(received.state(), MessageState::Active);
    }

    #[test]
    fn a_life_of_a_year_comes_back() {
        let year = Some(Duration::from_hours(24 * 365));
        let message = Message {
            time_to_live: year,
            ..Message::new("body")
        };
        let received = Received::read(message.encode().unwrap()).unwrap();
        assert_eq!(received.time_to_live(), year);
    }

    #[test]
    fn a_body_of_several_sections_is_whole() {
        let mut out = BytesMut::new();
        for part in [&b"one "[..], b"two ", b"three"] {
            write_data(&mut out, part);
        }
        let received = Received::read(out.freeze()).unwrap();
        assert_eq!(received.body(), "one two three");
        assert!(Received::read(Bytes::from_static(b"nothing")).is_err());
    }
}
