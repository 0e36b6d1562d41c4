//! Locks: how they end, and what happens to their messages.

use std::collections::BTreeSet;

use kew_engine::bus::{BusOutcome, BusQueueOptions, DeadLetterCause, Disposition, Verdict};
use kew_engine::{EntityName, Timestamp, Token};

use super::life::{Entity, Fate, Life, Lock, Part, Span, Stage, Surroundings as _};
use super::{ANSWERS_FIT, Answered, Checker, LOCKS, NO_RESURRECTION, entity, number_of};
use crate::checker::{Violation, violated};

/// The state of a locked message after its settlement, for each of the possible settings of its
/// queue.
pub(super) fn settled(
    life: &Life,
    disposition: &Disposition,
    options: &[BusQueueOptions],
) -> Vec<Fate> {
    let with = |life: &Life, overlay: &Option<bytes::Bytes>| {
        let mut life = life.clone();
        life.overlays.extend(overlay.iter().map(|it| number_of(it)));
        Fate::Here(life)
    };
    match disposition {
        Disposition::Complete => vec![Fate::Gone],
        Disposition::Abandon { overlay } => options
            .iter()
            .map(|options| with(&life.failed(options), overlay))
            .collect(),
        Disposition::Defer { overlay } => {
            let life = Life {
                stage: Stage::Deferred,
                ..life.clone()
            };
            vec![with(&life, overlay)]
        }
        Disposition::DeadLetter { overlay } => {
            vec![with(&life.buried(DeadLetterCause::ByReceiver), overlay)]
        }
        Disposition::Release => vec![Fate::Here(life.back())],
    }
}

impl Checker {
    pub(super) fn settled(
        &mut self,
        answered: &Answered<'_>,
        name: &EntityName,
        settlements: &[(Token, Disposition)],
    ) -> Result<(), Violation> {
        let BusOutcome::Settled(verdicts) = answered.outcome else {
            return violated!(ANSWERS_FIT, "{:?}", answered.outcome);
        };
        if verdicts.len() != settlements.len() {
            return violated!(ANSWERS_FIT, "{settlements:?}: {verdicts:?}");
        }
        let entity = entity(name);
        for ((token, disposition), verdict) in settlements.iter().zip(verdicts) {
            match verdict {
                Verdict::Settled => {
                    let Some(number) = self.message_of(*token) else {
                        return violated!(LOCKS, "{token:?} was never given, and is taken");
                    };
                    self.one_settled(entity, number, (*token, disposition), answered.at)?;
                }
                Verdict::LockLost => self.lock_is_lost(entity, *token, answered.at, false)?,
                Verdict::SessionLockLost => self.lock_is_lost(entity, *token, answered.at, true)?,
                Verdict::NotAllowed if entity.part != Part::Queue => {}
                Verdict::QuotaExceeded => self.is_full_for_change(entity.queue, disposition, 0)?,
                other => return violated!(ANSWERS_FIT, "{disposition:?}: {other:?}"),
            }
        }
        Ok(())
    }

    pub(super) fn one_settled(
        &mut self,
        entity: Entity,
        number: u64,
        (token, disposition): (Token, &Disposition),
        at: Timestamp,
    ) -> Result<(), Violation> {
        if self.over.contains(&number) {
            return violated!(NO_RESURRECTION, "message {number}: {disposition:?}");
        }
        if entity.part != Part::Queue && matches!(disposition, Disposition::DeadLetter { .. }) {
            return violated!(LOCKS, "a dead letter became one: message {number}");
        }
        let options: Vec<_> = self.queues.of(entity).cloned().collect();
        self.narrow_held(entity, token, at, disposition, |life| {
            settled(life, disposition, &options)
        })?;
        match disposition {
            Disposition::Defer { .. } => self.note("a message was deferred"),
            Disposition::DeadLetter { .. } => self.note("a message was made a dead letter"),
            _ => {}
        }
        Ok(())
    }

    /// A receiver used the lock of a message successfully: it holds.
    pub(super) fn may_hold(
        &mut self,
        entity: Entity,
        token: Token,
        at: Timestamp,
    ) -> Result<(), Violation> {
        self.narrow_held(entity, token, at, &"would be settled", |life| {
            vec![Fate::Here(life.clone())]
        })
    }

