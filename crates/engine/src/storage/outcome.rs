//! Answers about storage queues.

use thiserror::Error;

use super::{AccessPolicies, Metadata};
use crate::catalogue::QuotaLimit;
use crate::table::BodyEncoding;
use crate::vocabulary::{BodyLocation, Timestamp, Token};

/// The answer to a command about storage queues that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageOutcome {
    /// The queue is new.
    QueueCreated,
    /// A queue of that name was there already, with the same metadata. Nothing changed.
    QueueUnchanged,
    /// The queue is gone, with everything in it.
    QueueDeleted,
    /// A queue as it is.
    Queue(QueueView),
    /// The queue has the new metadata.
    QueueMetadataSet,
    /// Part of an account's queues.
    Queues(QueuePage),
    /// The message is in the queue.
    Sent(SentMessage),
    /// The messages that were taken; none if none was visible.
    Received(Vec<ReceivedMessage>),
    /// The messages at the head; none if none was visible.
    Peeked(Vec<PeekedMessage>),
    /// The message has a new pop receipt.
    Updated {
        /// The pop receipt that is valid now.
        receipt: Token,
        /// When the message shows again.
        visible_at: Timestamp,
    },
    /// The message is gone.
    Deleted,
    /// Every message is gone.
    Cleared,
    /// The queue has the new access policies.
    QueuePoliciesSet,
}

impl StorageOutcome {
    /// The locations of the bodies of the messages in this answer, in the order of the messages.
    pub(crate) fn bodies(&self) -> Vec<BodyLocation> {
        match self {
            Self::Received(messages) => messages.iter().map(|message| message.body).collect(),
            Self::Peeked(messages) => messages.iter().map(|message| message.body).collect(),
            Self::QueueCreated
            | Self::QueueUnchanged
            | Self::QueueDeleted
            | Self::Queue(_)
            | Self::QueueMetadataSet
            | Self::Queues(_)
            | Self::Sent(_)
            | Self::Updated { .. }
            | Self::Deleted
            | Self::Cleared
            | Self::QueuePoliciesSet => Vec::new(),
        }
    }
}

/// A queue's metadata and how much is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// The metadata as it was set last.
    pub metadata: Metadata,
    /// How many messages there are, hidden ones included. Never lower than the real number; may
    /// include messages that expired a moment ago.
    pub approximate_message_count: u64,
    /// The access policies as they were set last; none in a new queue.
    pub policies: AccessPolicies,
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePage {
    /// The queues, in ascending order of their names' bytes.
    pub queues: Vec<ListedQueue>,
    /// Where the next page begins, if there is one.
    pub next: Option<Box<str>>,
}

/// A queue in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedQueue {
    /// The name within the account.
    pub name: Box<str>,
    /// Its metadata.
    pub metadata: Metadata,
}

/// A message just sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// The message's id.
    pub message: Token,
    /// A pop receipt that is valid at once, without receiving the message.
    pub receipt: Token,
    /// When it was put.
    pub inserted_at: Timestamp,
    /// When it expires; [`Timestamp::NEVER`] if it does not.
    pub expires_at: Timestamp,
    /// When it can first be received.
    pub visible_at: Timestamp,
}

/// A message taken by a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The message's id.
    pub message: Token,
    /// The pop receipt of this delivery. All earlier ones have stopped working.
    pub receipt: Token,
    /// When it was put.
    pub inserted_at: Timestamp,
    /// When it expires; [`Timestamp::NEVER`] if it does not.
    pub expires_at: Timestamp,
    /// When it shows again.
    pub visible_at: Timestamp,
    /// How often it has been delivered, this time included.
    pub delivery_count: u32,
    /// How to interpret the body.
    pub encoding: BodyEncoding,
    /// The location of the body.
    pub body: BodyLocation,
}

/// A message at the head, as a peek shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeekedMessage {
    /// The message's id.
    pub message: Token,
    /// When it was put.
    pub inserted_at: Timestamp,
    /// When it expires; [`Timestamp::NEVER`] if it does not.
    pub expires_at: Timestamp,
    /// How often it has been delivered.
    pub delivery_count: u32,
    /// How to interpret the body.
    pub encoding: BodyEncoding,
    /// The location of the body.
    pub body: BodyLocation,
}

/// Why a command about storage queues was not carried out. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StorageRefusal {
    /// There is no such queue.
    #[error("queue {queue} does not exist")]
    QueueNotFound {
        /// The name asked for.
        queue: Box<str>,
    },
    /// There is a queue of that name with other metadata.
    #[error("queue {queue} exists already, with other metadata")]
    QueueAlreadyExists {
        /// The name asked for.
        queue: Box<str>,
    },
    /// There is no such message: it never existed, was deleted, or has expired.
    #[error("the message does not exist")]
    MessageNotFound,
    /// The message is there, but the receipt is not its latest.
    #[error("the pop receipt is not the message's latest one")]
    PopReceiptMismatch,
    /// A message that is hidden until it expires could never be received.
    #[error(
        "visibility timeout {visibility_timeout_seconds} s is not below the time to live of {time_to_live_seconds} s"
    )]
    HiddenBeyondExpiry {
        /// The visibility timeout asked for.
        visibility_timeout_seconds: u32,
        /// The time to live asked for.
        time_to_live_seconds: u32,
    },
    /// The account would use more than it may.
    #[error("account {account} would have {needed} {limit}, above its maximum of {allowed}")]
    AccountQuotaExceeded {
        /// The account.
        account: Box<str>,
        /// Which limit.
        limit: QuotaLimit,
        /// The usage it would have.
        needed: u64,
        /// The limit.
        allowed: u64,
    },
    /// The body, or other data in the command, is larger than allowed.
    #[error("body of {size_bytes} bytes is above the maximum of {limit_bytes} bytes")]
    BodyTooLarge {
        /// The size of the body.
        size_bytes: usize,
        /// The largest allowed.
        limit_bytes: usize,
    },
}
