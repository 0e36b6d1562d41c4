//! The emulator's configuration file: Kew reads queues, topics, subscriptions and rules from it, and writes them to it.
//!
//! The file is JSON with comments. Unknown properties are refused by name, and so is more than one namespace, which Kew
//! does not support. The file does not contain messages, authorization rules, user metadata, state, sizes, time to idle
//! and whether a topic filters before it publishes.
//!
//! Source: the Service Bus emulator, `Config.json`.

use std::collections::BTreeSet;

use kew_engine::bus::{BusQueueOptions, BusQueueView, BusRuleView, NewRule};
use kew_engine::{EntityName, SUBSCRIPTIONS};
use kew_filter::{Definition, FilterDefinition};
use thiserror::Error;

use super::file::{self, BusConfig};
use super::rule;
use crate::authorization::description::Description;
use crate::configuration::duration;
use crate::ground::address::{entity_named, is_queue_name, topic_of};
use crate::ground::constants::DUPLICATE_WINDOW_MS;

/// An error in a configuration file, or in one of its entries.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct ImportError(pub(crate) String);

/// What a configuration file asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Queues, then topics, then subscriptions.
    pub(super) entities: Vec<ImportedEntity>,
}

impl Imported {
    /// How many queues, topics and subscriptions there are.
    pub fn count(&self) -> usize {
        self.entities.len()
    }
}

/// A queue, topic or subscription of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImportedEntity {
    pub(super) entity: EntityName,
    pub(super) kind: ImportedKind,
    pub(super) options: BusQueueOptions,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImportedKind {
    Queue,
    Topic,
    /// With the rules that it has in place of `$Default`, if there are any.
    Subscription {
        topic: EntityName,
        rules: Vec<NewRule>,
    },
}

impl ImportedEntity {
    /// An error in it.
    pub(super) fn failed(&self, why: impl std::fmt::Display) -> ImportError {
        let kind = match self.kind {
            ImportedKind::Queue => "queue",
            ImportedKind::Topic => "topic",
            ImportedKind::Subscription { .. } => "subscription",
        };
        failed(
            kind,
            &Description::decode(&self.options.description).name,
            why,
        )
    }
}

fn failed(kind: &str, name: &str, why: impl std::fmt::Display) -> ImportError {
    ImportError(format!("{kind} {name:?}: {why}"))
}

/// Reads a configuration file.
pub fn read_config(text: &str) -> Result<Imported, ImportError> {
    let config = BusConfig::parse(text)?;
    let namespace = config.namespace()?;
    let mut entities = Vec::new();
    for queue in &namespace.queues {
        let read = queue_of(queue).map_err(|why| failed("queue", &queue.name, why))?;
        entities.push(read);
    }
    for topic in &namespace.topics {
        let read = topic_entity(topic).map_err(|why| failed("topic", &topic.name, why))?;
        entities.push(read);
    }
    for topic in &namespace.topics {
        for subscription in &topic.subscriptions {
            let path = format!("{}/Subscriptions/{}", topic.name, subscription.name);
            let read = subscription_of(&path, subscription);
            entities.push(read.map_err(|why| failed("subscription", &path, why))?);
        }
    }
    let mut names = BTreeSet::new();
    for entity in &entities {
        if !names.insert(&entity.entity) {
            return Err(entity.failed(match entity.kind {
                ImportedKind::Queue | ImportedKind::Topic => {
                    "there is another queue or topic of that name"
                }
                ImportedKind::Subscription { .. } => {
                    "there is another subscription of that name in this topic"
                }
            }));
        }
    }
    Ok(Imported { entities })
}

