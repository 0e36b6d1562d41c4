//! Operations of unknown outcome: everything that they may have done is possible from now on.

use std::collections::BTreeSet;
use std::iter;

use kew_engine::bus::{
    BusCommand, BusMessage, BusQueueOptions, Disposition, ReceiveMode, SessionChoice,
};
use kew_engine::{Timestamp, Token};

use super::life::{Entity, Fate, Life, Lock, Part, Span, Stage, destination};
use super::queue::SessionLock;
use super::settle::{holds, settled};
use super::time::goes_with;
use super::{Checker, entity, is_operation, number_of};
use crate::bus::rules::Rule;
use crate::bus::topics::{self, Kind};
use crate::checker::Operation;

impl Checker {
    pub(super) fn unknown(&mut self, command: &BusCommand, operation: &Operation) {
        let when = Span::new(operation.from, operation.until);
        match command {
            BusCommand::CreateQueue { queue, options }
            | BusCommand::CreateTopic {
                topic: queue,
                options,
            }
            | BusCommand::CreateSubscription {
                subscription: queue,
                options,
                ..
            } => {
                let queue = self.queues.get(entity(queue).queue);
                if queue.may_be_absent() {
                    queue.forget();
                    queue.may_be(Some(options.clone()));
                    queue.may_have_rule(Rule::All);
                }
            }
            BusCommand::UpdateQueue { queue, options } => {
                self.queues
                    .get(entity(queue).queue)
                    .may_be(Some(options.clone()));
            }
            BusCommand::SetRule {
                subscription, rule, ..
            } => {
                if let Some(rule) = Rule::with(rule.definition.bytes()) {
                    let known = self.queues.get(entity(subscription).queue);
                    known.may_have_rule(rule);
                }
            }
            BusCommand::ReadRule { .. } => {}
            BusCommand::DeleteQueue { queue } => {
                let index = entity(queue).queue;
                for index in iter::once(index).chain(topics::subscriptions_of(index)) {
                    self.queues.get(index).may_be(None);
                    self.perhaps(|life| goes_with(life, index));
                }
            }
            BusCommand::Send { queue, messages } => {
                let entity = entity(queue);
                match topics::kind(entity.queue) {
                    Kind::Queue => self.perhaps_sent(entity, messages, when),
                    Kind::Topic => self.perhaps_published(entity, messages, when),
                    Kind::Subscription { .. } => {}
                }
            }
            BusCommand::Receive {
                queue,
                mode,
                session,
                ..
            } => self.perhaps_received(entity(queue), *mode, *session, when, Life::is_ready),
            BusCommand::ReceiveDeferred { read } => {
                let is_named = |life: &Life| {
                    let number = life.number;
                    life.stage == Stage::Deferred
                        && number.is_none_or(|own| read.numbers.iter().any(|it| it.as_u64() == own))
                };
                self.perhaps_found_expired(entity(&read.queue), when, is_named);
                self.perhaps_received(entity(&read.queue), read.mode, read.session, when, is_named);
            }
            BusCommand::Settle { queue, settlements } => {
                for (token, disposition) in settlements {
                    self.perhaps_settled(entity(queue), *token, disposition, when);
                }
            }
            BusCommand::RenewLocks { queue, locks } => {
                for token in locks {
                    self.perhaps_renewed(entity(queue), *token, when);
                }
            }
            BusCommand::CancelScheduled { queue, numbers }
                if topics::kind(entity(queue).queue) == Kind::Topic =>
            {
                self.perhaps_cancelled(entity(queue), numbers);
            }
            BusCommand::CancelScheduled { queue, numbers } => {
                let is_named = |life: &Life| {
                    let number = life.number;
                    matches!(life.stage, Stage::Scheduled { .. })
                        && number.is_none_or(|own| numbers.iter().any(|it| it.as_u64() == own))
                };
                self.perhaps_gone(entity(queue), is_named);
            }
            BusCommand::DeleteBatch { queue, session, .. } => {
                self.perhaps_gone(entity(queue), |life| {
                    life.is_ready() && life.is_of(session.as_deref())
                });
            }
            BusCommand::Transact { parts } => self.perhaps_transacted(parts, when),
            command if is_operation(command) => self.perhaps_operated(command, when),
            command => self.perhaps_of_session(command, when),
        }
    }

