//! The emulator's configuration file as JSON.
//!
//! Source: the Service Bus emulator, `Config-schema.json`.

use std::collections::BTreeMap;

use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde::{Deserialize, Deserializer, Serialize};

use super::config::ImportError;
use crate::ground::constants::NAMESPACE;

/// The content of a configuration file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct BusConfig {
    user_config: UserConfig,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct UserConfig {
    namespaces: Vec<Namespace>,
    /// How the emulator logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logging: Option<serde_json::Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Namespace {
    name: String,
    #[serde(default)]
    pub(super) queues: Vec<Queue>,
    #[serde(default)]
    pub(super) topics: Vec<Topic>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Queue {
    pub(super) name: String,
    #[serde(default)]
    pub(super) properties: QueueProperties,
}

/// The settings of a queue in the file; durations are in ISO 8601.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub(super) struct QueueProperties {
    pub(super) dead_lettering_on_message_expiration: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default_message_time_to_live: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duplicate_detection_history_time_window: Option<String>,
    #[serde(deserialize_with = "text_or_null")]
    pub(super) forward_dead_lettered_messages_to: String,
    #[serde(deserialize_with = "text_or_null")]
    pub(super) forward_to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lock_duration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_delivery_count: Option<u32>,
    pub(super) requires_duplicate_detection: bool,
    pub(super) requires_session: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Topic {
    pub(super) name: String,
    #[serde(default)]
    pub(super) properties: TopicProperties,
    #[serde(default)]
    pub(super) subscriptions: Vec<Subscription>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub(super) struct TopicProperties {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default_message_time_to_live: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duplicate_detection_history_time_window: Option<String>,
    pub(super) requires_duplicate_detection: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Subscription {
    pub(super) name: String,
    #[serde(default)]
    pub(super) properties: SubscriptionProperties,
    /// Without any, the subscription gets every message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub(super) struct SubscriptionProperties {
    pub(super) dead_lettering_on_message_expiration: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default_message_time_to_live: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lock_duration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_delivery_count: Option<u32>,
    #[serde(deserialize_with = "text_or_null")]
    pub(super) forward_dead_lettered_messages_to: String,
    #[serde(deserialize_with = "text_or_null")]
    pub(super) forward_to: String,
    pub(super) requires_session: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct Rule {
    pub(super) name: String,
    pub(crate) properties: RuleProperties,
}

/// A filter of the named type, and an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct RuleProperties {
    pub(super) filter_type: FilterType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) correlation_filter: Option<Correlation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sql_filter: Option<Sql>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) action: Option<Sql>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FilterType {
    Correlation,
    Sql,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct Sql {
    pub(super) sql_expression: String,
    /// Of old versions of the service. It has no effect.
    #[serde(default, skip_serializing)]
    requires_preprocessing: Option<bool>,
}

impl Sql {
    pub(super) fn new(text: &str) -> Self {
        Self {
            sql_expression: text.to_owned(),
            requires_preprocessing: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.sql_expression.is_empty()
    }
}

impl RuleProperties {
    /// The filter that is not of the rule's type, if the file has one with content. Tools write an empty one beside the other.
    pub(super) fn unused(&self) -> Option<&'static str> {
        match self.filter_type {
            FilterType::Sql => {
                let filter = self.correlation_filter.as_ref();
                filter
                    .is_some_and(|it| !it.is_empty())
                    .then_some("CorrelationFilter")
            }
            FilterType::Correlation => {
                let filter = self.sql_filter.as_ref();
                filter
                    .is_some_and(|it| !it.is_empty())
                    .then_some("SqlFilter")
            }
        }
    }

    /// The action, unless it is empty.
    pub(super) fn action(&self) -> Option<&Sql> {
        self.action.as_ref().filter(|it| !it.is_empty())
    }
}

impl Correlation {
    fn is_empty(&self) -> bool {
        let is_nothing = |value: &serde_json::Value| value.is_null() || value.as_str() == Some("");
        self.properties.is_empty() && self.system.values().all(is_nothing)
    }
}

/// System properties by name, and `Properties` with the application's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Correlation {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) properties: BTreeMap<String, serde_json::Value>,
    #[serde(flatten)]
    pub(super) system: BTreeMap<String, serde_json::Value>,
}

/// A text, which is empty if the file has null.
fn text_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Comments and trailing commas, as the emulator accepts them. Nothing else.
const JSON_WITH_COMMENTS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

impl BusConfig {
    pub(super) fn parse(text: &str) -> Result<Self, ImportError> {
        // Windows tools begin files with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let file = parse_to_serde_value(text, &JSON_WITH_COMMENTS);
        file.map_err(|error| ImportError(error.to_string()))
    }

    pub(super) fn of(queues: Vec<Queue>, topics: Vec<Topic>) -> Self {
        let namespace = Namespace {
            name: NAMESPACE.into(),
            queues,
            topics,
        };
        Self {
            user_config: UserConfig {
                namespaces: vec![namespace],
                // The schema requires it.
                logging: Some(serde_json::json!({ "Type": "Console" })),
            },
        }
    }

    /// Its only namespace.
    pub(super) fn namespace(&self) -> Result<&Namespace, ImportError> {
        if self.user_config.logging.is_some() {
            tracing::info!(
                "the section Logging of the configuration file is ignored: use Kew's own settings \
                 for logs"
            );
        }
        let [namespace] = self.user_config.namespaces.as_slice() else {
            let count = self.user_config.namespaces.len();
            return Err(ImportError(format!(
                "it has {count} namespaces, and must have exactly one"
            )));
        };
        if namespace.name != NAMESPACE {
            let name = &namespace.name;
            return Err(ImportError(format!(
                "namespace {name:?}: it must be {NAMESPACE:?}"
            )));
        }
        Ok(namespace)
    }
}