fn queue_of(queue: &file::Queue) -> Result<ImportedEntity, ImportError> {
    let given = &queue.properties;
    let window = duplicate_window(&given.duplicate_detection_history_time_window)?;
    let (forward_to, forward_dead_letters_to) =
        (&given.forward_to, &given.forward_dead_lettered_messages_to);
    let description = Description {
        forward_to: forward_to.clone(),
        forward_dead_letters_to: forward_dead_letters_to.clone(),
        duplicate_window_ms: window.filter(|_| !given.requires_duplicate_detection),
        ..Description::named(&queue.name)
    };
    let unset = BusQueueOptions::default();
    let options = BusQueueOptions {
        lock_duration_ms: lock(&given.lock_duration)?,
        max_delivery_count: given.max_delivery_count.unwrap_or(unset.max_delivery_count),
        default_time_to_live_ms: time_to_live(&given.default_message_time_to_live)?,
        requires_session: given.requires_session,
        duplicate_window_ms: given
            .requires_duplicate_detection
            .then(|| window.unwrap_or(DUPLICATE_WINDOW_MS)),
        dead_letters_expired: given.dead_lettering_on_message_expiration,
        forward_to: destination(forward_to),
        forward_dead_letters_to: destination(forward_dead_letters_to),
        description: description.encode(),
        ..unset
    };
    entity(named(&queue.name)?, ImportedKind::Queue, options)
}

fn topic_entity(topic: &file::Topic) -> Result<ImportedEntity, ImportError> {
    let given = &topic.properties;
    let window = duplicate_window(&given.duplicate_detection_history_time_window)?;
    let description = Description {
        duplicate_window_ms: window.filter(|_| !given.requires_duplicate_detection),
        ..Description::named(&topic.name)
    };
    let options = BusQueueOptions {
        default_time_to_live_ms: time_to_live(&given.default_message_time_to_live)?,
        duplicate_window_ms: given
            .requires_duplicate_detection
            .then(|| window.unwrap_or(DUPLICATE_WINDOW_MS)),
        description: description.encode(),
        ..BusQueueOptions::default()
    };
    entity(named(&topic.name)?, ImportedKind::Topic, options)
}

fn subscription_of(
    path: &str,
    subscription: &file::Subscription,
) -> Result<ImportedEntity, ImportError> {
    let given = &subscription.properties;
    let (forward_to, forward_dead_letters_to) =
        (&given.forward_to, &given.forward_dead_lettered_messages_to);
    let description = Description {
        forward_to: forward_to.clone(),
        forward_dead_letters_to: forward_dead_letters_to.clone(),
        ..Description::named(path)
    };
    let unset = BusQueueOptions::default();
    let options = BusQueueOptions {
        lock_duration_ms: lock(&given.lock_duration)?,
        max_delivery_count: given.max_delivery_count.unwrap_or(unset.max_delivery_count),
        default_time_to_live_ms: time_to_live(&given.default_message_time_to_live)?,
        requires_session: given.requires_session,
        dead_letters_expired: given.dead_lettering_on_message_expiration,
        dead_letters_filter_failures: true,
        forward_to: destination(forward_to),
        forward_dead_letters_to: destination(forward_dead_letters_to),
        description: description.encode(),
        ..unset
    };
    let name = entity_named(&path.to_lowercase());
    let found = name.and_then(|name| topic_of(&name).map(|topic| (name, topic)));
    let (name, topic) = found.ok_or_else(|| {
        ImportError(
            "a name must have up to 50 letters, digits and . - _ with a letter or digit at both ends"
                .into(),
        )
    })?;
    let rules = subscription
        .rules
        .iter()
        .map(|rule| rule::imported(rule).map_err(|why| failed("rule", &rule.name, why)));
    let rules: Vec<NewRule> = rules.collect::<Result<_, _>>()?;
    let mut names = BTreeSet::new();
    for rule in &rules {
        if !names.insert(rule.name.to_ascii_lowercase()) {
            return Err(failed(
                "rule",
                &rule.name,
                "there is another one of that name",
            ));
        }
    }
    entity(name, ImportedKind::Subscription { topic, rules }, options)
}

fn entity(
    entity: EntityName,
    kind: ImportedKind,
    options: BusQueueOptions,
) -> Result<ImportedEntity, ImportError> {
    let checked = options.check();
    checked.map_err(|error| ImportError(error.to_string()))?;
    Ok(ImportedEntity {
        entity,
        kind,
        options,
    })
}

fn named(name: &str) -> Result<EntityName, ImportError> {
    let lower = name.to_lowercase();
    let entity = entity_named(&lower).filter(|_| is_queue_name(&lower));
    entity.ok_or_else(|| {
        ImportError(
            "a name must have up to 260 letters, digits and . - _ / with a letter or digit at both \
             ends"
                .into(),
        )
    })
}

