//! What the subscriptions of topics count for in the sizes of these, and which of them get every message.
//!
//! A *family* is a subscription with its two sub-queues. Each of the three tells what it counts for when that changes, as
//! queues of an account do. A topic has the sum of the charges of its families, and a bound of the largest one.
//!
//! A topic may have 2,000 subscriptions, and few of them get a message. So what a send,
//! a receive or a settlement needs of all of them is kept here: how many there are, and those that still have the rule
//! `$Default` of their creation. Only the largest one has to be looked for at times, when a topic is full.
//!
//! Invariants: a family is that of the entities which are there; the sum of a topic is that of its families; none of them
//! is larger than the bound; a subscription has its rule `$Default` here if, and only if, it has one.

use std::collections::BTreeMap;

use crate::vocabulary::{Hint, Incarnation, SequenceNumber};

/// What an entity, or a family, counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilySize {
    /// All of it.
    pub(crate) size_bytes: u64,
    /// The same without the bodies that messages elsewhere count.
    pub(crate) charge_bytes: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Family {
    topic: Incarnation,
    size: FamilySize,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct OfTopic {
    /// How many families it has.
    count: u64,
    charge_bytes: u64,
    largest: Hint<Largest>,
    /// The subscriptions with the rule `$Default` of their creation, and the first number of the topic that it holds for.
    defaults: BTreeMap<Incarnation, SequenceNumber>,
}

/// The largest family of a topic, or a bound of it.
#[derive(Clone, Copy, Debug, Default)]
struct Largest {
    size_bytes: u64,
    of: Incarnation,
    /// A bound of all others. While the largest one stays above it, nobody has to look for another one.
    others_bytes: u64,
    /// Whether that family has shrunk below the others since: then the largest one is not known.
    is_old: bool,
}

impl Largest {
    /// Notes the size of a family that has changed.
    fn note(&mut self, of: Incarnation, size_bytes: u64) {
        if self.of == of {
            self.is_old = size_bytes < self.others_bytes;
            self.size_bytes = size_bytes.max(self.others_bytes);
        } else if size_bytes >= self.size_bytes {
            *self = Self {
                size_bytes,
                of,
                others_bytes: self.size_bytes,
                is_old: false,
            };
        } else {
            self.others_bytes = self.others_bytes.max(size_bytes);
        }
    }
}

/// The families of all topics.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Families {
    /// By subscription.
    all: BTreeMap<Incarnation, Family>,
    topics: BTreeMap<Incarnation, OfTopic>,
}

impl Families {
    /// Adds the family of a subscription that comes.
    pub(crate) fn join(&mut self, subscription: Incarnation, topic: Incarnation) {
        let size = FamilySize::default();
        self.all.insert(subscription, Family { topic, size });
        self.topics.entry(topic).or_default().count += 1;
    }

    /// Removes the family of a subscription, with what its sub-queues count for.
    pub(crate) fn depart(&mut self, subscription: Incarnation) {
        let Some(family) = self.all.remove(&subscription) else {
            return;
        };
        if let Some(topic) = self.topics.get_mut(&family.topic) {
            topic.count -= 1;
            topic.charge_bytes = topic.charge_bytes.saturating_sub(family.size.charge_bytes);
            topic.largest.note(subscription, 0);
            topic.defaults.remove(&subscription);
            if topic.count == 0 {
                self.topics.remove(&family.topic);
            }
        }
    }

    /// Counts what an entity of a family has counted for, and does now. Returns false if there is no such family: then
    /// nothing is counted.
    pub(crate) fn count(
        &mut self,
        subscription: Incarnation,
        before: FamilySize,
        now: FamilySize,
    ) -> bool {
        let Some(family) = self.all.get_mut(&subscription) else {
            return false;
        };
        let changed = |sum: u64, before: u64, now: u64| (sum + now).saturating_sub(before);
        let size = &mut family.size;
        size.size_bytes = changed(size.size_bytes, before.size_bytes, now.size_bytes);
        size.charge_bytes = changed(size.charge_bytes, before.charge_bytes, now.charge_bytes);
        if let Some(topic) = self.topics.get_mut(&family.topic) {
            let sum = &mut topic.charge_bytes;
            *sum = changed(*sum, before.charge_bytes, now.charge_bytes);
            topic.largest.note(subscription, family.size.size_bytes);
        }
        true
    }

    /// Notes the first number that the rule `$Default` of a subscription's creation holds for, or that it has none. Returns
    /// false if there is no such family: then nothing is noted.
    pub(crate) fn note_default(
        &mut self,
        subscription: Incarnation,
        since: Option<SequenceNumber>,
    ) -> bool {
        let family = self.all.get(&subscription);
        let Some(topic) = family.and_then(|it| self.topics.get_mut(&it.topic)) else {
            return false;
        };
        match since {
            Some(since) => topic.defaults.insert(subscription, since),
            None => topic.defaults.remove(&subscription),
        };
        true
    }

    /// How many subscriptions a topic has.
    pub(crate) fn count_of(&self, topic: Incarnation) -> u64 {
        self.topics.get(&topic).map_or(0, |it| it.count)
    }

