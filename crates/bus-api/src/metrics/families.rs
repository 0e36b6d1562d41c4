//! The counted values as families of a page.

use kew_metrics::{Counter, Family, Gauge, Labels, Unit};

use super::codes::ByCode;
use super::instruments::Instruments;
use super::labels::{Held, LOCKS, MODES, OFFERED, OPERATIONS, OVERDUE, SCOPES, SETTLED};

/// The protocol, in the labels of families that other protocols have too.
const PROTOCOL: &str = "bus";

fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_owned())]
}

fn protocol() -> Labels {
    label("protocol", PROTOCOL)
}

fn counter(name: &'static str, help: &'static str) -> Family {
    Family::counter(name, Unit::None, help)
}

fn gauge(name: &'static str, help: &'static str) -> Family {
    Family::gauge(name, Unit::None, help)
}

/// A count for each name.
fn by_name(family: Family, name: &'static str, names: &[&str], counters: &[Counter]) -> Family {
    names.iter().zip(counters).fold(family, |family, it| {
        family.count(label(name, it.0), it.1.value())
    })
}

/// A count for each name and each condition that occurred, and, if possible, for success.
fn by_code(
    family: Family,
    labels: Labels,
    name: &'static str,
    names: &[&str],
    counts: &[ByCode],
    may_succeed: bool,
) -> Family {
    names
        .iter()
        .zip(counts)
        .fold(family, |family, (value, codes)| {
            let occurred = codes
                .counted()
                .filter(|(code, count)| *count > 0 || (may_succeed && code.is_empty()));
            occurred.fold(family, |family, (code, count)| {
                let own = [label(name, value), label("code", code)].concat();
                family.count([labels.clone(), own].concat(), count)
            })
        })
}

impl Instruments {
    /// The metrics; `open` connections are open now.
    pub(crate) fn families(&self, open: usize) -> Vec<Family> {
        let mut families = self.of_connections(open);
        families.extend(self.of_requests());
        families.extend(self.of_held());
        families.extend(self.of_messages());
        families
    }

    /// Families that other protocols have too.
    fn of_connections(&self, open: usize) -> Vec<Family> {
        let with = |name, value: &str| [protocol(), label(name, value)].concat();
        let overdue = OVERDUE.iter().zip(&self.overdue).fold(
            counter(
                "kew_connections_timed_out",
                "Connections closed because the client did not send or read something in time",
            ),
            |family, (phase, counter)| family.count(with("phase", phase), counter.value()),
        );
        let denied = counter(
            "kew_authentication_failures",
            "Credentials that were missing, unreadable, wrong or not sufficient",
        );
        vec![
            gauge("kew_connections_open", "Open connections").count(protocol(), open as u64),
            counter("kew_connections_accepted", "Connections served")
                .count(protocol(), self.accepted.value()),
            counter(
                "kew_connections_refused",
                "Connections turned away because too many are open (limit), or closed before their \
                 first token to make room for new ones (gave_way)",
            )
            .count(with("reason", "limit"), self.turned_away.value())
            .count(with("reason", "gave_way"), self.gave_way.value()),
            overdue,
            counter(
                "kew_connections_failed",
                "Connections that broke, or whose client did not follow the protocol",
            )
            .count(protocol(), self.broken.value()),
            counter(
                "kew_http_turns_cut",
                "Requests that waited until other connections had their turn",
            )
            .count(protocol(), self.http_turns_cut.value()),
            gauge(
                "kew_http_turn_requests_max",
                "Highest number of requests of one connection that were answered in one turn",
            )
            .count(protocol(), self.http_turn_requests_max.value()),
            by_code(
                denied,
                protocol(),
                "credential",
                &OFFERED,
                &self.denied,
                false,
            ),
        ]
    }

    fn of_requests(&self) -> Vec<Family> {
        let mut requests = counter("kew_requests", "Requests answered");
        for (operation, status, code, count) in self.requests.counted() {
            let status = status.to_string();
            let own = [
                label("operation", operation),
                label("status", &status),
                label("code", code),
            ];
            requests = requests.count([protocol(), own.concat()].concat(), count);
        }
        let mut latency = Family::histogram(
            "kew_request",
            Unit::Seconds,
            "Time from a request to its answer",
        );
        for (operation, histogram) in OPERATIONS.iter().zip(&self.request_latencies) {
            let observed = histogram.observed();
            if observed.count > 0 {
                let labels = [protocol(), label("operation", operation)].concat();
                latency = latency.observed(labels, observed);
            }
        }
        vec![requests, latency]
    }

