//! The closed sets that labels come from.

use std::time::Duration;

/// The operations of nodes, and the label of all others.
pub(crate) const OPERATIONS: [&str; 19] = [
    "unknown",
    "put-token",
    "renew-lock",
    "peek-message",
    "schedule-message",
    "cancel-scheduled-message",
    "receive-by-sequence-number",
    "update-disposition",
    "batch-delete-messages",
    "renew-session-lock",
    "get-session-state",
    "set-session-state",
    "get-message-sessions",
    "add-rule",
    "remove-rule",
    "enumerate-rules",
    "declare",
    "commit",
    "rollback",
];

/// A client's outcome for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Release,
}

pub(super) const SETTLED: [&str; 5] = ["complete", "abandon", "defer", "dead_letter", "release"];

/// The modes of delivery.
pub(super) const MODES: [&str; 2] = ["peek_lock", "receive_and_delete"];

/// The kinds of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Message,
    Session,
}

pub(super) const LOCKS: [&str; 2] = ["message", "session"];

/// The scopes of refusals and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// An attach.
    Attach,
    /// A link, which was detached.
    Link,
    /// A session, which was ended.
    Session,
    /// The connection, which was closed.
    Connection,
}

pub(super) const SCOPES: [&str; 4] = ["attach", "link", "session", "connection"];

/// The kinds of credentials that clients try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// A token.
    Token,
    /// The name of a rule and its key.
    Plain,
    /// None so far.
    None,
    /// Anything else.
    Other,
}

pub(super) const OFFERED: [&str; 4] = ["SAS", "PLAIN", "none", "other"];

/// Why a connection was ended by the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// It was not opened.
    Handshake,
    /// No token was put.
    Token,
    /// The client did not read the output.
    Answer,
    /// The client sent nothing.
    Idle,
}

pub(super) const OVERDUE: [&str; 4] = ["head", "token", "answer", "idle"];

/// The resources of all connections, added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Sessions,
    /// Links whose entity or session is being looked up.
    Opening,
    Senders,
    Receivers,
    Requests,
    Replies,
    /// Deliveries that may be sent.
    Credit,
    /// Transfers without an answer so far.
    UnsettledIn,
    /// Deliveries that clients have not settled.
    UnsettledOut,
    /// Commands to the broker.
    Commands,
    /// Memory, in bytes, for input and output.
    Bytes,
}

/// The number of these resources.
pub(crate) const HELD: usize = Held::Bytes as usize + 1;

/// The content of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) messages: usize,
    pub(crate) size_bytes: usize,
}

/// A request to a node, and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    /// Without `com.microsoft:`.
    pub(crate) operation: &'a str,
    pub(crate) status: i32,
    /// The condition of a refusal.
    pub(crate) code: Option<&'a str>,
    pub(crate) took: Duration,
}
