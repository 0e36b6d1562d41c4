//! The counters of the front end, and the metrics made of them.
//!
//! Labels come from sets that clients cannot extend: operations, the codes of this crate, and a few
//! words. Counting for a request takes a few relaxed atomic additions.

use std::sync::OnceLock;
use std::time::Duration;

use hyper::StatusCode;
use kew_http_front::Overdue;
use kew_metrics::{Counter, Family, HighWater, Histogram, Unit};

use crate::route::Operation;

/// The protocol, in the labels of families that other protocols have too.
const PROTOCOL: (&str, &str) = ("protocol", "queue");

/// More than the operations of the protocol, so that each has a place by its number.
const PLACES: usize = 48;

/// More outcomes than an operation has. Outcomes without a place are counted with the code `other`.
const OUTCOMES: usize = 40;

/// The operation of a request, as metrics distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// An operation of the protocol, admitted or not.
    Operation(Operation),
    Health,
    Metrics,
    /// No known operation.
    Unknown,
}

impl Asked {
    /// The name in metrics and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Operation(operation) => name(operation),
            Self::Health => "Health",
            Self::Metrics => "Metrics",
            Self::Unknown => "Unknown",
        }
    }

    const fn place(self) -> usize {
        match self {
            Self::Operation(operation) => operation as usize + 3,
            Self::Health => 2,
            Self::Metrics => 1,
            Self::Unknown => 0,
        }
    }
}

const fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::ListQueues => "ListQueues",
        Operation::CreateQueue => "CreateQueue",
        Operation::DeleteQueue => "DeleteQueue",
        Operation::GetQueueMetadata => "GetQueueMetadata",
        Operation::SetQueueMetadata => "SetQueueMetadata",
        Operation::GetQueueAcl => "GetQueueAcl",
        Operation::SetQueueAcl => "SetQueueAcl",
        Operation::GetServiceProperties => "GetServiceProperties",
        Operation::SetServiceProperties => "SetServiceProperties",
        Operation::GetServiceStats => "GetServiceStats",
        Operation::PreflightRequest => "PreflightRequest",
        Operation::PutMessage => "PutMessage",
        Operation::GetMessages => "GetMessages",
        Operation::PeekMessages => "PeekMessages",
        Operation::ClearMessages => "ClearMessages",
        Operation::UpdateMessage => "UpdateMessage",
        Operation::DeleteMessage => "DeleteMessage",
        Operation::GetUserDelegationKey => "GetUserDelegationKey",
    }
}

/// The kinds of credential that a request can bring.
const CREDENTIALS: [&str; 6] = [
    "SharedKey",
    "SharedKeyLite",
    "Bearer",
    "SAS",
    "none",
    "other",
];

/// The credential that a request came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    SharedKey,
    SharedKeyLite,
    Bearer,
    Sas,
    None,
    Other,
}

/// The counted facts about one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done<'a> {
    pub(crate) asked: Asked,
    pub(crate) status: StatusCode,
    /// The error code; empty for success.
    pub(crate) code: &'a str,
    pub(crate) took: Duration,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
}

/// The instruments that connections and requests write.
#[derive(Debug)]
pub(crate) struct Instruments {
    operations: Box<[OfOperation]>,
    denied: [Outcomes; CREDENTIALS.len()],
    pub(crate) accepted: Counter,
    pub(crate) turned_away: Counter,
    pub(crate) gave_way: Counter,
    pub(crate) broken: Counter,
    /// Requests that waited until other connections had their turn.
    pub(crate) turns_cut: Counter,
    /// The highest number of requests of a connection that were answered in one turn.
    pub(crate) turn_requests_max: HighWater,
    /// By the order of [`Overdue`].
    overdue: [Counter; 3],
}

#[derive(Debug)]
struct OfOperation {
    name: OnceLock<&'static str>,
    outcomes: Outcomes,
    latency: Histogram,
    request_bytes: Counter,
    response_bytes: Counter,
}

impl Instruments {
    pub(crate) fn new() -> Self {
        let of_operation = || OfOperation {
            name: OnceLock::new(),
            outcomes: Outcomes::default(),
            latency: Histogram::of_latencies(),
            request_bytes: Counter::new(),
            response_bytes: Counter::new(),
        };
        Self {
            operations: (0..PLACES).map(|_| of_operation()).collect(),
            denied: Default::default(),
            accepted: Counter::new(),
            turned_away: Counter::new(),
            gave_way: Counter::new(),
            broken: Counter::new(),
            turns_cut: Counter::new(),
            turn_requests_max: HighWater::new(),
            overdue: Default::default(),
        }
    }

    pub(crate) fn note(&self, done: &Done<'_>) {
        let Some(operation) = self.operations.get(done.asked.place()) else {
            return;
        };
        operation.name.get_or_init(|| done.asked.name());
        operation.outcomes.add(done.status, done.code);
        operation.latency.observe_duration(done.took);
        operation.request_bytes.add(done.request_bytes);
        operation.response_bytes.add(done.response_bytes);
    }

    pub(crate) fn note_denied(&self, offered: Offered, status: StatusCode, code: &str) {
        if let Some(outcomes) = self.denied.get(offered as usize) {
            outcomes.add(status, code);
        }
    }

    pub(crate) fn note_overdue(&self, overdue: Overdue) {
        if let Some(counter) = self.overdue.get(overdue as usize) {
            counter.increment();
        }
    }

