//! Operators' commands with an unknown outcome.

use kew_engine::bus::{BreakTarget, BusCommand, ReceiveMode};

use crate::bus::checker::Checker;
use crate::bus::checker::life::{Entity, Fate, Life, Lock, Part, Span, Stage};
use crate::bus::entity;

impl Checker {
    pub(in crate::bus::checker) fn perhaps_operated(&mut self, command: &BusCommand, when: Span) {
        match command {
            BusCommand::Purge { queue, purge } if !purge.is_dry_run => {
                self.perhaps_purged(entity(queue), purge, when);
            }
            BusCommand::ClearSessionStates {
                queue,
                is_dry_run: false,
                ..
            } => {
                let entity = entity(queue);
                for (id, _) in self.sessions_to_clear(entity) {
                    let session = self.queues.get(entity.queue).session(&id);
                    session.may_have_state(None);
                }
            }
            BusCommand::TakeMessage {
                queue,
                number,
                mode: ReceiveMode::ReceiveAndDelete,
            } => self.perhaps_gone(entity(queue), |life| {
                life.may_have_number(entity(queue), number.as_u64()) && life.lock().is_none()
            }),
            BusCommand::TakeMessage { queue, number, .. } => {
                self.perhaps_taken(entity(queue), number.as_u64(), when);
            }
            BusCommand::DeleteMessage {
                queue,
                number,
                with_locked,
            } => self.perhaps_gone(entity(queue), |life| {
                life.may_have_number(entity(queue), number.as_u64())
                    && (*with_locked || life.lock().is_none())
            }),
            BusCommand::BreakLock {
                queue,
                target: BreakTarget::Session(id),
            } if entity(queue).part == Part::Queue => {
                self.perhaps_free_session(entity(queue), id);
            }
            // Sub-queues have no sessions that a receiver could lock.
            BusCommand::BreakLock {
                target: BreakTarget::Session(_),
                ..
            } => {}
            BusCommand::BreakLock {
                queue,
                target: BreakTarget::Message(number),
            } => {
                let entity = entity(queue);
                self.perhaps(|life| {
                    let is_it = life.may_have_number(entity, number.as_u64());
                    let is_it = is_it && life.lock().is_some();
                    is_it.then(|| Fate::Here(life.back())).into_iter().collect()
                });
            }
            BusCommand::Resubmit { queue, resubmit } => {
                self.perhaps_resubmitted(entity(queue), resubmit, when);
            }
            _ => {}
        }
    }

    fn perhaps_taken(&mut self, entity: Entity, number: u64, when: Span) {
        let all: Vec<_> = self.queues.of(entity).cloned().collect();
        self.perhaps(|life| {
            let is_at_rest = matches!(life.stage, Stage::Ready | Stage::Deferred);
            if !is_at_rest || !life.may_have_number(entity, number) {
                return Vec::new();
            }
            let has_session = life.session().is_some();
            let takes = all.iter().filter(|options| {
                let by_session = entity.part == Part::Queue && options.requires_session;
                !(by_session && has_session)
            });
            let locked = takes.map(|options| Life {
                stage: Stage::Locked(Lock {
                    token: None,
                    until: when.plus_ms(options.lock_duration_ms),
                    was_deferred: life.stage == Stage::Deferred,
                }),
                ..life.clone()
            });
            locked.map(Fate::Here).collect()
        });
    }
}
