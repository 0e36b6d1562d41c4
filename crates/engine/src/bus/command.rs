//! What can be asked of a bus queue.

use std::sync::Arc;

use bytes::Bytes;

use super::BusQueueOptions;
use crate::{EntityName, Incarnation, SequenceNumber, Timestamp, Token};

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
    /// Replaces a queue's settings.
    UpdateQueue {
        /// The queue.
        queue: EntityName,
        /// All of its settings.
        options: BusQueueOptions,
    },
    /// Deletes a queue with its sub-queues and all that is in them.
    DeleteQueue {
        /// The queue.
        queue: EntityName,
    },
    /// Reads a queue's settings, times and counts.
    ReadQueue {
        /// The queue or sub-queue.
        queue: EntityName,
    },
    /// Lists queues in ascending order of their names' bytes, without sub-queues.
    ListQueues {
        /// The namespace.
        namespace: Arc<str>,
        /// Only names at or after this one.
        from: Box<str>,
        /// How many to leave out first.
        skip: u32,
        /// At most this many.
        limit: u32,
    },
    /// Sends messages, all or none.
    Send {
        /// The queue.
        queue: EntityName,
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
    /// Ends locks, each in its way. What one verdict says changes nothing for the others.
    Settle {
        /// The queue or sub-queue.
        queue: EntityName,
        /// The locks, and what is to become of their messages.
        settlements: Vec<(Token, Disposition)>,
    },
    /// Gives locks their whole duration again, all or none.
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
        /// The first number of interest.
        from: SequenceNumber,
        /// At most this many.
        count: u32,
        /// Only those of this session.
        session: Option<Box<str>>,
    },
    /// Shows the message of a lock that holds.
    ReadLocked {
        /// The queue or sub-queue.
        queue: EntityName,
        /// The lock.
        lock: Token,
    },
    /// Takes scheduled messages back, all or none.
    CancelScheduled {
        /// The queue.
        queue: EntityName,
        /// Their numbers.
        numbers: Vec<SequenceNumber>,
    },
    /// Takes deferred messages, all or none.
    ReceiveDeferred {
        /// The queue or sub-queue, the messages and how.
        read: DeferredRead,
    },
    /// Locks a session.
    AcceptSession {
        /// The queue.
        queue: EntityName,
        /// Which one.
        session: SessionChoice,
    },
    /// Gives a session's lock its whole duration again.
    RenewSession {
        /// The queue.
        queue: EntityName,
        /// The lock.
        session: Token,
    },
    /// Ends a session's lock, and those of its messages. No delivery counts as failed.
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
    /// Lists sessions in the order of their ids: as many as one command may look at.
    ListSessions {
        /// The queue.
        queue: EntityName,
        /// The id to begin at; the empty one is the first.
        from: Box<str>,
        /// Only sessions whose state was set after this; without it, those with messages or a state.
        state_set_after: Option<Timestamp>,
        /// How many to leave out first.
        skip: u32,
        /// At most this many.
        limit: u32,
    },
    /// Deletes messages in any state: as many as one command may, from a number on.
    Purge {
        /// The queue or sub-queue.
        queue: EntityName,
        /// Which.
        purge: Purge,
    },
    /// Clears states of sessions that have no messages, and so forgets those sessions: as many as one
    /// command may, in the order of their ids.
    ClearSessionStates {
        /// The queue.
        queue: EntityName,
        /// The id to begin at; the empty one is the first.
        from: Box<str>,
        /// At most this many.
        count: u32,
        /// Whether they are only counted.
        is_dry_run: bool,
    },
    /// Takes one message by its number, whatever its state, unless it is locked.
    TakeMessage {
        /// The queue or sub-queue.
        queue: EntityName,
        /// Its number.
        number: SequenceNumber,
        /// Whether it stays, locked.
        mode: ReceiveMode,
    },
    /// Deletes one message by its number, whatever its state.
    DeleteMessage {
        /// The queue or sub-queue.
        queue: EntityName,
        /// Its number.
        number: SequenceNumber,
        /// Whether also if somebody has locked it.
        with_locked: bool,
    },
    /// Ends a lock for its holder.
    BreakLock {
        /// The queue or sub-queue.
        queue: EntityName,
        /// Whose lock.
        target: BreakTarget,
    },
    /// Sends messages of one entity to a queue, as new ones.
    Resubmit {
        /// Where they are.
        queue: EntityName,
        /// Which, and where to.
        resubmit: Resubmit,
    },
    /// Does work in several queues, all of it or none.
    Transact {
        /// The work, in order.
        parts: Vec<TransactionPart>,
    },
    /// Deletes ready messages from the head: as many as one command may look at.
    DeleteBatch {
        /// The queue or sub-queue.
        queue: EntityName,
        /// The first number of interest.
        from: SequenceNumber,
        /// Only those enqueued before this.
        before: Timestamp,
        /// At most this many.
        count: u32,
        /// Only those of this session.
        session: Option<Box<str>>,
    },
}

