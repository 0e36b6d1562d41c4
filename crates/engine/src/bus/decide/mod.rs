//! Decisions about bus queues: a table of contents. Each family of commands has a file.
//!
//! Due things of a queue become facts before a command on it is decided, within a budget. Decisions treat
//! the remaining due things as past.

mod bodies;
mod copies;
mod deposit;
mod due;
mod effects;
mod fan_out;
mod forwarded;
mod messages;
mod missing;
mod numbers;
mod operate;
mod plan;
mod publish;
mod queues;
mod receive;
mod recipients;
mod resubmit;
mod rules;
mod select;
mod sessions;
mod settle;
mod topics;
mod transact;
mod transfer;

use bytes::Bytes;

pub use self::bodies::Behind;
pub(crate) use self::bodies::HandOut;
pub(crate) use self::due::{By, DueStep};
pub(crate) use self::missing::DueSpent;
pub use self::missing::Unread;
use super::backlog::Backlog;
use super::message::{Message, takes_overlay};
use super::queue::BusQueue;
use super::queues::Queues;
use super::rules::{Matched, TopicTally};
use super::{BusCommand, BusFact, BusOutcome, BusRefusal, Format};
use crate::bus::Effect;
use crate::catalogue::{self, Catalogue, Scope};
use crate::vocabulary::token::{TokenCipher, TokenKind, TokenPlace};
use crate::vocabulary::{
    BodyLocation, BodyRead, EntityName, Incarnation, LeaseGeneration, SequenceNumber, Timestamp,
    Token,
};

/// What decisions about bus queues stand on: the state, which their facts and effects change at once, and the log.
pub(crate) trait Ground {
    fn catalogue(&self) -> &Catalogue;
    fn queues(&self) -> &Queues;
    fn now(&self) -> Timestamp;
    /// How messages are read.
    fn format(&self) -> &dyn Format;
    /// How many due things a command carries out first.
    fn due_budget(&self) -> u32;
    /// How many copies of messages a command makes at once.
    fn copies_at_once(&self) -> u64;
    /// Whether it has done so.
    fn is_due_done(&self) -> bool;
    /// Makes a fact part of the state and of the log.
    fn emit(&mut self, fact: BusFact);
    /// Makes an effect part of the state, and of the log with those that follow.
    fn emit_effect(&mut self, effect: Effect);
    /// Stores a body ahead of the fact that will refer to it.
    fn store_body(&mut self, body: &[u8]) -> BodyLocation;
    /// What is known of a stored body that a decision is going to hand out and remove.
    fn read_body(&mut self, body: BodyLocation) -> BodyRead;
    /// The bytes of a stored body of which it is known that they are whole.
    fn body_bytes(&mut self, body: BodyLocation) -> Option<Bytes>;
    /// Takes what is known of how the rules of a topic were compared with its first ready message. It is no part of the
    /// state.
    fn take_matched(&mut self, topic: Incarnation) -> Option<Matched>;
    /// Keeps that for the next step.
    fn keep_matched(&mut self, topic: Incarnation, matched: Matched);
    /// The messages that the decision is going to hand out and remove.
    fn hand_out(&self) -> &HandOut;
    /// The same, to be changed.
    fn hand_out_mut(&mut self) -> &mut HandOut;
    /// Corrects the bound of when a run's messages expire. It is no part of the state.
    fn raise_expiry(&mut self, queue: Incarnation, run: u64);
    /// Ends a run in which nothing is left but messages that were set aside.
    fn end_lost(&mut self, queue: Incarnation, run: u64);
    /// Finds the largest family of a topic, if it is not known. It is no part of the state. Returns how many families were
    /// looked at.
    fn keep_largest_family(&mut self, topic: Incarnation) -> u64;
    /// Finds it and the next one in any case.
    fn find_largest_families(&mut self, topic: Incarnation) -> u64;
    /// Counts work that no description tells, such as copies of messages: a turn that has done much ends early.
    fn note_steps(&mut self, count: u64);
    /// Counts for metrics what became of messages of a topic.
    fn tally_topic(&mut self, topic: Incarnation, tally: &TopicTally);
    /// Counts for metrics a message that an entity has dropped because its id was known.
    fn tally_duplicate(&mut self, entity: Incarnation);
    /// Forgets some ids of a queue that are older than its window. No event says so.
    fn forget_ids(&mut self, queue: Incarnation);
}

