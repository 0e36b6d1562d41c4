//! Push across processes: one topic of Service Bus, and a subscription of it for each listener.
//!
//! The service copies each announcement to the subscriptions whose filter selects it: those of listeners of the same
//! account and queue. So an announcement is one send, however many listeners there are, and announcers list nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use kew_client::{
    BusAdmin, BusClient, CorrelationFilter, DeletingReceiver, Entity, Filter, FilterValue, NewRule,
    ReceiverOptions, RuleSettings, SubscriptionSettings, TopicSettings, Value,
};
use tokio::time::timeout;

use super::message::{AUTO_DELETE, SEND_MAX, SUBJECT, TIME_TO_LIVE, message_of};
use super::{Announce, Announcement, Announcements, Heard};
use crate::error::SourceError;
use crate::source::SourceName;

/// The rule of each subscription.
const RULE: &str = "listener";

/// The properties of a message that filters compare.
const ACCOUNT: &str = "account";
const QUEUE: &str = "queue";

/// Creates the topic of announcements if it does not exist. It holds no messages itself.
pub async fn create_push_topic(admin: &BusAdmin, topic: &str) -> Result<(), SourceError> {
    if admin.topic_exists(topic).await? {
        return Ok(());
    }
    let settings = TopicSettings {
        default_time_to_live: Some(TIME_TO_LIVE),
        ..TopicSettings::default()
    };
    match admin.create_topic(topic, &settings).await {
        // Another one created it meanwhile.
        Err(error) if error.status() == Some(409) => Ok(()),
        created => Ok(created.map(drop)?),
    }
}

/// Announces work over a topic. Clones share their link.
#[derive(Clone)]
pub struct TopicAnnouncer {
    client: BusClient,
    topic: Arc<str>,
    /// None yet, or the last send failed.
    sender: Arc<Mutex<Option<Arc<kew_client::Sender>>>>,
}

impl TopicAnnouncer {
    /// Over this topic, which [`create_push_topic`] or a listener creates. Nothing is connected yet.
    pub fn new(client: BusClient, topic: &str) -> Self {
        Self {
            client,
            topic: topic.into(),
            sender: Arc::default(),
        }
    }

    fn keep(&self, sender: Option<Arc<kew_client::Sender>>) {
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = sender;
    }

    fn kept(&self) -> Option<Arc<kew_client::Sender>> {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.clone()
    }
}

impl fmt::Debug for TopicAnnouncer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicAnnouncer")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

