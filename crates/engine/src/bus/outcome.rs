//! Answers of a bus queue.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::{
    BusMessageState, BusQueueOptions, BusRuleView, DeadLetterCause, EntityKind, FixedOption,
    InvalidOption, SQL_RULES_MAX,
};
use crate::vocabulary::{BodyLocation, Incarnation, SequenceNumber, Timestamp, Token};

/// The answer to a request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusOutcome {
    /// The queue is new.
    QueueCreated(Box<BusQueueView>),
    /// The queue has the new settings.
    QueueUpdated(Box<BusQueueView>),
    /// The queue is gone.
    QueueDeleted,
    /// A queue as it is.
    Queue(Box<BusQueueView>),
    /// Queues as they are.
    Queues(Vec<BusQueueView>),
    /// The rule is new.
    RuleAdded(BusRuleView),
    /// The rule is in the place of an old one of its name.
    RuleReplaced(BusRuleView),
    /// The rule is gone.
    RuleRemoved,
    /// A rule as it is.
    Rule(BusRuleView),
    /// Rules as they are.
    Rules(Vec<BusRuleView>),
    /// The messages are in the queue under these numbers, in order, or have these numbers of the topic. A duplicate has
    /// none.
    Sent(Vec<Option<SequenceNumber>>),
    /// The messages that were taken. Empty if there was none.
    Received(Vec<DeliveredMessage>),
    /// The result of each settlement, in order.
    Settled(Vec<Verdict>),
    /// Until when each lock holds, in order.
    LocksRenewed(Vec<Timestamp>),
    /// Messages as they are.
    Peeked(Vec<PeekedBusMessage>),
    /// The scheduled messages were cancelled.
    Cancelled,
    /// The session is locked.
    SessionAccepted(SessionLock),
    /// Until when the session is locked.
    SessionRenewed(Timestamp),
    /// The session is free.
    SessionReleased,
    /// The session's state, if it has one.
    SessionState(Option<BodyLocation>),
    /// The session has the new state.
    SessionStateSet,
    /// Ids of sessions.
    Sessions(ListedSessions),
    /// Messages were deleted.
    BatchDeleted(BatchDeleted),
    /// The result of one part of a purge.
    Purged(Purged),
    /// The result of one part of clearing session states.
    SessionStatesCleared(ClearedStates),
    /// The message is gone.
    MessageDeleted,
    /// The lock is gone.
    LockBroken,
    /// The result for each message to resubmit, in order.
    Resubmitted(Vec<ResubmitVerdict>),
    /// Every part of the transaction is done.
    Transacted,
}

impl BusOutcome {
    /// The locations of the bytes in the answer, in order: for each message its body, then the changes to
    /// its properties.
    pub fn bodies(&self) -> Vec<BodyLocation> {
        let of = |body: &BodyLocation, overlays: &[BodyLocation]| {
            let mut all = vec![*body];
            all.extend_from_slice(overlays);
            all
        };
        match self {
            Self::Received(messages) => messages
                .iter()
                .flat_map(|message| of(&message.body, &message.overlays))
                .collect(),
            Self::Peeked(messages) => messages
                .iter()
                .flat_map(|message| of(&message.body, &message.overlays))
                .collect(),
            Self::SessionState(state) => state.iter().copied().collect(),
            Self::QueueCreated(_)
            | Self::QueueUpdated(_)
            | Self::QueueDeleted
            | Self::Queue(_)
            | Self::Queues(_)
            | Self::RuleAdded(_)
            | Self::RuleReplaced(_)
            | Self::RuleRemoved
            | Self::Rule(_)
            | Self::Rules(_)
            | Self::Sent(_)
            | Self::Settled(_)
            | Self::LocksRenewed(_)
            | Self::Cancelled
            | Self::SessionAccepted(_)
            | Self::SessionRenewed(_)
            | Self::SessionReleased
            | Self::SessionStateSet
            | Self::Sessions(_)
            | Self::BatchDeleted(_)
            | Self::Purged(_)
            | Self::SessionStatesCleared(_)
            | Self::MessageDeleted
            | Self::LockBroken
            | Self::Resubmitted(_)
            | Self::Transacted => Vec::new(),
        }
    }