fn time_to_live(text: &Option<String>) -> Result<u64, ImportError> {
    let read = read_duration("DefaultMessageTimeToLive", text)?;
    Ok(read.unwrap_or(BusQueueOptions::default().default_time_to_live_ms))
}

fn lock(text: &Option<String>) -> Result<u64, ImportError> {
    let read = read_duration("LockDuration", text)?;
    Ok(read.unwrap_or(BusQueueOptions::default().lock_duration_ms))
}

fn duplicate_window(text: &Option<String>) -> Result<Option<u64>, ImportError> {
    read_duration("DuplicateDetectionHistoryTimeWindow", text)
}

fn read_duration(property: &str, text: &Option<String>) -> Result<Option<u64>, ImportError> {
    let Some(text) = text else { return Ok(None) };
    duration::parse(text).map(Some).ok_or_else(|| {
        ImportError(format!(
            "{property} is {text:?}, and must be a duration such as PT1M"
        ))
    })
}

/// An empty text is no destination.
fn destination(to: &str) -> Option<Box<str>> {
    (!to.is_empty()).then(|| to.to_lowercase().into_boxed_str())
}

/// An existing subscription with its rules.
pub(super) struct Kept {
    pub(super) view: BusQueueView,
    pub(super) rules: Vec<BusRuleView>,
}

/// Without an end there is none in the file: the emulator takes no longer one than an hour.
fn written_time_to_live(options: &BusQueueOptions) -> Option<String> {
    let ends = options.default_time_to_live_ms != u64::MAX;
    ends.then(|| duration::format(options.default_time_to_live_ms))
}

/// A queue in the form of a file.
pub(super) fn exported_queue(view: &BusQueueView) -> file::Queue {
    let (options, spellings) = (&view.options, Spellings::of(view));
    let kept_window = spellings.description.duplicate_window_ms;
    let window = options.duplicate_window_ms.or(kept_window);
    file::Queue {
        name: spellings.name(&view.name),
        properties: file::QueueProperties {
            dead_lettering_on_message_expiration: options.dead_letters_expired,
            default_message_time_to_live: written_time_to_live(options),
            duplicate_detection_history_time_window: window.map(duration::format),
            forward_dead_lettered_messages_to: spellings.forward_dead_letters_to(options),
            forward_to: spellings.forward_to(options),
            lock_duration: Some(duration::format(options.lock_duration_ms)),
            max_delivery_count: Some(options.max_delivery_count),
            requires_duplicate_detection: options.duplicate_window_ms.is_some(),
            requires_session: options.requires_session,
        },
    }
}

/// A topic in the form of a file. `lost` gets what the file cannot have.
pub(super) fn exported_topic(
    view: &BusQueueView,
    subscriptions: &[Kept],
    lost: &mut Vec<String>,
) -> file::Topic {
    let (options, spellings) = (&view.options, Spellings::of(view));
    let kept_window = spellings.description.duplicate_window_ms;
    let window = options.duplicate_window_ms.or(kept_window);
    file::Topic {
        name: spellings.name(&view.name),
        properties: file::TopicProperties {
            default_message_time_to_live: written_time_to_live(options),
            duplicate_detection_history_time_window: window.map(duration::format),
            requires_duplicate_detection: options.duplicate_window_ms.is_some(),
        },
        subscriptions: subscriptions
            .iter()
            .map(|kept| exported_subscription(kept, lost))
            .collect(),
    }
}

fn exported_subscription(kept: &Kept, lost: &mut Vec<String>) -> file::Subscription {
    let (options, spellings) = (&kept.view.options, Spellings::of(&kept.view));
    let path = spellings.name(&kept.view.name);
    let at = path.to_lowercase().rfind(SUBSCRIPTIONS);
    let name = at.and_then(|at| path.get(at + SUBSCRIPTIONS.len()..));
    file::Subscription {
        name: name.unwrap_or(&path).to_owned(),
        properties: file::SubscriptionProperties {
            dead_lettering_on_message_expiration: options.dead_letters_expired,
            default_message_time_to_live: written_time_to_live(options),
            lock_duration: Some(duration::format(options.lock_duration_ms)),
            max_delivery_count: Some(options.max_delivery_count),
            forward_dead_lettered_messages_to: spellings.forward_dead_letters_to(options),
            forward_to: spellings.forward_to(options),
            requires_session: options.requires_session,
        },
        rules: exported_rules(&path, &kept.rules, lost),
    }
}

