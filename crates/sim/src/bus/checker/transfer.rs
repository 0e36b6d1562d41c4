//! Parts of transactions that send to topics, and messages that are sent via a queue to a queue or topic. Some parts only
//! name the queue for transfers that fail.
//!
//! A message that is sent via a queue is in one place: at its destination, or among the failed transfers of the queue. What
//! a transaction sends to a topic is stored there, and its copies are made later.

mod refused;
mod room;

use std::sync::Arc;

use kew_engine::Timestamp;
use kew_engine::bus::{BusMessage, DeadLetterCause};

use super::life::{Content, Entity, Fate, Life, Part, Span, Stage, Surroundings as _};
use super::message::Message;
use super::queues::size_of_all;
use super::{Checker, number_of};
use crate::bus::rules::OF_FAILURE;
use crate::bus::topics::{self, Kind};
use crate::checker::Violation;

pub(super) use refused::Transfer;

impl Checker {
    /// A transaction has sent these to a topic. Nobody learned their numbers.
    pub(super) fn published_by(
        &mut self,
        topic: Entity,
        messages: &[BusMessage],
        at: Timestamp,
    ) -> Result<(), Violation> {
        self.takes_messages(topic)?;
        let bodies = messages.iter().map(|message| &message.body);
        // However many copies there are going to be, a message counts once.
        self.check_room_was_there(topic.queue, (size_of_all(bodies), 0))?;
        self.note("a transaction sent to a topic");
        for message in messages {
            self.one_published_by(topic, message, at)?;
        }
        Ok(())
    }

    /// A message was stored in a topic, unless it was a duplicate.
    fn one_published_by(
        &mut self,
        topic: Entity,
        message: &BusMessage,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let is_dropped = self.is_dropped(topic, message.message_id.as_deref(), at);
        if is_dropped == Some(true) {
            self.one_dropped(topic, message);
            return Ok(());
        }
        self.one_published(topic, (message, None), at, true)?;
        if is_dropped.is_none() {
            for subscription in topics::subscriptions_of(topic.queue) {
                let copy = topics::number_in(subscription, number_of(&message.body));
                if let Some(copy) = self.messages.get_mut(&copy) {
                    copy.may_be(Fate::NeverSent);
                }
            }
        }
        Ok(())
    }

    /// A message was stored in a topic, or else it became a failed transfer of this queue, if a transaction was done that
    /// perhaps has an unknown outcome. So one that is seen in either place has no copies, or is no failed transfer.
    fn one_published_or_failed(
        &mut self,
        (via, topic): (Entity, Entity),
        message: &BusMessage,
        when: Span,
        transaction: Option<u64>,
    ) {
        let failed = self.failed(via, message, DeadLetterCause::TransferFailed);
        if self.queues.of(topic).all(|it| !it.status.allows_send()) {
            let number = number_of(&message.body);
            self.last_message = self.last_message.max(number);
            let mut alone = Message::default();
            alone.may_be(failed);
            self.insert_sent(number, alone, transaction);
            return;
        }
        let number = self.note_order(topic, message);
        self.may_be_stored(topic.queue, message);
        // Nobody knows whether the topic remembers its id.
        let may_be_dropped = self.may_be_remembered(topic, message, when).is_none();
        let publish = self.works.begin(None);
        for subscription in topics::subscriptions_of(topic.queue) {
            let copy = self.copy((topic, subscription), (message, None), when, true);
            let own = topics::number_in(subscription, number);
            // The first subscription's copy has the number that the message has in a queue.
            let otherwise = match own == number {
                true => failed.clone(),
                false => Fate::NeverSent,
            };
            let (copy, is_perhaps_absent) = match copy {
                Some((copy, is_perhaps_absent)) => (copy, is_perhaps_absent || may_be_dropped),
                None if own == number => (Message::default(), true),
                None => continue,
            };
            let copy = copy.sent_by_or(publish, is_perhaps_absent, otherwise);
            self.insert_sent(own, copy, transaction);
            self.works.touch(publish, own);
        }
    }

    /// A message that a transaction has sent. If there is one here, it has no answer.
    fn insert_sent(&mut self, number: u64, sent: Message, transaction: Option<u64>) {
        let sent = match transaction {
            Some(work) => {
                self.works.touch(work, number);
                sent.sent_by(work, false)
            }
            None => sent,
        };
        self.messages.insert(number, sent);
    }

    /// The id of a message that may have been accepted then. Whether it was dropped is not known, if it has one.
    fn may_be_remembered(
        &mut self,
        entity: Entity,
        message: &BusMessage,
        when: Span,
    ) -> Option<bool> {
        let queue = self.queues.get(entity.queue);
        let detects = queue.options().any(|it| it.duplicate_window_ms.is_some());
        let Some(id) = message.message_id.as_ref().filter(|_| detects) else {
            return Some(false);
        };
        queue.may_be_accepted(id, when);
        None
    }

