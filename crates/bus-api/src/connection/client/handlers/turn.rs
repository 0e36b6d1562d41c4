//! A turn of a connection, after which other connections have theirs.
//!
//! All connections share a few threads, and a frame of some bytes can cause thousands of
//! operations. So everything that a turn visits, decodes and queues is counted in steps, and the
//! turn ends when its steps are used up. Work that comes all at once, such as the links of an ended
//! session, waits in the backlog. It is done in pieces, before any later input is read.

use std::ops::Bound;

use kew_amqp::SessionId;
use kew_amqp::error::{Error, condition};

use crate::connection::client::Client;
use crate::connection::client::links::link::Link;
use crate::connection::client::parts::turn::steps_to_look_at;

impl Client {
    /// Does the work that can be done now, within the steps. Returns whether more is due: then let
    /// other connections have their turn, and renew the steps.
    pub(crate) fn take_turn(&mut self) -> bool {
        self.look_for_room();
        if !self.stirred.starved.is_empty() && self.may_receive() {
            let count = self.stirred.feed_starved();
            self.turn.steps.charge(steps_to_look_at(count));
        }
        loop {
            while self.turn.steps.are_left() && self.work_off() {}
            // Work that an earlier turn has left, or that has arrived since.
            self.pump_stirred();
            while self.turn.steps.are_left() && (self.work_off() || self.take_event()) {}
            self.flush_settlements();
            self.pump_stirred();
            // Commands that were refused at once have made room for more.
            if !self.flush_outbox() || !self.turn.steps.are_left() {
                break;
            }
        }
        self.shared
            .observer
            .instruments
            .note_turn(self.turn.steps.taken());
        !self.turn.steps.are_left()
    }

    fn pump_stirred(&mut self) {
        while self.turn.steps.are_left()
            && let Some(link) = self.stirred.take()
        {
            self.turn.steps.charge(1);
            match self.links.get(&link) {
                Some(Link::Receiver(_)) => self.pump(link),
                Some(Link::Replies(_)) => self.pump_replies(link),
                Some(
                    Link::Opening(_) | Link::Sender(_) | Link::Requests(_) | Link::Coordinator,
                )
                | None => {}
            }
        }
    }

    /// Begins a new turn after others had theirs.
    pub(crate) fn renew_steps(&mut self) {
        self.shared.observer.instruments.turns_cut.increment();
        self.turn.steps.renew();
    }

    pub(crate) fn has_steps(&self) -> bool {
        self.turn.steps.are_left()
    }

    fn take_event(&mut self) -> bool {
        if !self.load.has_room(&self.shared.limits) {
            return false;
        }
        let event = self.connection.poll_event_within(&mut self.turn.steps);
        let is_any = event.is_some();
        if let Some(event) = event {
            self.on_event(event);
        }
        is_any
    }

    /// Does one thing of the backlog. Returns whether there was one.
    fn work_off(&mut self) -> bool {
        if let Some(link) = self.turn.backlog.gone.pop_front() {
            self.turn.steps.charge(1);
            self.forget(link);
            return true;
        }
        if self.check_next() {
            return true;
        }
        if self.load.may_look(&self.shared.limits)
            && let Some(link) = self.turn.backlog.changed.pop_front()
        {
            self.turn.steps.charge(1);
            self.look(link);
            return true;
        }
        if let Some((key, reply)) = self.turn.backlog.answers.pop_front() {
            self.turn.steps.charge(1);
            self.take_answer(key, reply);
            return true;
        }
        false
    }

    /// Forgets the links of an ended session.
    pub(super) fn forget_all_of(&mut self, session: SessionId) {
        let links = self.links.range(session.links());
        self.turn.backlog.gone.extend(links.map(|(link, _)| *link));
    }

    /// Forgets all links.
    pub(super) fn forget_all(&mut self) {
        self.turn.backlog.gone = self.links.keys().copied().collect();
    }

    /// Takes the answers that have arrived.
    pub(crate) fn on_answers(&mut self) {
        let came = self.orders.take_answers();
        self.turn.backlog.answers.extend(came);
    }

    /// Reads every entity that may have changed.
    pub(crate) fn on_changes(&mut self) {
        self.turn.steps.charge(steps_to_look_at(self.links.len()));
        let links = self.links.iter();
        let changed = links.filter(|(_, link)| link.may_have_changed());
        self.turn.backlog.changed.extend(changed.map(|(id, _)| *id));
    }

    /// Checks one link, and detaches it if it is no longer allowed. Returns whether there was one.
    fn check_next(&mut self) -> bool {
        let Some(from) = self.turn.backlog.unchecked.take() else {
            return false;
        };
        let mut links = self.links.range((from, Bound::Unbounded));
        let Some((&link, own)) = links.next() else {
            return false;
        };
        self.turn.backlog.unchecked = Some(Bound::Excluded(link));
        self.turn.steps.charge(1);
        if !self.credentials.allow(own) {
            let text = "No token of this connection allows this any more: the token expired or was \
                        replaced, or its rule was changed.";
            self.detach(link, Error::new(condition::UNAUTHORIZED_ACCESS, text));
        }
        true
    }

    /// The connection has ended: releases everything that its tasks still bring.
    pub(crate) async fn leave(&mut self) {
        self.credentials.forget_puts();
        self.turn.backlog.unchecked = None;
        self.forget_all();
        loop {
            while self.turn.steps.are_left() && self.work_off() {}
            self.flush_outbox();
            if !self.turn.steps.are_left() {
                tokio::task::yield_now().await;
                self.renew_steps();
                continue;
            }
            // Releases run as tasks, and may follow from an answer.
            if self.tasks.is_empty() && self.orders.is_idle() {
                return;
            }
            tokio::select! {
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.on_done(done),
                () = self.orders.answers.ready() => self.on_answers(),
            }
        }
    }
}
