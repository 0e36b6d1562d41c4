//! The service's answers, as values.

use std::time::SystemTime;

/// An entry of a list of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Its metadata, in the order of the answer. Empty unless it was asked for.
    pub metadata: Vec<(String, String)>,
}

/// The properties of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueProperties {
    /// Its metadata, by name.
    pub metadata: Vec<(String, String)>,
    /// How many messages it holds, hidden ones included.
    pub approximate_message_count: u64,
}

/// The answer to a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The message's id.
    pub id: String,
    /// When it was put.
    pub inserted: SystemTime,
    /// When it expires.
    pub expires: SystemTime,
    /// The receipt for updating or deleting it at once.
    pub receipt: Receipt,
}

/// A message that was received or peeked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
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
    /// The lease on the message; `None` if it was only peeked at.
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
    /// Everything written before this time is in the second copy. `None` if the time is not known.
    pub last_sync: Option<SystemTime>,
}
