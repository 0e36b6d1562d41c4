//! What Queue Storage answers, as values.

use std::time::SystemTime;

/// An entry of a list of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedQueue {
    /// Its name.
    pub name: String,
    /// Its metadata, in the order of the answer; empty unless it was asked for.
    pub metadata: Vec<(String, String)>,
}

/// What is known of a queue besides its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueProperties {
    /// Its metadata, by name.
    pub metadata: Vec<(String, String)>,
    /// How many messages it holds, hidden ones included.
    pub approximate_message_count: u64,
}

/// The answer to a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutMessage {
    /// The message's id.
    pub id: String,
    /// When it was put.
    pub inserted: SystemTime,
    /// When it expires.
    pub expires: SystemTime,
    /// The receipt with which it can be updated or deleted at once.
    pub receipt: Receipt,
}

/// A message that was received or peeked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueMessage {
    /// The message's id.
    pub id: String,
    /// When it was put.
    pub inserted: SystemTime,
    /// When it expires.
    pub expires: SystemTime,
    /// How often it has been received, this time included.
    pub dequeue_count: u64,
    /// Its text.
    pub text: String,
    /// The hold on the message; `None` if it was only peeked at.
    pub receipt: Option<Receipt>,
}

/// A pop receipt, and how long it holds the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The receipt as the service gave it.
    pub value: String,
    /// When the message can be received again, or first.
    pub next_visible: SystemTime,
}

/// How far the account's second copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceStats {
    /// `live`, `bootstrap` or `unavailable`.
    pub status: String,
    /// All that was written before is in the second copy; `None` if that is not known.
    pub last_sync: Option<SystemTime>,
}
