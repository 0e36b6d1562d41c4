//! A message as operators see it, in JSON: in the answers of the operator's interface, and in the
//! command line's output for a message that it received over HTTP. One form for both, so that
//! scripts can read either.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value};

/// A message. Times are strings of RFC 3339, in UTC.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MessageView {
    /// Its order in its queue.
    pub sequence_number: u64,
    /// Its number where it was sent first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enqueued_sequence_number: Option<u64>,
    /// `active`, `locked`, `deferred` or `scheduled`.
    pub state: &'static str,
    /// Its sender's id for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The id that relates it to other messages, set by its sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Its subject, which HTTP calls its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Where its sender wants it to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Where answers go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The session for answers to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_session_id: Option<String>,
    /// Its sender's partition key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    /// The content type of its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// How its body is encoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    /// When it was enqueued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enqueued_at: Option<String>,
    /// When it expires; null if it never expires.
    pub expires_at: Option<String>,
    /// When it becomes active, if it is scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<String>,
    /// When its own lock ends, if it is locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<String>,
    /// The lock, for the holder of the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_token: Option<String>,
    /// Deliveries that failed.
    pub delivery_count: u64,
    /// Why it is a dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_reason: Option<String>,
    /// The same in more words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_description: Option<String>,
    /// The queue that dead-lettered it, if it was forwarded since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_source: Option<String>,
    /// The other application properties.
    pub properties: Map<String, Value>,
    /// The size of its body.
    pub size_bytes: usize,
    /// Its body, if that is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Its body, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

impl MessageView {
    /// With the message's content.
    #[must_use]
    pub fn with_body(mut self, body: &[u8]) -> Self {
        self.size_bytes = body.len();
        match std::str::from_utf8(body) {
            Ok(text) => self.body = Some(text.to_owned()),
            Err(_) => self.body_base64 = Some(STANDARD.encode(body)),
        }
        self
    }

    /// Without the message's content.
    #[must_use]
    pub fn without_body(self) -> Self {
        Self {
            body: None,
            body_base64: None,
            ..self
        }
    }
}