    /// Adds the possible results to every message.
    pub(super) fn perhaps(&mut self, then: impl Fn(&Life) -> Vec<Fate>) {
        for message in self.messages.values_mut() {
            message.perhaps(&then);
        }
    }

    fn perhaps_sent(&mut self, entity: Entity, messages: &[BusMessage], when: Span) {
        if entity.part != Part::Queue {
            return;
        }
        let work = self.works.begin(None);
        self.perhaps_sent_by(work, entity, messages, when);
    }

    /// Messages that were accepted if some work was done.
    pub(super) fn perhaps_sent_by(
        &mut self,
        work: u64,
        entity: Entity,
        messages: &[BusMessage],
        when: Span,
    ) {
        let queue = self.queues.get(entity.queue);
        let detects = queue.options().any(|it| it.duplicate_window_ms.is_some());
        for message in messages {
            let number = number_of(&message.body);
            self.last_message = self.last_message.max(number);
            let id = message.message_id.as_ref().filter(|_| detects);
            let attempted = self.attempt(entity, message, when);
            if let Some(id) = id {
                self.queues.get(entity.queue).may_be_accepted(id, when);
            }
            let attempted = attempted.sent_by(work, id.is_some());
            self.messages.insert(number, attempted);
            self.works.touch(work, number);
        }
    }

    /// A deferred message expires when a receiver asks for it.
    fn perhaps_found_expired(
        &mut self,
        entity: Entity,
        when: Span,
        is_wanted: impl Fn(&Life) -> bool,
    ) {
        let options: Vec<_> = self.queues.of(entity).cloned().collect();
        self.perhaps(|life| {
            let has_expired = life.expires.may_have_passed(when.to);
            let is_it = life.entity == entity && is_wanted(life) && has_expired;
            let options = options.iter().filter(|_| is_it);
            options.map(|options| life.expired(options)).collect()
        });
    }

    fn perhaps_received(
        &mut self,
        entity: Entity,
        mode: ReceiveMode,
        session: Option<Token>,
        when: Span,
        is_wanted: impl Fn(&Life) -> bool,
    ) {
        let durations: Vec<_> = self
            .queues
            .of(entity)
            .filter(|options| options.status.allows_receive())
            .filter(|options| destination(options, entity.part).is_none())
            .map(|options| options.lock_duration_ms)
            .collect();
        let id = session.map(|token| self.session_of(token).unwrap_or_default());
        self.perhaps(|life| {
            let is_it = life.entity == entity
                && is_wanted(life)
                && !life.expires.has_passed(when.from)
                && life.is_of(id.as_deref());
            let locked = |duration_ms: &u64| {
                Fate::Here(Life {
                    stage: Stage::Locked(Lock {
                        token: None,
                        until: match id {
                            Some(_) => Span::at(Timestamp::NEVER),
                            None => when.plus_ms(*duration_ms),
                        },
                        was_deferred: life.stage == Stage::Deferred,
                    }),
                    ..life.clone()
                })
            };
            let taken = |duration_ms: &u64| match mode {
                ReceiveMode::ReceiveAndDelete => vec![Fate::Gone],
                ReceiveMode::PeekLock => vec![locked(duration_ms)],
            };
            let durations = durations.iter().filter(|_| is_it);
            durations.flat_map(taken).collect()
        });
    }

    fn perhaps_settled(
        &mut self,
        entity: Entity,
        token: Token,
        disposition: &Disposition,
        when: Span,
    ) {
        if entity.part != Part::Queue && matches!(disposition, Disposition::DeadLetter { .. }) {
            return;
        }
        let options: Vec<_> = self.queues.of(entity).cloned().collect();
        let number = self.message_of(token);
        if let Some(message) = number.and_then(|number| self.messages.get_mut(&number)) {
            message
                .perhaps(|life| settled_then(life, entity, token, disposition, (&options, when)));
        }
    }

