//! What the front end counts, and the metrics made of it.
//!
//! Labels come from sets that clients cannot widen: operations, outcomes, and the conditions that are
//! answered here. What is counted on the way of a frame is a few relaxed atomic additions. What a
//! connection holds is taken over once a turn, by its [`Holdings`](crate::holdings::Holdings).

mod codes;
mod families;

use std::time::Duration;

use kew_metrics::{Counter, Gauge, HighWater, Histogram};

pub(crate) use codes::ByCode;
use codes::Requests;

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

const SETTLED: [&str; 5] = ["complete", "abandon", "defer", "dead_letter", "release"];

/// How a message goes out.
const MODES: [&str; 2] = ["peek_lock", "receive_and_delete"];

/// What a lock is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Message,
    Session,
}

const LOCKS: [&str; 2] = ["message", "session"];

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

const SCOPES: [&str; 4] = ["attach", "link", "session", "connection"];

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

const OFFERED: [&str; 4] = ["SAS", "PLAIN", "none", "other"];

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

const OVERDUE: [&str; 4] = ["head", "token", "answer", "idle"];

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

/// What connections write.
#[derive(Debug)]
pub(crate) struct Instruments {
    pub(crate) held: [Gauge; HELD],
    pub(crate) accepted: Counter,
    pub(crate) turned_away: Counter,
    pub(crate) gave_way: Counter,
    pub(crate) broken: Counter,
    /// Turns of connections over AMQP that ended because their steps were taken.
    pub(crate) turns_cut: Counter,
    turn_steps_max: HighWater,
    /// Turns of connections over HTTP that ended before a request that was there.
    pub(crate) http_turns_cut: Counter,
    pub(crate) http_turn_requests_max: HighWater,
    overdue: [Counter; OVERDUE.len()],
    denied: [ByCode; OFFERED.len()],
    requests: Requests,
    request_latencies: [Histogram; OPERATIONS.len()],
    refusals: [ByCode; SCOPES.len()],
    sends: ByCode,
    send_latency: Histogram,
    messages_sent: Counter,
    sent_bytes: Counter,
    delivered: [Counter; MODES.len()],
    delivered_bytes: [Counter; MODES.len()],
    settlements: [ByCode; SETTLED.len()],
    settle_latency: Histogram,
    renewals: [Counter; LOCKS.len()],
    locks_lost: [Counter; LOCKS.len()],
}

impl Instruments {
    pub(crate) fn new() -> Self {
        Self {
            held: [const { Gauge::new() }; HELD],
            accepted: Counter::new(),
            turned_away: Counter::new(),
            gave_way: Counter::new(),
            broken: Counter::new(),
            turns_cut: Counter::new(),
            turn_steps_max: HighWater::new(),
            http_turns_cut: Counter::new(),
            http_turn_requests_max: HighWater::new(),
            overdue: Default::default(),
            denied: Default::default(),
            requests: Requests::default(),
            request_latencies: std::array::from_fn(|_| Histogram::of_latencies()),
            refusals: Default::default(),
            sends: ByCode::default(),
            send_latency: Histogram::of_latencies(),
            messages_sent: Counter::new(),
            sent_bytes: Counter::new(),
            delivered: Default::default(),
            delivered_bytes: Default::default(),
            settlements: Default::default(),
            settle_latency: Histogram::of_latencies(),
            renewals: Default::default(),
            locks_lost: Default::default(),
        }
    }

    /// A connection over AMQP has taken so many steps since others had their turn.
    pub(crate) fn note_turn(&self, steps: u32) {
        self.turn_steps_max.note(u64::from(steps));
    }

    pub(crate) fn note_overdue(&self, overdue: Overdue) {
        increment(&self.overdue, overdue as usize);
    }

    /// A credential was missing, wrong or not sufficient.
    pub(crate) fn note_denied(&self, offered: Offered, code: &str) {
        note(&self.denied, offered as usize, Some(code));
    }

    pub(crate) fn note_refusal(&self, scope: Scope, code: &str) {
        note(&self.refusals, scope as usize, Some(code));
    }

    /// A transfer was answered: with so many messages of so many bytes, if it was accepted.
    pub(crate) fn note_send(&self, sent: Sent, code: Option<&str>, took: Duration) {
        self.sends.note(code);
        self.send_latency.observe_duration(took);
        if code.is_none() {
            self.messages_sent.add(sent.messages as u64);
            self.sent_bytes.add(sent.size_bytes as u64);
        }
    }

    /// A message went out.
    pub(crate) fn note_delivery(&self, is_locked: bool, size_bytes: usize) {
        let mode = usize::from(!is_locked);
        increment(&self.delivered, mode);
        if let Some(counter) = self.delivered_bytes.get(mode) {
            counter.add(size_bytes as u64);
        }
    }

    /// The broker has answered what a client settled.
    pub(crate) fn note_settlement(&self, settled: Settled, code: Option<&str>) {
        note(&self.settlements, settled as usize, code);
        self.note_lost(code);
    }

    pub(crate) fn note_settle_time(&self, took: Duration) {
        self.settle_latency.observe_duration(took);
    }

    /// So many locks have their whole duration again.
    pub(crate) fn note_renewals(&self, lock: Lock, count: usize) {
        if let Some(counter) = self.renewals.get(lock as usize) {
            counter.add(count as u64);
        }
    }

    /// Counts a lock that a client wanted to use and that was lost, if the code says so.
    fn note_lost(&self, code: Option<&str>) {
        if let Some(lock) = code.and_then(codes::lock_lost) {
            increment(&self.locks_lost, lock as usize);
        }
    }

    /// A request to a node was answered.
    pub(crate) fn note_request(&self, answered: &Answered<'_>) {
        let operation = answered.operation;
        let known = OPERATIONS.iter().position(|known| *known == operation);
        let place = known.unwrap_or(0);
        self.requests.note(place, answered.status, answered.code);
        if let Some(histogram) = self.request_latencies.get(place) {
            histogram.observe_duration(answered.took);
        }
        self.note_lost(answered.code);
    }
}

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

fn increment(counters: &[Counter], place: usize) {
    if let Some(counter) = counters.get(place) {
        counter.increment();
    }
}

fn note(by_code: &[ByCode], place: usize, code: Option<&str>) {
    if let Some(by_code) = by_code.get(place) {
        by_code.note(code);
    }
}
