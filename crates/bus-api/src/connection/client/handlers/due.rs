//! Timers: first tokens, tokens that expire, transactions, and sessions whose lock expires.
//!
//! When the lock of a session ends, its link is detached, so that an idle client learns of it too.

use std::time::Duration;

use kew_amqp::error::{Error, condition};
use kew_amqp::{LinkId, Millis};
use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, BusRefusal};
use kew_engine::{Refusal, Timestamp, Token};

use crate::connection::client::Client;
use crate::connection::client::links::link::Link;
use crate::connection::client::parts::done::Done;
use crate::connection::client::parts::turn::{REQUEST_STEPS, steps_to_look_at};
use crate::ground::refusal::error_of;
use crate::ground::submit::Submitted;
use crate::metrics::Overdue;

/// How long to wait before the next check if a lock still holds: the broker's clock is not the
/// system's.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Client {
    pub(crate) fn on_time(&mut self, now: Millis) {
        let was_open = self.connection.is_open();
        let was_closed = self.connection.is_closed();
        self.connection.on_time(now);
        if was_open && !self.connection.is_open() {
            self.note_overdue(Overdue::Idle);
        } else if !was_closed && self.connection.is_closed() && self.peer.ended.is_none() {
            self.note_overdue(Overdue::Handshake);
        }
        if self.peer.is_overdue(now) {
            self.note_overdue(Overdue::Token);
            let seconds = self.shared.limits.token_timeout.as_secs();
            let text = format!("The connection was closed: no token was put within {seconds} s.");
            let error = Error::new(condition::UNAUTHORIZED_ACCESS, text);
            self.connection.close(Some(error));
        }
        if self.credentials.grants.expire(self.shared.clock.now_s()) {
            self.turn.backlog.check_all();
        }
        self.look_at_session_ends();
        let timeout = self.shared.limits.transaction_timeout;
        self.transactions.fail_those_due(timeout);
    }

    /// Handles a renewed session lock.
    pub(super) fn on_session_renewed(&mut self, lock: Token, until: Timestamp) {
        self.turn.steps.charge(steps_to_look_at(self.links.len()));
        if let Some(link) = self.links.holder_of(lock) {
            self.stirred.note_session_end(link, until, &mut self.links);
        }
    }

    /// Asks the broker about the session locks that should have expired.
    fn look_at_session_ends(&mut self) {
        let now_ms = self.shared.clock.now_ms();
        // Timers that are not handled now are due again at once.
        while self.turn.steps.are_left()
            && let Some(link) = self.stirred.session_that_ended(now_ms)
        {
            self.turn.steps.charge(REQUEST_STEPS);
            self.stirred.forget_session_end(link, &mut self.links);
            let Some(Link::Receiver(receiver)) = self.links.get(&link) else {
                continue;
            };
            let Some(session) = &receiver.session else {
                continue;
            };
            let lock = session.lock;
            let read = BusCommand::ReadSessionState {
                queue: receiver.attached.entity.clone(),
                session: lock,
            };
            let submitted = Submitted::new(&self.broker, read);
            self.tasks.spawn(async move {
                let held = submitted.answer().await.map(drop);
                Done::SessionLookedAt(link, lock, held)
            });
        }
    }

    pub(super) fn on_session_looked_at(
        &mut self,
        link: LinkId,
        lock: Token,
        held: Result<(), Rejection>,
    ) {
        let Some(Link::Receiver(receiver)) = self.links.get(&link) else {
            return;
        };
        let is_it = receiver.session.as_ref().is_some_and(|it| it.lock == lock);
        if !is_it {
            return;
        }
        if let Err(
            rejection @ Rejection::Refused(Refusal::Bus(
                BusRefusal::SessionLockLost | BusRefusal::QueueNotFound { .. },
            )),
        ) = &held
        {
            return self.detach(link, error_of(rejection));
        }
        if receiver.session_ends_at.is_none() {
            let pause_ms = u64::try_from(LOOK_AGAIN.as_millis()).unwrap_or(u64::MAX);
            let at = self.shared.clock.now_ms().saturating_add(pause_ms);
            let at = Timestamp::from_ms(at);
            self.stirred.note_session_end(link, at, &mut self.links);
        }
    }
}
