//! How effects change the state.

use super::{Effect, Was};
use crate::backlog::Backlog;
use crate::message::{Message, Placement};
use crate::state::settle;
use crate::{Event, Fact, LeaseGeneration, State, Timestamp};

impl State {
    /// Applies effects of an event at `at`. An effect whose message or entity is not there changes nothing.
    pub(crate) fn apply_effects(&mut self, at: Timestamp, effects: &[Effect]) {
        let mut rest = effects;
        while let Some((first, later)) = rest.split_first() {
            let incarnation = first.entity();
            let Some(entity) = self.entities.get_mut(&incarnation) else {
                rest = later;
                continue;
            };
            while let Some((effect, later)) = rest.split_first()
                && effect.entity() == incarnation
            {
                entity.backlog.apply(at, effect);
                rest = later;
            }
            settle(incarnation, entity, &mut self.usage, &mut self.deadlines);
        }
    }

    /// Whether an event says what is true of the messages that it is about to change. It must when it is
    /// decided; applying it does not ask.
    pub(crate) fn is_described_by(&self, event: &Event) -> bool {
        match &event.fact {
            Fact::Messages { effects } => effects.iter().all(|effect| self.is_exact(effect)),
            Fact::BusMessages { effects } => effects.iter().all(|it| self.is_exact_bus(it)),
            Fact::PartitionInitialized { .. }
            | Fact::QueueCreated { .. }
            | Fact::QueueDeleted { .. }
            | Fact::QueueMetadataSet { .. }
            | Fact::QueuePoliciesSet { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. }
            | Fact::Bus(_) => true,
        }
    }

    fn is_exact(&self, effect: &Effect) -> bool {
        let Some(entity) = self.entities.get(&effect.entity()) else {
            return false;
        };
        let backlog = &entity.backlog;
        let is_was = |message: Option<&Message>, was: &Was, takes_body: bool| {
            message.is_some_and(|message| {
                let body = takes_body.then_some(message.body);
                (was.due_at, was.body) == (message.due_at(), body)
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
    pub(crate) fn apply(&mut self, now: Timestamp, effect: &Effect) {
        match effect {
            Effect::Arrived {
                to,
                expires_at,
                due_at,
                body,
            } => {
                let placement = match due_at {
                    Some(_) => Placement::Timed,
                    None => Placement::Fresh,
                };
                let message = Message {
                    inserted_at: now,
                    expires_at: *expires_at,
                    visible_at: due_at.unwrap_or(now),
                    body: body.location,
                    generation: LeaseGeneration::FIRST,
                    delivery_count: 0,
                    encoding: body.encoding,
                    placement,
                };
                self.push(to.number, message);
            }
            Effect::Leased {
                at,
                lease,
                body,
                was,
            } => self.lease(at.number, lease, *body, was),
            Effect::Ended { at, was } => self.end(at.number, was),
            Effect::RangeEnded { from, until, .. } => self.end_range(*from, *until),
        }
    }
}
