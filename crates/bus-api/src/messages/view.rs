//! A message as operators see it, in JSON: what the operator's interface answers, and what the command
//! line makes of a message that it received over HTTP. One form, so that a script reads both alike.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value};

/// A message. Times are texts of RFC 3339, in UTC.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MessageView {
    /// Its order in its queue.
    pub sequence_number: u64,
    /// Its number where it was sent first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enqueued_sequence_number: Option<u64>,
    /// `active`, `locked`, `deferred` or `scheduled`.
    pub state: &'static str,
    /// What its sender calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// What it belongs to, as its sender says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// What it is about, which HTTP calls its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Where its sender wants it to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Where answers go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The session that answers belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_session_id: Option<String>,
    /// What its sender wants it to be stored with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    /// What its body is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// How its body is encoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    /// When it came into the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enqueued_at: Option<String>,
    /// When it expires; nothing, which is shown, if it lives for ever.
    pub expires_at: Option<String>,
    /// When it becomes active, if it is scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<String>,
    /// When its own lock ends, if it is locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<String>,
    /// The lock, for who holds it.
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
    /// The queue that made it a dead letter, if it was forwarded since.
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
    /// With what the message carries.
    #[must_use]
    pub fn with_body(mut self, body: &[u8]) -> Self {
        self.size_bytes = body.len();
        match std::str::from_utf8(body) {
            Ok(text) => self.body = Some(text.to_owned()),
            Err(_) => self.body_base64 = Some(STANDARD.encode(body)),
        }
        self
    }

    /// Without what the message carries.
    #[must_use]
    pub fn without_body(self) -> Self {
        Self {
            body: None,
            body_base64: None,
            ..self
        }
    }
}
