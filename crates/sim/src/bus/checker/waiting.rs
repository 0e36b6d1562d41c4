//! Messages that wait in their topic: their copies are made later, in order, and all of one before any of the next.
//!
//! Until it is known that a copy was made, its message may wait. So nothing is required of such a copy, until a copy of a
//! later message is seen, or the topic says that nothing waits, or the world comes to rest.

use kew_engine::bus::{BusMessage, BusQueueView};

use super::life::{Entity, Life, Part, Span, Stage};
use super::queues::{Bounds, size_of_all};
use super::{Checker, NO_LOSS, ORDER_OF_COPIES, number_of};
use crate::bus::topics;
use crate::checker::{Violation, violated};

/// Which messages of a command may have to wait.
pub(super) struct Rest {
    copies_left: Option<u64>,
}

impl Rest {
    /// Whether a message may wait that has so many copies at most. If one waits, so do those after it.
    pub(super) fn may_wait(&mut self, copies: u64) -> bool {
        self.copies_left = self.copies_left.and_then(|left| left.checked_sub(copies));
        self.copies_left.is_none()
    }
}

impl Life {
    /// The same message before its copy is made, given its end in the topic.
    pub(super) fn before(self, sent: Span, expires: Span) -> Self {
        Self {
            entity: Entity {
                part: Part::Topic,
                ..self.entity
            },
            stage: Stage::Waiting { since: sent.from },
            expires,
            ..self
        }
    }

    /// Whether its copy is made at any time.
    pub(super) fn waits_in(&self, topic: usize) -> bool {
        self.entity.part == Part::Topic
            && matches!(self.stage, Stage::Waiting { .. })
            && topics::topic_of(self.entity.queue) == Some(topic)
    }
}

impl Checker {
    /// What the next command to a topic may copy at once. `None` if it copies everything.
    pub(super) fn at_once(&self, topic: usize) -> Option<Rest> {
        let known = self.queues.0.get(topic);
        // What a transaction sends is stored in every world.
        let is_behind = known.is_some_and(|it| !it.stored.is_empty())
            || !self.waiting_without_place(topic).is_empty();
        if is_behind {
            return Some(Rest { copies_left: None });
        }
        let copies_left = Some(self.copies_at_once?);
        Some(Rest { copies_left })
    }

    /// How many copies a message has at most.
    pub(super) fn copies_most(&self, topic: usize, message: &BusMessage) -> u64 {
        self.copies_most_of(topic, number_of(&message.body))
    }

    /// How many copies a message with this number must have.
    pub(super) fn copies_least(&self, topic: usize, number: u64) -> u64 {
        let subscriptions = topics::subscriptions_of(topic);
        let known = subscriptions.filter_map(|subscription| self.queues.0.get(subscription));
        let must = known.filter(|known| {
            let rules = &mut known.rules.iter();
            !known.may_be_absent() && rules.all(|rule| rule.copy(number).is_some())
        });
        must.count() as u64
    }

    /// How many copies a message with this number has at most.
    pub(super) fn copies_most_of(&self, topic: usize, number: u64) -> u64 {
        let subscriptions = topics::subscriptions_of(topic);
        let known = subscriptions.filter_map(|subscription| self.queues.0.get(subscription));
        let may = known.filter(|known| {
            let rules = &mut known.rules.iter();
            known.options().next().is_some() && rules.any(|rule| rule.copy(number).is_some())
        });
        may.count() as u64
    }

    /// A message, the latest of its topic, may be stored there.
    pub(super) fn may_be_stored(&mut self, topic: usize, message: &BusMessage) {
        let number = number_of(&message.body);
        let Some(place) = self.place_in(topic, number) else {
            return;
        };
        let size_bytes = size_of_all([&message.body]);
        self.queues.get(topic).stored.insert(place, size_bytes);
    }

    /// How many messages a topic may have, and of which size.
    pub(super) fn stored(&self, topic: usize) -> (Bounds, Bounds) {
        let stored = self.queues.0.get(topic).map(|it| &it.stored);
        let count = stored.map_or(0, |it| it.len() as u64);
        let size_bytes: u64 = stored.map_or(0, |it| it.values().sum());
        let scheduled = self.waiting_without_place(topic);
        let count = count + scheduled.len() as u64;
        let size_bytes = size_bytes + scheduled.values().sum::<u64>();
        let most = |most| Bounds { least: 0, most };
        (most(count), most(size_bytes))
    }

    /// The view of a topic tells how many messages wait.
    pub(super) fn learn_waiting(
        &mut self,
        topic: usize,
        view: &BusQueueView,
    ) -> Result<(), Violation> {
        match view.counts.active {
            0 => {
                self.none_waits_now(topic);
                self.are_copied(topic, u64::MAX, NO_LOSS, view)
            }
            _ => {
                self.note("messages waited in a topic");
                Ok(())
            }
        }
    }

    /// A copy was seen of the message with this place among all that were sent to topics: so those before it in its topic
    /// have all their copies.
    pub(super) fn earlier_are_copied(
        &mut self,
        subscription: usize,
        message: u64,
    ) -> Result<(), Violation> {
        let Some(topic) = topics::topic_of(subscription) else {
            return Ok(());
        };
        let body = topics::number_in_body(message);
        let Some(place) = self.place_in(topic, body) else {
            // It was scheduled or forwarded. From now on its other copies tell whether it waits.
            self.queues.get(topic).scheduled.remove(&body);
            return Ok(());
        };
        self.are_copied(topic, place, ORDER_OF_COPIES, &(subscription, message))
    }

    /// No message of a topic before this place waits.
    fn are_copied(
        &mut self,
        topic: usize,
        end: u64,
        promise: &'static str,
        seen: &dyn std::fmt::Debug,
    ) -> Result<(), Violation> {
        let stored = &mut self.queues.get(topic).stored;
        let left = stored.split_off(&end);
        let is_any = !std::mem::replace(stored, left).is_empty();
        if is_any {
            self.note("copies were made of what may have waited");
        } else if end != u64::MAX {
            return Ok(());
        }
        let mut over = Vec::new();
        let places = &self.published;
        for (number, message) in &mut self.messages {
            let place = places.get(&topics::number_in_body(*number));
            let place = place.filter(|(own, _)| *own == topic);
            // One that was scheduled or forwarded has no place.
            let is_copied = place.map_or(end == u64::MAX, |(_, place)| *place < end);
            if !is_copied || !message.may(|it| it.waits_in(topic)) {
                continue;
            }
            let before = message.clone();
            message.keep(|fate| !fate.life().is_some_and(|it| it.waits_in(topic)));
            if message.is_impossible() {
                return violated!(promise, "message {number}, {before:?}, waits: {seen:?}");
            }
            if message.is_over() {
                over.push(*number);
            }
        }
        over.into_iter().for_each(|number| self.end(number));
        Ok(())
    }
}