    fn narrow_held(
        &mut self,
        entity: Entity,
        token: Token,
        at: Timestamp,
        seen: &dyn std::fmt::Debug,
        then: impl Fn(&Life) -> Vec<Fate>,
    ) -> Result<(), Violation> {
        let Some(number) = self.message_of(token) else {
            return violated!(LOCKS, "{token:?} was never given, and holds: {seen:?}");
        };
        let sessions = self.sessions_that_may_hold(entity, at);
        self.narrow(number, LOCKS, &(at, token, seen), |life| {
            let may_hold = holds(life, entity, token).is_some_and(|lock| {
                if lock.is_of_session() {
                    life.session().is_some_and(|id| sessions.contains(id))
                } else {
                    !lock.until.has_passed(at)
                }
            });
            may_hold.then(|| then(life))
        })
    }

    /// The sessions whose lock may hold.
    fn sessions_that_may_hold(&self, entity: Entity, at: Timestamp) -> BTreeSet<Box<str>> {
        let queue = self.queues.0.get(entity.queue);
        let all = queue.into_iter().flat_map(|queue| &queue.sessions);
        all.filter(|(_, session)| !session.must_be_free(at))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// A lock was refused: it does not hold.
    pub(super) fn lock_is_lost(
        &mut self,
        entity: Entity,
        token: Token,
        at: Timestamp,
        is_for_session: bool,
    ) -> Result<(), Violation> {
        let Some(number) = self.message_of(token) else {
            return Ok(());
        };
        self.note("a lock was lost");
        let queues = &self.queues;
        let must_hold = |life: &Life| {
            let session = life.session();
            session.is_some_and(|id| !queues.may_be_free(entity.queue, id, at))
        };
        let Some(message) = self.messages.get_mut(&number) else {
            return Ok(());
        };
        let before = message.clone();
        message.keep(|fate| {
            let Some(life) = fate.life() else {
                return true;
            };
            holds(life, entity, token).is_none_or(|lock| {
                if !lock.is_of_session() {
                    lock.until.may_have_passed(at)
                } else {
                    is_for_session && !must_hold(life)
                }
            })
        });
        if message.is_impossible() {
            return violated!(
                LOCKS,
                "message {number}, {before:?}: {token:?} refused at {at}"
            );
        }
        Ok(())
    }

    pub(super) fn renewed(
        &mut self,
        answered: &Answered<'_>,
        name: &EntityName,
        locks: &[Token],
    ) -> Result<(), Violation> {
        let BusOutcome::LocksRenewed(ends) = answered.outcome else {
            return violated!(ANSWERS_FIT, "{:?}", answered.outcome);
        };
        let (entity, at) = (entity(name), answered.at);
        for (token, end) in locks.iter().zip(ends) {
            let Some(number) = self.message_of(*token) else {
                return violated!(LOCKS, "{token:?} was never given, and is renewed");
            };
            let sessions = self.sessions_that_may_hold(entity, at);
            let message = self.messages.get(&number);
            if message.is_some_and(|it| it.may(|life| is_held_by_itself(life, entity, *token))) {
                self.holds_for(entity, *end, at)?;
            }
            self.narrow(number, LOCKS, &(at, token, "renewed", end), |life| {
                let lock = holds(life, entity, *token)?;
                if lock.is_of_session() {
                    let may_hold = life.session().is_some_and(|id| sessions.contains(id));
                    return may_hold.then(|| vec![Fate::Here(life.clone())]);
                }
                let life = Life {
                    stage: Stage::Locked(Lock {
                        until: Span::at(*end),
                        ..lock
                    }),
                    ..life.clone()
                };
                (!lock.until.has_passed(at)).then(|| vec![Fate::Here(life)])
            })?;
            self.note("a lock was renewed");
        }
        Ok(())
    }
}

/// The lock of a message, if it is this one.
pub(super) fn holds(life: &Life, entity: Entity, token: Token) -> Option<Lock> {
    let is_it = life.entity == entity && life.is_locked_by(token);
    life.lock().filter(|_| is_it)
}

fn is_held_by_itself(life: &Life, entity: Entity, token: Token) -> bool {
    holds(life, entity, token).is_some_and(|lock| !lock.is_of_session())
}