type Decision = catalogue::Decision<BusOutcome, BusRefusal>;

/// Decides commands about bus queues, and carries out what is due.
pub(crate) struct Turn<'a>(&'a mut dyn Ground);

type Answer = Result<BusOutcome, BusRefusal>;

impl<'a> Turn<'a> {
    pub(crate) fn on(ground: &'a mut dyn Ground) -> Self {
        Self(ground)
    }

    pub(crate) fn decide(&mut self, command: BusCommand) -> Decision {
        let by = By::of(&command);
        match command {
            BusCommand::CreateQueue { queue, options } => self.create_bus_queue(queue, options),
            BusCommand::CreateTopic { topic, options } => self.create_topic(topic, options),
            BusCommand::CreateSubscription {
                topic,
                subscription,
                options,
                rule,
            } => self.create_subscription(&topic, subscription, options, rule),
            BusCommand::UpdateQueue { queue, options } => {
                self.with_bus_by(by, &queue, |turn, queue| {
                    turn.update_bus_queue(queue, options)
                })
            }
            BusCommand::DeleteQueue { queue } => {
                self.with_bus_by(by, &queue, |turn, queue| turn.delete_bus_queue(queue))
            }
            BusCommand::ReadQueue { queue } => self.with_bus(&queue, |turn, queue| {
                Ok(BusOutcome::Queue(Box::new(turn.read(queue))))
            }),
            BusCommand::ListQueues {
                namespace,
                from,
                skip,
                limit,
            } => self.list_bus_queues(namespace, from, skip, limit),
            BusCommand::ListTopics {
                namespace,
                skip,
                limit,
            } => self.list_topics(namespace, skip, limit),
            BusCommand::ListSubscriptions { topic, skip, limit } => self
                .with_bus(&topic, |turn, topic| {
                    turn.list_subscriptions(topic, skip, limit)
                }),
            BusCommand::AddRule {
                topic,
                subscription,
                rule,
            } => self.add_rule([&topic, &subscription], *rule),
            BusCommand::SetRule {
                topic,
                subscription,
                rule,
            } => self.set_rule([&topic, &subscription], *rule),
            BusCommand::RemoveRule {
                topic,
                subscription,
                name,
            } => self.remove_rule([&topic, &subscription], &name),
            BusCommand::ReadRule { subscription, name } => self
                .with_bus(&subscription, |turn, subscription| {
                    turn.read_rule(subscription, &name)
                }),
            BusCommand::ListRules {
                subscription,
                skip,
                limit,
            } => self.with_bus(&subscription, |turn, subscription| {
                turn.list_rules(subscription, skip, limit)
            }),
            BusCommand::Send { queue, messages } => {
                self.with_bus(&queue, |turn, queue| turn.bus_send(queue, messages))
            }
            BusCommand::Deposit { queue, messages } => {
                self.with_bus(&queue, |turn, queue| turn.deposit(queue, messages))
            }
            BusCommand::Receive {
                queue,
                count,
                mode,
                session,
            } => self.with_bus(&queue, |turn, queue| {
                turn.bus_receive(queue, count, mode, session)
            }),
            BusCommand::Settle { queue, settlements } => {
                self.with_bus(&queue, |turn, queue| turn.bus_settle(queue, settlements))
            }
            BusCommand::RenewLocks { queue, locks } => {
                self.with_bus(&queue, |turn, queue| turn.renew_locks(queue, &locks))
            }
            BusCommand::Peek {
                queue,
                from,
                count,
                session,
            } => self.with_bus(&queue, |turn, queue| {
                turn.bus_peek(queue, from, count, session.as_deref())
            }),
            BusCommand::ReadLocked { queue, lock } => {
                self.with_bus(&queue, |turn, queue| turn.read_locked(queue, lock))
            }
            BusCommand::CancelScheduled { queue, numbers } => {
                self.with_bus(&queue, |turn, queue| turn.cancel_scheduled(queue, &numbers))
            }
            BusCommand::ReceiveDeferred { read } => self
                .with_bus(&read.queue.clone(), |turn, queue| {
                    turn.receive_deferred(queue, &read)
                }),
            BusCommand::DeleteBatch {
                queue,
                from,
                before,
                count,
                session,
            } => self.with_bus(&queue, |turn, queue| {
                turn.delete_batch(queue, from, before, count, session.as_deref())
            }),
            BusCommand::Purge { queue, purge } => {
                self.with_bus(&queue, |turn, queue| turn.purge(queue, &purge))
            }
            BusCommand::ClearSessionStates {
                queue,
                from,
                count,
                is_dry_run,
            } => self.with_bus(&queue, |turn, queue| {
                turn.clear_session_states(queue, &from, count, is_dry_run)
            }),
            BusCommand::TakeMessage {
                queue,
                number,
                mode,
            } => self.with_bus(&queue, |turn, queue| turn.take_message(queue, number, mode)),
            BusCommand::DeleteMessage {
                queue,
                number,
                with_locked,
            } => self.with_bus(&queue, |turn, queue| {
                turn.delete_message(queue, number, with_locked)
            }),
            BusCommand::BreakLock { queue, target } => {
                self.with_bus(&queue, |turn, queue| turn.break_lock(queue, target))
            }
            BusCommand::Resubmit { queue, resubmit } => {
                let decision = self.with_bus(&queue, |turn, queue| turn.resubmit(queue, resubmit));
                // The result of each message depends on the destination too.
                Decision {
                    scope: Scope::Everything,
                    ..decision
                }
            }
            BusCommand::SendVia { via, to, messages } => self.send_via(&via, &to, &messages),
            BusCommand::Transact { parts } => self.transact(parts),
            BusCommand::AcceptSession { queue, session } => {
                self.with_bus(&queue, |turn, queue| turn.accept_session(queue, session))
            }
            BusCommand::RenewSession { queue, session } => {
                self.with_bus(&queue, |turn, queue| turn.renew_session(queue, session))
            }
            BusCommand::ReleaseSession { queue, session } => {
                self.with_bus(&queue, |turn, queue| turn.release_session(queue, session))
            }
            BusCommand::ReadSessionState { queue, session } => self
                .with_bus(&queue, |turn, queue| {
                    turn.read_session_state(queue, session)
                }),
            BusCommand::SetSessionState {
                queue,
                session,
                state,
            } => self.with_bus(&queue, |turn, queue| {
                turn.set_session_state(queue, session, state)
            }),
            BusCommand::ListSessions {
                queue,
                from,
                state_set_after,
                skip,
                limit,
            } => self.with_bus(&queue, |turn, queue| {
                turn.list_sessions(queue, &from, state_set_after, skip, limit)
            }),
        }
    }