    fn of_held(&self) -> Vec<Family> {
        let value = |held: Held| self.held.get(held as usize).map_or(0, Gauge::value);
        let none = Vec::new;
        let kinds = [
            ("opening", Held::Opening),
            ("sender", Held::Senders),
            ("receiver", Held::Receivers),
            ("request", Held::Requests),
            ("reply", Held::Replies),
        ];
        let links = kinds.into_iter().fold(
            gauge("kew_amqp_links", "Links, by what clients use them for"),
            |family, (kind, held)| family.count(label("kind", kind), value(held)),
        );
        let unsettled = gauge(
            "kew_amqp_unsettled",
            "Unsettled deliveries: from clients (in) and to clients (out)",
        );
        vec![
            gauge("kew_amqp_sessions", "AMQP sessions").count(none(), value(Held::Sessions)),
            links,
            gauge(
                "kew_amqp_credit",
                "Credit that receivers have given, in messages",
            )
            .count(none(), value(Held::Credit)),
            unsettled
                .count(label("direction", "in"), value(Held::UnsettledIn))
                .count(label("direction", "out"), value(Held::UnsettledOut)),
            gauge("kew_amqp_commands", "Commands of clients in progress")
                .count(none(), value(Held::Commands)),
            counter(
                "kew_amqp_turns_cut",
                "Turns of connections that ended because their steps were used up",
            )
            .count(none(), self.turns_cut.value()),
            gauge(
                "kew_amqp_turn_steps_max",
                "Highest number of steps that a connection took in one turn",
            )
            .count(none(), self.turn_steps_max.value()),
            Family::gauge(
                "kew_amqp_held",
                Unit::Bytes,
                "Memory for incoming and outgoing data of all connections",
            )
            .count(none(), value(Held::Bytes)),
            by_code(
                counter(
                    "kew_amqp_refusals",
                    "Attaches refused, and links, sessions and connections ended with an error",
                ),
                none(),
                "scope",
                &SCOPES,
                &self.refusals,
                false,
            ),
        ]
    }

    fn of_messages(&self) -> Vec<Family> {
        let sends = self.sends.counted().fold(
            counter("kew_bus_sends", "Transfers of messages that Kew answered"),
            |family, (code, count)| family.count(label("code", code), count),
        );
        let bytes = MODES.iter().zip(&self.delivered_bytes).fold(
            Family::counter("kew_bus_delivered", Unit::Bytes, "Messages sent to clients"),
            |family, (mode, counter)| family.count(label("mode", mode), counter.value()),
        );
        vec![
            sends,
            Family::histogram(
                "kew_bus_send",
                Unit::Seconds,
                "Time from a transfer to its answer",
            )
            .observed(Vec::new(), self.send_latency.observed()),
            counter("kew_bus_messages_sent", "Messages accepted from clients")
                .count(Vec::new(), self.messages_sent.value()),
            Family::counter(
                "kew_bus_sent",
                Unit::Bytes,
                "Messages accepted from clients",
            )
            .count(Vec::new(), self.sent_bytes.value()),
            by_name(
                counter("kew_bus_messages_delivered", "Messages sent to clients"),
                "mode",
                &MODES,
                &self.delivered,
            ),
            bytes,
            by_code(
                counter("kew_bus_settlements", "Outcomes reported by clients"),
                Vec::new(),
                "outcome",
                &SETTLED,
                &self.settlements,
                true,
            ),
            Family::histogram(
                "kew_bus_settle",
                Unit::Seconds,
                "Time from an outcome to its answer",
            )
            .observed(Vec::new(), self.settle_latency.observed()),
            by_name(
                counter("kew_bus_lock_renewals", "Locks renewed"),
                "lock",
                &LOCKS,
                &self.renewals,
            ),
            by_name(
                counter(
                    "kew_bus_locks_lost",
                    "Locks that clients tried to use after they had ended",
                ),
                "lock",
                &LOCKS,
                &self.locks_lost,
            ),
        ]
    }
}
