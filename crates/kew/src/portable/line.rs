//! The lines of an export of a whole namespace or account: definitions of queues, states of sessions, messages, and the
//! line that ends it.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value as Json};

use super::{Record, Section, Service, VERSION, check_version};

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    Message(Box<Record>),
    BusQueue(Box<Defined<BusDefinition>>),
    StorageQueue(Box<Defined<StorageDefinition>>),
    SessionState(SessionState),
    End(Totals),
}

/// A queue and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Defined<D> {
    version: u64,
    service: Service,
    pub(crate) queue: String,
    pub(crate) definition: D,
}

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

/// An authorization rule of a queue.
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

/// The state of a message session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionState {
    version: u64,
    service: Service,
    pub(crate) queue: String,
    pub(crate) session_id: String,
    session_state: Section,
}

/// How many lines of each kind an export has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Totals {
    pub(crate) definitions: u64,
    pub(crate) session_states: u64,
    pub(crate) messages: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    version: u64,
    end: Totals,
}

impl Line {
    /// Reads a line, or says what is wrong with it.
    pub(crate) fn read(line: &[u8]) -> Result<Self, String> {
        let json: Json = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        check_version(&json)?;
        let is_of_storage = json.get("service").and_then(Json::as_str) == Some("queue-storage");
        let has = |name: &str| json.get(name).is_some();
        let read = if has("end") {
            serde_json::from_value(json).map(|End { end, .. }| Self::End(end))
        } else if has("definition") && is_of_storage {
            serde_json::from_value(json).map(Self::StorageQueue)
        } else if has("definition") {
            serde_json::from_value(json).map(Self::BusQueue)
        } else if has("session_state") {
            serde_json::from_value(json).map(Self::SessionState)
        } else {
            serde_json::from_value(json).map(Self::Message)
        };
        read.map_err(|error| error.to_string())
    }
}

/// As it is written.
impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Message(it) => it.serialize(serializer),
            Self::BusQueue(it) => it.serialize(serializer),
            Self::StorageQueue(it) => it.serialize(serializer),
            Self::SessionState(it) => it.serialize(serializer),
            Self::End(end) => {
                let (version, end) = (VERSION, *end);
                End { version, end }.serialize(serializer)
            }
        }
    }
}

impl Defined<BusDefinition> {
    pub(crate) fn of_bus(queue: &str, definition: BusDefinition) -> Self {
        Self {
            version: VERSION,
            service: Service::ServiceBus,
            queue: queue.to_owned(),
            definition,
        }
    }
}

impl Defined<StorageDefinition> {
    pub(crate) fn of_storage(queue: &str, definition: StorageDefinition) -> Self {
        Self {
            version: VERSION,
            service: Service::QueueStorage,
            queue: queue.to_owned(),
            definition,
        }
    }
}

impl SessionState {
    pub(crate) fn new(queue: &str, session_id: &str, state: &[u8]) -> Self {
        Self {
            version: VERSION,
            service: Service::ServiceBus,
            queue: queue.to_owned(),
            session_id: session_id.to_owned(),
            session_state: Section::of(state),
        }
    }

    /// The bytes of the state.
    pub(crate) fn state(&self) -> Result<bytes::Bytes, String> {
        self.session_state.bytes("session_state")
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            definitions,
            session_states,
            messages,
        } = self;
        write!(
            f,
            "{definitions} queues, {messages} messages and {session_states} states of sessions"
        )
    }
}

impl Totals {
    /// Counts a line.
    pub(crate) fn add(&mut self, line: &Line) {
        match line {
            Line::Message(_) => self.messages += 1,
            Line::BusQueue(_) | Line::StorageQueue(_) => self.definitions += 1,
            Line::SessionState(_) => self.session_states += 1,
            Line::End(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_is_read_as_it_was_written() {
        let bus = BusDefinition {
            status: Some("Disabled".into()),
            lock_duration_ms: Some(30_000),
            authorization_rules: vec![Rule {
                name: "r".into(),
                rights: vec!["Send".into()],
                primary_key: Some("k".into()),
                secondary_key: None,
            }],
            ..BusDefinition::default()
        };
        let storage = StorageDefinition {
            metadata: [("a".to_owned(), Json::from("b"))].into_iter().collect(),
            access_policies: vec![Policy {
                id: "p".into(),
                start_ms: None,
                expiry_ms: Some(7),
                permissions: Some("r".into()),
            }],
        };
        let lines = [
            Line::BusQueue(Box::new(Defined::of_bus("orders", bus))),
            Line::StorageQueue(Box::new(Defined::of_storage("jobs", storage))),
            Line::SessionState(SessionState::new("talks", "s", b"\xff\x00")),
            Line::Message(Box::new(Record::empty(Service::QueueStorage))),
            Line::End(Totals {
                messages: 3,
                ..Totals::default()
            }),
        ];
        let mut totals = Totals::default();
        for line in lines {
            totals.add(&line);
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(Line::read(text.as_bytes()), Ok(line), "{text}");
        }
        assert_eq!(
            (totals.definitions, totals.session_states, totals.messages),
            (2, 1, 1)
        );
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for (line, named) in [
            ("{", "EOF"),
            ("{}", "no \"version\""),
            (r#"{"version": 2, "end": {}}"#, "version 2"),
            (r#"{"version": 1, "end": {}}"#, "definitions"),
            (
                r#"{"version": 1, "service": "service-bus", "queue": "q", "definition": {"color": 1}}"#,
                "color",
            ),
            (
                r#"{"version": 1, "service": "service-bus", "definition": {}}"#,
                "queue",
            ),
            (
                r#"{"version": 1, "service": "queue-storage", "queue": "q", "definition": {"status": "Active"}}"#,
                "status",
            ),
            (
                r#"{"version": 1, "service": "service-bus", "queue": "q", "session_state": {"text": "x"}}"#,
                "session_id",
            ),
            (
                r#"{"version": 1, "service": "service-bus", "tag": 1}"#,
                "tag",
            ),
        ] {
            let error = Line::read(line.as_bytes()).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
