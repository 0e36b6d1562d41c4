//! Commands for a bus queue.

use std::sync::Arc;

use bytes::Bytes;

use super::{BusQueueOptions, NewRule};
use crate::catalogue::ReceiveMode;
use crate::vocabulary::{EntityName, Incarnation, SequenceNumber, Timestamp, Token};

/// A request that concerns bus queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusCommand {
    /// Creates a queue with its sub-queues.
    CreateQueue {
        /// The name, in lower case.
        queue: EntityName,
        /// Its settings.
        options: BusQueueOptions,
    },
    /// Replaces the settings of a queue, topic or subscription.
    UpdateQueue {
        /// The queue, topic or subscription.
        queue: EntityName,
        /// All of its settings.
        options: BusQueueOptions,
    },
    /// Creates a topic with its sub-queues.
    CreateTopic {
        /// The name, in lower case.
        topic: EntityName,
        /// Its settings.
        options: BusQueueOptions,
    },
    /// Creates a subscription with its sub-queues.
    CreateSubscription {
        /// The topic.
        topic: EntityName,
        /// The subscription, in lower case: `topic/subscriptions/name`.
        subscription: EntityName,
        /// Its settings.
        options: BusQueueOptions,
        /// Its only rule. `None` for `$Default`, which matches all messages.
        rule: Option<Box<NewRule>>,
    },
    /// Deletes a queue, topic or subscription with its sub-queues and all that is in them. A topic's subscriptions
    /// are deleted with it.
    DeleteQueue {
        /// The queue, topic or subscription.
        queue: EntityName,
    },
    /// Reads the settings, times and counts of a queue, topic or subscription.
    ReadQueue {
        /// The same, or a sub-queue.
        queue: EntityName,
    },
    /// Lists queues in ascending order of their names' bytes, without sub-queues, topics and subscriptions.
    ListQueues {
        /// The namespace.
        namespace: Arc<str>,
        /// Only names at or after this one.
        from: Box<str>,
        /// How many to skip first.
        skip: u32,
        /// At most this many.
        limit: u32,
    },
    /// Lists topics in ascending order of their names' bytes.
    ListTopics {
        /// The namespace.
        namespace: Arc<str>,
        /// How many to skip first.
        skip: u32,
        /// At most this many.
        limit: u32,
    },
    /// Lists the subscriptions of a topic in ascending order of their names' bytes.
    ListSubscriptions {
        /// The topic.
        topic: EntityName,
        /// How many to skip first.
        skip: u32,
        /// At most this many.
        limit: u32,
    },
    /// Adds a rule to a subscription.
    AddRule {
        /// The topic.
        topic: EntityName,
        /// Its subscription.
        subscription: EntityName,
        /// The rule. No other rule of the subscription has its name.
        rule: Box<NewRule>,
    },
    /// Replaces a rule of a subscription.
    SetRule {
        /// The topic.
        topic: EntityName,
        /// Its subscription.
        subscription: EntityName,
        /// The new rule, with the name of the old one.
        rule: Box<NewRule>,
    },
    /// Removes a rule of a subscription.
    RemoveRule {
        /// The topic.
        topic: EntityName,
        /// Its subscription.
        subscription: EntityName,
        /// The name of the rule, in any case.
        name: Box<str>,
    },
    /// Reads a rule of a subscription.
    ReadRule {
        /// The subscription.
        subscription: EntityName,
        /// The name of the rule, in any case.
        name: Box<str>,
    },
    /// Lists the rules of a subscription in ascending order of their names' bytes in lower case.
    ListRules {
        /// The subscription.
        subscription: EntityName,
        /// How many to skip first.
        skip: u32,
        /// At most this many. There may be fewer if they are large, but not none before the end.
        limit: u32,
    },
    /// Sends messages, all or none. Those to a topic arrive in each of its subscriptions.
    Send {
        /// The queue or topic.
        queue: EntityName,
        /// The messages, in order.
        messages: Vec<BusMessage>,
    },
    /// Puts messages into a queue, topic or subscription, all or none. For operators: no client sends to a subscription. Its
    /// rules do not look at them, and no other subscription gets them. Into a queue or topic, it sends them.
    Deposit {
        /// The queue, topic or subscription.
        queue: EntityName,
        /// The messages, in order. In a subscription none is scheduled.
        messages: Vec<BusMessage>,
    },
    /// Sends messages to a queue or topic via another one. Each arrives at the destination or, if that does not accept
    /// it, as a failed transfer of the other one.
    SendVia {
        /// The queue or topic that they are sent via.
        via: EntityName,
        /// The destination. It need not exist.
        to: EntityName,
        /// The messages, in order.
        messages: Vec<BusMessage>,
    },
    /// Takes messages from the head of a queue or session.
    Receive {
        /// The queue or sub-queue.
        queue: EntityName,
        /// At most this many.
        count: u32,
        /// Whether they stay, locked.
        mode: ReceiveMode,
        /// The lock of the session whose messages are wanted.
        session: Option<Token>,
    },
    /// Ends locks. Each settlement succeeds or fails by itself.
    Settle {
        /// The queue or sub-queue.
        queue: EntityName,
        /// The locks, and how to settle their messages.
        settlements: Vec<(Token, Disposition)>,
    },
    /// Renews locks for the whole lock duration, all or none.
    RenewLocks {
        /// The queue or sub-queue.
        queue: EntityName,
        /// The locks.
        locks: Vec<Token>,
    },
    /// Shows messages in any state, in the order of their numbers.
    Peek {
        /// The queue or sub-queue.
        queue: EntityName,
        /// The number to start from.
        from: SequenceNumber,
        /// At most this many.
        count: u32,
        /// Only those of this session.
        session: Option<Box<str>>,
    },
    /// Shows the message of a valid lock.
    ReadLocked {
        /// The queue or sub-queue.
        queue: EntityName,
        /// The lock.
        lock: Token,
    },
    /// Cancels scheduled messages, all or none.
    CancelScheduled {
        /// The queue.
        queue: EntityName,
        /// Their numbers.
        numbers: Vec<SequenceNumber>,
    },
    /// Takes deferred messages, all or none.
    ReceiveDeferred {
        /// The queue or sub-queue, the messages, and how to take them.
        read: DeferredRead,
    },
    /// Locks a session.
    AcceptSession {
        /// The queue.
        queue: EntityName,
        /// Which session.
        session: SessionChoice,
    },
    /// Renews a session's lock for the whole lock duration.
    RenewSession {
        /// The queue.
        queue: EntityName,
        /// The lock.
        session: Token,
    },
    /// Ends a session's lock, and with it the locks of its messages. No delivery counts as failed.
    ReleaseSession {
        /// The queue.
        queue: EntityName,
        /// The lock.
        session: Token,
    },
    /// Reads a session's state.
    ReadSessionState {
        /// The queue.
        queue: EntityName,
        /// The lock.
        session: Token,
    },
    /// Replaces a session's state.
    SetSessionState {
        /// The queue.
        queue: EntityName,
        /// The lock.
        session: Token,
        /// The new state, or none to clear it.
        state: Option<Bytes>,
    },
    /// Lists sessions in the order of their ids, as many as one command may look at.
    ListSessions {
        /// The queue.
        queue: EntityName,
        /// The id to start from. The empty id is the first.
        from: Box<str>,
        /// Only sessions whose state was set after this time. Without it, all sessions with messages or a
        /// state.
        state_set_after: Option<Timestamp>,
        /// How many to skip first.
        skip: u32,
        /// At most this many.
        limit: u32,
    },
    /// Deletes messages in any state from a number on, as many as one command may.
    Purge {
        /// The queue or sub-queue.
        queue: EntityName,
        /// Which messages.
        purge: Purge,
    },
    /// Clears the states of sessions without messages, so that the sessions are forgotten. Works in the
    /// order of the ids, on as many sessions as one command may look at.
    ClearSessionStates {
        /// The queue.
        queue: EntityName,
        /// The id to start from. The empty id is the first.
        from: Box<str>,
        /// At most this many.
        count: u32,
        /// Whether to count only.
        is_dry_run: bool,
    },
    /// Takes one message by its number, in any state unless it is locked.
    TakeMessage {
        /// The queue or sub-queue.
        queue: EntityName,
        /// Its number.
        number: SequenceNumber,
        /// Whether it stays, locked.
        mode: ReceiveMode,
    },
    /// Deletes one message by its number, in any state.
    DeleteMessage {
        /// The queue or sub-queue.
        queue: EntityName,
        /// Its number.
        number: SequenceNumber,
        /// Whether to delete the message even if it is locked.
        with_locked: bool,
    },
    /// Ends a lock against its holder's will.
    BreakLock {
        /// The queue or sub-queue.
        queue: EntityName,
        /// The lock.
        target: BreakTarget,
    },
    /// Sends messages of one entity to a queue as new messages.
    Resubmit {
        /// The entity that has the messages.
        queue: EntityName,
        /// The messages and their destination.
        resubmit: Resubmit,
    },
    /// Does work in several queues, all of it or none.
    Transact {
        /// The work, in order.
        parts: Vec<TransactionPart>,
    },
    /// Deletes ready messages from the head, as many as one command may look at.
    DeleteBatch {
        /// The queue or sub-queue.
        queue: EntityName,
        /// The number to start from.
        from: SequenceNumber,
        /// Only messages enqueued before this time.
        before: Timestamp,
        /// At most this many.
        count: u32,
        /// Only those of this session.
        session: Option<Box<str>>,
    },
}