    fn perhaps_renewed(&mut self, entity: Entity, token: Token, when: Span) {
        let ends: Vec<_> = self
            .queues
            .of(entity)
            .map(|options| when.plus_ms(options.lock_duration_ms))
            .collect();
        let number = self.message_of(token);
        let Some(message) = number.and_then(|number| self.messages.get_mut(&number)) else {
            return;
        };
        message.perhaps(|life| {
            let lock = holds(life, entity, token);
            let lock = lock.filter(|it| !it.is_of_session() && !it.until.has_passed(when.from));
            let renewed = |lock: Lock, until: Span| Life {
                stage: Stage::Locked(Lock { until, ..lock }),
                ..life.clone()
            };
            let all = lock
                .into_iter()
                .flat_map(|lock| ends.iter().map(move |end| (lock, *end)));
            all.map(|(lock, end)| Fate::Here(renewed(lock, end)))
                .collect()
        });
    }

    pub(super) fn perhaps_gone(&mut self, entity: Entity, is_wanted: impl Fn(&Life) -> bool) {
        self.perhaps(|life| {
            let is_it = life.entity == entity && is_wanted(life);
            is_it.then_some(Fate::Gone).into_iter().collect()
        });
    }

    /// The sessions that messages of an entity may belong to, sent to it or forwarded.
    fn sessions_of(&self, entity: Entity) -> BTreeSet<Box<str>> {
        let lives = self.messages.values().flat_map(|message| message.lives());
        lives
            .filter(|life| life.entity == entity)
            .filter_map(|life| life.session().map(Into::into))
            .collect()
    }

    fn perhaps_of_session(&mut self, command: &BusCommand, when: Span) {
        match command {
            BusCommand::AcceptSession { queue, session } => {
                let entity = entity(queue);
                let ends: Vec<_> = self
                    .queues
                    .of(entity)
                    .map(|options| when.plus_ms(options.lock_duration_ms))
                    .collect();
                let chosen: BTreeSet<Box<str>> = match session {
                    SessionChoice::Named(id) => [id.clone()].into(),
                    SessionChoice::Next => self.sessions_of(entity),
                };
                let queue = self.queues.get(entity.queue);
                for id in chosen {
                    let session = queue.session(&id);
                    if session.may_be_free(when.to) {
                        for until in &ends {
                            session.may_lock(SessionLock::Held {
                                token: None,
                                until: *until,
                            });
                        }
                    }
                }
            }
            BusCommand::RenewSession { queue, session } => {
                let entity = entity(queue);
                let ends: Vec<_> = self
                    .queues
                    .of(entity)
                    .map(|options| when.plus_ms(options.lock_duration_ms))
                    .collect();
                let id = self.session_of(*session).unwrap_or_default();
                let known = self.queues.get(entity.queue).session(&id);
                if known.may_be_held_by(*session, when.from) {
                    for until in ends {
                        known.may_lock(SessionLock::Held {
                            token: Some(*session),
                            until,
                        });
                    }
                }
            }
            BusCommand::ReleaseSession { queue, session } => {
                let entity = entity(queue);
                let id = self.session_of(*session).unwrap_or_default();
                let known = self.queues.get(entity.queue).session(&id);
                if known.may_be_held_by(*session, when.from) {
                    self.perhaps_free_session(entity, &id);
                }
            }
            BusCommand::SetSessionState {
                queue,
                session,
                state,
            } => {
                let entity = entity(queue);
                let id = self.session_of(*session).unwrap_or_default();
                let known = self.queues.get(entity.queue).session(&id);
                if known.may_be_held_by(*session, when.from) {
                    known.may_have_state(state.clone());
                }
            }
            _ => {}
        }
    }
}

/// The state of a message if its lock was valid and ended then.
pub(super) fn settled_then(
    life: &Life,
    entity: Entity,
    token: Token,
    disposition: &Disposition,
    (options, when): (&[BusQueueOptions], Span),
) -> Vec<Fate> {
    let lock = holds(life, entity, token).filter(|lock| !lock.until.has_passed(when.from));
    lock.map_or_else(Vec::new, |_| settled(life, disposition, options))
}