    /// The metrics; `open` connections are open now.
    pub(crate) fn families(&self, open: usize) -> Vec<Family> {
        let mut families = self.request_families();
        families.extend(self.connection_families(open));
        families
    }

    fn request_families(&self) -> Vec<Family> {
        let mut requests = Family::counter("kew_requests", Unit::None, "Requests answered");
        let mut latency = Family::histogram(
            "kew_request",
            Unit::Seconds,
            "Time from the end of a request's head to its answer, the request's body included",
        );
        let mut received =
            Family::counter("kew_request_body", Unit::Bytes, "Bodies of requests let in");
        let mut sent = Family::counter("kew_response_body", Unit::Bytes, "Bodies of answers");
        for operation in &self.operations {
            let Some(name) = operation.name.get() else {
                continue;
            };
            let labels = || vec![protocol(), ("operation", (*name).to_owned())];
            for (status, code, count) in operation.outcomes.counted() {
                let outcome = vec![("status", status), ("code", code)];
                requests = requests.count([labels(), outcome].concat(), count);
            }
            latency = latency.observed(labels(), operation.latency.observed());
            received = received.count(labels(), operation.request_bytes.value());
            sent = sent.count(labels(), operation.response_bytes.value());
        }
        let mut denied = Family::counter(
            "kew_authentication_failures",
            Unit::None,
            "Requests whose credential was missing, unreadable, wrong or not sufficient",
        );
        for (credential, outcomes) in CREDENTIALS.iter().zip(&self.denied) {
            for (_, code, count) in outcomes.counted() {
                let kind = vec![("credential", (*credential).to_owned()), ("code", code)];
                denied = denied.count([vec![protocol()], kind].concat(), count);
            }
        }
        vec![requests, latency, received, sent, denied]
    }

    fn connection_families(&self, open: usize) -> Vec<Family> {
        let labels = || vec![protocol()];
        let with = |name, value: &str| [labels(), vec![(name, value.to_owned())]].concat();
        let [head, answer, idle] = self.overdue.each_ref().map(Counter::value);
        vec![
            Family::gauge("kew_connections_open", Unit::None, "Open connections")
                .count(labels(), open as u64),
            Family::counter("kew_connections_accepted", Unit::None, "Connections served")
                .count(labels(), self.accepted.value()),
            Family::counter(
                "kew_connections_refused",
                Unit::None,
                "Connections turned away because too many are open (limit), or closed before their \
                 first authentic request to make room for new ones (gave_way)",
            )
            .count(with("reason", "limit"), self.turned_away.value())
            .count(with("reason", "gave_way"), self.gave_way.value()),
            Family::counter(
                "kew_connections_timed_out",
                Unit::None,
                "Connections closed because a head did not arrive (head), the client did not read \
                 an answer (answer), or no request arrived for long (idle)",
            )
            .count(with("phase", "head"), head)
            .count(with("phase", "answer"), answer)
            .count(with("phase", "idle"), idle),
            Family::counter(
                "kew_connections_failed",
                Unit::None,
                "Connections that broke, or whose client did not follow the protocol",
            )
            .count(labels(), self.broken.value()),
            Family::counter(
                "kew_http_turns_cut",
                Unit::None,
                "Requests that waited until other connections had their turn",
            )
            .count(labels(), self.turns_cut.value()),
            Family::gauge(
                "kew_http_turn_requests_max",
                Unit::None,
                "Highest number of requests of one connection that were answered in one turn",
            )
            .count(labels(), self.turn_requests_max.value()),
        ]
    }
}

fn protocol() -> (&'static str, String) {
    (PROTOCOL.0, PROTOCOL.1.to_owned())
}

/// A status, and the error code or an empty text.
type Outcome = (StatusCode, Box<str>);

/// Counts by status and code. An outcome gets its place when it first occurs, without locks.
#[derive(Debug)]
struct Outcomes {
    places: [(OnceLock<Outcome>, Counter); OUTCOMES],
    other: Counter,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self {
            places: [const { (OnceLock::new(), Counter::new()) }; OUTCOMES],
            other: Counter::new(),
        }
    }
}

impl Outcomes {
    fn add(&self, status: StatusCode, code: &str) {
        let is_it = |known: &Outcome| known.0 == status && *known.1 == *code;
        for (place, counter) in &self.places {
            if is_it(place.get_or_init(|| (status, code.into()))) {
                counter.increment();
                return;
            }
        }
        self.other.increment();
    }

    fn counted(&self) -> impl Iterator<Item = (String, String, u64)> {
        let known = self.places.iter().filter_map(|(place, counter)| {
            let (status, code) = place.get()?;
            Some((
                status.as_str().to_owned(),
                code.to_string(),
                counter.value(),
            ))
        });
        let other = self.other.value();
        let other = (other > 0).then(|| (String::new(), "other".to_owned(), other));
        known.chain(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_without_a_place_are_added_up() {
        let outcomes = Outcomes::default();
        for index in 0..OUTCOMES + 3 {
            outcomes.add(StatusCode::OK, &index.to_string());
            outcomes.add(StatusCode::OK, "0");
        }
        let counted: Vec<_> = outcomes.counted().collect();
        assert_eq!(counted.len(), OUTCOMES + 1);
        assert_eq!(counted[0].2, OUTCOMES as u64 + 4);
        assert_eq!(counted[OUTCOMES], (String::new(), "other".to_owned(), 3));
    }

    #[test]
    fn every_operation_has_a_place() {
        // The last declared one.
        assert!(Asked::Operation(Operation::GetUserDelegationKey).place() < PLACES);
    }
}
