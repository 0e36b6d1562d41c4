//! What lines define: the settings of entities of both services.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The settings of a queue of Service Bus. What the service does not say is left out, and what never happens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BusDefinition {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message_size_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requires_session: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detects_duplicates: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duplicate_window_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lock_duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_delivery_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_time_to_live_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_letters_expired: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auto_delete_on_idle_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forward_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forward_dead_letters_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_metadata: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enable_batched_operations: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) support_ordering: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enable_partitioning: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enable_express: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) authorization_rules: Vec<Rule>,
}

/// The settings of a topic, in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TopicDefinition {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message_size_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detects_duplicates: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duplicate_window_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_time_to_live_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filters_before_publishing: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auto_delete_on_idle_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_metadata: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enable_batched_operations: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) support_ordering: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enable_partitioning: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enable_subscription_partitioning: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enable_express: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) authorization_rules: Vec<Rule>,
}

/// The settings of a subscription, in the same way. Its rules are lines of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SubscriptionDefinition {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requires_session: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lock_duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_delivery_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_time_to_live_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_letters_expired: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_letters_filter_failures: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auto_delete_on_idle_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forward_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forward_dead_letters_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_metadata: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enable_batched_operations: Option<bool>,
}

/// An authorization rule of a queue or a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) rights: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) primary_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secondary_key: Option<String>,
}

/// What a queue of Queue Storage has beside messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StorageDefinition {
    /// Texts by name.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) metadata: Map<String, Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) access_policies: Vec<Policy>,
}

/// A stored access policy, with times in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Policy {
    pub(crate) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expiry_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permissions: Option<String>,
}
