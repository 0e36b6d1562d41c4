//! What the subscriptions of topics count for in the sizes of these.
//!
//! A *family* is a subscription with its two sub-queues. Each of the three tells what it counts for when that changes, as
//! queues of an account do. A topic has the sum of the charges of its families, and a bound of the largest one.
//!
//! Invariants: a family is that of the entities which are there; the sum of a topic is that of its families; none of them
//! is larger than the bound.

use std::collections::BTreeMap;

use crate::vocabulary::{Hint, Incarnation};

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
}

/// The largest family of a topic, or a bound of it.
#[derive(Clone, Copy, Debug, Default)]
struct Largest {
    size_bytes: u64,
    of: Incarnation,
    /// Whether that family has shrunk since: then the largest one is not known.
    is_old: bool,
}

impl Largest {
    /// Notes the size of a family that has changed.
    fn note(&mut self, of: Incarnation, size_bytes: u64) {
        if size_bytes >= self.size_bytes {
            *self = Self {
                size_bytes,
                of,
                is_old: false,
            };
        } else if self.of == of {
            self.is_old = true;
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

    /// Asserts that no family is larger than the bound of its topic, and that a bound that is known is exact.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for (topic, of) in &self.topics {
            let own = self.all.values().filter(|family| family.topic == *topic);
            let largest = own.map(|family| family.size.size_bytes).max();
            let largest = largest.unwrap_or_default();
            assert!(largest <= of.largest.size_bytes, "{of:?}");
            assert!(
                of.largest.is_old || largest == of.largest.size_bytes,
                "{of:?}"
            );
        }
    }
}
