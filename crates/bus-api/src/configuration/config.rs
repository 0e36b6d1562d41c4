//! The emulator's configuration file: Kew reads queues from it and writes them to it.
//!
//! The file is JSON with comments. Its schema is `UserConfig.Namespaces[].Queues[]` with the
//! properties of [`Properties`]. Unknown properties are refused by name, and so are topics and more
//! than one namespace, which Kew does not support. The file does not contain a queue's messages,
//! authorization rules, user metadata, state, sizes and time to idle.
//!
//! Source: the Service Bus emulator, `Config.json`.

use jsonc_parser::{ParseOptions, parse_to_serde_value};
use kew_engine::EntityName;
use kew_engine::bus::{BusQueueOptions, BusQueueView};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::authorization::description::Description;
use crate::configuration::duration;
use crate::ground::address::{entity_named, is_queue_name};
use crate::ground::constants::DUPLICATE_WINDOW_MS;
use crate::ground::constants::NAMESPACE;

/// An error in a configuration file, or in one of its entries.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct ImportError(pub(crate) String);

/// A queue of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedQueue {
    /// Its name, as the file spells it.
    pub name: String,
    pub(crate) entity: EntityName,
    /// Its settings.
    pub options: BusQueueOptions,
}

/// The content of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct BusConfig {
    user_config: UserConfig,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct UserConfig {
    namespaces: Vec<Namespace>,
    /// How the emulator logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logging: Option<serde_json::Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Namespace {
    name: String,
    #[serde(default)]
    queues: Vec<Queue>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    topics: Vec<Topic>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Topic {
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Queue {
    name: String,
    #[serde(default)]
    properties: Properties,
}

/// The settings of a queue in the file; durations are in ISO 8601.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
struct Properties {
    dead_lettering_on_message_expiration: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_message_time_to_live: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate_detection_history_time_window: Option<String>,
    forward_dead_lettered_messages_to: String,
    forward_to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_duration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_delivery_count: Option<u32>,
    requires_duplicate_detection: bool,
    requires_session: bool,
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

/// Reads a configuration file.
pub fn read_config(text: &str) -> Result<Vec<ImportedQueue>, ImportError> {
    let file: BusConfig = parse_to_serde_value(text, &JSON_WITH_COMMENTS)
        .map_err(|error| ImportError(error.to_string()))?;
    file.queues()
}

impl BusConfig {
    /// A file with the existing queues.
    pub(crate) fn of_queues(views: &[BusQueueView]) -> Self {
        let queues = views.iter().map(exported);
        let namespace = Namespace {
            name: NAMESPACE.into(),
            queues: queues.collect(),
            topics: Vec::new(),
        };
        Self {
            user_config: UserConfig {
                namespaces: vec![namespace],
                logging: None,
            },
        }
    }

    fn queues(&self) -> Result<Vec<ImportedQueue>, ImportError> {
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
        if let Some(topic) = namespace.topics.first() {
            let name = &topic.name;
            return Err(ImportError(format!(
                "topic {name:?}: topics and subscriptions are not served yet"
            )));
        }
        let queues = namespace.queues.iter().map(|queue| {
            imported(queue).map_err(|error| ImportError(format!("queue {:?}: {error}", queue.name)))
        });
        queues.collect()
    }
}

fn imported(queue: &Queue) -> Result<ImportedQueue, ImportError> {
    let name = queue.name.to_lowercase();
    let entity = entity_named(&name).filter(|_| is_queue_name(&name));
    let entity = entity.ok_or_else(|| {
        ImportError(
            "a name must have up to 260 letters, digits and . - _ / with a letter or digit at both \
             ends"
                .into(),
        )
    })?;
    let given = &queue.properties;
    let duration = |property: &str, text: &Option<String>| match text {
        Some(text) => duration::parse(text).map(Some).ok_or_else(|| {
            ImportError(format!(
                "{property} is {text:?}, and must be a duration such as PT1M"
            ))
        }),
        None => Ok(None),
    };
    let unset = BusQueueOptions::default();
    let time_to_live = duration(
        "DefaultMessageTimeToLive",
        &given.default_message_time_to_live,
    )?;
    let lock = duration("LockDuration", &given.lock_duration)?;
    let window = duration(
        "DuplicateDetectionHistoryTimeWindow",
        &given.duplicate_detection_history_time_window,
    )?;
    let forward = |to: &str| (!to.is_empty()).then(|| to.to_lowercase().into_boxed_str());
    let description = Description {
        forward_to: given.forward_to.clone(),
        forward_dead_letters_to: given.forward_dead_lettered_messages_to.clone(),
        duplicate_window_ms: window.filter(|_| !given.requires_duplicate_detection),
        ..Description::named(&queue.name)
    };
    let options = BusQueueOptions {
        lock_duration_ms: lock.unwrap_or(unset.lock_duration_ms),
        max_delivery_count: given.max_delivery_count.unwrap_or(unset.max_delivery_count),
        default_time_to_live_ms: time_to_live.unwrap_or(unset.default_time_to_live_ms),
        requires_session: given.requires_session,
        duplicate_window_ms: given
            .requires_duplicate_detection
            .then(|| window.unwrap_or(DUPLICATE_WINDOW_MS)),
        dead_letters_expired: given.dead_lettering_on_message_expiration,
        forward_to: forward(&given.forward_to),
        forward_dead_letters_to: forward(&given.forward_dead_lettered_messages_to),
        description: description.encode(),
        ..unset
    };
    options
        .check()
        .map_err(|error| ImportError(error.to_string()))?;
    Ok(ImportedQueue {
        name: queue.name.clone(),
        entity,
        options,
    })
}

/// A queue in the form of a file.
fn exported(view: &BusQueueView) -> Queue {
    let options = &view.options;
    let description = Description::decode(&options.description);
    let spelled = |spelling: String, name: &str| match spelling.to_lowercase() == name {
        true => spelling,
        false => name.to_owned(),
    };
    let forwarded = |spelling: String, to: &Option<Box<str>>| match to {
        Some(to) => spelled(spelling, to),
        None => String::new(),
    };
    let window = options
        .duplicate_window_ms
        .or(description.duplicate_window_ms);
    Queue {
        name: spelled(description.name, &view.name),
        properties: Properties {
            dead_lettering_on_message_expiration: options.dead_letters_expired,
            default_message_time_to_live: Some(duration::format(options.default_time_to_live_ms)),
            duplicate_detection_history_time_window: window.map(duration::format),
            forward_dead_lettered_messages_to: forwarded(
                description.forward_dead_letters_to,
                &options.forward_dead_letters_to,
            ),
            forward_to: forwarded(description.forward_to, &options.forward_to),
            lock_duration: Some(duration::format(options.lock_duration_ms)),
            max_delivery_count: Some(options.max_delivery_count),
            requires_duplicate_detection: options.duplicate_window_ms.is_some(),
            requires_session: options.requires_session,
        },
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
        let queues = read_config(FILE).unwrap();
        let [queue] = queues.as_slice() else {
            panic!("{queues:?}")
        };
        assert_eq!(
            (queue.name.as_str(), &*queue.entity.name),
            ("Orders.In", "orders.in")
        );
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
        let topics = "\"sbemulatorns\", \"Topics\": [{ \"Name\": \"t.1\", \"Properties\": {} }]";
        assert!(refused("\"sbemulatorns\"", topics).contains("topic \"t.1\""));
        assert!(refused("\"UserConfig\"", "\"User\"").contains("User"));
    }
}