    /// Keeps the messages for which `keep` returns true. `keep` gets the number of parts that
    /// [`BusOutcome::bodies`] lists of the message.
    pub fn retain_messages(&mut self, mut keep: impl FnMut(usize) -> bool) {
        match self {
            Self::Received(messages) => {
                messages.retain(|message| keep(1 + message.overlays.len()));
            }
            Self::Peeked(messages) => {
                messages.retain(|message| keep(1 + message.overlays.len()));
            }
            Self::QueueCreated(_)
            | Self::QueueUpdated(_)
            | Self::QueueDeleted
            | Self::Queue(_)
            | Self::Queues(_)
            | Self::RuleAdded(_)
            | Self::RuleReplaced(_)
            | Self::RuleRemoved
            | Self::Rule(_)
            | Self::Rules(_)
            | Self::Sent(_)
            | Self::Settled(_)
            | Self::LocksRenewed(_)
            | Self::Cancelled
            | Self::SessionAccepted(_)
            | Self::SessionRenewed(_)
            | Self::SessionReleased
            | Self::SessionState(_)
            | Self::SessionStateSet
            | Self::Sessions(_)
            | Self::BatchDeleted(_)
            | Self::Purged(_)
            | Self::SessionStatesCleared(_)
            | Self::MessageDeleted
            | Self::LockBroken
            | Self::Resubmitted(_)
            | Self::Transacted => {}
        }
    }
}

/// The settings, times and counts of a queue, topic or subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusQueueView {
    /// What it is, or what it is a sub-queue of.
    pub kind: EntityKind,
    /// The incarnation of the entity that this describes.
    pub incarnation: Incarnation,
    /// The name, in lower case.
    pub name: Box<str>,
    /// Its settings.
    pub options: BusQueueOptions,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its settings were last changed.
    pub updated_at: Timestamp,
    /// When it was last used.
    pub used_at: Timestamp,
    /// Whether it belongs to a subscription of a topic that is disabled: nobody receives from it.
    pub is_suspended: bool,
    /// The counts of the queue and its sub-queues.
    pub counts: BusQueueCounts,
}

/// The counts of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusQueueCounts {
    /// Messages to receive, including locked and deferred ones.
    pub active: u64,
    /// The active messages that can be received now, by the receiver of their session if they have one. Some
    /// may have expired.
    pub ready: u64,
    /// Messages that become ready later.
    pub scheduled: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Messages that could not be forwarded.
    pub failed_transfers: u64,
    /// Bytes, of all of these. Of a topic, with those of its subscriptions.
    pub size_bytes: u64,
    /// How many subscriptions a topic has.
    pub subscriptions: u64,
}

/// A part of a list of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedSessions {
    /// Their ids, in order.
    pub ids: Vec<Box<str>>,
    /// How many were skipped before these, as requested.
    pub skipped: u32,
    /// The id to continue at, if there may be more.
    pub next: Option<Box<str>>,
}

/// The result of one part of deleting ready messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchDeleted {
    /// How many were deleted.
    pub count: u32,
    /// The number to continue at, if there may be more.
    pub next: Option<SequenceNumber>,
}

/// A message that a receiver was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredMessage {
    /// Its number.
    pub sequence_number: SequenceNumber,
    /// Its number where it was sent first.
    pub first_sequence_number: SequenceNumber,
    /// Its lock, if it stays.
    pub lock: Option<Token>,
    /// Until when the lock holds.
    pub locked_until: Timestamp,
    /// When it came into the queue.
    pub enqueued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// Deliveries that failed before.
    pub delivery_count: u32,
    /// Whether it was ready or deferred.
    pub state: BusMessageState,
    /// Why it is a dead letter, if it is one.
    pub cause: Option<DeadLetterCause>,
    /// The name of the queue that made it a dead letter, if it was forwarded since.
    pub dead_letter_source: Option<Arc<str>>,
    /// Its bytes.
    pub body: BodyLocation,
    /// Changes to its properties, oldest first.
    pub overlays: Vec<BodyLocation>,
}

/// A message as a peek shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeekedBusMessage {
    /// Its number.
    pub sequence_number: SequenceNumber,
    /// Its number where it was sent first.
    pub first_sequence_number: SequenceNumber,
    /// When it came into the queue.
    pub enqueued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When its lock ends or it becomes ready, if it is locked or scheduled.
    pub due_at: Timestamp,
    /// Deliveries that failed.
    pub delivery_count: u32,
    /// Its state.
    pub state: BusMessageState,
    /// Why it is a dead letter, if it is one.
    pub cause: Option<DeadLetterCause>,
    /// The name of the queue that made it a dead letter, if it was forwarded since.
    pub dead_letter_source: Option<Arc<str>>,
    /// Its bytes.
    pub body: BodyLocation,
    /// Changes to its properties, oldest first.
    pub overlays: Vec<BodyLocation>,
}

/// A session that is locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLock {
    /// Its id.
    pub session: Box<str>,
    /// The lock.
    pub lock: Token,
    /// Until when it holds.
    pub locked_until: Timestamp,
}

