//! Messages as sources receive them, before a codec decodes them, and as targets send them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kew_client::Value;
use serde::{Deserialize, Serialize};

use super::key::Key;
use crate::trace::TraceContext;

/// The property of Service Bus with the history of failures, as JSON.
pub(crate) const HISTORY: &str = "kew-history";

/// The property with the lease in seconds that the sender recommends.
pub(crate) const LEASE_HINT: &str = "kew-lease-s";

/// Failures that are remembered with a message.
pub(crate) const HISTORY_MAX: u32 = 10;

/// The text of each, in bytes.
const TEXT_SIZE_MAX: usize = 200;

/// A received message: its bytes, and what is known of it. To clone it is cheap.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The body.
    pub body: Bytes,
    /// Everything else.
    pub meta: Arc<Meta>,
}

/// What is known of a message besides its body.
#[derive(Clone, Debug)]
pub struct Meta {
    /// The queue that it came from.
    pub queue: Arc<str>,
    /// What the message is known by at its next delivery.
    pub key: Key,
    /// The message's id. Queue Storage makes it; on Service Bus the sender sets it, and without one it is the
    /// sequence number.
    pub id: String,
    /// Which delivery this is, from 1.
    pub attempt: u32,
    /// When the message arrived, if the service reports it.
    pub enqueued_at: Option<SystemTime>,
    /// What the body is, such as `application/json`.
    pub content_type: Option<String>,
    /// What the message is about.
    pub subject: Option<String>,
    /// What the message belongs to.
    pub correlation_id: Option<String>,
    /// Its message session.
    pub session_id: Option<String>,
    /// Properties of the application, as text. Values that are not text, a number or a boolean are left out.
    pub properties: Vec<(String, String)>,
    /// Failures of earlier attempts, oldest first, at most 10.
    pub history: Vec<Attempt>,
    /// Where the message belongs in a distributed trace.
    pub trace: Option<TraceContext>,
    /// What an earlier attempt saved.
    pub checkpoint: Option<Bytes>,
    /// Why the body cannot be read at all, for example because it is not Base64. Such a message is buried.
    pub unreadable: Option<String>,
}

impl Meta {
    /// Of a message of which nothing is known but where it came from, its key and the number of the attempt.
    pub fn new(queue: Arc<str>, key: impl Into<String>, attempt: u32) -> Self {
        let key = key.into();
        let id = key.clone();
        Self::with_id(queue, key.into(), id, attempt)
    }

    /// The same, of a message whose id is not its key.
    pub(crate) fn with_id(queue: Arc<str>, key: Key, id: String, attempt: u32) -> Self {
        Self {
            queue,
            id,
            key,
            attempt: attempt.max(1),
            enqueued_at: None,
            content_type: None,
            subject: None,
            correlation_id: None,
            session_id: None,
            properties: Vec::new(),
            history: Vec::new(),
            trace: None,
            checkpoint: None,
            unreadable: None,
        }
    }

    /// Takes the properties of a message, and reads the trace context that they carry.
    pub fn set_properties(&mut self, properties: Vec<(String, String)>) {
        self.trace = TraceContext::of_properties(&properties);
        self.properties = properties;
    }

    /// The first property with this name.
    pub fn property(&self, name: &str) -> Option<&str> {
        let mut found = self.properties.iter().filter(|(it, _)| it == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// How long the sender wants the message leased, if it says so.
    pub(crate) fn lease_hint(&self) -> Option<Duration> {
        let seconds = self.property(LEASE_HINT)?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }

    /// The history with one more failure, within its bounds.
    pub(crate) fn history_with(&self, attempt: Attempt) -> Vec<Attempt> {
        let mut history = self.history.clone();
        history.push(attempt);
        let surplus = history.len().saturating_sub(HISTORY_MAX as usize);
        history.drain(..surplus);
        history
    }
}

/// A failed attempt to handle a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Which delivery it was, from 1.
    pub attempt: u32,
    /// When it failed, in milliseconds since 1970-01-01 UTC.
    pub failed_at_ms: u64,
    /// The type of the error.
    pub error_type: String,
    /// Its text. Both are cut at 200 bytes.
    pub error: String,
}

impl Attempt {
    pub(crate) fn new(attempt: u32, error_type: &str, error: &str) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            attempt,
            failed_at_ms: u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
            error_type: said(error_type, TEXT_SIZE_MAX),
            error: said(error, TEXT_SIZE_MAX),
        }
    }
}

