//! A turn of a connection: what is done before others have theirs.
//!
//! All connections share a few threads, and a frame of some bytes can ask for thousands of things. So all that a
//! turn visits, decodes and queues is counted in steps, and the turn ends when its steps are taken. What comes
//! all at once, as the links of a session that has ended, waits in the backlog: it is worked off piece by
//! piece, and before anything is read that came after it.

use std::collections::VecDeque;
use std::ops::Bound;

use kew_amqp::error::{Error, condition};
use kew_amqp::{LinkId, SessionId};
use kew_broker::Reply;

use super::{Client, Link};
use crate::authorization::rights::Right;

/// How many links, or tokens, are looked at for one step: most are not what is looked for.
const LOOKED_AT: usize = 16;
/// How many bytes of changes to properties are worth a step: each is read, compared and written anew.
const CHANGED_SIZE_BYTES: usize = 64;
/// What a link that is attached costs: its names are copied, and a task looks for its entity.
pub(super) const ATTACH_STEPS: usize = 4;
/// What a request costs, which is a task.
pub(super) const REQUEST_STEPS: usize = 4;
/// What a token costs: a signature is checked.
pub(super) const TOKEN_STEPS: usize = 32;

/// The steps for so many links or tokens that are looked at.
pub(super) fn steps_to_look_at(count: usize) -> usize {
    1 + count / LOOKED_AT
}

/// The steps for a change to properties.
pub(super) fn steps_to_change(size_bytes: usize) -> usize {
    size_bytes / CHANGED_SIZE_BYTES
}

/// What came all at once and is worked off in pieces.
#[derive(Default)]
pub(super) struct Backlog {
    /// Links that are gone with their session, or with the connection.
    gone: VecDeque<LinkId>,
    /// From where on rights are to be looked at.
    unchecked: Option<Bound<LinkId>>,
    /// Links whose entity may have changed.
    changed: VecDeque<LinkId>,
    /// Answers of the broker.
    answers: VecDeque<(u64, Reply)>,
}

impl Backlog {
    pub(super) fn shrink(&mut self) {
        self.gone.shrink_to_fit();
        self.changed.shrink_to_fit();
        self.answers.shrink_to_fit();
    }
}

impl Client {
    /// Does what can be done now, as far as the steps reach. Says whether more is due: then others have their
    /// turn, and the steps are to be renewed.
    pub(crate) fn turn(&mut self) -> bool {
        self.look_for_room();
        if !self.starved.is_empty() && self.may_receive() {
            self.steps.charge(steps_to_look_at(self.starved.len()));
            self.stirred.append(&mut self.starved);
        }
        loop {
            while self.steps.are_left() && self.work_off() {}
            // What a turn before this one has left, or what has come since.
            self.pump_stirred();
            while self.steps.are_left() && (self.work_off() || self.take_event()) {}
            self.flush_settlements();
            self.pump_stirred();
            // What was refused at once has made room for more.
            if !self.flush_outbox() || !self.steps.are_left() {
                break;
            }
        }
        self.shared
            .observer
            .instruments
            .note_turn(self.steps.taken());
        !self.steps.are_left()
    }

    fn pump_stirred(&mut self) {
        while self.steps.are_left()
            && let Some(link) = self.stirred.pop_first()
        {
            self.steps.charge(1);
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

    /// Others had their turn.
    pub(crate) fn renew_steps(&mut self) {
        self.shared.observer.instruments.turns_cut.increment();
        self.steps.renew();
    }

    pub(crate) fn has_steps(&self) -> bool {
        self.steps.are_left()
    }

    fn take_event(&mut self) -> bool {
        if !self.has_room() {
            return false;
        }
        let event = self.connection.poll_event_within(&mut self.steps);
        let is_any = event.is_some();
        if let Some(event) = event {
            self.on_event(event);
        }
        is_any
    }

    /// Does one thing of the backlog. Says whether there was one.
    fn work_off(&mut self) -> bool {
        if let Some(link) = self.backlog.gone.pop_front() {
            self.steps.charge(1);
            self.forget(link);
            return true;
        }
        if self.check_next() {
            return true;
        }
        if self.may_look()
            && let Some(link) = self.backlog.changed.pop_front()
        {
            self.steps.charge(1);
            self.look(link);
            return true;
        }
        if let Some((key, reply)) = self.backlog.answers.pop_front() {
            self.steps.charge(1);
            self.take_answer(key, reply);
            return true;
        }
        false
    }

    /// The links of a session are gone.
    pub(super) fn forget_all_of(&mut self, session: SessionId) {
        let links = self.links.range(session.links());
        self.backlog.gone.extend(links.map(|(link, _)| *link));
    }

    /// All links are gone.
    pub(super) fn forget_all(&mut self) {
        self.backlog.gone = self.links.keys().copied().collect();
    }

    /// Takes the answers that have come.
    pub(crate) fn on_answers(&mut self) {
        self.answers.take(&mut self.came);
        self.backlog.answers.extend(self.came.drain(..));
    }

    /// Looks at every entity that may have changed.
    pub(crate) fn on_changes(&mut self) {
        self.steps.charge(steps_to_look_at(self.links.len()));
        let links = self.links.iter();
        let changed = links.filter(|(_, link)| link.may_have_changed());
        self.backlog.changed.extend(changed.map(|(id, _)| *id));
    }

    /// What is allowed has changed: every link is looked at, before anything more is taken from the client.
    pub(super) fn detach_what_is_not_allowed(&mut self) {
        self.backlog.unchecked = Some(Bound::Unbounded);
    }

    /// Looks at one link, and detaches it if it is not allowed any more. Says whether there was one.
    fn check_next(&mut self) -> bool {
        let Some(from) = self.backlog.unchecked.take() else {
            return false;
        };
        let mut links = self.links.range((from, Bound::Unbounded));
        let Some((&link, own)) = links.next() else {
            return false;
        };
        self.backlog.unchecked = Some(Bound::Excluded(link));
        self.steps.charge(1);
        let is_allowed = match own {
            Link::Sender(it) => self.grants.allow(&it.attached.entity, Right::Send),
            Link::Receiver(it) => self.grants.allow(&it.attached.entity, Right::Listen),
            Link::Opening(_) | Link::Requests(_) | Link::Replies(_) | Link::Coordinator => true,
        };
        if !is_allowed {
            let text = "No token of this connection allows this any more: it expired, its rule was \
                        changed, or another one took its place.";
            self.detach(link, Error::new(condition::UNAUTHORIZED_ACCESS, text));
        }
        true
    }

    /// The connection is gone: what its tasks still bring is given back.
    pub(crate) async fn leave(&mut self) {
        self.putting.clear();
        self.backlog.unchecked = None;
        self.forget_all();
        loop {
            while self.steps.are_left() && self.work_off() {}
            self.flush_outbox();
            if !self.steps.are_left() {
                tokio::task::yield_now().await;
                self.renew_steps();
                continue;
            }
            // What is given back is a task, and may follow from an answer.
            if self.tasks.is_empty() && self.under_way.is_empty() {
                return;
            }
            tokio::select! {
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.on_done(done),
                () = self.answers.ready() => self.on_answers(),
            }
        }
    }
}
