//! What happens by itself: locks and schedules end, messages expire, idle queues go.

use std::collections::BTreeMap;

use kew_engine::Timestamp;

use super::Checker;
use super::life::{Entity, Fate, Life, Part, Stage};
use super::message::Message;
use super::queue::{Queue, Session, SessionLock};

/// So much may be due in a queue that it is all done before anything else is decided about it.
const DUE_MAX: usize = 40;

impl Checker {
    /// What may have happened by itself until now.
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
    }

    /// Before anything is decided about an entity, what is due in it is done, unless it is a lot or
    /// there is no room: then nothing of it is as it was.
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
                    Stage::Deferred => false,
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
                        Stage::Deferred => false,
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

/// What becomes of a message if its queue goes.
pub(super) fn goes_with(life: &Life, queue: usize) -> Vec<Fate> {
    let is_of = life.entity.queue == queue;
    is_of.then_some(Fate::GoneWith(queue)).into_iter().collect()
}

/// Whether a queue may have been idle for so long that it has deleted itself.
///
/// That it is used is noted once in a tenth of that time.
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

/// Whether somebody holds something of a queue, or something waits for its time.
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