/// The result of one part of a purge or of its dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// How many messages were deleted.
    pub count: u32,
    /// How many locked messages stay.
    pub locked_count: u32,
    /// The number at which the next part begins. `None` if this was the last.
    pub next: Option<SequenceNumber>,
    /// Where the purge ends, to give to the next parts.
    pub until: SequenceNumber,
}

/// The result of one part of clearing session states, or of its dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClearedStates {
    /// How many states were cleared.
    pub count: u32,
    /// The id at which the next part begins. `None` if this was the last.
    pub next: Option<Box<str>>,
}

/// The result for one message to resubmit. Unless it was resubmitted, the message stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResubmitVerdict {
    /// It is in the other entity under this number.
    Resubmitted(SequenceNumber),
    /// The message does not exist any more.
    NotFound,
    /// The message is locked.
    Locked,
    /// The message's properties have changed since it was read.
    Changed,
    /// The destination has seen its id, and would drop it as a duplicate.
    Duplicate,
    /// The message is larger than the destination accepts.
    TooLarge,
    /// The destination requires a session, and the message has none.
    SessionRequired,
    /// The destination has no room.
    Full,
    /// The destination is a topic of which no subscription would get the message: it would be lost.
    Unselected,
    /// The destination is a topic, and the messages before it took all steps that a command has for rules. It can be sent by
    /// another command. If it came first, its own rules take more.
    NotCompared,
}

/// The result of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The message was settled.
    Settled,
    /// The lock had ended before, or never existed.
    LockLost,
    /// The lock of the message's session had ended.
    SessionLockLost,
    /// A dead letter cannot be made a dead letter.
    NotAllowed,
    /// Too many changes to the message's properties, or too large ones.
    TooManyChanges,
    /// The queue is too full for a change to the message's properties; or one command cannot complete so many
    /// messages with so many changes.
    QuotaExceeded,
}

/// Why a part of a transaction cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PartRefusal {
    /// The refusal that the part would get on its own.
    #[error(transparent)]
    Refused(BusRefusal),
    /// The verdict on a settlement; never [`Verdict::Settled`].
    #[error("the lock could not be ended: {0:?}")]
    Unsettled(Verdict),
}

/// What topics and subscriptions do not support yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSupported {
    /// A topic that detects duplicates. Only earlier versions refuse it: their answers can still be read.
    DuplicateDetection,
    /// A message of a topic that becomes active later. Only earlier versions refuse it.
    ScheduledMessage,
    /// A message that is sent to a topic in a transaction. Only earlier versions refuse it.
    Transaction,
    /// A queue or subscription that forwards to a topic. Only earlier versions refuse it.
    ForwardToTopic,
    /// A message that is resubmitted to a topic. Only earlier versions refuse it.
    ResubmitToTopic,
    /// A change of the settings of a topic or subscription. Only earlier versions refuse it: their answers can still
    /// be read.
    Update,
    /// A topic that refuses messages that no rule matches. Only earlier versions refuse it.
    FiltersBeforePublishing,
    /// A topic that deletes itself when it is idle. Only earlier versions refuse it.
    AutoDeleteOnIdle,
    /// A topic with another status than Active. Only earlier versions refuse it.
    Status,
}

/// Which filters a limit of a topic's rules is for: each kind has a number of its own.
fn filters_of_limit(limit: u64) -> &'static str {
    match limit == SQL_RULES_MAX as u64 {
        true => "an SQL filter",
        false => "a true, false or correlation filter",
    }
}

impl fmt::Display for NotSupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DuplicateDetection => "duplicate detection of topics",
            Self::ScheduledMessage => "a scheduled message for a topic",
            Self::Transaction => "a send to a topic in a transaction",
            Self::ForwardToTopic => "forwarding to a topic",
            Self::ResubmitToTopic => "resubmitting to a topic",
            Self::Update => "changing its settings",
            Self::FiltersBeforePublishing => "FilteringMessagesBeforePublishing",
            Self::AutoDeleteOnIdle => "AutoDeleteOnIdle of topics",
            Self::Status => "a status of topics other than Active",
        })
    }
}

