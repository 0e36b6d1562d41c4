//! What management says of entities and of the namespace, as values.

use std::fmt;
use std::time::SystemTime;

use super::rule::RuleSettings;
use super::settings::{QueueSettings, SubscriptionSettings, TopicSettings};
use crate::http::xml::put_text;

/// A queue, a topic, a subscription or a rule, as the service describes it.
#[derive(Clone, Debug)]
pub struct Description<S> {
    /// Its name, as it was spelled when it was created. That of a subscription or a rule is without its topic's.
    pub name: String,
    /// What can be changed.
    pub settings: S,
    /// What cannot.
    pub state: EntityState,
}

/// A queue, as the service describes it.
pub type QueueDescription = Description<QueueSettings>;

/// A topic, as the service describes it.
pub type TopicDescription = Description<TopicSettings>;

/// A subscription, as the service describes it.
pub type SubscriptionDescription = Description<SubscriptionSettings>;

/// A rule of a subscription, as the service describes it. Of its state it has the time of its creation.
pub type RuleDescription = Description<RuleSettings>;

/// An entity of any kind.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EntityDescription {
    /// A queue.
    Queue(QueueDescription),
    /// A topic.
    Topic(TopicDescription),
    /// A subscription.
    Subscription(SubscriptionDescription),
}

impl EntityDescription {
    /// Its counts and times.
    pub fn state(&self) -> &EntityState {
        match self {
            Self::Queue(it) => &it.state,
            Self::Topic(it) => &it.state,
            Self::Subscription(it) => &it.state,
        }
    }
}

/// Counts and times of an entity. The service may be some seconds late with them, and leaves out what the kind of entity
/// does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityState {
    /// What its messages take.
    pub size_bytes: Option<u64>,
    /// All messages together.
    pub message_count: Option<u64>,
    /// Messages that can be received, or are locked.
    pub active_count: Option<u64>,
    /// Dead letters.
    pub dead_letter_count: Option<u64>,
    /// Messages that are not due yet.
    pub scheduled_count: Option<u64>,
    /// Messages that wait to be forwarded.
    pub transfer_count: Option<u64>,
    /// Messages that could not be forwarded.
    pub transfer_dead_letter_count: Option<u64>,
    /// Subscriptions of a topic.
    pub subscription_count: Option<u64>,
    /// When it was created.
    pub created_at: Option<SystemTime>,
    /// When its settings were changed.
    pub updated_at: Option<SystemTime>,
    /// When it was last used; `None` also if it never was.
    pub accessed_at: Option<SystemTime>,
    /// `Available`, or what the service says otherwise.
    pub availability: Option<String>,
}

/// Some entities or rules, in the order of the service.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The entities or rules.
    pub items: Vec<T>,
    /// How many to skip for the next page, if there is one.
    pub next: Option<u64>,
}

/// What an entity is open for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntityStatus {
    /// Everything.
    Active,
    /// Nothing.
    Disabled,
    /// Only receiving. Topics and queues have it.
    SendDisabled,
    /// Only sending. Subscriptions and queues have it.
    ReceiveDisabled,
    /// Something else that the service said.
    Other(String),
}

impl EntityStatus {
    pub(super) fn of(text: &str) -> Self {
        match text {
            "Active" => Self::Active,
            "Disabled" => Self::Disabled,
            "SendDisabled" => Self::SendDisabled,
            "ReceiveDisabled" => Self::ReceiveDisabled,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The service's word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Active => "Active",
            Self::Disabled => "Disabled",
            Self::SendDisabled => "SendDisabled",
            Self::ReceiveDisabled => "ReceiveDisabled",
            Self::Other(text) => text,
        }
    }
}

/// Parts of a description that this crate does not know, as the service wrote them.
#[derive(Clone, Default)]
pub struct UnknownElements {
    /// Names, and the elements with their tags.
    pub(super) elements: Vec<(String, String)>,
    /// Prefixes that they may use, as attributes `xmlns:…`, and what they stand for.
    pub(super) prefixes: Vec<(String, String)>,
}

impl UnknownElements {
    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.elements.iter().map(|(name, _)| name.as_str())
    }

    /// Writes the prefixes as attributes, without some.
    pub(super) fn put_prefixes(&self, out: &mut String, without: &[&str]) {
        for (name, value) in &self.prefixes {
            if !without.contains(&name.as_str()) {
                let mut text = String::new();
                put_text(&mut text, value);
                out.extend([" ", name, "=\"", &text.replace('"', "&quot;"), "\""]);
            }
        }
    }

    /// Writes the elements, without those of some names.
    pub(super) fn put_all_but(&self, out: &mut String, without: &[&str]) {
        for (name, source) in &self.elements {
            if !without.contains(&name.as_str()) {
                out.push_str(source);
            }
        }
    }

    /// Writes elements that stand alone: each declares the prefixes itself.
    pub(super) fn put_alone(&self, out: &mut String) {
        for (_, source) in &self.elements {
            let is_end = |it: char| it.is_whitespace() || matches!(it, '>' | '/');
            let end = source.find(is_end).unwrap_or(source.len());
            let (tag, rest) = source.split_at(end);
            out.push_str(tag);
            self.put_prefixes(out, &[]);
            out.push_str(rest);
        }
    }

    pub(super) fn named(&self, name: &str) -> Option<&str> {
        let found = self.elements.iter().find(|(it, _)| it == name);
        found.map(|(_, source)| source.as_str())
    }
}

/// They may hold keys.
impl fmt::Debug for UnknownElements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// What the service says of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Its name.
    pub name: String,
    /// Another name of it.
    pub alias: Option<String>,
    /// Its tier: `Basic`, `Standard` or `Premium`.
    pub sku: String,
    /// What a namespace of the premium tier has been given.
    pub messaging_units: Option<u32>,
    /// When it was created.
    pub created_at: Option<SystemTime>,
    /// When it was changed.
    pub modified_at: Option<SystemTime>,
}
