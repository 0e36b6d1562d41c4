//! Messages that are scheduled in a topic: the subscriptions and the rules of their time decide who gets a copy.
//!
//! Until then, each subscription that may ever get a copy has a message of its own that is scheduled in [`Part::Topic`].
//! The one of the first subscription stands for the message itself, where messages are counted. Scheduled messages have no
//! place among those that were published, because nobody sees when they become active.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kew_engine::bus::BusMessage;
use kew_engine::{SequenceNumber, Timestamp};

use super::life::{Content, Entity, Fate, Life, Part, Span, Stage};
use super::message::Message;
use super::queues::{Bounds, size_of_all};
use super::{Checker, NO_LOSS, NO_RESURRECTION, Owner, number_of};
use crate::bus::topics;
use crate::checker::{Violation, violated};

impl Checker {
    /// A topic has accepted a message that becomes active later, under a number of its own.
    pub(super) fn one_scheduled(
        &mut self,
        topic: Entity,
        (message, due): (&BusMessage, Timestamp),
        number: SequenceNumber,
    ) -> Result<(), Violation> {
        let body = number_of(&message.body);
        self.last_message = self.last_message.max(body);
        let owner = Owner {
            message: body,
            is_scheduled: true,
        };
        self.is_given(topic, number.as_u64(), owner)?;
        self.note("a message of a topic was scheduled");
        self.may_wait_later(topic.queue, message);
        for subscription in topics::subscriptions_of(topic.queue) {
            let copy = self.scheduled(topic, subscription, (message, due));
            let number = topics::number_in(subscription, body);
            self.messages.insert(number, copy);
        }
        Ok(())
    }

    /// A message of a topic is scheduled, perhaps. It waits there when its time comes.
    pub(super) fn may_wait_later(&mut self, topic: usize, message: &BusMessage) {
        let size_bytes = size_of_all([&message.body]);
        let scheduled = &mut self.queues.get(topic).scheduled;
        scheduled.insert(number_of(&message.body), size_bytes);
    }

    /// A scheduled message as one of these subscriptions may get it.
    pub(super) fn scheduled(
        &self,
        topic: Entity,
        subscription: usize,
        (message, due): (&BusMessage, Timestamp),
    ) -> Message {
        let content = Arc::new(Content {
            body: message.body.clone(),
            session: message.session.clone(),
        });
        let mut copy = Message::default();
        for options in self.queues.of(topic) {
            let own_ms = message.time_to_live_ms.unwrap_or(u64::MAX);
            let lives_ms = own_ms.min(options.default_time_to_live_ms);
            copy.may_be(Fate::Here(Life {
                entity: Entity {
                    queue: subscription,
                    part: Part::Topic,
                },
                number: None,
                first_number: None,
                stage: Stage::Scheduled { due },
                failures: 0,
                cause: None,
                hops: 0,
                was_gathered: false,
                expires: Span::at(due).plus_ms(lives_ms),
                overlays: Vec::new(),
                content: Arc::clone(&content),
            }));
        }
        copy
    }

    /// A scheduled message of a topic was cancelled: nobody gets a copy.
    pub(super) fn cancelled_in_topic(
        &mut self,
        topic: Entity,
        number: u64,
    ) -> Result<(), Violation> {
        let Some(owner) = self.owner_of(topic, number) else {
            self.perhaps_cancelled(topic, &[SequenceNumber::named(number)]);
            return Ok(());
        };
        let seen = ("cancelled", number);
        for subscription in topics::subscriptions_of(topic.queue) {
            let is_it = |life: &Life| life.is_scheduled_in(topic.queue);
            let gone = |life: &Life| is_it(life).then(|| vec![Fate::Gone]);
            let copy = topics::number_in(subscription, owner);
            self.narrow(copy, NO_RESURRECTION, &seen, gone)?;
        }
        self.queues.get(topic.queue).scheduled.remove(&owner);
        self.note("a scheduled message of a topic was cancelled");
        Ok(())
    }

