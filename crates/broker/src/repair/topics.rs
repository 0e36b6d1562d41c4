//! Topics and subscriptions whose creation a gap has hidden.
//!
//! What shows a topic is what only topics have: a number that is passed, copies that go on, a change of rules, or a
//! subscription of it. A subscription has the name of its topic in its own. A copy shows a subscription, because it comes
//! behind the number of its topic.

use kew_engine::bus::Effect;
use kew_engine::{EntityName, Incarnation, Place, SUBSCRIPTIONS, Service, Timestamp};

use super::reading::Reading;

impl Reading {
    /// Creates a topic that something shows, if its creation was not read.
    pub(super) fn stand_in_topic(&mut self, topic: Incarnation, at: Timestamp) {
        self.first_of_queue.insert(topic);
        self.stand_in(Service::ServiceBus, topic, at);
        if self.stand_ins.contains_key(&topic) {
            self.state.make_topic(topic);
        }
    }

    /// Creates the topic and the subscription that rules or copies show, if their creation was not read.
    pub(super) fn stand_in_subscription(
        &mut self,
        topic: Incarnation,
        subscription: Incarnation,
        at: Timestamp,
    ) {
        self.stand_in_topic(topic, at);
        self.first_of_queue.insert(subscription);
        self.stand_in(Service::ServiceBus, subscription, at);
        if self.stand_ins.contains_key(&subscription) {
            self.state.make_subscription(subscription, topic);
        }
    }

    /// Creates the topics of all subscriptions that are there, when everything was read.
    pub(super) fn stand_in_topics(&mut self, at: Timestamp) {
        for topic in self.state.topics_of_subscriptions() {
            if !self.deleted.contains(&topic) {
                self.stand_in_topic(topic, at);
            }
        }
    }

    /// Creates the subscription into which an effect puts a copy of the message that has just passed its topic.
    pub(super) fn stand_in_copied(
        &mut self,
        passed: Option<Place>,
        effect: &Effect,
        at: Timestamp,
    ) {
        let (Some(passed), Effect::Arrived { to, message }) = (passed, effect) else {
            return;
        };
        let first_number = message.side().and_then(|side| side.first_number);
        let is_copy = first_number == Some(passed.number) && to.entity != passed.entity;
        // A dead letter is in a sub-queue.
        if is_copy && message.record.cause.is_none() {
            self.stand_in_subscription(passed.entity, to.entity, at);
        }
    }

    /// The name of a topic that stands in, as its subscriptions have it. `None` if none of them has a name of its own, or
    /// if another entity has that name now.
    pub(super) fn name_of_topic(&self, topic: Incarnation) -> Option<EntityName> {
        let subscriptions = self.state.subscriptions_of(topic);
        let named = subscriptions
            .filter(|subscription| !self.stand_ins.contains_key(subscription))
            .filter_map(|subscription| self.state.queue_name(subscription));
        let mut names = named.filter_map(|name| {
            let (topic, _) = name.name.rsplit_once(SUBSCRIPTIONS)?;
            Some(EntityName {
                name: topic.into(),
                ..name.clone()
            })
        });
        names.next().filter(|name| !self.state.has_entity(name))
    }
}
