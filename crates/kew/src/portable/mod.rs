//! The one portable form of messages: a JSON object on a line, with all properties of a message of either service.
//!
//! `docs/message-format.md` describes it. This module reads and writes records, and knows no file and no connection;
//! `bus` turns records into messages of AMQP and back, `queue` into texts of Queue Storage. `line` has the other lines
//! of an export, with what they say in `definition` and `rule`.
//!
//! Invariants: a message that was exported and is imported has the same properties and the same body, with the types of
//! all values, except for the rare parts that the document lists. A record of a newer version is refused. So is a member that is not known: to leave it out would lose
//! something.

mod bus;
mod definition;
mod line;
mod queue;
mod rule;
mod sample;
mod value;

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kew_bus_api::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON};
use kew_client::{Uuid, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

pub(crate) use bus::{message_of, record_of};
pub(crate) use definition::{
    BusDefinition, Policy, Rule, StorageDefinition, SubscriptionDefinition, TopicDefinition,
};
pub(crate) use line::{
    Defined, DefinedRule, DefinedSubscription, DefinedTopic, Line, SessionState, Totals,
};
pub(crate) use queue::{Text, record_of_text, text_of};
pub(crate) use rule::{RuleConditions, RuleFilter, RuleSql};
pub(crate) use sample::{Sample, of_amqp, shown, typed, value_of_rule};

/// The version that this program writes, and the only one that it reads.
const VERSION: u64 = 1;

/// A message. What it does not have is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    version: u64,
    service: Service,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// What the service said of it there. It is for readers, and is not restored.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    facts: Map<String, Json>,
    /// A typed value: a text, `ulong`, `uuid` or `binary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message_id: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    /// A typed value, like the message id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlation_id: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_encoding: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to_session_id: Option<String>,
    /// In Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group_sequence: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scheduled_at_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_to_live_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    durable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    /// Application properties: typed values.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    properties: Map<String, Json>,
    /// Other annotations that a sender may set: typed values.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    annotations: Map<String, Json>,
    /// Typed values.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    footer: Map<String, Json>,
    /// `None`: it has no body at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<Body>,
}

/// The service that a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Service {
    ServiceBus,
    QueueStorage,
}

/// What a message holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Body {
    /// Bytes that are UTF-8.
    Text(String),
    /// Any bytes.
    Base64(String),
    /// Bytes in several sections.
    Sections(Vec<Section>),
    /// A typed value.
    Value(Json),
    /// Lists of typed values.
    Sequences(Vec<Vec<Json>>),
}

/// Bytes of one section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Section {
    Text(String),
    Base64(String),
}

impl Section {
    /// Text if the bytes are UTF-8.
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(STANDARD.encode(bytes)),
        }
    }

    /// The bytes, or what is wrong with this member of a line.
    fn bytes(&self, member: &str) -> Result<Bytes, String> {
        match self {
            Self::Text(text) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            Self::Base64(text) => match STANDARD.decode(text) {
                Ok(bytes) => Ok(bytes.into()),
                Err(error) => Err(format!("{member} is not Base64: {error}")),
            },
        }
    }
}

impl Record {
    /// A record without any property.
    fn empty(service: Service) -> Self {
        Self {
            version: VERSION,
            service,
            queue: None,
            facts: Map::new(),
            message_id: None,
            session_id: None,
            correlation_id: None,
            subject: None,
            content_type: None,
            content_encoding: None,
            to: None,
            reply_to: None,
            reply_to_session_id: None,
            user_id: None,
            group_sequence: None,
            created_at_ms: None,
            partition_key: None,
            scheduled_at_ms: None,
            time_to_live_ms: None,
            durable: None,
            priority: None,
            properties: Map::new(),
            annotations: Map::new(),
            footer: Map::new(),
            body: None,
        }
    }

    /// Reads a line, or says what is wrong with it.
    pub(crate) fn read(line: &[u8]) -> Result<Self, String> {
        let json: Json = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        check_version(&json)?;
        let others = ["definition", "rule", "session_state", "end"];
        if let Some(other) = others.into_iter().find(|name| json.get(name).is_some()) {
            return Err(format!(
                "it has a {other:?} and is no message: kew import reads all lines of kew export"
            ));
        }
        serde_json::from_value(json).map_err(|error| error.to_string())
    }

    /// The queue that it came from.
    pub(crate) fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    pub(crate) fn service(&self) -> Service {
        self.service
    }

    /// What the service said of it there.
    pub(crate) fn facts(&self) -> &Map<String, Json> {
        &self.facts
    }