    /// Perhaps these messages were cancelled.
    pub(super) fn perhaps_cancelled(&mut self, topic: Entity, numbers: &[SequenceNumber]) {
        let owners = numbers.iter().map(|it| self.owner_of(topic, it.as_u64()));
        let owners: BTreeSet<Option<u64>> = owners.collect();
        for (number, message) in &mut self.messages {
            let body = topics::number_in_body(*number);
            // The owner of a number may be unknown if the topic may have been replaced.
            if owners.contains(&Some(body)) || owners.contains(&None) {
                message.perhaps(|life| {
                    let is_it = life.is_scheduled_in(topic.queue);
                    is_it.then_some(Fate::Gone).into_iter().collect()
                });
            }
        }
    }

    /// No scheduled message of a topic has this number.
    pub(super) fn not_scheduled_in_topic(
        &mut self,
        topic: Entity,
        number: u64,
    ) -> Result<(), Violation> {
        let Some(owner) = self.owner_of(topic, number) else {
            return Ok(());
        };
        let mut over = Vec::new();
        for subscription in topics::subscriptions_of(topic.queue) {
            let copy = topics::number_in(subscription, owner);
            let Some(message) = self.messages.get_mut(&copy) else {
                continue;
            };
            let before = message.clone();
            message.keep(|fate| {
                !fate
                    .life()
                    .is_some_and(|it| it.is_scheduled_in(topic.queue))
            });
            if message.is_impossible() {
                return violated!(NO_LOSS, "message {copy}, {before:?}, has no {number}");
            }
            if message.is_over() {
                over.push(copy);
            }
        }
        over.into_iter().for_each(|number| self.end(number));
        Ok(())
    }

    /// How many messages are scheduled in a topic, and of which size.
    pub(super) fn scheduled_in(&self, topic: usize) -> (Bounds, Bounds) {
        let (mut count, mut size_bytes) = (Bounds::default(), Bounds::default());
        let Some(first) = topics::subscriptions_of(topic).next() else {
            return (count, size_bytes);
        };
        let is_it = |life: &Life| life.entity.queue == first && life.is_scheduled_in(topic);
        for message in self.messages.values() {
            let Some(life) = message.lives().find(|life| is_it(life)) else {
                continue;
            };
            let size = size_of_all([&life.content.body]);
            let must = u64::from(message.must(is_it));
            count.least += must;
            count.most += 1;
            size_bytes.least += must * size;
            size_bytes.most += size;
        }
        (count, size_bytes)
    }

    /// The sizes of messages that were scheduled or forwarded, and may wait in their topic for their copies now, or for a look that finds
    /// no rule to select them.
    pub(super) fn waiting_without_place(&self, topic: usize) -> BTreeMap<u64, u64> {
        let all = self.messages.iter();
        let all = all.map(|(number, message)| (topics::number_in_body(*number), message));
        let all = all.filter(|(number, _)| self.place_in(topic, *number).is_none());
        let waiting = all.filter_map(|(number, message)| {
            let life = message.lives().find(|life| life.waits_in(topic))?;
            Some((number, life.size_bytes()))
        });
        let scheduled = self.queues.0.get(topic).map(|it| &it.scheduled);
        let scheduled = scheduled.into_iter().flatten();
        let scheduled = scheduled.filter(|(body, _)| !self.must_be_scheduled(topic, **body));
        waiting
            .chain(scheduled.map(|(body, size_bytes)| (*body, *size_bytes)))
            .collect()
    }

    /// Whether the time of a message has certainly not come. It comes for all subscriptions at once.
    fn must_be_scheduled(&self, topic: usize, body: u64) -> bool {
        let is_it = |life: &Life| life.is_scheduled_in(topic);
        let mut copies = self.copies_in(topic, body);
        copies.any(|message| message.must(is_it))
    }

    /// Nothing waits in a topic: what was scheduled still is, or it is over.
    pub(super) fn none_waits_now(&mut self, topic: usize) {
        let is_it = |life: &Life| life.is_scheduled_in(topic);
        let scheduled = std::mem::take(&mut self.queues.get(topic).scheduled);
        let left = scheduled.into_iter().filter(|(body, _)| {
            let mut copies = self.copies_in(topic, *body);
            copies.any(|message| message.may(is_it))
        });
        let left = left.collect();
        self.queues.get(topic).scheduled = left;
    }

    /// What the subscriptions of a topic may have or get of a message.
    fn copies_in(&self, topic: usize, body: u64) -> impl Iterator<Item = &Message> {
        let subscriptions = topics::subscriptions_of(topic);
        subscriptions.filter_map(move |it| self.messages.get(&topics::number_in(it, body)))
    }
}
