//! The result of a command, and the point in the log from which it may be shown.

use std::collections::HashMap;

use kew_engine::{BodyLocation, Decision, Outcome, Refusal, Scope};
use kew_log::Body;
use kew_planted::{Bug, is_planted};
use thiserror::Error;

use super::{Partition, to_log};
use crate::Unread;
use crate::unread::has_locks;

/// A successful answer.
#[derive(Debug)]
pub struct Answered {
    /// The engine's answer.
    pub outcome: Outcome,
    /// The bodies of its messages, in the order of the messages.
    pub bodies: Vec<Body>,
    /// Set if messages with a lock are to be deleted once they are read: see [`crate::Broker::read`].
    pub unread: Option<Unread>,
}

impl Answered {
    /// How many bytes [`Answer::at_once`](crate::Answer::at_once) may copy.
    pub fn size_to_copy_bytes(&self) -> u64 {
        let in_files = self.bodies.iter().filter(|it| it.is_in_file());
        let size = in_files.map(Body::len_bytes).sum();
        match self.unread {
            None if size <= Body::CACHED_SIZE_MAX_BYTES => size,
            None | Some(_) => 0,
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
    /// A message to receive and delete is damaged on the disk, and was left there; or messages that the command needs
    /// could not be read now.
    #[error("the message is damaged on the disk, and was not deleted")]
    Unreadable,
}

/// The result of a command.
pub type Reply = Result<Answered, Rejection>;

impl<T> Partition<T> {
    pub(super) fn answer(
        &mut self,
        (ticket, unread): (T, Option<Unread>),
        decision: Decision,
        pinned: &HashMap<BodyLocation, Body>,
        replies: &mut Vec<(T, Reply)>,
    ) {
        let record = match decision.scope {
            Scope::Entity(entity) => self.last_record_of.get(&entity).copied(),
            Scope::BusQueue(queue) => queue
                .with_sub_queues()
                .into_iter()
                .filter_map(|entity| self.last_record_of.get(&entity).copied())
                .chain(self.catalogue_record)
                .max(),
            Scope::Catalogue => self.catalogue_record,
            Scope::Everything => self.last_record,
        };
        let reply = match decision.result {
            Ok(outcome) => Ok(self.with_bodies(outcome, unread, pinned)),
            Err(refusal) => Err(Rejection::Refused(refusal)),
        };
        match record {
            Some(record)
                if record >= self.log.durable() && !is_planted(Bug::AnsweredBeforeDurable) =>
            {
                self.waiters.wait(record, (ticket, reply));
            }
            _ => replies.push((ticket, reply)),
        }
    }

    /// Looks bodies up now: their segments stay readable as long as the answer exists.
    fn with_bodies(
        &self,
        outcome: Outcome,
        unread: Option<Unread>,
        pinned: &HashMap<BodyLocation, Body>,
    ) -> Answered {
        let bodies = outcome
            .bodies()
            .into_iter()
            .map(|location| {
                let pinned = pinned.get(&location).cloned();
                pinned
                    .or_else(|| self.log.body(to_log(location)))
                    .unwrap_or_else(|| Body::gone(to_log(location)))
            })
            .collect();
        let unread = unread.filter(|_| has_locks(&outcome));
        Answered {
            outcome,
            bodies,
            unread,
        }
    }
}
