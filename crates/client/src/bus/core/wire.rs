//! One connection of AMQP, until it is lost.

use std::time::Duration;

use kew_amqp::codec::Symbol;
use kew_amqp::error::{Error as AmqpError, condition};
use kew_amqp::{Config, Connection, Limits, Millis, Sasl, SessionId};

use super::{Settings, after};
use crate::error::Error;

/// From the socket to the session.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// After what silence the service counts as lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Beside the largest message: what an answer of a node says of the messages in it.
pub(super) const ANSWER_OVERHEAD: u64 = 1 << 20;

/// Unfinished messages of all links, in bytes, beside one that is as large as it may be.
const REASSEMBLY_SIZE: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct Wire {
    pub(super) amqp: Connection,
    /// The one session, as soon as it was asked for.
    pub(super) session: Option<SessionId>,
    /// Whether links can be attached.
    pub(super) is_ready: bool,
    ready_by: Millis,
    /// Why it is over.
    pub(super) end: Option<Error>,
}

impl Wire {
    pub(super) fn new(settings: &Settings, now: Millis) -> Self {
        let host = settings.host.trim_matches(['[', ']']);
        let config = Config {
            container_id: settings.name.as_str().into(),
            hostname: Some(host.into()),
            channel_max: 255,
            idle_timeout: Some(IDLE_TIMEOUT),
            sasl: Sasl::Client {
                mechanism: Symbol::from_static("ANONYMOUS"),
                initial_response: None,
            },
            ..Config::default()
        };
        let message_size_max = settings.message_size_max;
        let answer_size_max = message_size_max.saturating_add(ANSWER_OVERHEAD);
        let limits = Limits {
            sessions_max: 1,
            message_size_max,
            reassembly_size_max: answer_size_max.saturating_add(REASSEMBLY_SIZE),
            ..Limits::default()
        };
        Self {
            amqp: Connection::client(config, limits, now),
            session: None,
            is_ready: false,
            ready_by: after(now, READY_WITHIN),
            end: None,
        }
    }

    pub(super) fn on_time(&mut self, now: Millis) {
        self.amqp.on_time(now);
        if !self.is_ready && self.ready_by <= now {
            self.fail("the service did not open the connection in time");
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Millis> {
        let ready_by = (!self.is_ready && !self.amqp.is_closed()).then_some(self.ready_by);
        self.amqp.next_timeout().into_iter().chain(ready_by).min()
    }

    /// Closes the connection because the service does not do its part.
    pub(super) fn fail(&mut self, text: &str) {
        self.end.get_or_insert_with(|| Error::later(text));
        // It is only waited for what the limits of the connection say.
        self.ready_by = Millis(u64::MAX);
        let error = AmqpError::new(condition::CONNECTION_FORCED, text);
        self.amqp.close(Some(error));
    }
}