/// A part of a transaction. On its own it would be a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionPart {
    /// The queue or sub-queue.
    pub queue: EntityName,
    /// The queue's incarnation, if it is known. A later queue of the same name is not meant.
    pub incarnation: Option<Incarnation>,
    /// The work in that queue.
    pub work: TransactionWork,
}

/// The work of a part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionWork {
    /// Sends messages.
    Send(Vec<BusMessage>),
    /// Sends messages via the part's queue or topic to this destination.
    SendVia(EntityName, Vec<BusMessage>),
    /// Sends messages to the part's queue or topic. What that does not accept becomes a failed transfer of this other one,
    /// if that is there.
    Transfer(EntityName, Vec<BusMessage>),
    /// Ends a lock.
    Settle(Token, Disposition),
    /// Cancels scheduled messages.
    CancelScheduled(Vec<SequenceNumber>),
}

impl TransactionPart {
    /// The queues that it names, which may be the same: the one with the work, and another one.
    pub fn queues(&self) -> impl Iterator<Item = &EntityName> {
        let other = match &self.work {
            TransactionWork::SendVia(other, _) | TransactionWork::Transfer(other, _) => Some(other),
            TransactionWork::Send(_)
            | TransactionWork::Settle(..)
            | TransactionWork::CancelScheduled(_) => None,
        };
        [&self.queue].into_iter().chain(other)
    }
}

