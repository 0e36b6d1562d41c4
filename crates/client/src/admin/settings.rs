//! The settings of queues, topics and subscriptions.
//!
//! `None` means that nothing is said: the service then takes its own default, for an update too. Take what a read returned,
//! change it, and send it back.

use std::time::Duration;

use super::authorization::QueueRule;
use super::description::{EntityStatus, UnknownElements};
use super::duration;
use super::elements::{Elements, Settings};
use super::rule::NewRule;

/// The settings of a queue.
///
/// `None` means that nothing is said: the service then takes its own default, for an update too. Take what
/// [`BusAdmin::queue`](super::BusAdmin::queue) returned, change it, and send it back.
#[derive(Clone, Debug, Default)]
pub struct QueueSettings {
    /// How long a receiver has a message to itself: up to five minutes.
    pub lock_duration: Option<Duration>,
    /// How much the queue may hold.
    pub max_size_megabytes: Option<u64>,
    /// Whether messages whose id was there before are dropped. It cannot be changed.
    pub requires_duplicate_detection: Option<bool>,
    /// Whether every message belongs to a message session. It cannot be changed.
    pub requires_session: Option<bool>,
    /// After this time messages expire; [`FOREVER`](Self::FOREVER) for never.
    pub default_time_to_live: Option<Duration>,
    /// Whether expired messages become dead letters.
    pub dead_letters_expired: Option<bool>,
    /// How long ids are remembered to find duplicates.
    pub duplicate_window: Option<Duration>,
    /// How often a message is delivered before it becomes a dead letter.
    pub max_delivery_count: Option<u32>,
    /// A hint to the service.
    pub enable_batched_operations: Option<bool>,
    /// Always `false` in practice.
    pub is_anonymous_accessible: Option<bool>,
    /// The queue's own rules, with their keys. An update replaces all of them; without them they stay.
    pub authorization_rules: Option<Vec<QueueRule>>,
    /// What the queue is open for.
    pub status: Option<EntityStatus>,
    /// The queue or topic that takes all messages: its name, or an address in another namespace. Empty for none.
    pub forward_to: Option<String>,
    /// A text for people, of up to 1,024 characters.
    pub user_metadata: Option<String>,
    /// A hint to the service.
    pub support_ordering: Option<bool>,
    /// The queue is deleted when nobody has used it for so long; [`FOREVER`](Self::FOREVER) for never.
    pub auto_delete_on_idle: Option<Duration>,
    /// Whether the queue is spread over several brokers. It cannot be changed.
    pub enable_partitioning: Option<bool>,
    /// The queue or topic that takes dead letters, like [`forward_to`](Self::forward_to).
    pub forward_dead_letters_to: Option<String>,
    /// A hint to the service.
    pub enable_express: Option<bool>,
    /// How large a message may be.
    pub max_message_size_kilobytes: Option<u64>,
    /// What else the service said of the queue, which an update sends back.
    pub unknown: UnknownElements,
}

impl QueueSettings {
    /// The service's "never ends": about 29,000 years. Longer durations are sent as this one.
    pub const FOREVER: Duration = duration::FOREVER;
}

/// Source: Service Bus, *Queue description*.
impl Settings for QueueSettings {
    const ELEMENT: &'static str = "QueueDescription";
    const WHAT: &'static str = "queue";

    fn each(&mut self, it: &mut impl Elements) {
        it.value("LockDuration", &mut self.lock_duration);
        it.value("MaxSizeInMegabytes", &mut self.max_size_megabytes);
        let detects_duplicates = &mut self.requires_duplicate_detection;
        it.value("RequiresDuplicateDetection", detects_duplicates);
        it.value("RequiresSession", &mut self.requires_session);
        it.value("DefaultMessageTimeToLive", &mut self.default_time_to_live);
        let dead_letters_expired = &mut self.dead_letters_expired;
        it.value("DeadLetteringOnMessageExpiration", dead_letters_expired);
        let duplicate_window = &mut self.duplicate_window;
        it.value("DuplicateDetectionHistoryTimeWindow", duplicate_window);
        it.value("MaxDeliveryCount", &mut self.max_delivery_count);
        let batches = &mut self.enable_batched_operations;
        it.value("EnableBatchedOperations", batches);
        it.value("IsAnonymousAccessible", &mut self.is_anonymous_accessible);
        it.value("AuthorizationRules", &mut self.authorization_rules);
        it.value("Status", &mut self.status);
        it.target("ForwardTo", &mut self.forward_to);
        it.value("UserMetadata", &mut self.user_metadata);
        it.value("SupportOrdering", &mut self.support_ordering);
        it.value("AutoDeleteOnIdle", &mut self.auto_delete_on_idle);
        it.value("EnablePartitioning", &mut self.enable_partitioning);
        let dead_letters = &mut self.forward_dead_letters_to;
        it.target("ForwardDeadLetteredMessagesTo", dead_letters);
        it.value("EnableExpress", &mut self.enable_express);
        let message_size = &mut self.max_message_size_kilobytes;
        it.value("MaxMessageSizeInKilobytes", message_size);
    }

