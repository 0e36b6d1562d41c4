//! Commands of operators that clients do not have: purge, take and delete by number, break locks.

mod refused;
mod unknown;

use kew_engine::SequenceNumber;
use kew_engine::bus::{
    BreakTarget, BusCommand, BusMessageState, BusOutcome, DeliveredMessage, ReceiveMode,
};

use super::life::{Entity, Fate, Life, Lock, Part, Span, Stage};
use super::queue::SessionLock;
use super::receive::COUNT_ON_FULL_DISK;
use super::shown::{Bodies, Shown};
use super::{ANSWERS_FIT, Answered, Checker, LOCKS, NO_LOSS, ONE_PLACE, Owner, SESSIONS, entity};
use crate::checker::{Violation, violated};

impl Checker {
    pub(in crate::bus::checker) fn operated(
        &mut self,
        answered: &Answered<'_>,
    ) -> Result<(), Violation> {
        match (answered.command, answered.outcome) {
            (BusCommand::Purge { queue, purge }, BusOutcome::Purged(purged)) => {
                self.purged(entity(queue), purge, purged, answered.at)
            }
            (
                BusCommand::ClearSessionStates {
                    queue,
                    from,
                    count,
                    is_dry_run,
                },
                BusOutcome::SessionStatesCleared(cleared),
            ) => self.states_cleared(entity(queue), from, (*count, *is_dry_run), cleared.count),
            (
                BusCommand::TakeMessage {
                    queue,
                    number,
                    mode,
                },
                BusOutcome::Received(messages),
            ) => self.taken(answered, entity(queue), (*number, *mode), messages),
            (
                BusCommand::DeleteMessage {
                    queue,
                    number,
                    with_locked,
                },
                BusOutcome::MessageDeleted,
            ) => {
                self.note("a message was deleted by its number");
                let seen = ("deleted", number);
                self.narrow_numbered(entity(queue), number.as_u64(), &seen, |life| {
                    (*with_locked || life.lock().is_none()).then(|| vec![Fate::Gone])
                })
            }
            (BusCommand::BreakLock { queue, target }, BusOutcome::LockBroken) => {
                self.broken(entity(queue), target)
            }
            (BusCommand::Resubmit { queue, resubmit }, BusOutcome::Resubmitted(verdicts)) => {
                self.resubmitted(entity(queue), resubmit, verdicts, answered.at)
            }
            (command, outcome) => violated!(ANSWERS_FIT, "{command:?}: {outcome:?}"),
        }
    }

    fn states_cleared(
        &mut self,
        entity: Entity,
        from: &str,
        (count, is_dry_run): (u32, bool),
        cleared: u32,
    ) -> Result<(), Violation> {
        let mut able = self.sessions_to_clear(entity);
        able.retain(|(id, _)| **id >= *from);
        let most = able.len().min(count as usize);
        let certain = able.iter().filter(|(_, must)| *must).count();
        let least = certain.min(count.min(COUNT_ON_FULL_DISK) as usize);
        let number = cleared as usize;
        if number > most || number < least {
            return violated!(
                SESSIONS,
                "of {able:?}, {count} at most, {cleared} were cleared"
            );
        }
        if is_dry_run || number == 0 {
            return Ok(());
        }
        self.note("states of sessions were cleared");
        // It is known which ones they were if all possible ones were, or if all possible ones are
        // certain.
        let is_known = certain == able.len() || number == able.len();
        for (id, _) in able
            .into_iter()
            .take(if is_known { number } else { usize::MAX })
        {
            let session = self.queues.get(entity.queue).session(&id);
            if is_known {
                session.states.clear();
            }
            session.may_have_state(None);
        }
        Ok(())
    }

    /// The sessions that may have a state and no message, in order, and whether they must.
    pub(in crate::bus::checker) fn sessions_to_clear(
        &self,
        entity: Entity,
    ) -> Vec<(Box<str>, bool)> {
        let Some(queue) = self.queues.0.get(entity.queue) else {
            return Vec::new();
        };
        let mut able = Vec::new();
        for (id, session) in &queue.sessions {
            let is_of = |life: &Life| life.entity == entity && life.session() == Some(id);
            let may_have_state = session.states.iter().any(Option::is_some);
            let must_have_message = self.messages.values().any(|message| message.must(is_of));
            if entity.part != Part::Queue || !may_have_state || must_have_message {
                continue;
            }
            let must_have_state = session.states.iter().all(Option::is_some);
            let may_have_message = self.messages.values().any(|message| message.may(is_of));
            able.push((id.clone(), must_have_state && !may_have_message));
        }
        able
    }

