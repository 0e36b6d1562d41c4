//! What a command is, said in one place: what it touches, writes, looks at and takes.
//!
//! A partition asks before it decides. It makes room for all that a command may write, so that a decision
//! never fails halfway; it bounds the work of a turn by what its commands look at; and it admits commands by
//! their class. A new command does not compile before its profile describes it.

use crate::vocabulary::{EntityName, Token};

/// The most bytes of an event besides its texts: two varints of 56 bits, two of 36, two times, the location
/// of a body, a hash, and the batch's own tag and length.
pub(crate) const EVENT_SIZE_BYTES: u64 = 128;
/// The bytes that a batch adds to a body.
pub(crate) const BODY_OVERHEAD_BYTES: u64 = 16;
/// The most bytes of a text's length, or of another number beside it.
pub(crate) const NUMBER_SIZE_BYTES: u64 = 10;

/// A command as a partition sees it before it is decided.
#[derive(Debug)]
pub struct Description<'a, R> {
    /// What it reads or changes.
    pub touches: Touches<'a>,
    /// Which commands it makes way for.
    pub class: Class,
    /// What it writes, without the due work before it.
    pub writes: Writes<'a>,
    /// The bytes of its bodies. They are in memory from its admission to its answer.
    pub body_size_bytes: u64,
    /// Whether its bodies are changes to properties at the end of locks.
    pub changes_properties: bool,
    /// In how many bus queues due work is done before it.
    pub due_in: u32,
    /// Whether it releases messages with their session, as many as the budget for due work allows.
    pub releases: bool,
    /// How many messages, sessions or queues it looks at, as far as the command tells. Expired messages that
    /// it passes are not counted.
    pub looks_at: u64,
    /// Whether it removes messages that it hands out: then it needs their bodies first.
    pub needs_bodies: bool,
    /// What it takes that other receivers may wait for.
    pub receives: Option<Receives<'a>>,
    /// Why it is refused in any state.
    pub refusal: Option<R>,
}

/// What a command reads or changes, besides the due work before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touches<'a> {
    /// A queue, or a sub-queue of a bus queue. Its sub-queues too: a message may become a dead letter. A topic's
    /// subscriptions too: they get what is sent to it, and end with it. Of a subscription's topic no more than the time of
    /// its last use.
    Queue(&'a EntityName),
    /// A bus queue or sub-queue, and the queue that its messages are sent to.
    Transfer {
        /// The source.
        from: &'a EntityName,
        /// The destination in the same namespace. Without a name, the queue that the sub-queue belongs to.
        to: Option<&'a str>,
    },
    /// Several queues.
    Queues(Vec<&'a EntityName>),
    /// The names and settings of queues; accounts, and the properties of services.
    Catalogue,
    /// An account with all its queues.
    Account(&'a str),
    /// Where bodies of any queues are.
    Bodies,
}

impl<'a> Touches<'a> {
    /// The entities whose due work comes before the command: those that it names, but for a destination.
    pub fn due_before(&self) -> &[&'a EntityName] {
        match self {
            Self::Queue(name) | Self::Transfer { from: name, .. } => std::slice::from_ref(name),
            // They are in order, each once.
            Self::Queues(names) => names,
            Self::Catalogue | Self::Account(_) | Self::Bodies => &[],
        }
    }
}

/// Which commands make way for others when much is under way, or when the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Takes or frees messages. Such commands have a share of their own, and are carried out on a full disk.
    Consume,
    /// Adds messages, or bytes to them.
    Produce,
    /// Changes queues or accounts.
    Manage,
    /// Changes nothing.
    Read,
    /// Changes nothing that a client sees: a partition asks itself, with a share of its own.
    Maintain,
}

/// What a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes<'a> {
    /// Nothing in any state.
    Nothing,
    /// At most this many bytes of a batch.
    AtMost(u64),
    /// Nothing if the queue exists: workers create their queues at start, to be sure. Otherwise at most this
    /// many bytes of a batch.
    ToCreate(&'a EntityName, u64),
    /// Messages for a queue or topic. What its rules change in the copies takes more.
    ToSend {
        /// The queue or topic.
        to: &'a EntityName,
        /// The most bytes of a batch with the messages and an event for each.
        size_bytes: u64,
        /// How many messages.
        count: u64,
        /// The most bytes of the events that put them into one subscription.
        copies_size_bytes: u64,
    },
    /// The end of a queue or topic, and of each subscription that it has then.
    ToDelete(&'a EntityName),
}

/// What a command takes from a bus queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives<'a> {
    /// Messages from the head.
    Messages {
        /// The queue or sub-queue.
        queue: &'a EntityName,
        /// The lock of the session whose messages are wanted.
        session: Option<Token>,
    },
    /// The next session.
    Session {
        /// The queue.
        queue: &'a EntityName,
    },
}

/// How a message is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveMode {
    /// The message stays, locked.
    PeekLock,
    /// The message is deleted. Its bytes were read before, and are whole.
    ReceiveAndDelete,
}

/// How descriptions are put together.
impl<'a, R> Description<'a, R> {
    pub(crate) fn new(class: Class, touches: Touches<'a>, writes: Writes<'a>) -> Self {
        Self {
            touches,
            class,
            writes,
            body_size_bytes: 0,
            changes_properties: false,
            due_in: 0,
            releases: false,
            looks_at: 1,
            needs_bodies: false,
            receives: None,
            refusal: None,
        }
    }

    pub(crate) fn reads(touches: Touches<'a>) -> Self {
        Self::new(Class::Read, touches, Writes::Nothing)
    }

    pub(crate) fn with_bodies(self, body_size_bytes: u64) -> Self {
        Self {
            body_size_bytes,
            ..self
        }
    }

    /// Bodies that are changes to properties.
    pub(crate) fn with_changes(self, size_bytes: u64) -> Self {
        Self {
            changes_properties: true,
            ..self.with_bodies(size_bytes)
        }
    }

    pub(crate) fn looking_at(self, count: u64) -> Self {
        // A command for nothing takes time too.
        Self {
            looks_at: count.max(1),
            ..self
        }
    }

    pub(crate) fn after_due_in(self, due_in: u32) -> Self {
        Self { due_in, ..self }
    }

    pub(crate) fn releasing(self) -> Self {
        Self {
            releases: true,
            ..self
        }
    }

    /// With the bodies of the messages that it hands out, if it removes them.
    pub(crate) fn handing_out(self, mode: ReceiveMode) -> Self {
        Self {
            needs_bodies: mode == ReceiveMode::ReceiveAndDelete,
            ..self
        }
    }

    pub(crate) fn receiving(self, receives: Receives<'a>) -> Self {
        Self {
            receives: Some(receives),
            ..self
        }
    }

    /// The same, if the command can be carried out in some state. Otherwise it does nothing.
    pub(crate) fn refused(self, refusal: Option<R>) -> Self {
        match refusal {
            None => self,
            Some(refusal) => Self {
                writes: Writes::Nothing,
                due_in: 0,
                releases: false,
                looks_at: 1,
                refusal: Some(refusal),
                ..self
            },
        }
    }

    /// The same, with a refusal of another kind.
    pub(crate) fn map_refusal<S>(self, map: impl FnOnce(R) -> S) -> Description<'a, S> {
        Description {
            touches: self.touches,
            class: self.class,
            writes: self.writes,
            body_size_bytes: self.body_size_bytes,
            changes_properties: self.changes_properties,
            due_in: self.due_in,
            releases: self.releases,
            looks_at: self.looks_at,
            needs_bodies: self.needs_bodies,
            receives: self.receives,
            refusal: self.refusal.map(map),
        }
    }
}
