//! Commands about storage queues.

use std::sync::Arc;

use bytes::Bytes;

use super::{AccessPolicies, Metadata};
use crate::table::BodyEncoding;
use crate::vocabulary::{EntityName, Service, Token, VisibilityTimeout};

/// A request about storage queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageCommand {
    /// Creates a queue.
    CreateQueue {
        /// The queue's name.
        queue: EntityName,
        /// Its metadata.
        metadata: Metadata,
    },
    /// Deletes a queue with everything in it.
    DeleteQueue {
        /// The queue's name.
        queue: EntityName,
    },
    /// Reads a queue's metadata and approximate message count.
    ReadQueue {
        /// The queue's name.
        queue: EntityName,
    },
    /// Replaces a queue's metadata.
    SetQueueMetadata {
        /// The queue's name.
        queue: EntityName,
        /// All of the new metadata.
        metadata: Metadata,
    },
    /// Lists an account's queues in ascending order of their names' bytes.
    ListQueues {
        /// The service to list queues of.
        service: Service,
        /// The account.
        account: Arc<str>,
        /// Only names that begin with this; empty for all.
        prefix: Box<str>,
        /// Only names at or after this one; empty for all. It need not exist.
        from: Box<str>,
        /// At most this many, and at least 1.
        limit: u32,
        /// How much metadata to return with the names, in bytes. The page ends with the queue that reaches
        /// it. `None` is no metadata.
        metadata_size_bytes_max: Option<usize>,
    },
    /// Puts a message at the tail of a queue.
    Send {
        /// The queue's name.
        queue: EntityName,
        /// The message's body.
        body: Bytes,
        /// How the body is to be understood when it is shown.
        encoding: BodyEncoding,
        /// Seconds until the message expires; `None` for never.
        time_to_live_seconds: Option<u32>,
        /// How long the message is hidden at first.
        visibility_timeout: VisibilityTimeout,
    },
    /// Takes messages from the head of a queue and hides them from other receivers.
    Receive {
        /// The queue's name.
        queue: EntityName,
        /// At most this many.
        count: u32,
        /// How long they are hidden.
        visibility_timeout: VisibilityTimeout,
    },
    /// Shows messages at the head of a queue without taking them.
    Peek {
        /// The queue's name.
        queue: EntityName,
        /// At most this many.
        count: u32,
    },
    /// Hides a received message for another while, and may replace its body.
    Update {
        /// The queue's name.
        queue: EntityName,
        /// The message's id.
        message: Token,
        /// The latest pop receipt.
        receipt: Token,
        /// How long the message is hidden from now on.
        visibility_timeout: VisibilityTimeout,
        /// The new body, or `None` to keep the old one.
        body: Option<(BodyEncoding, Bytes)>,
    },
    /// Deletes a message.
    Delete {
        /// The queue's name.
        queue: EntityName,
        /// The message's id.
        message: Token,
        /// The latest pop receipt.
        receipt: Token,
    },
    /// Deletes every message of a queue, visible or not.
    Clear {
        /// The queue's name.
        queue: EntityName,
    },
    /// Replaces a queue's access policies.
    SetQueuePolicies {
        /// The queue's name.
        queue: EntityName,
        /// All of the new policies.
        policies: AccessPolicies,
    },
}