impl TransactionWork {
    /// The messages that it sends.
    pub(crate) fn into_messages(self) -> Vec<BusMessage> {
        match self {
            Self::Send(messages) | Self::SendVia(_, messages) | Self::Transfer(_, messages) => {
                messages
            }
            Self::Settle(..) | Self::CancelScheduled(_) => Vec::new(),
        }
    }

    /// How many messages the work sends.
    pub fn sent_count(&self) -> usize {
        match self {
            Self::Send(messages) | Self::SendVia(_, messages) | Self::Transfer(_, messages) => {
                messages.len()
            }
            Self::Settle(..) | Self::CancelScheduled(_) => 0,
        }
    }

    /// How many messages the work settles or cancels.
    pub fn ended_count(&self) -> usize {
        match self {
            Self::Send(_) | Self::SendVia(..) | Self::Transfer(..) => 0,
            Self::Settle(..) => 1,
            Self::CancelScheduled(numbers) => numbers.len(),
        }
    }

    /// The bytes of its messages, and of its changes to properties.
    pub fn body_size_bytes(&self) -> u64 {
        match self {
            Self::Send(messages) | Self::SendVia(_, messages) | Self::Transfer(_, messages) => {
                messages.iter().map(|it| it.body.len() as u64).sum()
            }
            Self::Settle(_, disposition) => disposition.overlay_size_bytes(),
            Self::CancelScheduled(_) => 0,
        }
    }
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusMessage {
    /// Its bytes.
    pub body: Bytes,
    /// Its id, for destinations that detect duplicates.
    pub message_id: Option<Box<str>>,
    /// Its session.
    pub session: Option<Box<str>>,
    /// Its time to live, from the moment it can be received.
    pub time_to_live_ms: Option<u64>,
    /// When it can be received. A time in the past means at once.
    pub scheduled_at: Option<Timestamp>,
}

impl BusMessage {
    /// Whether it becomes active after this time.
    pub(crate) fn is_scheduled(&self, now: Timestamp) -> bool {
        self.scheduled_at.is_some_and(|at| !at.has_passed(now))
    }
}

/// Deferred messages to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeferredRead {
    /// The queue or sub-queue.
    pub queue: EntityName,
    /// The numbers of the messages.
    pub numbers: Vec<SequenceNumber>,
    /// Whether they stay, locked.
    pub mode: ReceiveMode,
    /// The lock of their session.
    pub session: Option<Token>,
}