impl Announce for TopicAnnouncer {
    /// One send. The service offers it to the listeners of this account and queue.
    async fn announce(&self, announcement: &Announcement) -> Result<(), SourceError> {
        let mut message = message_of(announcement);
        for (name, value) in [
            (ACCOUNT, &announcement.account),
            (QUEUE, &announcement.queue),
        ] {
            let value = Value::String(value.as_str().into());
            message.properties.push((name.to_owned(), value));
        }
        let send = async {
            let sender = match self.kept() {
                Some(sender) => sender,
                None => Arc::new(self.client.sender(&*self.topic).await?),
            };
            sender.send(&message).await?;
            Ok(sender)
        };
        let busy = |_| {
            Err(SourceError::busy(
                "the topic of announcements did not answer",
            ))
        };
        let sent = timeout(SEND_MAX, send).await.unwrap_or_else(busy);
        let (sender, result) = match sent {
            Ok(sender) => (Some(sender), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.keep(sender);
        result
    }
}

/// What one listener hears over its subscription.
#[derive(Debug)]
pub struct TopicAnnouncements {
    client: BusClient,
    admin: Option<BusAdmin>,
    topic: String,
    subscription: String,
    /// One rule for each.
    wanted: Vec<CorrelationFilter>,
    receiver: Option<DeletingReceiver>,
}

impl TopicAnnouncements {
    /// Over a subscription of this listener alone, for announcements of work in `source`. `subscription` must be unique
    /// among listeners, and have at most 50 characters.
    ///
    /// With an `admin`, topic and subscription are created when they do not exist, and the subscription is deleted when
    /// the listener stops. After a crash the service deletes it, five minutes after its last use: to announce is no use.
    /// Without an `admin` the listener polls when its subscription does not exist.
    pub fn new(
        client: BusClient,
        admin: Option<BusAdmin>,
        topic: &str,
        subscription: &str,
        source: &SourceName,
    ) -> Self {
        let (account, queue) = (&*source.account, &*source.queue);
        let wanted = vec![wanted(&[(ACCOUNT, account), (QUEUE, queue)])];
        Self {
            client,
            admin,
            topic: topic.to_owned(),
            subscription: subscription.to_owned(),
            wanted,
            receiver: None,
        }
    }

    /// The same for work in any of these queues, of any account: for programs that are no listeners, and watch queues.
    /// There is at least one queue. Queues have their names as announcers write them.
    pub fn for_queues(
        client: BusClient,
        admin: Option<BusAdmin>,
        topic: &str,
        subscription: &str,
        queues: &[String],
    ) -> Self {
        let queues: BTreeSet<&String> = queues.iter().collect();
        let queues = queues.into_iter();
        Self {
            client,
            admin,
            topic: topic.to_owned(),
            subscription: subscription.to_owned(),
            wanted: queues.map(|it| wanted(&[(QUEUE, it.as_str())])).collect(),
            receiver: None,
        }
    }

    /// The rules, each with its name.
    fn rules(&self) -> impl Iterator<Item = NewRule> {
        self.wanted
            .iter()
            .enumerate()
            .map(|(index, wanted)| NewRule {
                name: match index {
                    0 => RULE.to_owned(),
                    index => format!("{RULE}-{index}"),
                },
                settings: RuleSettings {
                    filter: Filter::Correlation(Box::new(wanted.clone())),
                    ..RuleSettings::default()
                },
            })
    }

    /// Has a subscription with the filter of this listener. One of this name with another filter is of an earlier
    /// listener, which had another queue.
    async fn subscribe(&self, admin: &BusAdmin) -> Result<(), SourceError> {
        let (topic, name) = (&self.topic, &self.subscription);
        if self.create(admin).await? || self.is_filtered(admin).await? {
            return Ok(());
        }
        tracing::warn!(target: "kew::worker", topic, name, "replacing a subscription with another filter");
        admin.delete_subscription(topic, name).await?;
        self.create(admin).await.map(drop)
    }

    /// Creates the subscription. False if there is one of that name.
    async fn create(&self, admin: &BusAdmin) -> Result<bool, SourceError> {
        let (topic, name) = (&self.topic, &self.subscription);
        let mut rules = self.rules();
        let settings = SubscriptionSettings {
            default_time_to_live: Some(TIME_TO_LIVE),
            auto_delete_on_idle: Some(AUTO_DELETE),
            default_rule: rules.next(),
            ..SubscriptionSettings::default()
        };
        match admin.create_subscription(topic, name, &settings).await {
            Ok(_) => {}
            Err(error) if error.status() == Some(409) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        // If this ends early, the subscription lacks rules, and is replaced.
        for rule in rules {
            let (rule, settings) = (&rule.name, &rule.settings);
            admin.create_rule(topic, name, rule, settings).await?;
        }
        Ok(true)
    }

    async fn is_filtered(&self, admin: &BusAdmin) -> Result<bool, SourceError> {
        let rules = admin.rules(&self.topic, &self.subscription, 0).await?;
        let mut filters = rules.items.iter().map(|it| &it.settings.filter);
        let is_wanted = |it: &Filter| match it {
            Filter::Correlation(found) => self.wanted.contains(found),
            _ => false,
        };
        Ok(rules.items.len() == self.wanted.len() && filters.all(is_wanted))
    }
}

/// The filter of announcements with these properties.
fn wanted(properties: &[(&str, &str)]) -> CorrelationFilter {
    let text = |(name, value): &(&str, &str)| {
        let value = FilterValue::Text((*value).to_owned());
        ((*name).to_owned(), value)
    };
    CorrelationFilter {
        subject: Some(SUBJECT.to_owned()),
        properties: properties.iter().map(text).collect(),
        ..CorrelationFilter::default()
    }
}

impl Announcements for TopicAnnouncements {
    async fn ready(&mut self) -> Result<(), SourceError> {
        self.receiver = None;
        if let Some(admin) = &self.admin {
            create_push_topic(admin, &self.topic).await?;
            self.subscribe(admin).await?;
        }
        let entity = Entity::subscription(&self.topic, &self.subscription);
        let options = ReceiverOptions { prefetch: 16 };
        let receiver = self.client.deleting_receiver(&entity, options);
        self.receiver = Some(receiver.await?);
        Ok(())
    }

    async fn next(&mut self) -> Result<Heard, SourceError> {
        super::message::next(self.receiver.as_mut()).await
    }

    async fn close(&mut self) {
        self.receiver = None;
        if let Some(admin) = &self.admin
            && let Err(error) = admin
                .delete_subscription(&self.topic, &self.subscription)
                .await
        {
            let name = &self.subscription;
            tracing::warn!(target: "kew::worker", name, %error, "the subscription of a listener stays");
        }
    }
}
