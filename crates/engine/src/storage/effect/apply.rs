//! How effects change storage queues.

use super::{Effect, Was};
use crate::catalogue::Catalogue;
use crate::storage::Queues;
use crate::storage::backlog::Backlog;
use crate::storage::message::Message;
use crate::table::Live;
use crate::vocabulary::Timestamp;

impl Queues {
    /// Applies effects of an event at `at`. An effect whose message or entity is not there changes nothing.
    pub(crate) fn apply_effects(
        &mut self,
        catalogue: &mut Catalogue,
        at: Timestamp,
        effects: &[Effect],
    ) {
        let mut rest = effects;
        while let Some((first, later)) = rest.split_first() {
            let incarnation = first.entity();
            let Some(entity) = self.get_mut(&incarnation) else {
                rest = later;
                continue;
            };
            while let Some((effect, later)) = rest.split_first()
                && effect.entity() == incarnation
            {
                entity.backlog.apply(at, effect, &mut catalogue.live);
                rest = later;
            }
            entity.settle(catalogue, incarnation);
        }
    }

    /// Whether an effect says what is true of the messages that it is about to change. It must when it is
    /// decided; applying it does not ask.
    pub(crate) fn is_exact(&self, effect: &Effect) -> bool {
        let Some(entity) = self.get(&effect.entity()) else {
            return false;
        };
        let backlog = &entity.backlog;
        let is_was = |message: Option<Message>, was: &Was, takes_body: bool| {
            message.is_some_and(|message| {
                let body = takes_body.then_some(message.body);
                (was.due_at, was.body) == (message.timed_at(), body)
            })
        };
        match effect {
            Effect::Arrived { to, .. } => !backlog.holds(to.number),
            Effect::Leased { at, body, was, .. } => {
                is_was(backlog.find(at.number), was, body.is_some())
            }
            Effect::Ended { at, was } => is_was(backlog.find(at.number), was, true),
            Effect::RangeEnded { from, until, .. } => backlog.ends_by_counts(*from, *until),
        }
    }
}

impl Backlog {
    pub(crate) fn apply(&mut self, now: Timestamp, effect: &Effect, live: &mut Live) {
        match effect {
            Effect::Arrived {
                to,
                expires_at,
                due_at,
                body,
            } => {
                let message = Message::arrived(now, *expires_at, *due_at, *body);
                self.push(to.number, message, live);
            }
            Effect::Leased {
                at,
                lease,
                body,
                was,
            } => self.lease(at.number, lease, *body, was, live),
            Effect::Ended { at, was } => self.end(at.number, was, live),
            Effect::RangeEnded { from, until, .. } => self.end_range(*from, *until, live),
        }
    }
}
