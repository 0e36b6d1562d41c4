//! The operations on queues, topics, subscriptions and rules. All kinds share how they are done.

use super::client::{BusAdmin, error_of_answer};
use super::description::{
    Description, EntityDescription, Page, QueueDescription, RuleDescription,
    SubscriptionDescription, TopicDescription,
};
use super::elements::Settings;
use super::path::Place;
use super::read::{self, BadAnswer};
use super::request::Operation;
use super::rule::{NewRule, RuleSettings};
use super::settings::{QueueSettings, SubscriptionSettings, TopicSettings};
use crate::error::Error;

/// How many entries a page has: the most that the service gives.
const PAGE_SIZE: u64 = 100;

/// Queues.
impl BusAdmin {
    /// Creates a queue, and returns it with all settings that the service gave it. With code `40900` there is an
    /// entity of that name.
    pub async fn create_queue(
        &self,
        name: &str,
        settings: &QueueSettings,
    ) -> Result<QueueDescription, Error> {
        self.put(Place::of("queue", name)?, settings, false).await
    }

    /// Reads a queue: its settings, counts and times. With code `40400` there is none of that name.
    pub async fn queue(&self, name: &str) -> Result<QueueDescription, Error> {
        self.one(Place::of("queue", name)?).await
    }

    /// Whether there is a queue of that name.
    pub async fn queue_exists(&self, name: &str) -> Result<bool, Error> {
        exists(self.queue(name).await)
    }

    /// Replaces all settings of a queue, and returns them as they are now.
    ///
    /// What `settings` says nothing of gets the service's default: send what [`queue`](Self::queue) returned, with
    /// changes. The service does not notice when somebody else has changed the queue since then.
    pub async fn update_queue(
        &self,
        name: &str,
        settings: &QueueSettings,
    ) -> Result<QueueDescription, Error> {
        self.put(Place::of("queue", name)?, settings, true).await
    }

    /// Deletes a queue with everything in it.
    ///
    /// The service does not look at what it deletes: a topic of that name is deleted with its subscriptions.
    pub async fn delete_queue(&self, name: &str) -> Result<(), Error> {
        self.delete(Place::of("queue", name)?).await
    }

    /// A page of the queues after the first `skip`, with their settings, counts and times. Begin with 0, and go on
    /// with [`Page::next`].
    ///
    /// Queues that are created or deleted meanwhile can move others to another page.
    pub async fn queues(&self, skip: u64) -> Result<Page<QueueDescription>, Error> {
        let list = Place::of_namespace("$Resources/queues");
        self.page(list, skip).await
    }

    /// Reads a queue, a topic, or a subscription (`TOPIC/Subscriptions/NAME`), whichever has that name.
    pub async fn entity(&self, name: &str) -> Result<EntityDescription, Error> {
        let read = Operation::read_entity(Place::of("entity", name)?);
        self.answer(&read, read::any).await
    }
}

/// Topics.
impl BusAdmin {
    /// Creates a topic, and returns it with all settings that the service gave it. With code `40900` there is an
    /// entity of that name.
    pub async fn create_topic(
        &self,
        name: &str,
        settings: &TopicSettings,
    ) -> Result<TopicDescription, Error> {
        self.put(Place::of("topic", name)?, settings, false).await
    }

    /// Reads a topic: its settings, counts and times. With code `40400` there is none of that name.
    pub async fn topic(&self, name: &str) -> Result<TopicDescription, Error> {
        self.one(Place::of("topic", name)?).await
    }

    /// Whether there is a topic of that name.
    pub async fn topic_exists(&self, name: &str) -> Result<bool, Error> {
        exists(self.topic(name).await)
    }

    /// Replaces all settings of a topic, and returns them as they are now: see [`update_queue`](Self::update_queue).
    pub async fn update_topic(
        &self,
        name: &str,
        settings: &TopicSettings,
    ) -> Result<TopicDescription, Error> {
        self.put(Place::of("topic", name)?, settings, true).await
    }

    /// Deletes a topic with its subscriptions and everything in them.
    ///
    /// The service does not look at what it deletes: a queue of that name is deleted, too.
    pub async fn delete_topic(&self, name: &str) -> Result<(), Error> {
        self.delete(Place::of("topic", name)?).await
    }

    /// A page of the topics: see [`queues`](Self::queues).
    pub async fn topics(&self, skip: u64) -> Result<Page<TopicDescription>, Error> {
        let list = Place::of_namespace("$Resources/topics");
        self.page(list, skip).await
    }
}

/// Subscriptions.
impl BusAdmin {
    /// Creates a subscription, and returns it with all settings that the service gave it. With code `40900` there is one
    /// of that name, with `40400` there is no such topic.
    pub async fn create_subscription(
        &self,
        topic: &str,
        name: &str,
        settings: &SubscriptionSettings,
    ) -> Result<SubscriptionDescription, Error> {
        let place = Place::of_subscription(topic, name)?;
        self.put(place, settings, false).await
    }

    /// Reads a subscription: its settings, counts and times. With code `40400` there is none of that name.
    pub async fn subscription(
        &self,
        topic: &str,
        name: &str,
    ) -> Result<SubscriptionDescription, Error> {
        self.one(Place::of_subscription(topic, name)?).await
    }