    pub(crate) fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// A text among the application properties.
    pub(crate) fn text_property(&self, name: &str) -> Option<&str> {
        self.properties.get(name).and_then(Json::as_str)
    }

    pub(crate) fn time_to_live_ms(&self) -> Option<u64> {
        self.time_to_live_ms
    }

    pub(crate) fn clear_time_to_live(&mut self) {
        self.time_to_live_ms = None;
    }

    /// Without the properties that say why it was dead-lettered.
    pub(crate) fn clear_dead_letter_properties(&mut self) {
        for name in [DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION] {
            self.properties.remove(name);
        }
    }

    /// Whether both are the same message: all but where it is, and the times that an import sets anew.
    pub(crate) fn is_copy_of(&self, other: &Self) -> bool {
        let sent = |record: &Self| Self {
            queue: None,
            facts: Map::new(),
            created_at_ms: None,
            scheduled_at_ms: None,
            time_to_live_ms: None,
            ..record.clone()
        };
        sent(self) == sent(other)
    }

    /// Gives the message another id.
    pub(crate) fn set_message_id(&mut self, id: String) {
        self.message_id = Some(id.into());
    }

    /// Has the message become active at once.
    pub(crate) fn clear_schedule(&mut self) {
        self.scheduled_at_ms = None;
    }

    /// Whether the message becomes active later than now.
    pub(crate) fn is_scheduled(&self, now: SystemTime) -> bool {
        let now_ms = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = i64::try_from(now_ms.as_millis()).unwrap_or(i64::MAX);
        self.scheduled_at_ms.is_some_and(|at_ms| at_ms > now_ms)
    }

    /// The session and the partition key: messages with the same ones can be sent together.
    pub(crate) fn group(&self) -> (Option<String>, Option<String>) {
        (self.session_id.clone(), self.partition_key.clone())
    }

    /// Has the message sent again with changes, and without the properties that say why it was dead-lettered.
    pub(crate) fn edit(&mut self, edit: &Edit) {
        self.clear_dead_letter_properties();
        for (name, value) in &edit.set {
            self.properties.insert(name.clone(), value::write(value));
        }
        for name in &edit.remove {
            self.properties.remove(name);
        }
        for (place, text) in [
            (&mut self.subject, &edit.subject),
            (&mut self.content_type, &edit.content_type),
            (&mut self.session_id, &edit.session_id),
        ] {
            if text.is_some() {
                place.clone_from(text);
            }
        }
        if let Some(text) = &edit.body {
            self.body = Some(Body::Text(text.clone()));
        }
        self.clear_schedule();
    }
}

/// Changes of a message that is sent again.
#[derive(Debug, Default)]
pub(crate) struct Edit {
    /// Application properties to set.
    pub(crate) set: Vec<(String, Value)>,
    /// Application properties to remove.
    pub(crate) remove: Vec<String>,
    pub(crate) subject: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) body: Option<String>,
    pub(crate) has_new_id: bool,
}

/// Refuses lines of another version.
fn check_version(json: &Json) -> Result<(), String> {
    match json.get("version").and_then(Json::as_u64) {
        Some(VERSION) => Ok(()),
        Some(other) => Err(format!(
            "it has version {other} of the format, and this program reads version {VERSION}"
        )),
        None => Err("it has no \"version\": it is not an exported message".into()),
    }
}

/// An id that no other message has.
pub(crate) fn new_id() -> Result<String, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| format!("there is no random number: {error}"))?;
    Ok(Uuid(bytes).text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_that_has_passed_is_none() {
        let mut record = Record::empty(Service::ServiceBus);
        for (at_ms, expected) in [
            (None, false),
            (Some(-1), false),
            (Some(0), false),
            (Some(1), true),
        ] {
            record.scheduled_at_ms = at_ms;
            assert_eq!(record.is_scheduled(UNIX_EPOCH), expected, "{at_ms:?}");
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for (line, named) in [
            ("", "EOF"),
            ("[1", "EOF"),
            ("{}", "no \"version\""),
            (r#"{"version": 2, "service": "service-bus"}"#, "version 2"),
            (r#"{"version": 1}"#, "service"),
            (r#"{"version": 1, "service": "mail"}"#, "mail"),
            (
                r#"{"version": 1, "service": "service-bus", "tag": 1}"#,
                "tag",
            ),
            (
                r#"{"version": 1, "service": "service-bus", "body": {"html": ""}}"#,
                "html",
            ),
        ] {
            let error = Record::read(line.as_bytes()).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
        assert!(
            Record::read(br#"{"version": 1, "service": "queue-storage", "body": {"text": "x"}}"#)
                .is_ok()
        );
    }
}