    /// Runs a decision about the bus entity of that name, or refuses if there is none.
    fn with_bus(
        &mut self,
        name: &EntityName,
        decide: impl FnOnce(&mut Self, Incarnation) -> Answer,
    ) -> Decision {
        self.with_bus_by(By::Command, name, decide)
    }

    fn with_bus_by(
        &mut self,
        by: By,
        name: &EntityName,
        decide: impl FnOnce(&mut Self, Incarnation) -> Answer,
    ) -> Decision {
        if let Some(queue) = self.catalogue().find(name)
            && !self.0.is_due_done()
        {
            self.do_due(queue, self.due_budget(), by);
        }
        self.with_found(name, decide)
    }

    /// The same, after what is due.
    fn with_found(
        &mut self,
        name: &EntityName,
        decide: impl FnOnce(&mut Self, Incarnation) -> Answer,
    ) -> Decision {
        // A due thing may have been the end of the queue itself.
        let found = self.catalogue().find(name);
        match found.filter(|queue| self.is_addressable(*queue)) {
            Some(queue) => {
                let result = self.decide_used(queue, decide);
                let scope = self.scope_of(queue, &result);
                Decision { result, scope }
            }
            None => Decision {
                result: Err(BusRefusal::QueueNotFound {
                    queue: name.name.clone(),
                }),
                scope: Scope::Catalogue,
            },
        }
    }