    fn unknown(&mut self) -> &mut UnknownElements {
        &mut self.unknown
    }
}

/// The settings of a topic.
///
/// `None` means that nothing is said: the service then takes its own default, for an update too. Take what
/// [`BusAdmin::topic`](super::BusAdmin::topic) returned, change it, and send it back.
#[derive(Clone, Debug, Default)]
pub struct TopicSettings {
    /// After this time messages expire in each subscription; [`FOREVER`](Self::FOREVER) for never.
    pub default_time_to_live: Option<Duration>,
    /// How much the topic may hold, with its subscriptions.
    pub max_size_megabytes: Option<u64>,
    /// Whether messages whose id was there before are dropped. It cannot be changed.
    pub requires_duplicate_detection: Option<bool>,
    /// How long ids are remembered to find duplicates.
    pub duplicate_window: Option<Duration>,
    /// A hint to the service.
    pub enable_batched_operations: Option<bool>,
    /// Whether a message that no rule matches is refused. Otherwise it is accepted and dropped.
    pub filters_before_publishing: Option<bool>,
    /// Always `false` in practice.
    pub is_anonymous_accessible: Option<bool>,
    /// The topic's own rules, with their keys. An update replaces all of them; without them they stay.
    pub authorization_rules: Option<Vec<QueueRule>>,
    /// What the topic is open for.
    pub status: Option<EntityStatus>,
    /// A text for people, of up to 1,024 characters.
    pub user_metadata: Option<String>,
    /// A hint to the service.
    pub support_ordering: Option<bool>,
    /// The topic is deleted when nobody has used it for so long; [`FOREVER`](Self::FOREVER) for never.
    pub auto_delete_on_idle: Option<Duration>,
    /// Whether the topic is spread over several brokers. It cannot be changed.
    pub enable_partitioning: Option<bool>,
    /// Whether its subscriptions are spread over several brokers.
    pub enable_subscription_partitioning: Option<bool>,
    /// A hint to the service.
    pub enable_express: Option<bool>,
    /// How large a message may be.
    pub max_message_size_kilobytes: Option<u64>,
    /// What else the service said of the topic, which an update sends back.
    pub unknown: UnknownElements,
}

impl TopicSettings {
    /// The service's "never ends", as for [queues](QueueSettings::FOREVER).
    pub const FOREVER: Duration = duration::FOREVER;
}

/// Source: Service Bus, *Topic description*.
impl Settings for TopicSettings {
    const ELEMENT: &'static str = "TopicDescription";
    const WHAT: &'static str = "topic";

    fn each(&mut self, it: &mut impl Elements) {
        it.value("DefaultMessageTimeToLive", &mut self.default_time_to_live);
        it.value("MaxSizeInMegabytes", &mut self.max_size_megabytes);
        let detects_duplicates = &mut self.requires_duplicate_detection;
        it.value("RequiresDuplicateDetection", detects_duplicates);
        let duplicate_window = &mut self.duplicate_window;
        it.value("DuplicateDetectionHistoryTimeWindow", duplicate_window);
        let batches = &mut self.enable_batched_operations;
        it.value("EnableBatchedOperations", batches);
        let filters = &mut self.filters_before_publishing;
        it.value("FilteringMessagesBeforePublishing", filters);
        it.value("IsAnonymousAccessible", &mut self.is_anonymous_accessible);
        it.value("AuthorizationRules", &mut self.authorization_rules);
        it.value("Status", &mut self.status);
        it.value("UserMetadata", &mut self.user_metadata);
        it.value("SupportOrdering", &mut self.support_ordering);
        it.value("AutoDeleteOnIdle", &mut self.auto_delete_on_idle);
        it.value("EnablePartitioning", &mut self.enable_partitioning);
        let subscriptions = &mut self.enable_subscription_partitioning;
        it.value("EnableSubscriptionPartitioning", subscriptions);
        it.value("EnableExpress", &mut self.enable_express);
        let message_size = &mut self.max_message_size_kilobytes;
        it.value("MaxMessageSizeInKilobytes", message_size);
    }

