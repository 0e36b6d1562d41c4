//! What is counted apart: the closed sets that labels come from.

use std::time::Duration;

/// The operations of nodes, and what is none of them.
pub(crate) const OPERATIONS: [&str; 16] = [
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
    "declare",
    "commit",
    "rollback",
];

/// What a client says of a message that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Release,
}

pub(super) const SETTLED: [&str; 5] = ["complete", "abandon", "defer", "dead_letter", "release"];

/// How a message goes out.
pub(super) const MODES: [&str; 2] = ["peek_lock", "receive_and_delete"];

/// What a lock is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Message,
    Session,
}

pub(super) const LOCKS: [&str; 2] = ["message", "session"];

/// What was refused or ended with an error.
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

/// With what a client has tried to prove itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// A token.
    Token,
    /// The name of a rule and its key.
    Plain,
    /// Nothing yet.
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
    /// The output was not taken.
    Answer,
    /// Nothing came in.
    Idle,
}

pub(super) const OVERDUE: [&str; 4] = ["head", "token", "answer", "idle"];

/// What all connections hold, each its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Sessions,
    /// Links whose entity or session is looked for.
    Opening,
    Senders,
    Receivers,
    Requests,
    Replies,
    /// Deliveries that may go out.
    Credit,
    /// Transfers that are not answered.
    UnsettledIn,
    /// Deliveries that clients have not settled.
    UnsettledOut,
    /// Commands to the broker.
    Commands,
    /// Memory, in bytes, for what comes in and goes out.
    Bytes,
}

/// How many there are of these.
pub(crate) const HELD: usize = Held::Bytes as usize + 1;

/// What a transfer had in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) messages: usize,
    pub(crate) size_bytes: usize,
}

/// A request to a node, and what was said to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    /// Without `com.microsoft:`.
    pub(crate) operation: &'a str,
    pub(crate) status: i32,
    /// The condition of a refusal.
    pub(crate) code: Option<&'a str>,
    pub(crate) took: Duration,
}
