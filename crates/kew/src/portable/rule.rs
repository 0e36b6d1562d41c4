//! What a rule of a subscription does, as a line has it.
//!
//! Values of parameters and of application properties are typed values as in messages, with two types more:
//! `timespan_ticks` for spans of time, and `xml` for what the service has and no typed value keeps.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Which messages a rule selects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RuleFilter {
    /// All.
    True,
    /// None.
    False,
    Sql(RuleSql),
    Correlation(Box<RuleConditions>),
}

/// The text of an SQL filter or of an action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleSql {
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) parameters: Map<String, Json>,
    /// `None`: the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) compatibility_level: Option<u32>,
}

/// What a message must have. The names are those of a message's members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RuleConditions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reply_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reply_to_session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) properties: Map<String, Json>,
}