fn exported_rules(
    subscription: &str,
    rules: &[BusRuleView],
    lost: &mut Vec<String>,
) -> Vec<file::Rule> {
    let mut written = Vec::new();
    for view in rules {
        let of = format!(
            "the rule {:?} of the subscription {subscription:?}",
            view.name
        );
        let Ok(definition) = Definition::decode(&view.definition) else {
            lost.push(format!("{of} cannot be read by this version"));
            continue;
        };
        let is_default = view.name.eq_ignore_ascii_case("$Default")
            && definition.filter() == &FilterDefinition::True
            && definition.action().is_none();
        if is_default && rules.len() == 1 {
            return Vec::new();
        }
        match rule::exported(&view.name, &definition) {
            Ok(rule) => written.push(rule),
            Err(what) => lost.push(format!("{of} has {what}")),
        }
    }
    if written.is_empty() {
        written.push(rule::gets_nothing());
    }
    written
}

/// Names as they were spelled.
struct Spellings {
    description: Description,
}

impl Spellings {
    fn of(view: &BusQueueView) -> Self {
        Self {
            description: Description::decode(&view.options.description),
        }
    }

    fn name(&self, name: &str) -> String {
        spelled(&self.description.name, name)
    }

    fn forward_to(&self, options: &BusQueueOptions) -> String {
        let to = options.forward_to.as_deref();
        to.map_or_else(String::new, |to| spelled(&self.description.forward_to, to))
    }

    fn forward_dead_letters_to(&self, options: &BusQueueOptions) -> String {
        let to = options.forward_dead_letters_to.as_deref();
        let spelling = &self.description.forward_dead_letters_to;
        to.map_or_else(String::new, |to| spelled(spelling, to))
    }
}