/// Why a request was not carried out. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BusRefusal {
    /// There is no such queue.
    #[error("the messaging entity '{queue}' could not be found")]
    QueueNotFound {
        /// The name asked for.
        queue: Box<str>,
    },
    /// There is a queue of that name.
    #[error("the messaging entity '{queue}' exists already")]
    QueueAlreadyExists {
        /// The name asked for.
        queue: Box<str>,
    },
    /// A setting is outside its range.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
    /// A setting that is fixed at creation was to change.
    #[error("{option} cannot be changed once the entity is there")]
    UnchangeableOption {
        /// The setting.
        option: FixedOption,
    },
    /// The queue is disabled for sending or for receiving.
    #[error("the messaging entity '{queue}' is disabled for this operation")]
    Disabled {
        /// The queue.
        queue: Box<str>,
    },
    /// The queue or topic has no room for this much: messages, or the state of a session.
    #[error(
        "the messaging entity is full: it would have {size_bytes} of at most {limit_bytes} bytes. Remove messages or states \
         of sessions from it (for a topic: from its subscriptions), or raise MaxSizeInMegabytes"
    )]
    QuotaExceeded {
        /// The size it would have.
        size_bytes: u64,
        /// The largest size allowed.
        limit_bytes: u64,
    },
    /// A message that its destination refuses is a failed transfer of another entity, which has no room for it.
    #[error(
        "the failed transfer has no room in '{queue}', where {size_bytes} of {limit_bytes} bytes would be used; \
         '{to}' refused it: {why}"
    )]
    TransferFull {
        /// The entity that gets failed transfers.
        queue: Box<str>,
        /// The size it would have.
        size_bytes: u64,
        /// The largest size allowed.
        limit_bytes: u64,
        /// The destination.
        to: Box<str>,
        /// Why the destination refuses the message.
        why: Box<str>,
    },
    /// A message is larger than the queue accepts.
    #[error("message of {size_bytes} bytes is above the maximum of {limit_bytes} bytes")]
    MessageTooLarge {
        /// Its size.
        size_bytes: u64,
        /// The largest allowed.
        limit_bytes: u64,
    },
    /// Nothing can be sent to a sub-queue.
    #[error("messages cannot be sent to the sub-queue '{queue}'")]
    NotSendable {
        /// The sub-queue.
        queue: Box<str>,
    },
    /// Nothing can be sent to a subscription by itself.
    #[error("messages cannot be sent to the subscription '{queue}': send them to its topic")]
    NotSendableSubscription {
        /// The subscription.
        queue: Box<str>,
    },
    /// Nothing can be received from a topic.
    #[error(
        "messages cannot be received from the topic '{queue}': receive them from a subscription"
    )]
    NotReceivable {
        /// The topic.
        queue: Box<str>,
    },
    /// A topic has as many subscriptions as it may have.
    #[error("the topic '{queue}' has {limit} subscriptions, which is the maximum")]
    TooManySubscriptions {
        /// The topic.
        queue: Box<str>,
        /// How many are allowed.
        limit: u64,
    },
    /// One command would make more copies of messages than allowed. Only a server of an earlier version says so: this one
    /// stores what does not fit.
    #[error(
        "the messages at once are {copies} copies in the subscriptions of the topic, above the maximum of {limit}: \
         send fewer at once"
    )]
    TooManyCopies {
        /// How many copies.
        copies: u64,
        /// How many are allowed.
        limit: u64,
    },
    /// The rules of a topic would take more steps than one command may for these messages. Only a server of an earlier
    /// version says so.
    #[error(
        "the rules of the topic take more than {limit} steps for the messages at once, which is the maximum: try again \
         with fewer messages"
    )]
    RulesTakeLong {
        /// How many are allowed.
        limit: u64,
    },
    /// The actions and failures of rules would make more bytes than one command may write for these messages. Only a server
    /// of an earlier version says so.
    #[error(
        "the changes in the copies of the messages at once are above the maximum of {limit_bytes} bytes: try again with \
         fewer messages"
    )]
    CopiesTooLarge {
        /// How many are allowed.
        limit_bytes: u64,
    },
    /// The bytes of a message cannot be read, and the rules of its topic have to look at it.
    #[error("a message cannot be read, and the rules of its topic have to look at it")]
    NotAMessage,
    /// No rule of a topic that filters before it publishes selects a message, so none of the messages was sent.
    #[error(
        "no rule of the topic '{queue}' selects message {message} of those sent, and the topic refuses such messages \
         (FilteringMessagesBeforePublishing): none was sent"
    )]
    NoMatchingSubscription {
        /// The topic.
        queue: Box<str>,
        /// Which message, from 1.
        message: u64,
    },
    /// Topics or subscriptions do not support this yet.
    #[error("'{queue}' is a topic or subscription: {what} is not supported yet")]
    NotSupportedYet {
        /// The topic or subscription.
        queue: Box<str>,
        /// What it does not support.
        what: NotSupported,
    },
    /// The subscription has no rule of that name.
    #[error("the rule '{rule}' could not be found")]
    RuleNotFound {
        /// The name asked for.
        rule: Box<str>,
    },
    /// The subscription has a rule of that name.
    #[error("the rule '{rule}' exists already")]
    RuleAlreadyExists {
        /// The name asked for.
        rule: Box<str>,
    },
    /// The filter or the action of a rule is not one.
    #[error("{why}")]
    InvalidRule {
        /// What is wrong with it, and where.
        why: Box<str>,
    },
    /// A topic has as many rules of a kind as it may have.
    #[error("the topic '{queue}' has {limit} rules with {}, which is the maximum", filters_of_limit(*limit))]
    TooManyRules {
        /// The topic.
        queue: Box<str>,
        /// How many are allowed.
        limit: u64,
    },
    /// All rules of a topic together are as large as they may be.
    #[error(
        "the rules of the topic '{queue}' would take more than {limit_bytes} bytes: remove some"
    )]
    RulesTooLarge {
        /// The topic.
        queue: Box<str>,
        /// How many bytes they may take.
        limit_bytes: u64,
    },
    /// Too many rules of a topic have changed since the first of its messages that waits for copies.
    #[error(
        "the rules of the topic '{queue}' have changed too often while messages wait for copies: try again later"
    )]
    RulesBusy {
        /// The topic.
        queue: Box<str>,
    },
    /// Messages of a queue that forwards them cannot be received.
    #[error(
        "the messaging entity '{queue}' forwards its messages: they cannot be received from it"
    )]
    Forwards {
        /// The queue.
        queue: Box<str>,
    },
    /// The destination for forwarded or resubmitted messages does not exist, or has a sub-queue's name.
    #[error("the destination '{queue}' could not be found")]
    DestinationNotFound {
        /// The destination.
        queue: Box<str>,
    },
    /// The queue requires sessions.
    #[error("the entity requires sessions: a session is missing")]
    SessionRequired,
    /// The queue has no sessions.
    #[error("the entity does not support sessions")]
    SessionsNotSupported,
    /// The session is locked by another receiver.
    #[error(
        "the requested session '{session}' cannot be accepted: it is locked by another receiver"
    )]
    SessionCannotBeLocked {
        /// The session.
        session: Box<str>,
    },
    /// No free session has messages.
    #[error("no session is available")]
    NoSessionAvailable,
    /// A message's lock has ended.
    #[error("the lock supplied is invalid: it expired, or the message was settled")]
    LockLost,
    /// A session's lock has ended.
    #[error("the session lock was lost")]
    SessionLockLost,
    /// There is no such message in the requested state.
    #[error("the message with sequence number {sequence_number} could not be found")]
    MessageNotFound {
        /// The number asked for.
        sequence_number: u64,
    },
    /// The message is locked.
    #[error("the message with sequence number {sequence_number} is locked until {until}")]
    MessageLocked {
        /// The number asked for.
        sequence_number: u64,
        /// Until when; [`Timestamp::NEVER`] if as long as its session.
        until: Timestamp,
    },
    /// The message was to be received and deleted, and its bytes are damaged: it was not deleted. If it was received
    /// from the head of its queue, the delivery counts as failed.
    #[error(
        "the message with sequence number {sequence_number} is damaged on the disk, and was not deleted"
    )]
    MessageDamaged {
        /// The number of the message, or of the first one.
        sequence_number: u64,
    },
    /// The message is scheduled: with a lock it would lose its schedule.
    #[error(
        "the message with sequence number {sequence_number} is scheduled, and cannot be locked"
    )]
    MessageScheduled {
        /// The number asked for.
        sequence_number: u64,
    },
    /// There is no lock to break.
    #[error("there is no lock to break")]
    NotLocked,
    /// One command brings or names more messages than allowed.
    #[error("{count} messages at once are above the maximum of {limit}")]
    TooMany {
        /// How many.
        count: u64,
        /// How many are allowed.
        limit: u64,
    },
    /// The id of a session is too long.
    #[error("session id of {size_bytes} bytes is above the maximum of {limit_bytes} bytes")]
    SessionIdTooLong {
        /// Its size.
        size_bytes: u64,
        /// The longest allowed.
        limit_bytes: u64,
    },
    /// A part of a transaction cannot be carried out, so none of it was.
    #[error("part {part} of the transaction, on '{queue}': {why}")]
    Transaction {
        /// The number of the part, from 1.
        part: u64,
        /// Its queue.
        queue: Box<str>,
        /// The reason.
        why: Box<PartRefusal>,
    },
    /// A session's state is larger than a message may be.
    #[error("session state of {size_bytes} bytes is above the maximum of {limit_bytes} bytes")]
    SessionStateTooLarge {
        /// Its size.
        size_bytes: u64,
        /// The largest allowed.
        limit_bytes: u64,
    },
}
