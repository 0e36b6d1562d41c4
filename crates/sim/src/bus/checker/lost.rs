//! Messages that are set aside, because both copies of their records are damaged.
//!
//! Nobody sees them again. But they count in their entity, as messages that can be received and with their bytes, until
//! their run ends: with its entity, by a purge, or once all that it had has expired.

use std::collections::BTreeSet;

use kew_engine::Timestamp;

use super::life::{Entity, Fate, Life, Part, Stage};
use super::message::Message;
use super::queues::Bounds;
use super::{Checker, ONE_PLACE};
use crate::bus::topics;
use crate::checker::Violation;

/// A message that is set aside: all that it may have been.
#[derive(Clone, Debug)]
pub(super) struct Lost(Vec<Life>);

impl Checker {
    /// A message was set aside that had this number in its entity.
    pub(crate) fn set_aside(
        &mut self,
        (entity, number): (Entity, u64),
        message: u64,
    ) -> Result<(), Violation> {
        let is_it = |life: &Life| life.may_have_number(entity, number);
        let known = self.messages.get(&message);
        let lives = known.into_iter().flat_map(Message::lives);
        let lives: Vec<Life> = lives.filter(|life| is_it(life)).cloned().collect();
        if let Some(life) = lives.first() {
            self.note_set_aside(life);
        }
        let seen = ("set aside", entity, number);
        self.narrow(message, ONE_PLACE, &seen, |life| {
            is_it(life).then(|| vec![Fate::Gone])
        })?;
        self.lost.insert((entity, number), Lost(lives));
        Ok(())
    }

    fn note_set_aside(&mut self, life: &Life) {
        match life.stage {
            Stage::Locked(_) => self.note("a locked message was set aside"),
            Stage::Scheduled { .. } => self.note("a scheduled message was set aside"),
            Stage::Deferred => self.note("a deferred message was set aside"),
            Stage::Ready | Stage::Waiting { .. } => {}
        }
        if life.entity.part != Part::Queue {
            self.note("a dead letter was set aside");
        }
        if life.session().is_some() {
            self.note("a message of a session was set aside");
        }
        if topics::topic_of(life.entity.queue).is_some() {
            self.note("a copy was set aside");
        }
    }

    /// Only these are listed as set aside. Others have ended, if they may have expired: all that are lost of their run
    /// end together, once the last message of the run has expired. A run has `run_length` numbers.
    pub(crate) fn lost_may_expire(
        &mut self,
        listed: &BTreeSet<(Entity, u64)>,
        run_length: u64,
        now: Timestamp,
    ) {
        let run_of = |(entity, number): &(Entity, u64)| (*entity, number / run_length);
        let must_be_there = |(at, Lost(lives)): &(&(Entity, u64), &Lost)| {
            listed.contains(at) || !lives.iter().any(|life| life.may_have_expired(now))
        };
        let there = self.lost.iter().filter(must_be_there);
        let there: BTreeSet<_> = there.map(|(at, _)| run_of(at)).collect();
        self.lost.retain(|at, _| there.contains(&run_of(at)));
    }

    /// The messages that are set aside and have not ended.
    pub(crate) fn lost(&self) -> impl Iterator<Item = &(Entity, u64)> {
        self.lost.keys()
    }

    /// How many messages of an entity are set aside.
    pub(super) fn lost_count(&self, entity: Entity) -> Bounds {
        let lost = self.lost.keys().filter(|(own, _)| *own == entity);
        let count = lost.count() as u64;
        Bounds {
            least: count,
            most: count,
        }
    }

    /// The sum of this value over all messages of a queue that are set aside.
    pub(super) fn lost_bounds(&self, queue: usize, of: impl Fn(&Life) -> u64) -> Bounds {
        let lost = self.lost.iter().filter(|((own, _), _)| own.queue == queue);
        let each = lost.map(|(_, Lost(lives))| Bounds {
            least: lives.iter().map(&of).min().unwrap_or(0),
            most: lives.iter().map(&of).max().unwrap_or(0),
        });
        each.fold(Bounds::default(), Bounds::plus)
    }

    /// A purge of all that an entity has ends them.
    pub(super) fn lost_are_purged(&mut self, entity: Entity) {
        self.lost.retain(|(own, _), _| *own != entity);
    }

    /// They end with their queue.
    pub(super) fn lost_are_gone(&mut self, queue: usize) {
        self.lost.retain(|(own, _), _| own.queue != queue);
    }
}

impl Life {
    /// Whether its time to live may have ended, whatever else has become of it. That of a scheduled message is counted
    /// from when it is due, and in a topic nothing expires.
    fn may_have_expired(&self, now: Timestamp) -> bool {
        self.entity.part != Part::Topic && self.expires.may_have_passed(now)
    }
}
