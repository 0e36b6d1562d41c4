//! Refusals: each must have its reason.

use kew_engine::Timestamp;
use kew_engine::bus::{BusCommand, BusQueueOptions, BusRefusal, SessionChoice};

use super::life::{Entity, Fate, Life, Part, Stage, destination};
use super::queues::{size_of_all, state_size_bytes};
use super::{ANSWERS_FIT, Checker, LOCKS, NO_LOSS, QUEUES, entity, is_operation, queue_of};
use crate::bus::queue_index;
use crate::bus::topics::{self, Kind};
use crate::checker::{Operation, Violation, violated};

impl Checker {
    pub(super) fn refused(
        &mut self,
        command: &BusCommand,
        refusal: &BusRefusal,
        operation: &Operation,
    ) -> Result<(), Violation> {
        let at = operation.until;
        if let (BusRefusal::QueueNotFound { .. }, Some(name)) = (refusal, queue_of(command)) {
            self.note("a queue was not found");
            let of_part = entity(name).part != Part::Queue
                && matches!(
                    command,
                    BusCommand::UpdateQueue { .. } | BusCommand::DeleteQueue { .. }
                );
            return if of_part {
                Ok(())
            } else {
                self.is_absent(entity(name).queue)
            };
        }
        if let (BusRefusal::QueueNotFound { queue }, BusCommand::CreateSubscription { topic, .. }) =
            (refusal, command)
            && *queue == topic.name
        {
            self.note("a subscription was refused for a topic that is gone");
            return self.is_absent(entity(topic).queue);
        }
        if let BusCommand::Transact { parts } = command {
            return self.refused_transaction(parts, refusal, at);
        }
        self.be_there(command, operation)?;
        match (command, refusal) {
            (
                BusCommand::CreateQueue { queue, .. }
                | BusCommand::CreateTopic { topic: queue, .. }
                | BusCommand::CreateSubscription {
                    subscription: queue,
                    ..
                },
                BusRefusal::QueueAlreadyExists { .. },
            ) => {
                let queue = self.queues.get(entity(queue).queue);
                queue.possible.retain(Option::is_some);
                if queue.possible.is_empty() {
                    return violated!(QUEUES, "there is none: {refusal}");
                }
                Ok(())
            }
            (
                BusCommand::CreateQueue { queue: own, .. }
                | BusCommand::CreateSubscription {
                    subscription: own, ..
                }
                | BusCommand::UpdateQueue { queue: own, .. },
                BusRefusal::DestinationNotFound { queue },
            ) => {
                let to = queue_index(queue);
                if *queue != own.name && !self.queues.get(to).may_be_absent() {
                    return violated!(QUEUES, "it is there: {refusal}");
                }
                Ok(())
            }
            (BusCommand::SetRule { subscription, .. }, BusRefusal::Disabled { .. }) => self
                .must_be(entity(subscription), refusal, |it| {
                    !it.status.allows_receive()
                }),
            (BusCommand::Send { queue, .. }, BusRefusal::Disabled { .. }) => {
                self.must_be(entity(queue), refusal, |it| !it.status.allows_send())
            }
            (_, BusRefusal::Disabled { .. }) if receives(command) => {
                let entity = of(command);
                self.must_be(entity, refusal, |it| !it.status.allows_receive())
            }
            (_, BusRefusal::Forwards { .. }) if receives(command) => {
                let entity = of(command);
                self.must_be(entity, refusal, |it| destination(it, entity.part).is_some())
            }
            (BusCommand::Send { queue, .. }, BusRefusal::NotSendable { .. })
                if entity(queue).part != Part::Queue =>
            {
                Ok(())
            }
            (BusCommand::Send { queue, messages }, BusRefusal::QuotaExceeded { .. }) => {
                let bodies = messages.iter().map(|message| &message.body);
                let queue = entity(queue).queue;
                // Whatever copies there are, with whatever changes: a message counts once, also one that is scheduled.
                self.is_full(queue, size_of_all(bodies))
            }
            (BusCommand::Send { queue, messages }, BusRefusal::SessionRequired)
                if messages.iter().any(|message| message.session.is_none()) =>
            {
                self.must_be(entity(queue), refusal, |it| it.requires_session)
            }
            (_, BusRefusal::SessionRequired) if receives(command) => {
                let is_queue = of(command).part == Part::Queue;
                self.must_be(of(command), refusal, |it| is_queue && it.requires_session)
            }
            (_, BusRefusal::SessionsNotSupported) => {
                let is_queue = of(command).part == Part::Queue;
                self.must_be(of(command), refusal, |it| !is_queue || !it.requires_session)
            }
            (BusCommand::RenewLocks { queue, locks }, BusRefusal::LockLost) => {
                self.one_is_lost(entity(queue), locks, at, false)
            }
            (BusCommand::RenewLocks { queue, locks }, BusRefusal::SessionLockLost) => {
                self.one_is_lost(entity(queue), locks, at, true)
            }
            (
                BusCommand::CancelScheduled { queue, .. },
                BusRefusal::MessageNotFound { sequence_number },
            ) => self.not_scheduled(entity(queue), *sequence_number),
            (
                BusCommand::ReceiveDeferred { read },
                BusRefusal::MessageNotFound { sequence_number },
            ) => {
                let session = read.session.and_then(|token| self.session_of(token));
                self.not_deferred(entity(&read.queue), *sequence_number, session, at)
            }
            _ if is_refused_to_kind(command, refusal) => Ok(()),
            _ if is_operation(command) => self.refused_operation(command, refusal, at),
            _ => self.refused_session(command, refusal, at),
        }
    }

