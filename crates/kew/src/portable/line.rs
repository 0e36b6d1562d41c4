//! The lines of an export of a whole namespace or account: definitions of entities, rules, states of sessions,
//! messages, and the line that ends it.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value as Json;

use super::definition::{
    BusDefinition, StorageDefinition, SubscriptionDefinition, TopicDefinition,
};
use super::rule::{RuleFilter, RuleSql};
use super::{Record, Section, Service, VERSION, check_version};

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    Message(Box<Record>),
    BusQueue(Box<Defined<BusDefinition>>),
    StorageQueue(Box<Defined<StorageDefinition>>),
    Topic(Box<DefinedTopic>),
    Subscription(Box<DefinedSubscription>),
    Rule(Box<DefinedRule>),
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

/// A topic and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefinedTopic {
    version: u64,
    service: Service,
    pub(crate) topic: String,
    pub(crate) definition: TopicDefinition,
}

/// A subscription of a topic and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefinedSubscription {
    version: u64,
    service: Service,
    pub(crate) topic: String,
    pub(crate) subscription: String,
    pub(crate) definition: SubscriptionDefinition,
}

/// A rule of a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefinedRule {
    version: u64,
    service: Service,
    pub(crate) topic: String,
    pub(crate) subscription: String,
    pub(crate) rule: String,
    pub(crate) filter: RuleFilter,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<RuleSql>,
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
    /// Queues, topics, subscriptions and rules.
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
        } else if has("definition") && has("subscription") {
            serde_json::from_value(json).map(Self::Subscription)
        } else if has("definition") && has("topic") {
            serde_json::from_value(json).map(Self::Topic)
        } else if has("definition") {
            serde_json::from_value(json).map(Self::BusQueue)
        } else if has("rule") && !is_of_storage {
            serde_json::from_value(json).map(Self::Rule)
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
            Self::Topic(it) => it.serialize(serializer),
            Self::Subscription(it) => it.serialize(serializer),
            Self::Rule(it) => it.serialize(serializer),
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

impl DefinedTopic {
    pub(crate) fn new(topic: &str, definition: TopicDefinition) -> Self {
        Self {
            version: VERSION,
            service: Service::ServiceBus,
            topic: topic.to_owned(),
            definition,
        }
    }
}

impl DefinedSubscription {
    pub(crate) fn new(
        (topic, subscription): (&str, &str),
        definition: SubscriptionDefinition,
    ) -> Self {
        Self {
            version: VERSION,
            service: Service::ServiceBus,
            topic: topic.to_owned(),
            subscription: subscription.to_owned(),
            definition,
        }
    }
}

impl DefinedRule {
    pub(crate) fn new(
        (topic, subscription): (&str, &str),
        rule: &str,
        (filter, action): (RuleFilter, Option<RuleSql>),
    ) -> Self {
        Self {
            version: VERSION,
            service: Service::ServiceBus,
            topic: topic.to_owned(),
            subscription: subscription.to_owned(),
            rule: rule.to_owned(),
            filter,
            action,
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
            "{definitions} definitions, {messages} messages and {session_states} states of sessions"
        )
    }
}

impl Totals {
    /// Counts a line.
    pub(crate) fn add(&mut self, line: &Line) {
        match line {
            Line::Message(_) => self.messages += 1,
            Line::BusQueue(_)
            | Line::StorageQueue(_)
            | Line::Topic(_)
            | Line::Subscription(_)
            | Line::Rule(_) => self.definitions += 1,
            Line::SessionState(_) => self.session_states += 1,
            Line::End(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::definition::{Policy, Rule};
    use super::super::rule::RuleConditions;
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
        let topic = TopicDefinition {
            filters_before_publishing: Some(false),
            duplicate_window_ms: Some(20_000),
            ..TopicDefinition::default()
        };
        let subscription = SubscriptionDefinition {
            dead_letters_filter_failures: Some(true),
            forward_to: Some("orders".into()),
            ..SubscriptionDefinition::default()
        };
        let sql = RuleSql {
            text: "size > @least".into(),
            parameters: [("@least".to_owned(), json!({"int": 10}))]
                .into_iter()
                .collect(),
            compatibility_level: Some(10),
        };
        let conditions = RuleConditions {
            subject: Some("order".into()),
            properties: [("n".to_owned(), json!({"ulong": 7}))]
                .into_iter()
                .collect(),
            ..RuleConditions::default()
        };
        let rule = |filter, action| {
            let content = (filter, action);
            Line::Rule(Box::new(DefinedRule::new(("news", "mail"), "r", content)))
        };
        let lines = [
            Line::BusQueue(Box::new(Defined::of_bus("orders", bus))),
            Line::StorageQueue(Box::new(Defined::of_storage("jobs", storage))),
            Line::Topic(Box::new(DefinedTopic::new("news", topic))),
            Line::Subscription(Box::new(DefinedSubscription::new(
                ("news", "mail"),
                subscription,
            ))),
            rule(RuleFilter::True, None),
            rule(RuleFilter::False, None),
            rule(RuleFilter::Sql(sql.clone()), Some(sql)),
            rule(RuleFilter::Correlation(Box::new(conditions)), None),
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
            (8, 1, 1)
        );
    }

    /// What the document shows.
    #[test]
    fn lines_of_topics_are_read() {
        let line = |members: &str| {
            let text =
                format!(r#"{{"version":1,"service":"service-bus","topic":"news",{members}}}"#);
            let line = Line::read(text.as_bytes()).unwrap();
            assert_eq!(serde_json::to_string(&line).unwrap(), text);
        };
        line(r#""definition":{"status":"Active","filters_before_publishing":false}"#);
        line(r#""subscription":"mail","definition":{"max_delivery_count":10}"#);
        line(r#""subscription":"mail","rule":"all","filter":"true""#);
        line(
            r#""subscription":"mail","rule":"large","filter":{"sql":{"text":"size > @least","parameters":{"@least":{"int":10}}}},"action":{"text":"SET seen = 1"}"#,
        );
        line(
            r#""subscription":"mail","rule":"red","filter":{"correlation":{"subject":"order","properties":{"color":"red","count":{"long":7}}}}"#,
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
            (
                r#"{"version": 1, "service": "service-bus", "topic": "t", "definition": {"lock_duration_ms": 1}}"#,
                "lock_duration_ms",
            ),
            (
                r#"{"version": 1, "service": "service-bus", "topic": "t", "subscription": "s", "definition": {"rules": []}}"#,
                "rules",
            ),
            (
                r#"{"version": 1, "service": "queue-storage", "topic": "t", "definition": {}}"#,
                "topic",
            ),
            (
                r#"{"version": 1, "service": "queue-storage", "topic": "t", "rule": "r", "filter": "true"}"#,
                "filter",
            ),
            (
                r#"{"version": 1, "service": "service-bus", "topic": "t", "subscription": "s", "rule": "r"}"#,
                "filter",
            ),
            (
                r#"{"version": 1, "service": "service-bus", "topic": "t", "subscription": "s", "rule": "r", "filter": "all"}"#,
                "expected one of `true`, `false`, `sql`, `correlation`",
            ),
            (
                r#"{"version": 1, "service": "service-bus", "topic": "t", "subscription": "s", "rule": "r", "filter": {"sql": {"text": "a", "level": 1}}}"#,
                "level",
            ),
            (
                r#"{"version": 1, "service": "service-bus", "topic": "t", "subscription": "s", "rule": "r", "filter": {"correlation": {"label": "a"}}}"#,
                "label",
            ),
        ] {
            let error = Line::read(line.as_bytes()).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
