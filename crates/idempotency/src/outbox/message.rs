//! A message of the outbox, and how it is written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// The largest body, in bytes.
const BODY_SIZE_MAX: usize = 1 << 20;

/// The most that everything beside the body can have, in bytes.
const HEAD_SIZE_MAX: usize = 64 << 10;

/// The longest destination, and the longest id, in bytes.
const NAME_SIZE_MAX: usize = 255;

/// The longest id that Service Bus accepts, in characters.
const ID_LENGTH_MAX: usize = 128;

/// A message that is sent after the commit of the transaction that wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxMessage {
    /// Where it goes, such as the name of a queue. 1 to 255 bytes.
    #[serde(skip)]
    pub destination: String,
    /// Its business id. 1 to 128 characters. A queue that detects duplicates drops a second message of the same id, so
    /// two messages for one destination must not have the same one.
    #[serde(skip)]
    pub id: String,
    /// The message session that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// What the body is, such as `application/json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What the application says of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// The body, 1 MiB at most.
    #[serde(skip)]
    pub body: Vec<u8>,
}

impl OutboxMessage {
    /// A message of these bytes.
    pub fn new(
        destination: impl Into<String>,
        id: impl Into<String>,
        body: impl Into<Vec<u8>>,
    ) -> Self {
        Self {
            destination: destination.into(),
            id: id.into(),
            body: body.into(),
            ..Self::default()
        }
    }

    /// Everything beside destination, id and body, as it is stored. Refuses a message that is too large.
    ///
    /// A [`Store`](crate::Store) calls it before it writes a message.
    pub fn head_to_json(&self) -> Result<String, StoreError> {
        for (name, text) in [("destination", &self.destination), ("id", &self.id)] {
            let (size, has_control) = (text.len(), text.contains(char::is_control));
            if !(1..=NAME_SIZE_MAX).contains(&size) || has_control {
                return Err(StoreError::refused(format!(
                    "the {name} of a message has {size} bytes; it can have 1 to {NAME_SIZE_MAX}, without control characters"
                )));
            }
        }
        let length = self.id.chars().count();
        if length > ID_LENGTH_MAX {
            return Err(StoreError::refused(format!(
                "the id of a message has {length} characters; it can have {ID_LENGTH_MAX} at most"
            )));
        }
        let size = self.body.len();
        if size > BODY_SIZE_MAX {
            return Err(StoreError::refused(format!(
                "the body of message {} has {size} bytes; it can have {BODY_SIZE_MAX} at most: use a claim check",
                self.id
            )));
        }
        let head = serde_json::to_string(self)
            .map_err(|error| StoreError::refused("a message has no JSON").because(error))?;
        if head.len() > HEAD_SIZE_MAX {
            return Err(StoreError::refused(format!(
                "the properties of message {} have {} bytes; they can have {HEAD_SIZE_MAX} at most",
                self.id,
                head.len()
            )));
        }
        Ok(head)
    }

    /// A message that was stored.
    pub fn from_stored(
        destination: &str,
        id: String,
        head: &str,
        body: Vec<u8>,
    ) -> Result<Self, StoreError> {
        let told = format!("message {id} of the outbox cannot be read");
        let head: Self =
            serde_json::from_str(head).map_err(|error| StoreError::refused(told).because(error))?;
        Ok(Self {
            destination: destination.to_owned(),
            id,
            body,
            ..head
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read() {
        let message = OutboxMessage {
            session_id: Some("s".to_owned()),
            content_type: Some("text/plain".to_owned()),
            subject: Some("u".to_owned()),
            properties: [("n".to_owned(), "v".to_owned())].into(),
            ..OutboxMessage::new("q", "1", "body")
        };
        let head = message.head_to_json().unwrap();
        let id = message.id.clone();
        let read = OutboxMessage::from_stored("q", id, &head, message.body.clone()).unwrap();
        assert_eq!(read, message);
        let plain = OutboxMessage::new("q", "1", "body");
        assert_eq!(plain.head_to_json().unwrap(), "{}");
        assert!(OutboxMessage::from_stored("q", "1".to_owned(), "[", Vec::new()).is_err());
    }

    #[test]
    fn a_message_has_limits() {
        let refused = |message: OutboxMessage| message.head_to_json().unwrap_err().to_string();
        assert!(
            refused(OutboxMessage::new("", "1", "")).contains("destination of a message has 0")
        );
        assert!(refused(OutboxMessage::new("q", "", "")).contains("id of a message has 0"));
        assert!(refused(OutboxMessage::new("q", "1\n", "")).contains("control"));
        assert!(refused(OutboxMessage::new("q", "1".repeat(129), "")).contains("129 characters"));
        let large = vec![0; BODY_SIZE_MAX + 1];
        assert!(refused(OutboxMessage::new("q", "1", large)).contains("1048577 bytes"));
        let properties = [("n".to_owned(), "v".repeat(HEAD_SIZE_MAX))].into();
        let message = OutboxMessage {
            properties,
            ..OutboxMessage::new("q", "1", "")
        };
        assert!(refused(message).contains("properties of message 1"));
        let largest = OutboxMessage::new("q", "1", vec![0; BODY_SIZE_MAX]);
        assert!(largest.head_to_json().is_ok());
    }
}
