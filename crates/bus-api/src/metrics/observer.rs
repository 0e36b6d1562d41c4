//! What the logs contain about connections.
//!
//! No token, no key and no part of a message is logged. Text from a client is cut to a length and
//! logged as a string value, which every log format escapes.

use std::time::{Duration, SystemTime};

use kew_amqp::error::Error;
use kew_listen::Barred;
use kew_metrics::{FewASecond, Line, OnceASecond};

use super::instruments::Instruments;
use super::labels::{Answered, Offered, Scope};
use crate::ground::origin::Origin;
use crate::ground::refusal::{bus_condition, text_of};

/// How many failed requests are logged each second. The next logged line has the number of the
/// others.
const FAILURES_TOLD_MAX: u32 = 10;

/// How many characters of a client's text are logged.
const LOGGED_LENGTH_MAX: usize = 128;

fn cut(text: &str) -> String {
    text.chars().take(LOGGED_LENGTH_MAX).collect()
}

/// The text of an error: it may contain a client's words.
fn description(error: &Error) -> String {
    cut(text_of(error))
}

/// The counters, and the limits that keep the log from being flooded.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) instruments: Instruments,
    busy_log: OnceASecond,
    refused_log: OnceASecond,
    gave_way_log: OnceASecond,
    failed_log: FewASecond,
    barred_log: OnceASecond,
}

impl Observer {
    pub(crate) fn new() -> Self {
        Self {
            instruments: Instruments::new(),
            busy_log: OnceASecond::default(),
            refused_log: OnceASecond::default(),
            gave_way_log: OnceASecond::default(),
            failed_log: FewASecond::new(FAILURES_TOLD_MAX),
            barred_log: OnceASecond::default(),
        }
    }

    /// A connection above the limit was turned away.
    pub(crate) fn note_turned_away(&self, peer: std::net::SocketAddr, open: usize) {
        self.instruments.turned_away.increment();
        if let Some(count) = self.refused_log.note(SystemTime::now()) {
            tracing::warn!(%peer, open, count, "connections turned away: too many are open");
        }
    }

    /// A connection without a token has lost its place to a newer one.
    pub(crate) fn note_gave_way(&self, peer: std::net::SocketAddr) {
        self.instruments.gave_way.increment();
        if let Some(count) = self.gave_way_log.note(SystemTime::now()) {
            tracing::warn!(
                %peer,
                count,
                "Service Bus connections closed before their first token, to make room for new ones"
            );
        }
    }

    pub(crate) fn note_opened(&self, origin: &Origin, container: &str, is_proven: bool) {
        let peer = origin.peer;
        tracing::debug!(
            target: "kew::access",
            %peer,
            container = &*cut(container),
            is_proven,
            "connection opened"
        );
    }

    /// An ending without an error is the client's.
    pub(crate) fn note_closed(&self, origin: &Origin, lasted: Duration, why: &str) {
        let (peer, seconds) = (origin.peer, lasted.as_secs());
        tracing::debug!(target: "kew::access", %peer, seconds, why = &*cut(why), "connection closed");
    }

    /// A credential was missing, wrong or not sufficient.
    pub(crate) fn note_denied(&self, origin: &Origin, offered: Offered, error: &Error) {
        let code = error.condition.as_str();
        self.instruments.note_denied(offered, code);
        tracing::debug!(
            target: "kew::access",
            peer = %origin.peer,
            ?offered,
            code,
            why = &*description(error),
            "authorization failed"
        );
    }

    /// A client offered the public key and may not use it. `called` is the host that it named, or
    /// the page that it is, as far as known.
    pub(crate) fn note_barred(&self, origin: &Origin, barred: Barred, called: Option<&str>) {
        let Some(count) = self.barred_log.note(SystemTime::now()) else {
            return;
        };
        let (peer, called) = (origin.peer, called.map(cut).unwrap_or_default());
        tracing::warn!(%peer, called, count, "a Service Bus client was refused: {barred}");
    }

    /// Something was refused, or ended with an error.
    pub(crate) fn note_refusal(&self, origin: &Origin, scope: Scope, error: &Error) {
        let code = error.condition.as_str();
        self.instruments.note_refusal(scope, code);
        self.note_busy(code);
        tracing::debug!(
            target: "kew::access",
            peer = %origin.peer,
            ?scope,
            code,
            why = &*description(error),
            "refused"
        );
    }

    /// A request to a node was answered.
    pub(crate) fn note_request(&self, origin: &Origin, entity: &str, answered: &Answered<'_>) {
        self.instruments.note_request(answered);
        let code = answered.code.unwrap_or_default();
        self.note_busy(code);
        let operation = cut(answered.operation);
        let (peer, status) = (origin.peer, answered.status);
        if status == 500 && self.failed_log.note(SystemTime::now()) == Line::Told {
            let entity = cut(entity);
            let not_logged = self.failed_log.take_untold();
            tracing::warn!(
                operation,
                entity,
                status,
                code,
                not_logged,
                "request failed"
            );
        }
        tracing::debug!(
            target: "kew::access",
            %peer,
            operation,
            entity = &*cut(entity),
            status,
            code,
            duration_us = u64::try_from(answered.took.as_micros()).unwrap_or(u64::MAX),
            "request"
        );
    }

    /// A busy server does not log each refusal.
    pub(crate) fn note_busy(&self, code: &str) {
        if code != bus_condition::SERVER_BUSY {
            return;
        }
        if let Some(count) = self.busy_log.note(SystemTime::now()) {
            tracing::warn!(count, "Service Bus requests refused: busy");
        }
    }
}
