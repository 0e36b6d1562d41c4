//! Timeouts and heartbeats.

use std::time::Duration;

use super::handshake::Phase;
use super::{By, Connection, Event};
use crate::error::{Error, condition};

/// Milliseconds since any moment that is fixed for a connection. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    fn after(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

#[derive(Debug)]
pub(crate) struct Timers {
    began: Millis,
    received: Millis,
    sent: Millis,
    /// When the close was sent.
    closing: Option<Millis>,
    /// How often to send the peer a frame: half of the time that it announced.
    heartbeat: Option<Duration>,
}

impl Timers {
    pub(crate) fn new(now: Millis) -> Self {
        Self {
            began: now,
            received: now,
            sent: now,
            closing: None,
            heartbeat: None,
        }
    }

    pub(crate) fn received(&mut self, now: Millis) {
        self.received = self.received.max(now);
    }

    pub(crate) fn sent(&mut self, now: Millis) {
        self.sent = self.sent.max(now);
    }

    /// Starts the time limit for closing, if it is not running.
    pub(crate) fn closing(&mut self, now: Millis) {
        self.closing.get_or_insert(now);
    }

    pub(crate) fn peer_gives_up_after(&mut self, timeout: Duration) {
        self.heartbeat = Some(timeout / 2);
    }

    fn now(&self) -> Millis {
        self.received.max(self.sent)
    }
}

impl Connection {
    /// When to call [`Connection::on_time`] next, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<Millis> {
        match self.phase {
            Phase::Closed => None,
            Phase::CloseSent => {
                let closing = self.timers.closing.unwrap_or(self.timers.now());
                Some(closing.after(self.limits.close_timeout))
            }
            Phase::Open => [self.silence_ends(), self.heartbeat_due()]
                .into_iter()
                .flatten()
                .min(),
            _ => Some(self.timers.began.after(self.limits.handshake_timeout)),
        }
    }

    /// Sends a heartbeat that is due, or ends a connection whose peer is silent.
    pub fn on_time(&mut self, now: Millis) {
        match self.phase {
            Phase::Closed => {}
            Phase::CloseSent => {
                let closing = *self.timers.closing.get_or_insert(now);
                if closing.after(self.limits.close_timeout) <= now {
                    self.phase = Phase::Closed;
                }
            }
            Phase::Open => {
                if self.silence_ends().is_some_and(|end| end <= now) {
                    let text = "nothing arrived within the announced idle-time-out";
                    self.fail(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
                    self.timers.closing(now);
                } else if self.heartbeat_due().is_some_and(|due| due <= now)
                    && self.output.is_empty()
                {
                    self.output.heartbeat();
                }
            }
            _ => {
                if self.timers.began.after(self.limits.handshake_timeout) <= now {
                    let text = "the connection was not opened in time";
                    let error = Some(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
                    self.phase = Phase::Closed;
                    self.events.push_back(Event::Closed { by: By::Us, error });
                }
            }
        }
    }

    fn silence_ends(&self) -> Option<Millis> {
        let timeout = self.config.idle_timeout?;
        Some(self.timers.received.after(timeout))
    }

    fn heartbeat_due(&self) -> Option<Millis> {
        let heartbeat = self.timers.heartbeat?;
        Some(self.timers.sent.after(heartbeat))
    }
}
