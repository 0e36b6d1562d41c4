//! The result of a command, and the point in the log from which it may be shown.

use std::collections::HashMap;

use bytes::Bytes;
use kew_engine::{BodyLocation, Decision, Outcome, Refusal};
use kew_log::{Body, LogPosition};
use kew_planted::{Bug, is_planted};
use thiserror::Error;

use super::{Partition, to_log};
use crate::AnswerBodies;

/// A successful answer.
#[derive(Debug)]
pub struct Answered {
    /// The engine's answer.
    pub outcome: Outcome,
    /// The bodies of its messages, in the order of the messages.
    pub bodies: AnswerBodies,
}

impl Answered {
    /// How many bytes [`Answer::at_once`](crate::Answer::at_once) may copy.
    pub fn size_to_copy_bytes(&self) -> u64 {
        let size_bytes = self.bodies.size_in_files_bytes();
        match size_bytes <= Body::CACHED_SIZE_MAX_BYTES {
            true => size_bytes,
            false => 0,
        }
    }
}

/// Why a command has no successful answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Rejection {
    /// The engine refused; nothing has changed.
    #[error(transparent)]
    Refused(Refusal),
    /// Too much is under way; nothing has changed.
    #[error("the partition is busy: too many requests are under way")]
    Busy,
    /// The disk is full; nothing has changed. Commands that free messages are still carried out.
    #[error("the disk is full")]
    Full,
    /// The partition has stopped: whether the command was carried out is unknown.
    #[error("the partition has stopped")]
    Stopped,
    /// Whether the command was carried out is unknown: before it was known to be durable, another owner has taken the
    /// partition over, the partition has stopped without the other machines that keep its log, or the way to it was cut.
    #[error(
        "whether the command was carried out is unknown: the partition cannot be asked any more"
    )]
    Unknown,
    /// The partition has another owner; nothing has changed. It can be tried again.
    #[error("the partition has another owner")]
    NotOwner,
    /// Messages that the command needs cannot be read now; nothing has changed. It can be tried again.
    #[error("messages that the command needs cannot be read from the disk now")]
    ReadFailed,
}

/// The result of a command.
pub type Reply = Result<Answered, Rejection>;

/// It is moved six times before its asker has it.
const _: () = assert!(size_of::<Reply>() <= 104);

/// A command that was decided: its ticket, and whether the bodies of its answer were read before.
pub(super) struct Decided<T> {
    pub(super) ticket: T,
    /// Whether it can change nothing.
    pub(super) is_read: bool,
    pub(super) has_bodies: bool,
    pub(super) decision: Decision,
}

impl<T> Partition<T> {
    /// Hands out the answer, or lets it wait if it rests on a record that is not before `durable`. `of_turn` is the
    /// record of its own turn.
    pub(super) fn answer(
        &mut self,
        decided: Decided<T>,
        pinned: &HashMap<BodyLocation, Bytes>,
        (of_turn, durable): (LogPosition, LogPosition),
        replies: &mut Vec<(T, Reply)>,
    ) {
        let Decided {
            ticket,
            is_read,
            has_bodies,
            decision,
        } = decided;
        let record = self.last_records.of(decision.scope);
        // A refusal has changed nothing either.
        let only_shows = is_read || decision.result.is_err() || record != Some(of_turn);
        let reply = match decision.result {
            Ok(outcome) => {
                let bodies = match has_bodies {
                    true => self.bodies_read(&outcome, pinned),
                    false => self.bodies_stored(&outcome),
                };
                Ok(Answered { outcome, bodies })
            }
            Err(refusal) => Err(Rejection::Refused(refusal)),
        };
        if only_shows && self.reads.are_to_prove() {
            return self.reads.wait(record, (ticket, reply));
        }
        match record {
            Some(record) if record >= durable && !is_planted(Bug::AnsweredBeforeDurable) => {
                self.waiters.wait(record, (ticket, reply));
            }
            _ => replies.push((ticket, reply)),
        }
    }

    /// The bodies that were read before their messages were removed.
    fn bodies_read(
        &mut self,
        outcome: &Outcome,
        pinned: &HashMap<BodyLocation, Bytes>,
    ) -> AnswerBodies {
        let bodies = outcome.bodies().into_iter().map(|location| {
            self.loads.bodies.use_up(location);
            let pinned = pinned.get(&location).cloned();
            // A body of the same turn is in memory, because its batch is not on the disk yet.
            let body = pinned.or_else(|| self.log.body(to_log(location))?.in_memory());
            body.expect("a message is removed only once its bytes are in memory")
        });
        AnswerBodies::Read(bodies.collect())
    }

    /// Looks bodies up now: their segments stay readable as long as the answer exists.
    fn bodies_stored(&self, outcome: &Outcome) -> AnswerBodies {
        let bodies = outcome.bodies().into_iter().map(|location| {
            let body = self.log.body(to_log(location));
            body.unwrap_or_else(|| Body::gone(to_log(location)))
        });
        AnswerBodies::Stored(bodies.collect())
    }
}