/// A part of a purge. Continue at [`Purged::next`](super::Purged::next) to purge all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The number to start from.
    pub from: SequenceNumber,
    /// The first number that stays. Without it, the queue's next number.
    pub until: Option<SequenceNumber>,
    /// Only messages enqueued before this time.
    pub before: Option<Timestamp>,
    /// At most this many.
    pub count: u32,
    /// Whether to delete locked messages too.
    pub with_locked: bool,
    /// Whether to count only.
    pub is_dry_run: bool,
}

/// A lock to break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BreakTarget {
    /// The lock of a message.
    Message(SequenceNumber),
    /// The lock of a session, with the locks of its messages.
    Session(Box<str>),
}

/// Messages to resubmit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resubmit {
    /// The queue or topic to send them to, in lower case. Without it, the queue, topic or subscription that the dead letters
    /// belong to.
    pub to: Option<Box<str>>,
    /// The messages.
    pub messages: Vec<Resubmission>,
}

/// A message to resubmit, with its new bytes and properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resubmission {
    /// Its number in its present entity.
    pub sequence_number: SequenceNumber,
    /// How many changes to its properties the new bytes include. If the message has other changes, it stays.
    pub overlay_count: u32,
    /// Its bytes.
    pub body: Bytes,
    /// Its id, for destinations that detect duplicates.
    pub message_id: Option<Box<str>>,
    /// Its session.
    pub session: Option<Box<str>>,
    /// Its new time to live.
    pub time_to_live_ms: Option<u64>,
}

/// The session to lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChoice {
    /// The session with this id.
    Named(Box<str>),
    /// The free session with the oldest message.
    Next,
}

/// How a locked message is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The message is processed.
    Complete,
    /// The message was not processed: the delivery counts as failed.
    Abandon {
        /// A change to its properties.
        overlay: Option<Bytes>,
    },
    /// The message is kept and can be received by its sequence number only.
    Defer {
        /// A change to its properties.
        overlay: Option<Bytes>,
    },
    /// The message becomes a dead letter.
    DeadLetter {
        /// A change to its properties, with reason and description.
        overlay: Option<Bytes>,
    },
    /// The receiver did not look at the message: the delivery does not count.
    Release,
}
