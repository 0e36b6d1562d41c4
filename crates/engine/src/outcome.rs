//! Answers of a partition.

use bytes::Bytes;
use thiserror::Error;

use crate::bus::{BusOutcome, BusRefusal};
use crate::{
    AccessPolicies, AccountRecord, BodyEncoding, BodyLocation, Metadata, QuotaLimit, Timestamp,
    Token,
};

/// The answer to a command that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The partition has its secret.
    Initialized,
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
    /// The service has the new properties.
    ServicePropertiesSet,
    /// A service's properties, if they were ever set.
    ServiceProperties(Option<Bytes>),
    /// The account was stored.
    AccountPut,
    /// The account is gone, with its queues and its properties.
    AccountRemoved,
    /// Every account.
    Accounts(Vec<AccountRecord>),
    /// The answer of a bus queue.
    Bus(BusOutcome),
}

impl Outcome {
    /// The locations of the bodies of the messages in this answer, in the order of the messages. For a bus
    /// queue's messages, each body is followed by the changes to its properties.
    pub fn bodies(&self) -> impl Iterator<Item = BodyLocation> + '_ {
        type Bodies<'a> = (
            &'a [ReceivedMessage],
            &'a [PeekedMessage],
            Vec<BodyLocation>,
        );
        let (received, peeked, bus): Bodies<'_> = match self {
            Self::Received(messages) => (messages, &[], Vec::new()),
            Self::Peeked(messages) => (&[], messages, Vec::new()),
            Self::Bus(outcome) => (&[], &[], outcome.bodies()),
            Self::Initialized
            | Self::QueueCreated
            | Self::QueueUnchanged
            | Self::QueueDeleted
            | Self::Queue(_)
            | Self::QueueMetadataSet
            | Self::Queues(_)
            | Self::Sent(_)
            | Self::Updated { .. }
            | Self::Deleted
            | Self::Cleared
            | Self::QueuePoliciesSet
            | Self::ServicePropertiesSet
            | Self::ServiceProperties(_)
            | Self::AccountPut
            | Self::AccountRemoved
            | Self::Accounts(_) => (&[], &[], Vec::new()),
        };
        received
            .iter()
            .map(|message| message.body)
            .chain(peeked.iter().map(|message| message.body))
            .chain(bus)
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

/// Why a command was not carried out. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The partition has its secret already.
    #[error("the partition is initialized already")]
    AlreadyInitialized,
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
    /// There is an account of that name already.
    #[error("account {account} exists already")]
    AccountAlreadyExists {
        /// The name asked for.
        account: Box<str>,
    },
    /// There is no such account.
    #[error("account {account} does not exist")]
    AccountNotFound {
        /// The name asked for.
        account: Box<str>,
    },
    /// The account has queues, and they were not to be removed.
    #[error("account {account} has {queues} queues")]
    AccountNotEmpty {
        /// The account.
        account: Box<str>,
        /// How many queues it has.
        queues: u64,
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
    /// A bus queue refused.
    #[error(transparent)]
    Bus(#[from] BusRefusal),
}
