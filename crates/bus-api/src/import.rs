//! Queues from the emulator's configuration file.
//!
//! The file is JSON with comments; its schema is `UserConfig.Namespaces[].Queues[]` with the
//! properties that are listed in [`Properties`]. What is not known is refused and named, and so is
//! what is not served: topics, and more than one namespace.
//!
//! Source: the Service Bus emulator, `Config.json`.

use kew_broker::{Answer, Broker, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueOptions, BusRefusal};
use kew_engine::{EntityName, Outcome, Refusal};
use serde::Deserialize;
use thiserror::Error;

use crate::address::{entity_named, is_queue_name};
use crate::api::NAMESPACE;
use crate::description::Description;
use crate::duration;
use crate::submit::Submitted;

/// What is wrong with a configuration file, or with an entry in it.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct ImportError(String);

/// A queue of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedQueue {
    /// Its name as it is written there.
    pub name: String,
    pub(crate) entity: EntityName,
    /// Its settings.
    pub options: BusQueueOptions,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct File {
    user_config: UserConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct UserConfig {
    namespaces: Vec<Namespace>,
    /// How the emulator logs.
    #[serde(default, rename = "Logging")]
    _logging: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Namespace {
    name: String,
    #[serde(default)]
    queues: Vec<Queue>,
    #[serde(default)]
    topics: Vec<Topic>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Topic {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Queue {
    name: String,
    #[serde(default)]
    properties: Properties,
}

/// The settings of a queue in the file; durations are in ISO 8601.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
struct Properties {
    dead_lettering_on_message_expiration: bool,
    default_message_time_to_live: Option<String>,
    duplicate_detection_history_time_window: Option<String>,
    forward_dead_lettered_messages_to: String,
    forward_to: String,
    lock_duration: Option<String>,
    max_delivery_count: Option<u32>,
    requires_duplicate_detection: bool,
    requires_session: bool,
}

/// Reads a configuration file.
pub fn read_config(text: &str) -> Result<Vec<ImportedQueue>, ImportError> {
    let file: File = serde_json::from_str(&without_comments(text))
        .map_err(|error| ImportError(error.to_string()))?;
    let [namespace] = file.user_config.namespaces.as_slice() else {
        let count = file.user_config.namespaces.len();
        return Err(ImportError(format!(
            "{count} namespaces: there must be one"
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
    let mut queues = Vec::new();
    for queue in &namespace.queues {
        let read = imported(queue);
        queues.push(read.map_err(|error| ImportError(format!("queue {:?}: {error}", queue.name)))?);
    }
    Ok(queues)
}

fn imported(queue: &Queue) -> Result<ImportedQueue, ImportError> {
    let name = queue.name.to_lowercase();
    let entity = entity_named(&name).filter(|_| is_queue_name(&name));
    let entity = entity.ok_or_else(|| {
        ImportError(
            "a name has up to 260 letters, digits and . - _ / with a letter or digit at both ends"
                .into(),
        )
    })?;
    let given = &queue.properties;
    let duration = |property: &str, text: &Option<String>| match text {
        Some(text) => duration::parse(text).map(Some).ok_or_else(|| {
            ImportError(format!(
                "{property} is {text:?}, and not a duration such as PT1M"
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
        description: Description::named(&queue.name).encode(),
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

/// The window of a queue that detects duplicates and says nothing of it: the service's 10 min.
pub(crate) const DUPLICATE_WINDOW_MS: u64 = 600_000;

/// Creates the queues that are not there, and gives the others these settings. Messages stay.
///
/// A queue that others forward to must be there before them: so those that miss it are tried again
/// after the others, as long as that helps.
pub async fn import(broker: &Broker, mut queues: Vec<ImportedQueue>) -> Result<(), ImportError> {
    while !queues.is_empty() {
        let before = queues.len();
        let mut missed = Vec::new();
        let mut why = None;
        for queue in queues {
            match put(broker, &queue).await {
                Ok(()) => {}
                Err(Rejection::Refused(Refusal::Bus(
                    refusal @ BusRefusal::DestinationNotFound { .. },
                ))) => {
                    why = Some(ImportError(format!("queue {:?}: {refusal}", queue.name)));
                    missed.push(queue);
                }
                Err(rejection) => {
                    return Err(ImportError(format!("queue {:?}: {rejection}", queue.name)));
                }
            }
        }
        if let Some(why) = why.filter(|_| missed.len() == before) {
            return Err(why);
        }
        queues = missed;
    }
    Ok(())
}

async fn put(broker: &Broker, queue: &ImportedQueue) -> Result<(), Rejection> {
    let (entity, options) = (queue.entity.clone(), queue.options.clone());
    let create = BusCommand::CreateQueue {
        queue: entity.clone(),
        options: options.clone(),
    };
    let mut done = Submitted::new(broker, create).answer().await;
    if let Err(Rejection::Refused(Refusal::Bus(BusRefusal::QueueAlreadyExists { .. }))) = done {
        let read = BusCommand::ReadQueue {
            queue: entity.clone(),
        };
        done = Submitted::new(broker, read).answer().await;
        if let Ok(Answer {
            outcome: Outcome::Bus(BusOutcome::Queue(view)),
            ..
        }) = done
        {
            // The file says nothing of its rules, nor of what its owner wrote about it.
            let options = BusQueueOptions {
                description: view.options.description,
                ..options
            };
            let update = BusCommand::UpdateQueue {
                queue: entity,
                options,
            };
            done = Submitted::new(broker, update).answer().await;
        }
    }
    done.map(drop)
}

/// The text without `//` and `/* */` comments and commas before a closing bracket, which JSON does
/// not have. Lines stay where they are.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut is_string = false;
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(_)) if is_string => {
                out.push(c);
                out.extend(chars.next());
            }
            ('"', _) => {
                is_string = !is_string;
                out.push(c);
            }
            ('/', Some('/')) if !is_string => while chars.next_if(|&c| c != '\n').is_some() {},
            ('/', Some('*')) if !is_string => {
                let mut last = ' ';
                for c in chars.by_ref() {
                    if c == '\n' {
                        out.push(c);
                    }
                    if (last, c) == ('*', '/') {
                        break;
                    }
                    last = c;
                }
            }
            ('}' | ']', _) if !is_string => {
                let kept = out.trim_end().len();
                if out.get(..kept).is_some_and(|kept| kept.ends_with(',')) {
                    out.replace_range(kept - 1..kept, " ");
                }
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::{AuthorizationRule, Rights};

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

    #[tokio::test]
    async fn importing_again_keeps_what_the_file_does_not_say() {
        let broker = Broker::start_in_memory().unwrap();
        let [queue] = <[_; 1]>::try_from(read_config(FILE).unwrap()).unwrap();
        import(&broker, vec![queue.clone()]).await.unwrap();
        let rule = AuthorizationRule::generate("r", Rights::ALL, 1).unwrap();
        let description = Description {
            rules: vec![rule],
            ..Description::named(&queue.name)
        };
        let update = BusCommand::UpdateQueue {
            queue: queue.entity.clone(),
            options: BusQueueOptions {
                description: description.encode(),
                max_delivery_count: 9,
                ..queue.options.clone()
            },
        };
        Submitted::new(&broker, update).answer().await.unwrap();
        import(&broker, vec![queue.clone()]).await.unwrap();
        let read = BusCommand::ReadQueue {
            queue: queue.entity,
        };
        let answer = Submitted::new(&broker, read).answer().await.unwrap();
        let Outcome::Bus(BusOutcome::Queue(view)) = answer.outcome else {
            panic!("{:?}", answer.outcome)
        };
        assert_eq!(Description::decode(&view.options.description), description);
        assert_eq!(view.options.max_delivery_count, 3);
        broker.stop();
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
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

    #[tokio::test]
    async fn queues_may_forward_to_those_below_them() {
        let file = |last: &str| {
            let queue = |name: &str, to: &str| {
                format!(r#"{{"Name": "{name}", "Properties": {{"ForwardTo": "{to}"}}}}"#)
            };
            let queues = [queue("a", "b"), queue("b", "c"), queue("c", last)].join(",");
            format!(
                r#"{{"UserConfig": {{"Namespaces": [{{"Name": "sbemulatorns", "Queues": [{queues}]}}]}}}}"#
            )
        };
        let broker = Broker::start_in_memory().unwrap();
        let missing = import(&broker, read_config(&file("nowhere")).unwrap()).await;
        assert!(missing.unwrap_err().to_string().contains("nowhere"));
        for _ in 0..2 {
            let queues = read_config(&file("")).unwrap();
            import(&broker, queues).await.unwrap();
        }
        broker.stop();
    }
}