    /// A message as a failed transfer of a queue.
    fn failed(&mut self, queue: Entity, message: &BusMessage, cause: DeadLetterCause) -> Fate {
        if let Some(id) = &message.session {
            self.queues.get(queue.queue).session(id);
        }
        let part = Part::FailedTransfers;
        Fate::Here(Life {
            entity: Entity { part, ..queue },
            number: None,
            first_number: None,
            stage: Stage::Ready,
            failures: 0,
            cause: Some(cause),
            hops: 0,
            was_gathered: false,
            expires: Span::at(Timestamp::NEVER),
            // It says where the message was to go.
            overlays: vec![OF_FAILURE],
            content: Arc::new(Content {
                body: message.body.clone(),
                session: message.session.clone(),
            }),
        })
    }

    /// What a message may have become that was sent via a queue to another one, if that was done.
    fn transferred(
        &mut self,
        via: Entity,
        to: Entity,
        message: &BusMessage,
        when: Span,
    ) -> Message {
        let open = self.queues.of(to).filter(|it| it.status.allows_send());
        let options: Vec<_> = open.cloned().collect();
        let no_session = message.session.is_none();
        let wants_session = |wanted: bool| {
            let mut options = options.iter();
            options.any(|it| (it.requires_session && no_session) == wanted)
        };
        let mut sent = match wants_session(false) {
            true => self.attempt(to, message, when),
            false => Message::default(),
        };
        if wants_session(true) {
            sent.may_be(self.failed(via, message, DeadLetterCause::TransferNeedsSession));
        }
        if self.queues.may_not_take(to.queue) {
            sent.may_be(self.failed(via, message, DeadLetterCause::TransferFailed));
        }
        sent
    }

    /// A transaction has sent these via a queue.
    pub(super) fn sent_via(
        &mut self,
        via: Entity,
        to: Entity,
        messages: &[BusMessage],
        at: Timestamp,
    ) -> Result<(), Violation> {
        self.takes_messages(via)?;
        self.note("a message was sent via a queue");
        self.transferred_by(via, to, messages, at)
    }

    /// A transaction has sent these. What the destination did not accept is a failed transfer of the other queue.
    pub(super) fn transferred_by(
        &mut self,
        via: Entity,
        to: Entity,
        messages: &[BusMessage],
        at: Timestamp,
    ) -> Result<(), Violation> {
        self.check_room_for_transfers((via, to), messages)?;
        let may_fail = self.queues.may_not_take(to.queue);
        if self.queues.of(to).all(|it| !it.status.allows_send()) {
            self.note("a message was sent via a queue and could not arrive");
        }
        for message in messages {
            if topics::kind(to.queue) == Kind::Topic {
                match may_fail {
                    true => self.one_published_or_failed((via, to), message, Span::at(at), None),
                    false => self.one_published_by(to, message, at)?,
                }
                continue;
            }
            let number = number_of(&message.body);
            self.last_message = self.last_message.max(number);
            let is_dropped = match may_fail {
                false => self.is_dropped(to, message.message_id.as_deref(), at),
                true => self.may_be_remembered(to, message, Span::at(at)),
            };
            if is_dropped == Some(true) {
                self.over.insert(number);
                continue;
            }
            let mut sent = self.transferred(via, to, message, Span::at(at));
            if is_dropped.is_none() {
                sent.may_be(Fate::NeverSent);
            }
            self.messages.insert(number, sent);
        }
        Ok(())
    }

    /// A transaction without an answer has sent these to a topic, if it was done.
    pub(super) fn perhaps_published_by(
        &mut self,
        work: u64,
        topic: Entity,
        messages: &[BusMessage],
        when: Span,
    ) {
        for message in messages {
            self.one_perhaps_published_by(work, topic, message, when);
        }
    }

    fn one_perhaps_published_by(
        &mut self,
        work: u64,
        topic: Entity,
        message: &BusMessage,
        when: Span,
    ) {
        let number = self.note_order(topic, message);
        self.may_be_stored(topic.queue, message);
        let may_be_dropped = self.may_be_remembered(topic, message, when).is_none();
        for subscription in topics::subscriptions_of(topic.queue) {
            let known = (message, None);
            if let Some((copy, is_perhaps_absent)) =
                self.copy((topic, subscription), known, when, true)
            {
                let number = topics::number_in(subscription, number);
                let copy = copy.sent_by(work, is_perhaps_absent || may_be_dropped);
                self.messages.insert(number, copy);
                self.works.touch(work, number);
            }
        }
    }

    /// A transaction without an answer has sent these via a queue, if it was done.
    pub(super) fn perhaps_sent_via(
        &mut self,
        work: u64,
        via: Entity,
        to: Entity,
        messages: &[BusMessage],
        when: Span,
    ) {
        let may_fail = self.queues.may_not_take(to.queue);
        for message in messages {
            if topics::kind(to.queue) == Kind::Topic {
                match may_fail {
                    true => self.one_published_or_failed((via, to), message, when, Some(work)),
                    false => self.one_perhaps_published_by(work, to, message, when),
                }
                continue;
            }
            let number = number_of(&message.body);
            self.last_message = self.last_message.max(number);
            let may_be_dropped = self.may_be_remembered(to, message, when).is_none();
            let sent = self.transferred(via, to, message, when);
            self.messages
                .insert(number, sent.sent_by(work, may_be_dropped));
            self.works.touch(work, number);
        }
    }
}

#[cfg(test)]
mod tests;