/// A part of a transaction: what by itself would be a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionPart {
    /// The queue or sub-queue.
    pub queue: EntityName,
    /// Which one of this name, if that is known: another that was created since is not meant.
    pub incarnation: Option<Incarnation>,
    /// What is done there.
    pub work: TransactionWork,
}

/// What a part of a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionWork {
    /// Sends messages.
    Send(Vec<BusMessage>),
    /// Ends a lock.
    Settle(Token, Disposition),
    /// Takes scheduled messages back.
    CancelScheduled(Vec<SequenceNumber>),
}

impl TransactionWork {
    /// How many messages it sends.
    pub fn sent_count(&self) -> usize {
        match self {
            Self::Send(messages) => messages.len(),
            Self::Settle(..) | Self::CancelScheduled(_) => 0,
        }
    }

    /// How many messages it settles or takes back.
    pub fn ended_count(&self) -> usize {
        match self {
            Self::Send(_) => 0,
            Self::Settle(..) => 1,
            Self::CancelScheduled(numbers) => numbers.len(),
        }
    }

    /// Bytes of messages, and of changes to their properties.
    pub fn body_size_bytes(&self) -> u64 {
        match self {
            Self::Send(messages) => messages.iter().map(|it| it.body.len() as u64).sum(),
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
    /// Its id, for queues that detect duplicates.
    pub message_id: Option<Box<str>>,
    /// Its session.
    pub session: Option<Box<str>>,
    /// How long it lives, from when it can be received.
    pub time_to_live_ms: Option<u64>,
    /// When it can be received; at once if that has passed.
    pub scheduled_at: Option<Timestamp>,
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

/// A part of a purge. Whoever wants all of it goes on at [`Purged::next`](super::Purged::next).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The first number of interest.
    pub from: SequenceNumber,
    /// The first number that stays; what comes next, if nothing is said.
    pub until: Option<SequenceNumber>,
    /// Only messages enqueued before this.
    pub before: Option<Timestamp>,
    /// At most this many.
    pub count: u32,
    /// Whether also those that somebody has locked.
    pub with_locked: bool,
    /// Whether they are only counted.
    pub is_dry_run: bool,
}

/// A lock to break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BreakTarget {
    /// A message's.
    Message(SequenceNumber),
    /// A session's, with those of its messages.
    Session(Box<str>),
}

/// Messages to send again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resubmit {
    /// The queue to send them to, in lower case: that to which the dead letters belong, if none is named.
    pub to: Option<Box<str>>,
    /// The messages.
    pub messages: Vec<Resubmission>,
}

/// A message to send again, as it is to be from then on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resubmission {
    /// Its number where it is.
    pub sequence_number: SequenceNumber,
    /// How many changes to its properties were known to who made the new bytes of it: if there are others,
    /// it stays.
    pub overlay_count: u32,
    /// Its bytes.
    pub body: Bytes,
    /// Its id, for queues that detect duplicates.
    pub message_id: Option<Box<str>>,
    /// Its session.
    pub session: Option<Box<str>>,
    /// How long it lives from now on.
    pub time_to_live_ms: Option<u64>,
}

/// What becomes of a message that is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveMode {
    /// It stays, locked.
    PeekLock,
    /// It is gone.
    ReceiveAndDelete,
    /// It is gone if its bytes are in memory. Otherwise it stays, locked, until whoever asked has read them
    /// and completes it: so that none is gone whose bytes prove damaged.
    DeleteOnceRead,
}

/// Which session to lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChoice {
    /// The one of that id.
    Named(Box<str>),
    /// The free one with the oldest message.
    Next,
}

/// What is to become of a locked message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It is done.
    Complete,
    /// It was not done: the delivery counts as failed.
    Abandon {
        /// A change to its properties.
        overlay: Option<Bytes>,
    },
    /// It is kept for whoever knows its number.
    Defer {
        /// A change to its properties.
        overlay: Option<Bytes>,
    },
    /// It becomes a dead letter.
    DeadLetter {
        /// A change to its properties, with reason and description.
        overlay: Option<Bytes>,
    },
    /// It was never looked at: the delivery does not count.
    Release,
}