    fn refused_session(
        &mut self,
        command: &BusCommand,
        refusal: &BusRefusal,
        at: Timestamp,
    ) -> Result<(), Violation> {
        match (command, refusal) {
            (BusCommand::AcceptSession { queue, .. }, BusRefusal::NoSessionAvailable) => {
                self.no_session(entity(queue), at)
            }
            (
                BusCommand::AcceptSession {
                    queue,
                    session: SessionChoice::Named(id),
                },
                BusRefusal::SessionCannotBeLocked { .. },
            ) => self.session_is_taken(entity(queue), id, at),
            (
                BusCommand::RenewSession { queue, session }
                | BusCommand::ReleaseSession { queue, session }
                | BusCommand::ReadSessionState { queue, session }
                | BusCommand::SetSessionState { queue, session, .. }
                | BusCommand::Receive {
                    queue,
                    session: Some(session),
                    ..
                },
                BusRefusal::SessionLockLost,
            ) => self.session_is_lost(entity(queue), *session, at),
            (
                BusCommand::SetSessionState {
                    queue,
                    session,
                    state: Some(state),
                },
                BusRefusal::QuotaExceeded { .. },
            ) => {
                let entity = entity(queue);
                let id = self.hold_session(entity, *session, at)?;
                self.note("a session's state was refused by a full queue");
                self.is_full(entity.queue, state_size_bytes(&id, state))
            }
            (BusCommand::ReceiveDeferred { read }, BusRefusal::SessionLockLost) => {
                match read.session {
                    Some(session) => self.session_is_lost(entity(&read.queue), session, at),
                    None => violated!(ANSWERS_FIT, "{command:?}: {refusal}"),
                }
            }
            _ => violated!(ANSWERS_FIT, "{command:?}: {refusal}"),
        }
    }

    /// The queue's settings require the refusal.
    pub(super) fn must_be(
        &mut self,
        entity: Entity,
        refusal: &BusRefusal,
        is: impl Fn(&BusQueueOptions) -> bool,
    ) -> Result<(), Violation> {
        let queue = self.queues.get(entity.queue);
        let before = queue.possible.clone();
        queue
            .possible
            .retain(|possible| possible.as_ref().is_some_and(&is));
        if queue.possible.is_empty() {
            return violated!(QUEUES, "{entity:?}, {before:?}: {refusal}");
        }
        Ok(())
    }

    /// One of several locks is lost, but it is unknown which.
    fn one_is_lost(
        &mut self,
        entity: Entity,
        locks: &[kew_engine::Token],
        at: Timestamp,
        is_for_session: bool,
    ) -> Result<(), Violation> {
        if let [token] = locks {
            return self.lock_is_lost(entity, *token, at, is_for_session);
        }
        let all_hold = locks.iter().all(|token| {
            let number = self.message_of(*token);
            let message = number.and_then(|number| self.messages.get(&number));
            message.is_some_and(|message| {
                message.must(|life| {
                    let lock = super::settle::holds(life, entity, *token);
                    lock.is_some_and(|lock| {
                        !lock.until.may_have_passed(at) && !lock.is_of_session()
                    })
                })
            })
        });
        if all_hold {
            return violated!(LOCKS, "{locks:?} were refused at {at}");
        }
        Ok(())
    }

    /// A deferred message was not found: it is not deferred, or has expired.
    fn not_deferred(
        &mut self,
        entity: Entity,
        number: u64,
        session: Option<Box<str>>,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let options: Vec<_> = self.queues.of(entity).cloned().collect();
        let is_it = |life: &Life| {
            life.entity == entity && life.number == Some(number) && life.stage == Stage::Deferred
        };
        self.change_all(NO_LOSS, "a deferred message was not found", |message| {
            message.follow(|fate| match fate {
                Fate::Here(life) if life.is_of(session.as_deref()) && is_it(life) => {
                    let has_expired = life.expires.may_have_passed(at);
                    let expired = options.iter().filter(|_| has_expired);
                    expired.map(|options| life.expired(options)).collect()
                }
                _ => vec![fate.clone()],
            });
        })
    }
}

/// The entity of a command.
fn of(command: &BusCommand) -> Entity {
    queue_of(command).map_or(
        Entity {
            queue: 0,
            part: Part::Queue,
        },
        entity,
    )
}

/// Whether a topic or subscription refuses the command because of what it is.
fn is_refused_to_kind(command: &BusCommand, refusal: &BusRefusal) -> bool {
    let Entity { queue, part } = of(command);
    let kind = topics::kind(queue);
    match refusal {
        // What was sent via a topic, and failed, is received.
        BusRefusal::NotReceivable { .. } => {
            kind == Kind::Topic && part == Part::Queue && receives(command)
        }
        BusRefusal::NotSendableSubscription { .. } => {
            let is_sent = matches!(command, BusCommand::Send { .. });
            is_sent && matches!(kind, Kind::Subscription { .. })
        }
        _ => false,
    }
}

/// Whether a command receives messages or sessions.
fn receives(command: &BusCommand) -> bool {
    matches!(
        command,
        BusCommand::Receive { .. }
            | BusCommand::ReceiveDeferred { .. }
            | BusCommand::AcceptSession { .. }
            | BusCommand::DeleteBatch { .. }
    )
}
