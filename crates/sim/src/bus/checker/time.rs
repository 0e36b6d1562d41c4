//! What happens by itself: locks end, scheduled messages become active, messages expire, idle
//! queues are deleted.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::Timestamp;

use super::Checker;
use super::life::{Entity, Fate, Life, Part, Stage};
use super::message::Message;
use super::queue::{Queue, Session, SessionLock};
use crate::bus::topics::{self, Kind};

/// Up to this much due work in a queue is done before another command is decided.
pub(super) const DUE_MAX: usize = 40;

impl Checker {
    /// Adds what may have happened by itself until now.
    pub(super) fn pass_time(&mut self, now: Timestamp) {
        for (index, queue) in self.queues.0.iter_mut().enumerate() {
            if may_be_deleted_by_itself(queue, now) && !is_in_use(&self.messages, index, queue, now)
            {
                queue.may_be(None);
                for message in self.messages.values_mut() {
                    message.perhaps(|life| goes_with(life, index));
                }
            }
        }
        for message in self.messages.values_mut() {
            message.pass_time(now, &self.queues);
        }
        self.gather(now);
    }

    /// Before a command for an entity is decided, its due work is done, unless it is too much or
    /// there is no room. Then no message is in an overdue state.
    pub(super) fn do_due(&mut self, entity: Entity, now: Timestamp) {
        let queue = self.queues.get(entity.queue);
        let sessions = queue.sessions.clone();
        let is_due = |life: &Life| {
            life.entity == entity
                && match life.stage {
                    Stage::Locked(lock) if lock.is_of_session() => {
                        let session = life.session().unwrap_or_default();
                        let session = sessions.get(session);
                        session.is_none_or(|session| session.must_be_free(now))
                    }
                    Stage::Locked(lock) => lock.until.has_passed(now),
                    Stage::Scheduled { due } => due.has_passed(now),
                    Stage::Ready => life.expires.has_passed(now),
                    Stage::Deferred | Stage::Waiting { .. } => false,
                }
        };
        let all = self.messages.values();
        let may_be_due = all.filter(|message| {
            message.may(|life| {
                life.entity == entity
                    && match life.stage {
                        Stage::Locked(lock) => {
                            lock.is_of_session() || lock.until.may_have_passed(now)
                        }
                        Stage::Scheduled { due } => due.has_passed(now),
                        Stage::Ready => life.expires.may_have_passed(now),
                        Stage::Deferred | Stage::Waiting { .. } => false,
                    }
            })
        });
        if may_be_due.count() + sessions.len() > DUE_MAX {
            return;
        }
        for message in self.messages.values_mut() {
            message.keep(|fate| !fate.life().is_some_and(is_due));
            assert!(
                !message.is_impossible(),
                "whatever is due comes to something: {message:?}"
            );
        }
        if topics::kind(entity.queue) == Kind::Topic && entity.part == Part::Queue {
            self.activate_due(entity.queue, now, DUE_MAX);
        }
        if entity.part == Part::Queue {
            for session in self.queues.get(entity.queue).sessions.values_mut() {
                for lock in &mut session.locks {
                    if lock.must_be_free(now) {
                        *lock = SessionLock::Free;
                    }
                }
                session.locks.dedup();
            }
        }
    }
}

impl Checker {
    /// What is scheduled in a topic becomes active before a command for the topic is decided, or before its rules change.
    pub(super) fn activate_due(&mut self, topic: usize, now: Timestamp, count_max: usize) {
        let is_due = |life: &Life| {
            let has_passed = matches!(life.stage, Stage::Scheduled { due } if due.has_passed(now));
            has_passed && life.is_scheduled_in(topic)
        };
        let due = self
            .messages
            .iter()
            .filter(|(_, message)| message.may(is_due));
        let due: BTreeSet<u64> = due.map(|(it, _)| topics::number_in_body(*it)).collect();
        if due.len() > count_max {
            return;
        }
        for message in self.messages.values_mut() {
            message.keep(|fate| !fate.life().is_some_and(is_due));
            assert!(
                !message.is_impossible(),
                "whatever is due comes to something: {message:?}"
            );
        }
    }
}

/// The fate of a message if its queue is deleted.
pub(super) fn goes_with(life: &Life, queue: usize) -> Vec<Fate> {
    let is_of = life.ends_with(queue);
    is_of.then_some(Fate::GoneWith(queue)).into_iter().collect()
}

/// Whether a queue may have been idle long enough to delete itself.
///
/// Its use is recorded only once in a tenth of that time.
fn may_be_deleted_by_itself(queue: &Queue, now: Timestamp) -> bool {
    let is_idle = |idle_ms: u64| {
        idle_ms != u64::MAX
            && queue
                .used_at
                .plus_ms(idle_ms - idle_ms / 10)
                .has_passed(now)
    };
    queue
        .options()
        .any(|options| options.forward_to.is_none() && is_idle(options.auto_delete_on_idle_ms))
}

/// Whether a receiver holds something of a queue, or a message is scheduled.
fn is_in_use(
    messages: &BTreeMap<u64, Message>,
    queue: usize,
    known: &Queue,
    now: Timestamp,
) -> bool {
    let entity = Entity {
        queue,
        part: Part::Queue,
    };
    let is_held = |life: &Life| {
        life.entity == entity
            && match life.stage {
                Stage::Locked(lock) => !lock.is_of_session() && !lock.until.may_have_passed(now),
                Stage::Scheduled { due } => !due.has_passed(now),
                _ => false,
            }
    };
    let is_locked = |session: &Session| !session.may_be_free(now);
    messages.values().any(|message| message.must(is_held)) || known.sessions.values().any(is_locked)
}
