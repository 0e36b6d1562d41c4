//! What management says of queues and of the namespace, as values.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::duration;
use super::rules::QueueRule;
use crate::http::xml::put_text;

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
    /// The queue that takes all messages: its name, or an address in another namespace. Empty for none.
    pub forward_to: Option<String>,
    /// A text for people, of up to 1,024 characters.
    pub user_metadata: Option<String>,
    /// A hint to the service.
    pub support_ordering: Option<bool>,
    /// The queue is deleted when nobody has used it for so long; [`FOREVER`](Self::FOREVER) for never.
    pub auto_delete_on_idle: Option<Duration>,
    /// Whether the queue is spread over several brokers. It cannot be changed.
    pub enable_partitioning: Option<bool>,
    /// The queue that takes dead letters, like [`forward_to`](Self::forward_to).
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

/// What a queue is open for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntityStatus {
    /// Everything.
    Active,
    /// Nothing.
    Disabled,
    /// Only receiving.
    SendDisabled,
    /// Only sending.
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

/// A queue, as the service describes it.
#[derive(Clone, Debug)]
pub struct QueueDescription {
    /// Its name, as it was spelled when it was created.
    pub name: String,
    /// What can be changed.
    pub settings: QueueSettings,
    /// What cannot.
    pub state: QueueState,
}

/// Counts and times of a queue. The service may be some seconds late with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
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
    /// When it was created.
    pub created_at: Option<SystemTime>,
    /// When its settings were changed.
    pub updated_at: Option<SystemTime>,
    /// When it was last used; `None` also if it never was.
    pub accessed_at: Option<SystemTime>,
    /// `Available`, or what the service says otherwise.
    pub availability: Option<String>,
}

/// Some queues, in the order of the service.
#[derive(Clone, Debug)]
pub struct QueuePage {
    /// The queues.
    pub queues: Vec<QueueDescription>,
    /// How many queues to skip for the next page, if there is one.
    pub next: Option<u64>,
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