    /// Whether there is a subscription of that name.
    pub async fn subscription_exists(&self, topic: &str, name: &str) -> Result<bool, Error> {
        exists(self.subscription(topic, name).await)
    }

    /// Replaces all settings of a subscription, and returns them as they are now: see
    /// [`update_queue`](Self::update_queue). Its rules stay.
    pub async fn update_subscription(
        &self,
        topic: &str,
        name: &str,
        settings: &SubscriptionSettings,
    ) -> Result<SubscriptionDescription, Error> {
        let place = Place::of_subscription(topic, name)?;
        let settings = SubscriptionSettings {
            default_rule: None,
            ..settings.clone()
        };
        self.put(place, &settings, true).await
    }

    /// Deletes a subscription with its rules and everything in it.
    pub async fn delete_subscription(&self, topic: &str, name: &str) -> Result<(), Error> {
        self.delete(Place::of_subscription(topic, name)?).await
    }

    /// A page of the subscriptions of a topic: see [`queues`](Self::queues).
    pub async fn subscriptions(
        &self,
        topic: &str,
        skip: u64,
    ) -> Result<Page<SubscriptionDescription>, Error> {
        let list = Place::of("topic", topic)?.list("Subscriptions");
        self.page(list, skip).await
    }
}

/// Rules.
impl BusAdmin {
    /// Adds a rule to a subscription. With code `40900` there is one of that name, with `40400` there is no such
    /// subscription.
    pub async fn create_rule(
        &self,
        topic: &str,
        subscription: &str,
        name: &str,
        settings: &RuleSettings,
    ) -> Result<RuleDescription, Error> {
        self.put_rule((topic, subscription, name), settings, false)
            .await
    }

    /// Reads a rule. With code `40400` there is none of that name.
    pub async fn rule(
        &self,
        topic: &str,
        subscription: &str,
        name: &str,
    ) -> Result<RuleDescription, Error> {
        self.one(Place::of_rule(topic, subscription, name)?).await
    }

    /// Whether there is a rule of that name.
    pub async fn rule_exists(
        &self,
        topic: &str,
        subscription: &str,
        name: &str,
    ) -> Result<bool, Error> {
        exists(self.rule(topic, subscription, name).await)
    }

    /// Replaces the filter and the action of a rule.
    pub async fn update_rule(
        &self,
        topic: &str,
        subscription: &str,
        name: &str,
        settings: &RuleSettings,
    ) -> Result<RuleDescription, Error> {
        self.put_rule((topic, subscription, name), settings, true)
            .await
    }

    /// Removes a rule. A subscription without rules gets no messages.
    pub async fn delete_rule(
        &self,
        topic: &str,
        subscription: &str,
        name: &str,
    ) -> Result<(), Error> {
        self.delete(Place::of_rule(topic, subscription, name)?)
            .await
    }

    /// A page of the rules of a subscription: see [`queues`](Self::queues).
    pub async fn rules(
        &self,
        topic: &str,
        subscription: &str,
        skip: u64,
    ) -> Result<Page<RuleDescription>, Error> {
        let list = Place::of_subscription(topic, subscription)?.list("Rules");
        self.page(list, skip).await
    }

    /// What a rule sends has its name in it.
    async fn put_rule(
        &self,
        (topic, subscription, name): (&str, &str, &str),
        settings: &RuleSettings,
        must_exist: bool,
    ) -> Result<RuleDescription, Error> {
        let place = Place::of_rule(topic, subscription, name)?;
        let rule = NewRule {
            name: name.to_owned(),
            settings: settings.clone(),
        };
        let put = Operation::put(place, &rule, must_exist, self.host())?;
        self.answer(&put, read::one).await
    }
}

/// What all kinds share.
impl BusAdmin {
    async fn put<S: Settings>(
        &self,
        place: Place,
        settings: &S,
        must_exist: bool,
    ) -> Result<Description<S>, Error> {
        let put = Operation::put(place, settings, must_exist, self.host())?;
        self.answer(&put, read::one).await
    }

    async fn one<S: Settings>(&self, place: Place) -> Result<Description<S>, Error> {
        self.answer(&Operation::read_entity(place), read::one).await
    }

    async fn page<S: Settings>(
        &self,
        list: Place,
        skip: u64,
    ) -> Result<Page<Description<S>>, Error> {
        let list = Operation::read_page(list, skip, PAGE_SIZE);
        let read = |body: &[u8], host: &str| read::page(body, host, skip, PAGE_SIZE);
        self.answer(&list, read).await
    }

    async fn delete(&self, place: Place) -> Result<(), Error> {
        self.call(&Operation::delete(place)).await.map(drop)
    }

    /// Sends a request, and reads its answer.
    async fn answer<T>(
        &self,
        operation: &Operation,
        read: impl FnOnce(&[u8], &str) -> Result<T, BadAnswer>,
    ) -> Result<T, Error> {
        let answer = self.call(operation).await?;
        let found = read(&answer.body, self.host());
        found.map_err(|bad| error_of_answer(bad, operation.effect))
    }
}

fn exists<T>(read: Result<T, Error>) -> Result<bool, Error> {
    match read {
        Ok(_) => Ok(true),
        Err(error) if error.status() == Some(404) => Ok(false),
        Err(error) => Err(error),
    }
}
