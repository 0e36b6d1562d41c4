//! The counters of the front end.

use std::time::Duration;

use kew_metrics::{Counter, Gauge, HighWater, Histogram};

use super::codes::{ByCode, Requests, lock_lost};
use super::labels::{
    Answered, HELD, LOCKS, Lock, MODES, OFFERED, OPERATIONS, OVERDUE, Offered, Overdue, SCOPES,
    SETTLED, Scope, Sent, Settled,
};

/// The instruments that connections write.
#[derive(Debug)]
pub(crate) struct Instruments {
    pub(crate) held: [Gauge; HELD],
    pub(crate) accepted: Counter,
    pub(crate) turned_away: Counter,
    pub(crate) gave_way: Counter,
    pub(crate) broken: Counter,
    /// Turns of AMQP connections that ended because their steps were used up.
    pub(crate) turns_cut: Counter,
    pub(super) turn_steps_max: HighWater,
    /// Turns of HTTP connections that ended although a request was waiting.
    pub(crate) http_turns_cut: Counter,
    pub(crate) http_turn_requests_max: HighWater,
    pub(super) overdue: [Counter; OVERDUE.len()],
    pub(super) denied: [ByCode; OFFERED.len()],
    pub(super) requests: Requests,
    pub(super) request_latencies: [Histogram; OPERATIONS.len()],
    pub(super) refusals: [ByCode; SCOPES.len()],
    pub(super) sends: ByCode,
    pub(super) send_latency: Histogram,
    pub(super) messages_sent: Counter,
    pub(super) sent_bytes: Counter,
    pub(super) delivered: [Counter; MODES.len()],
    pub(super) delivered_bytes: [Counter; MODES.len()],
    pub(super) settlements: [ByCode; SETTLED.len()],
    pub(super) settle_latency: Histogram,
    pub(super) renewals: [Counter; LOCKS.len()],
    pub(super) locks_lost: [Counter; LOCKS.len()],
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

    /// Notes how many steps an AMQP connection took in one turn.
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

    /// Counts an answered transfer, with its messages and bytes if it was accepted.
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

    /// Counts the broker's answer to a settlement.
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

    /// Counts a lost lock that a client tried to use, if the code reports one.
    fn note_lost(&self, code: Option<&str>) {
        if let Some(lock) = code.and_then(lock_lost) {
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