    fn decide_used(
        &mut self,
        queue: Incarnation,
        decide: impl FnOnce(&mut Self, Incarnation) -> Answer,
    ) -> Answer {
        let answer = decide(self, queue);
        let is_use = match &answer {
            // Reading a queue's settings is no use of the queue.
            Ok(
                BusOutcome::Queue(_)
                | BusOutcome::Queues(_)
                | BusOutcome::Rule(_)
                | BusOutcome::Rules(_),
            ) => false,
            Ok(_) => true,
            // A receiver waits for a session as another one waits for messages.
            Err(refusal) => *refusal == BusRefusal::NoSessionAvailable,
        };
        // If there is no room for due things, there is none for this.
        if is_use && self.due_budget() > 0 {
            self.note_use(self.first_of(queue));
        }
        answer
    }

    /// Notes that a queue, topic or subscription was used, and with a subscription its topic, if they delete themselves
    /// when they are idle: once in a while is enough.
    fn note_use(&mut self, queue: Incarnation) {
        let Some(entity) = self.queues().get(&queue) else {
            return;
        };
        let (is_noted, topic) = (entity.is_use_noted(self.now()), entity.role.topic());
        if is_noted {
            self.emit_bus(BusFact::Used { queue });
        }
        if let Some(topic) = topic {
            self.note_use(topic);
        }
    }

    /// The queue, topic or subscription that an entity is or belongs to, while it exists.
    fn first_of(&self, entity: Incarnation) -> Incarnation {
        let found = self.queues().get(&entity);
        found.map_or(entity, |found| found.role.first_of(entity))
    }

    fn bus(&self, queue: Incarnation) -> &BusQueue {
        self.queues()
            .get(&queue)
            .expect("a decision is made about a queue that was found, and none deletes it first")
    }

    fn bus_backlog(&self, queue: Incarnation) -> &Backlog {
        &self.bus(queue).backlog
    }

    fn emit_bus(&mut self, fact: BusFact) {
        self.0.emit(fact);
    }

    fn emit_bus_effect(&mut self, effect: Effect) {
        self.0.emit_effect(effect);
    }

    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.0.store_body(body)
    }

    fn catalogue(&self) -> &Catalogue {
        self.0.catalogue()
    }

    fn queues(&self) -> &Queues {
        self.0.queues()
    }

    fn cipher(&self) -> &TokenCipher {
        self.catalogue().cipher()
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn due_budget(&self) -> u32 {
        self.0.due_budget()
    }

    fn lock_token(
        &self,
        queue: Incarnation,
        number: SequenceNumber,
        generation: LeaseGeneration,
    ) -> Token {
        let place = TokenPlace {
            incarnation: queue,
            sequence_number: number,
            generation,
        };
        self.cipher().seal(TokenKind::BusLock, place)
    }

    fn check_receivable(&self, queue: Incarnation) -> Result<(), BusRefusal> {
        let entity = self.bus(queue);
        let name = || entity.name.name.clone();
        if !entity.role.is_received_from() {
            return Err(BusRefusal::NotReceivable { queue: name() });
        }
        if !entity.options.status.allows_receive() || self.is_suspended(queue) {
            return Err(BusRefusal::Disabled { queue: name() });
        }
        if entity.destination().is_some() {
            return Err(BusRefusal::Forwards { queue: name() });
        }
        Ok(())
    }
}

impl Message<'_> {
    fn takes_overlay(&self, overlay: &Bytes) -> bool {
        takes_overlay(self.overlays(), overlay)
    }
}