/// A message to be sent, after a codec has encoded it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outgoing {
    /// The body.
    pub body: Bytes,
    /// What the body is, such as `application/json`. Queue Storage has no place for it.
    pub content_type: Option<String>,
    /// A business id, with which queues of Service Bus detect duplicates. On Queue Storage it is the property
    /// `kew-id` of the envelope.
    pub id: Option<String>,
    /// The message session. Service Bus only.
    pub session_id: Option<String>,
    /// Properties of the application.
    pub properties: Vec<(String, String)>,
}

/// The history as text, for a property.
pub(crate) fn history_text(history: &[Attempt]) -> String {
    // Its types cannot fail: strings and numbers.
    serde_json::to_string(history).unwrap_or_default()
}

pub(super) fn history_of(text: &str) -> Vec<Attempt> {
    let mut history: Vec<Attempt> = serde_json::from_str(text).unwrap_or_default();
    let surplus = history.len().saturating_sub(HISTORY_MAX as usize);
    history.drain(..surplus);
    history
}

/// The properties of a message of Service Bus, as text.
pub(crate) fn properties_of_bus(properties: Vec<(String, Value)>) -> Vec<(String, String)> {
    let pairs = properties.into_iter();
    pairs
        .filter_map(|(name, value)| text_of_value(&value).map(|text| (name, text)))
        .collect()
}

fn text_of_value(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    if let Some(number) = value.as_integer() {
        return Some(number.to_string());
    }
    match value {
        Value::Boolean(it) => Some(it.to_string()),
        Value::Ulong(it) => Some(it.to_string()),
        Value::Float(it) => Some(it.to_string()),
        Value::Double(it) => Some(it.to_string()),
        Value::Char(it) => Some(it.to_string()),
        _ => None,
    }
}

/// The text up to a size in bytes, at a boundary of characters.
pub(crate) fn cut(text: &str, size_max: usize) -> &str {
    text.get(..text.floor_char_boundary(size_max))
        .unwrap_or(text)
}

/// The same, without the two characters that JSON carries as they are and XML forbids.
pub(crate) fn said(text: &str, size_max: usize) -> String {
    cut(text, size_max).replace(['\u{FFFE}', '\u{FFFF}'], "\u{FFFD}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_keeps_the_last_attempts_and_short_texts() {
        let mut meta = Meta::new("jobs".into(), "key", 1);
        for number in 1..=12 {
            let attempt = Attempt::new(number, "Type", &"é".repeat(200));
            meta.history = meta.history_with(attempt);
        }
        let numbers: Vec<_> = meta.history.iter().map(|it| it.attempt).collect();
        assert_eq!(numbers, (3..=12).collect::<Vec<_>>());
        assert!(meta.history.iter().all(|it| it.error == "é".repeat(100)));
        assert_eq!(history_of(&history_text(&meta.history)), meta.history);
        assert_eq!(history_of("not JSON"), []);
    }

    #[test]
    fn properties_of_simple_types_become_text() {
        let named = |value| vec![("n".to_owned(), value)];
        for (value, expected) in [
            (Value::String("x".into()), Some("x")),
            (Value::Int(-1), Some("-1")),
            (Value::Ulong(u64::MAX), Some("18446744073709551615")),
            (Value::Boolean(true), Some("true")),
            (Value::Double(0.5), Some("0.5")),
            (Value::Null, None),
        ] {
            let read = properties_of_bus(named(value));
            assert_eq!(read.first().map(|(_, it)| it.as_str()), expected);
        }
    }
}