/// The spelling of a name, if it is one of that name.
fn spelled(spelling: &str, name: &str) -> String {
    match spelling.to_lowercase() == name {
        true => spelling.to_owned(),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{
        // What the emulator comes with.
        "UserConfig": { "Namespaces": [ { "Name": "sbemulatorns", "Queues": [
            { "Name": "Orders.In", "Properties": {
                "DeadLetteringOnMessageExpiration": true, "DefaultMessageTimeToLive": "PT1H",
                "DuplicateDetectionHistoryTimeWindow": "PT20S", "ForwardTo": "",
                "LockDuration": "PT1M", "MaxDeliveryCount": 3, "RequiresDuplicateDetection": true,
                "RequiresSession": false, /* "X": 1, */
            } },
        ] } ], "Logging": { "Type": "File" } }
    }"#;

    #[test]
    fn a_file_of_the_emulator_is_read() {
        let read = read_config(FILE).unwrap();
        let [queue] = read.entities.as_slice() else {
            panic!("{read:?}")
        };
        assert_eq!(&*queue.entity.name, "orders.in");
        assert_eq!(queue.kind, ImportedKind::Queue);
        let expected = BusQueueOptions {
            dead_letters_expired: true,
            default_time_to_live_ms: 3_600_000,
            duplicate_window_ms: Some(20_000),
            max_delivery_count: 3,
            description: Description::named("Orders.In").encode(),
            ..BusQueueOptions::default()
        };
        assert_eq!(queue.options, expected);
    }

    #[test]
    fn only_comments_and_last_commas_are_more_than_json() {
        for wrong in [
            "{'UserConfig': 1}",
            "{UserConfig: 1}",
            "{\"UserConfig\": 1 \"a\": 2}",
            "",
            "[]",
        ] {
            assert!(read_config(wrong).is_err(), "{wrong}");
        }
        let error = read_config("{\n  \"UserConfig\": oh\n}")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn invalid_values_are_named() {
        let refused = |from: &str, to: &str| {
            assert!(FILE.contains(from));
            read_config(&FILE.replace(from, to))
                .unwrap_err()
                .to_string()
        };
        assert!(refused("\"MaxDeliveryCount\"", "\"MaxDeliveries\"").contains("MaxDeliveries"));
        assert!(refused("PT1M", "1 minute").contains("LockDuration is \"1 minute\""));
        assert!(refused("PT1M", "PT1S").contains("Orders.In"));
        assert!(refused("sbemulatorns", "other").contains("other"));
        assert!(refused("Orders.In", "a b").contains("a b"));
        let topics = |topic: &str| {
            let topics = format!("\"sbemulatorns\", \"Topics\": [{topic}]");
            refused("\"sbemulatorns\"", &topics)
        };
        let wrong = topics(r#"{"Name": "t.1", "Properties": {"DefaultMessageTimeToLive": "1h"}}"#);
        assert!(wrong.contains("topic \"t.1\": DefaultMessageTimeToLive is \"1h\""));
        let wrong = topics(r#"{"Name": "t.1", "Properties": {"LockDuration": "PT1M"}}"#);
        assert!(wrong.contains("LockDuration"), "{wrong}");
        let wrong = topics(r#"{"Name": "T", "Subscriptions": [{"Name": "a/b"}]}"#);
        assert!(
            wrong.contains("subscription \"T/Subscriptions/a/b\": a name must have up to 50"),
            "{wrong}"
        );
        let rule = r#"{"Name": "R", "Properties": {"FilterType": "Sql"}}"#;
        let wrong = topics(&format!(
            r#"{{"Name": "T", "Subscriptions": [{{"Name": "S", "Rules": [{rule}]}}]}}"#
        ));
        let rule = r#"{"Name": "R", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a=1"}}}"#;
        let twice = topics(&format!(
            r#"{{"Name": "T", "Subscriptions": [{{"Name": "S", "Rules": [{rule}, {}]}}]}}"#,
            rule.replace("\"R\"", "\"r\"")
        ));
        assert!(
            twice.contains("rule \"r\": there is another one of that name"),
            "{twice}"
        );
        for (second, says) in [
            (
                r#"{"Name": "t"}"#,
                "topic \"t\": there is another queue or topic of that name",
            ),
            (
                r#"{"Name": "ORDERS.in"}"#,
                "topic \"ORDERS.in\": there is another queue or topic of that name",
            ),
            (
                r#"{"Name": "u", "Subscriptions": [{"Name": "S"}, {"Name": "s"}]}"#,
                "subscription \"u/Subscriptions/s\": there is another subscription of that name in this topic",
            ),
        ] {
            let refused = topics(&format!(r#"{{"Name": "T"}}, {second}"#));
            assert!(refused.contains(says), "{refused}");
        }
        let twice = refused(
            "{ \"Name\": \"Orders.In\"",
            "{\"Name\": \"orders.IN\"}, { \"Name\": \"Orders.In\"",
        );
        assert!(
            twice.contains("queue \"Orders.In\": there is another"),
            "{twice}"
        );
        let says = "subscription \"T/Subscriptions/S\": rule \"R\": FilterType is Sql, and there is no SqlFilter";
        assert!(wrong.contains(says), "{wrong}");
        assert!(refused("\"UserConfig\"", "\"User\"").contains("User"));
    }

    /// What tools write: a byte order mark, and null for what is not set.
    #[test]
    fn files_of_other_tools_are_read() {
        let text = "\u{feff}{\"UserConfig\": {\"Namespaces\": [{\"Name\": \"sbemulatorns\", \"Queues\": [
            {\"Name\": \"q\", \"Properties\": {\"ForwardTo\": null, \"ForwardDeadLetteredMessagesTo\": null}}
        ]}]}}";
        let config = BusConfig::parse(text).unwrap();
        let [queue] = &*config.namespace().unwrap().queues else {
            panic!("one queue");
        };
        assert_eq!(queue.properties.forward_to, "");
    }

    /// The schema of the emulator requires these, and takes no endless time to live.
    #[test]
    fn an_export_has_what_the_emulator_requires() {
        let written = serde_json::to_value(BusConfig::of(Vec::new(), Vec::new())).unwrap();
        let user = &written["UserConfig"];
        assert_eq!(user["Logging"]["Type"], "Console");
        assert_eq!(user["Namespaces"][0]["Topics"], serde_json::json!([]));
        let mut options = BusQueueOptions::default();
        assert_eq!(written_time_to_live(&options), None);
        options.default_time_to_live_ms = 3_600_000;
        assert_eq!(written_time_to_live(&options).as_deref(), Some("PT1H"));
    }
}