    fn taken(
        &mut self,
        answered: &Answered<'_>,
        entity: Entity,
        (number, mode): (SequenceNumber, ReceiveMode),
        messages: &[DeliveredMessage],
    ) -> Result<(), Violation> {
        let [message] = messages else {
            return violated!(ANSWERS_FIT, "{messages:?}");
        };
        let shown = Shown::delivered(message, &mut Bodies::of(answered))?;
        if message.sequence_number != number {
            return violated!(ANSWERS_FIT, "{number:?} was asked for: {message:?}");
        }
        let lock = match (mode, message.lock) {
            (ReceiveMode::PeekLock, Some(token)) => {
                self.holds_for(entity, message.locked_until, answered.at)?;
                self.note_lock(token, shown.message(entity));
                Some(Lock {
                    token: Some(token),
                    until: Span::at(message.locked_until),
                    was_deferred: message.state == BusMessageState::Deferred,
                })
            }
            (ReceiveMode::ReceiveAndDelete, None) => None,
            other => return violated!(ANSWERS_FIT, "{other:?}: {message:?}"),
        };
        let by_session = entity.part == Part::Queue
            && self
                .queues
                .of(entity)
                .all(|options| options.requires_session);
        self.narrow(shown.message(entity), ONE_PLACE, message, |life| {
            let fate = match lock {
                None => Fate::Gone,
                Some(lock) => Fate::Here(Life {
                    stage: Stage::Locked(lock),
                    ..shown.learned(life)
                }),
            };
            let is_scheduled = matches!(life.stage, Stage::Scheduled { .. });
            let is_lockable = !(is_scheduled || by_session && life.session().is_some());
            let may_be_taken = life.lock().is_none() && (lock.is_none() || is_lockable);
            (may_be_taken && shown.fits(entity, life)).then(|| vec![fate])
        })?;
        self.note("a message was taken by its number");
        let owner = Owner {
            message: shown.message(entity),
            is_scheduled: message.state == BusMessageState::Scheduled,
        };
        self.learn_number(entity, shown.number, owner)
    }

    fn broken(&mut self, entity: Entity, target: &BreakTarget) -> Result<(), Violation> {
        match target {
            BreakTarget::Message(number) => {
                self.note("a message's lock was broken");
                let seen = ("broken", number);
                self.narrow_numbered(entity, number.as_u64(), &seen, |life| {
                    life.lock().map(|_| vec![Fate::Here(life.back())])
                })
            }
            BreakTarget::Session(id) => {
                let session = self.queues.get(entity.queue).session(id);
                let may_be_locked = session.locks.iter().any(|lock| *lock != SessionLock::Free);
                if entity.part != Part::Queue || !may_be_locked {
                    return violated!(LOCKS, "{id} of {entity:?}, {session:?}, was broken");
                }
                self.note("a session's lock was broken");
                self.free_session(entity, id);
                Ok(())
            }
        }
    }

    /// No message has that number.
    pub(in crate::bus::checker) fn is_not_there(
        &mut self,
        entity: Entity,
        number: u64,
    ) -> Result<(), Violation> {
        let what = ("no message", entity, number);
        self.not_shown(NO_LOSS, &what, &Default::default(), |life| {
            life.entity == entity && life.number == Some(number)
        })
    }

    /// A command changed the message with a number. If its owner is not known, it is one of the
    /// possible owners.
    pub(in crate::bus::checker) fn narrow_numbered(
        &mut self,
        entity: Entity,
        number: u64,
        seen: &dyn std::fmt::Debug,
        then: impl Fn(&Life) -> Option<Vec<Fate>>,
    ) -> Result<(), Violation> {
        let then = |life: &Life| {
            let may_be_it = life.may_have_number(entity, number);
            may_be_it.then(|| then(life)).flatten()
        };
        let numbers = &self.queues.get(entity.queue).numbers;
        let owner = numbers.get(&(entity.part, number));
        let owners: Vec<u64> = match owner {
            Some(owner) => vec![owner.message],
            None => {
                let all = self.messages.iter();
                let may_be = all.filter(|(_, message)| message.may(|life| then(life).is_some()));
                may_be.map(|(number, _)| *number).collect()
            }
        };
        match owners[..] {
            [] => violated!(
                ONE_PLACE,
                "{number} of {entity:?} belongs to no message: {seen:?}"
            ),
            [owner] => self.narrow(owner, ONE_PLACE, seen, then),
            _ => {
                for owner in owners {
                    let Some(message) = self.messages.get_mut(&owner) else {
                        continue;
                    };
                    message.perhaps(|life| then(life).unwrap_or_default());
                }
                Ok(())
            }
        }
    }
}
