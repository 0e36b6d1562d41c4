//! Answers: what clients see of them, and when the checkers may look at an operation.

use std::collections::VecDeque;

use bytes::Bytes;
use kew_broker::{Answered, Rejection, Reply};
use kew_engine::storage::{StorageCommand, StorageOutcome, StorageRefusal};
use kew_engine::{Command, Outcome, Refusal, Timestamp};
use kew_log::BodyError;

use super::{Report, World};
use crate::checker::{Operation, Seen, Violation};
use crate::rare::Rare;
use crate::seam;
use crate::workload::Workload;

impl World {
    /// Lets answers pass to the clients. Nobody waits for what follows from them.
    pub(super) fn pass(&mut self, replies: &mut Vec<(u64, Reply)>) {
        for command in seam::replies(replies) {
            let mut alone = VecDeque::from([(u64::MAX, command)]);
            let moment = self.moment();
            self.life
                .partition
                .turn(moment, &mut alone, &mut Vec::new());
        }
    }

    pub(super) fn take_in(&mut self, replies: Vec<(u64, Reply)>) -> Result<(), Violation> {
        for (id, reply) in replies {
            let happened = reply.is_ok();
            let seen = match reply {
                Ok(answered) => self.read(&answered),
                Err(rejection) => Seen::Answered(Err(rejection)),
            };
            if self.death().is_some() {
                // It died before the answer was sent: no client ever sees it.
                continue;
            }
            self.check_owner(id, &seen)?;
            let Some(asked) = self.history.get_mut(&id) else {
                continue;
            };
            if let Some(admitted) = asked.admitted.take() {
                self.life.admission.release(admitted);
            }
            self.trace.answer(id, &seen);
            let operation = &mut asked.operation;
            if operation.until == Timestamp::NEVER {
                // What it waited for could not be read, or the process ends: nothing was done for it.
                self.life.order.push_back(id);
                let is_unread = matches!(seen, Seen::Answered(Err(Rejection::ReadFailed)));
                self.report.rare.note_if(is_unread, Rare::ReadFailed);
            }
            operation.until = operation.until.min(self.life.now);
            asked.done = true;
            if asked.given_up {
                self.report.rare.note_if(happened, Rare::GivenUpAndHappened);
                continue;
            }
            self.in_flight -= 1;
            operation.seen = seen;
            if let Seen::Answered(Ok((outcome, bodies))) = &operation.seen {
                match (&operation.command, outcome, &mut self.bus) {
                    (Command::Bus(command), Outcome::Bus(outcome), Some(bus)) => {
                        bus.workload.learn(command, outcome, bodies);
                    }
                    (command, outcome, _) => {
                        self.workload.learn(operation.queue, command, outcome);
                    }
                }
            }
            note_answer(
                operation,
                self.life.partition.is_out_of_space(),
                self.life.was_out_of_space,
                &self.workload,
                &mut self.report,
            );
        }
        self.check()
    }

    /// What the client reads in an answer.
    pub(super) fn read(&mut self, answered: &Answered) -> Seen {
        let mut bodies = Vec::with_capacity(answered.bodies.len());
        let from_file = answered.bodies.is_any_in_file();
        self.report.rare.note_if(from_file, Rare::BodyReadFromFile);
        for body in answered.bodies.clone().read() {
            match body {
                Ok(body) => bodies.push(body),
                // The front end cannot answer, and the client does not learn the outcome.
                Err(BodyError::Io(_)) if self.call_may_fail || self.death().is_some() => {
                    return Seen::Unknown;
                }
                // Not a body that was ever sent, so the checker will report it.
                Err(error) => bodies.push(Bytes::from(error.to_string())),
            }
        }
        Seen::Answered(Ok((answered.outcome.clone(), bodies)))
    }

    /// Checks the history as far as its outcomes are settled.
    pub(super) fn check(&mut self) -> Result<(), Violation> {
        if self.has_former() {
            return Ok(());
        }
        while let Some(id) = self.life.order.front() {
            if self.history.get(id).is_some_and(|asked| !asked.done) {
                break;
            }
            let asked = self.history.remove(id);
            self.life.order.pop_front();
            let Some(asked) = asked else { continue };
            match &mut self.bus {
                Some(bus) if matches!(asked.operation.command, Command::Bus(_)) => {
                    bus.checker.check(&asked.operation)?;
                }
                _ => self.checker.check(&asked.operation)?,
            }
        }
        Ok(())
    }
}

/// Counts rare properties of an answer.
fn note_answer(
    operation: &Operation,
    is_out_of_space: bool,
    was_out_of_space: bool,
    workload: &Workload,
    report: &mut Report,
) {
    let rare = &mut report.rare;
    match (&operation.command, &operation.seen) {
        (_, Seen::Answered(Err(Rejection::Busy | Rejection::Full))) => {
            report.busy += 1;
            rare.note(Rare::RefusedByFullDisk);
        }
        (
            Command::Storage(StorageCommand::Delete { .. }),
            Seen::Answered(Ok((Outcome::Storage(StorageOutcome::Deleted), _))),
        ) => {
            rare.note_if(is_out_of_space, Rare::DrainedOnFullDisk);
        }
        (
            Command::Storage(StorageCommand::Send { .. }),
            Seen::Answered(Ok((Outcome::Storage(StorageOutcome::Sent(_)), _))),
        ) => {
            let again = was_out_of_space && !is_out_of_space;
            rare.note_if(again, Rare::SentAfterFullDisk);
        }
        (
            Command::Storage(
                StorageCommand::Update { message, .. } | StorageCommand::Delete { message, .. },
            ),
            Seen::Answered(Err(Rejection::Refused(Refusal::Storage(
                StorageRefusal::MessageNotFound,
            )))),
        ) => {
            let earlier = workload.is_of_earlier_life(operation.queue, *message);
            rare.note_if(earlier, Rare::ReceiptOfEarlierLifeRefused);
        }
        _ => {}
    }
}