    fn unknown(&mut self) -> &mut UnknownElements {
        &mut self.unknown
    }
}

/// The settings of a subscription.
///
/// `None` means that nothing is said: the service then takes its own default, for an update too. Take what
/// [`BusAdmin::subscription`](super::BusAdmin::subscription) returned, change it, and send it back.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionSettings {
    /// How long a receiver has a message to itself: up to five minutes.
    pub lock_duration: Option<Duration>,
    /// Whether every message belongs to a message session. It cannot be changed.
    pub requires_session: Option<bool>,
    /// After this time messages expire; [`FOREVER`](Self::FOREVER) for never.
    pub default_time_to_live: Option<Duration>,
    /// Whether expired messages become dead letters.
    pub dead_letters_expired: Option<bool>,
    /// Whether messages on which a filter fails become dead letters.
    pub dead_letters_filter_failures: Option<bool>,
    /// The rule that a new subscription begins with, in place of `$Default`, which matches all messages. Updates leave it
    /// out, and reads never have it.
    pub default_rule: Option<NewRule>,
    /// How often a message is delivered before it becomes a dead letter.
    pub max_delivery_count: Option<u32>,
    /// A hint to the service.
    pub enable_batched_operations: Option<bool>,
    /// What the subscription is open for.
    pub status: Option<EntityStatus>,
    /// The queue or topic that takes all messages: its name, or an address in another namespace. Empty for none.
    pub forward_to: Option<String>,
    /// A text for people, of up to 1,024 characters.
    pub user_metadata: Option<String>,
    /// The queue or topic that takes dead letters, like [`forward_to`](Self::forward_to).
    pub forward_dead_letters_to: Option<String>,
    /// The subscription is deleted when nobody has used it for so long; [`FOREVER`](Self::FOREVER) for never.
    pub auto_delete_on_idle: Option<Duration>,
    /// What else the service said of the subscription, which an update sends back.
    pub unknown: UnknownElements,
}

impl SubscriptionSettings {
    /// The service's "never ends", as for [queues](QueueSettings::FOREVER).
    pub const FOREVER: Duration = duration::FOREVER;
}

/// Source: Service Bus, *Subscription description*, and the order in which its SDKs write it.
impl Settings for SubscriptionSettings {
    const ELEMENT: &'static str = "SubscriptionDescription";
    const WHAT: &'static str = "subscription";

    fn each(&mut self, it: &mut impl Elements) {
        it.value("LockDuration", &mut self.lock_duration);
        it.value("RequiresSession", &mut self.requires_session);
        it.value("DefaultMessageTimeToLive", &mut self.default_time_to_live);
        let dead_letters_expired = &mut self.dead_letters_expired;
        it.value("DeadLetteringOnMessageExpiration", dead_letters_expired);
        let filter_failures = &mut self.dead_letters_filter_failures;
        it.value("DeadLetteringOnFilterEvaluationExceptions", filter_failures);
        it.value("DefaultRuleDescription", &mut self.default_rule);
        it.value("MaxDeliveryCount", &mut self.max_delivery_count);
        let batches = &mut self.enable_batched_operations;
        it.value("EnableBatchedOperations", batches);
        it.value("Status", &mut self.status);
        it.target("ForwardTo", &mut self.forward_to);
        it.value("UserMetadata", &mut self.user_metadata);
        let dead_letters = &mut self.forward_dead_letters_to;
        it.target("ForwardDeadLetteredMessagesTo", dead_letters);
        it.value("AutoDeleteOnIdle", &mut self.auto_delete_on_idle);
    }

    fn unknown(&mut self) -> &mut UnknownElements {
        &mut self.unknown
    }
}
