//! Refusals of operators' commands.

use kew_engine::Timestamp;
use kew_engine::bus::{BreakTarget, BusCommand, BusRefusal, ReceiveMode};

use crate::bus::checker::life::{Entity, Fate, Life, Part, Stage};
use crate::bus::checker::queue::SessionLock;
use crate::bus::checker::sessions::is_held_by_session;
use crate::bus::checker::{ANSWERS_FIT, Checker, SESSIONS};
use crate::bus::entity;
use crate::checker::{Violation, violated};

impl Checker {
    pub(in crate::bus::checker) fn refused_operation(
        &mut self,
        command: &BusCommand,
        refusal: &BusRefusal,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let is = |life: &Life, wants: bool| wants.then(|| vec![Fate::Here(life.clone())]);
        match (command, refusal) {
            (
                BusCommand::TakeMessage { queue, number, .. }
                | BusCommand::DeleteMessage { queue, number, .. }
                | BusCommand::BreakLock {
                    queue,
                    target: BreakTarget::Message(number),
                },
                BusRefusal::MessageNotFound { sequence_number },
            ) if number.as_u64() == *sequence_number => {
                self.is_not_there(entity(queue), *sequence_number)
            }
            (
                BusCommand::TakeMessage { queue, number, .. }
                | BusCommand::DeleteMessage {
                    queue,
                    number,
                    with_locked: false,
                },
                BusRefusal::MessageLocked { until, .. },
            ) => self.narrow_numbered(entity(queue), number.as_u64(), refusal, |life| {
                is(life, life.lock().is_some_and(|it| it.until.has(*until)))
            }),
            (
                BusCommand::TakeMessage {
                    queue,
                    number,
                    mode: ReceiveMode::PeekLock,
                },
                BusRefusal::MessageScheduled { .. },
            ) => self.narrow_numbered(entity(queue), number.as_u64(), refusal, |life| {
                is(life, matches!(life.stage, Stage::Scheduled { .. }))
            }),
            (
                BusCommand::TakeMessage {
                    queue,
                    number,
                    mode: ReceiveMode::PeekLock,
                },
                BusRefusal::SessionRequired,
            ) => {
                let entity = entity(queue);
                let is_queue = entity.part == Part::Queue;
                self.must_be(entity, refusal, |it| is_queue && it.requires_session)?;
                self.narrow_numbered(entity, number.as_u64(), refusal, |life| {
                    is(life, life.session().is_some() && life.lock().is_none())
                })
            }
            (
                BusCommand::BreakLock {
                    queue,
                    target: BreakTarget::Message(number),
                },
                BusRefusal::NotLocked,
            ) => self.narrow_numbered(entity(queue), number.as_u64(), refusal, |life| {
                is(life, life.lock().is_none())
            }),
            (
                BusCommand::BreakLock {
                    queue,
                    target: BreakTarget::Session(id),
                },
                BusRefusal::NotLocked,
            ) => self.is_not_locked(entity(queue), id, at),
            (BusCommand::Resubmit { queue, resubmit }, _) => {
                self.refused_resubmission(entity(queue), resubmit, refusal)
            }
            _ => violated!(ANSWERS_FIT, "{command:?}: {refusal}"),
        }
    }

    /// A session was not locked, nor was any message by it.
    fn is_not_locked(&mut self, entity: Entity, id: &str, at: Timestamp) -> Result<(), Violation> {
        if entity.part != Part::Queue {
            return Ok(());
        }
        let session = self.queues.get(entity.queue).session(id);
        if !session.may_be_free(at) {
            return violated!(SESSIONS, "{id}, {session:?}, is not locked at {at}");
        }
        session.locks = vec![SessionLock::Free];
        let what = ("not locked", entity, id);
        self.not_shown(SESSIONS, &what, &Default::default(), |life| {
            is_held_by_session(life, entity, id)
        })
    }
}