    /// How many of them have the rule `$Default` of their creation.
    pub(crate) fn default_count_of(&self, topic: Incarnation) -> usize {
        self.topics.get(&topic).map_or(0, |it| it.defaults.len())
    }

    /// The subscriptions of a topic that have the rule `$Default` of their creation: the oldest first, from one on.
    pub(crate) fn with_default_from(
        &self,
        topic: Incarnation,
        from: Incarnation,
    ) -> impl Iterator<Item = Incarnation> + '_ {
        let topic = self.topics.get(&topic).into_iter();
        let all = topic.flat_map(move |it| it.defaults.range(from..));
        all.map(|(subscription, _)| *subscription)
    }

    /// Whether one of them has it for a message with this number.
    pub(crate) fn has_default(
        &self,
        topic: Incarnation,
        subscription: Incarnation,
        number: SequenceNumber,
    ) -> bool {
        let topic = self.topics.get(&topic);
        let since = topic.and_then(|it| it.defaults.get(&subscription));
        since.is_some_and(|since| *since <= number)
    }

    /// The sum of the charges of a topic's families.
    pub(crate) fn charge_bytes(&self, topic: Incarnation) -> u64 {
        self.topics.get(&topic).map_or(0, |it| it.charge_bytes)
    }

    /// The size of a topic's largest family, or more.
    pub(crate) fn largest_at_most(&self, topic: Incarnation) -> u64 {
        let topic = self.topics.get(&topic);
        topic.map_or(0, |it| it.largest.size_bytes)
    }

    /// The size of a topic's largest family, given its subscriptions. Looks at them only if that is not known.
    pub(crate) fn largest(
        &self,
        topic: Incarnation,
        subscriptions: impl Iterator<Item = Incarnation>,
    ) -> u64 {
        match self.topics.get(&topic) {
            None => 0,
            Some(of) if !of.largest.is_old => of.largest.size_bytes,
            Some(_) => self.find_largest(subscriptions).size_bytes,
        }
    }

    /// The same if one of them had this size.
    pub(crate) fn largest_at_most_with(
        &self,
        topic: Incarnation,
        (subscription, size_bytes): (Incarnation, u64),
    ) -> u64 {
        let others_bytes =
            self.topics
                .get(&topic)
                .map_or(0, |it| match it.largest.of == subscription {
                    true => it.largest.others_bytes,
                    false => it.largest.size_bytes,
                });
        others_bytes.max(size_bytes)
    }

    /// The size of a family.
    pub(crate) fn size_bytes_of(&self, subscription: Incarnation) -> u64 {
        let family = self.all.get(&subscription);
        family.map_or(0, |it| it.size.size_bytes)
    }

    /// Has the largest family looked for, whatever is known: the bound of the others may be old.
    pub(crate) fn forget_largest(&mut self, topic: Incarnation) {
        if let Some(topic) = self.topics.get_mut(&topic) {
            topic.largest.is_old = true;
        }
    }

    fn find_largest(&self, subscriptions: impl Iterator<Item = Incarnation>) -> Largest {
        let mut largest = Largest::default();
        for subscription in subscriptions {
            let family = self.all.get(&subscription);
            largest.note(subscription, family.map_or(0, |it| it.size.size_bytes));
        }
        largest
    }

    /// Finds the largest family of a topic, given its subscriptions, if it is not known. Returns how many were looked at.
    pub(crate) fn keep_largest(
        &mut self,
        topic: Incarnation,
        subscriptions: impl Iterator<Item = Incarnation>,
    ) -> u64 {
        let of = self.topics.get(&topic).filter(|it| it.largest.is_old);
        let Some(OfTopic { count, .. }) = of else {
            return 0;
        };
        let (count, found) = (*count, self.find_largest(subscriptions));
        if let Some(topic) = self.topics.get_mut(&topic) {
            *topic.largest = found;
        }
        count
    }

    /// Knows of the largest families what was known before a restart, which looks at all of them.
    #[cfg(test)]
    pub(crate) fn take_over(&mut self, before: &Self) {
        for (topic, of) in &mut self.topics {
            *of.largest = *before.topics[topic].largest;
        }
    }

    /// Asserts that no family is larger than the bounds of its topic, and that a bound that is known is exact.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for (topic, of) in &self.topics {
            let own = self.all.iter().filter(|(_, it)| it.topic == *topic);
            let own = own.map(|(subscription, it)| (*subscription, it.size.size_bytes));
            let others = own.clone().filter(|(it, _)| *it != of.largest.of);
            let is_bounded = |(_, it): &(Incarnation, u64)| *it <= of.largest.others_bytes;
            assert!(others.clone().all(|it| is_bounded(&it)), "{of:?}");
            let largest = own.map(|(_, size_bytes)| size_bytes).max();
            let largest = largest.unwrap_or_default();
            assert!(largest <= of.largest.size_bytes, "{of:?}");
            assert!(
                of.largest.is_old || largest == of.largest.size_bytes,
                "{of:?}"
            );
        }
    }
}
