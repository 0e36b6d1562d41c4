//! Imports a configuration file into a broker.

use kew_broker::{Broker, Epoch, Rejection};
use kew_engine::bus::{
    BusCommand, BusOutcome, BusQueueOptions, BusQueueView, BusRefusal, EntityKind, NewRule,
};
use kew_engine::{EntityName, Outcome, Refusal};

use crate::authorization::description::Description;
use crate::configuration::config::{ImportError, Imported, ImportedEntity, ImportedKind};
use crate::ground::address::why_reserved;
use crate::ground::lookup::kind_of;
use crate::ground::submit::Submitted;

/// The rule that a subscription is created with.
const DEFAULT_RULE: &str = "$Default";

/// Creates missing queues, topics, subscriptions and rules, and updates the settings of existing ones. Messages stay,
/// and so does what the file does not name. Only the rule `$Default` goes, if the file gives a subscription others.
///
/// An entity that others forward to must exist before them. So those that miss their destination are retried after the
/// others, as long as that makes progress.
pub async fn import(broker: &Broker, imported: Imported) -> Result<(), ImportError> {
    let mut entities = imported.entities;
    while !entities.is_empty() {
        let before = entities.len();
        let mut missed = Vec::new();
        let mut why = None;
        for entity in entities {
            check_name(broker, &entity).await?;
            match put(broker, &entity).await {
                Ok(()) => put_rules(broker, &entity).await?,
                Err(Rejection::Refused(Refusal::Bus(
                    refusal @ BusRefusal::DestinationNotFound { .. },
                ))) => {
                    why = Some(entity.failed(refusal));
                    missed.push(entity);
                }
                Err(rejection) => return Err(entity.failed(rejection)),
            }
        }
        if let Some(why) = why.filter(|_| missed.len() == before) {
            return Err(why);
        }
        entities = missed;
    }
    Ok(())
}

/// Refuses a name that no new queue or topic can have, unless there is such a queue.
async fn check_name(broker: &Broker, asked: &ImportedEntity) -> Result<(), ImportError> {
    let is_queue = match asked.kind {
        ImportedKind::Queue => true,
        ImportedKind::Topic => false,
        ImportedKind::Subscription { .. } => return Ok(()),
    };
    let Some(why) = why_reserved(&asked.entity.name) else {
        return Ok(());
    };
    match kind_of(broker, asked.entity.clone()).await {
        Ok(Some(EntityKind::Queue)) if is_queue => Ok(()),
        Ok(_) => Err(asked.failed(why)),
        Err(rejection) => Err(asked.failed(rejection)),
    }
}

/// Creates an entity, or updates its settings.
async fn put(broker: &Broker, asked: &ImportedEntity) -> Result<(), Rejection> {
    let (entity, options) = (asked.entity.clone(), asked.options.clone());
    let (kind, create) = match &asked.kind {
        ImportedKind::Queue => {
            let queue = entity.clone();
            (
                EntityKind::Queue,
                BusCommand::CreateQueue { queue, options },
            )
        }
        ImportedKind::Topic => {
            let topic = entity.clone();
            (
                EntityKind::Topic,
                BusCommand::CreateTopic { topic, options },
            )
        }
        ImportedKind::Subscription { topic, rules } => {
            let create = BusCommand::CreateSubscription {
                topic: topic.clone(),
                subscription: entity.clone(),
                options,
                rule: rules.first().cloned().map(Box::new),
            };
            (EntityKind::Subscription, create)
        }
    };
    match Submitted::new(broker, create).answer().await {
        Ok(_) => Ok(()),
        Err(Rejection::Refused(Refusal::Bus(BusRefusal::QueueAlreadyExists { .. }))) => {
            update(broker, entity, kind, &asked.options).await
        }
        Err(rejection) => Err(rejection),
    }
}

async fn update(
    broker: &Broker,
    entity: EntityName,
    kind: EntityKind,
    asked: &BusQueueOptions,
) -> Result<(), Rejection> {
    // It writes back what the file does not name, so no other owner may change that in between.
    let epoch = broker.ownership().epoch().ok_or(Rejection::NotOwner)?;
    let Some(view) = view_of(broker, epoch, entity.clone()).await? else {
        return Ok(());
    };
    if view.kind != kind {
        let queue = view.name;
        let exists = BusRefusal::QueueAlreadyExists { queue };
        return Err(Rejection::Refused(Refusal::Bus(exists)));
    }
    // The file contains neither its authorization rules nor its user metadata.
    let imported = Description::decode(&asked.description);
    let description = Description {
        forward_to: imported.forward_to,
        forward_dead_letters_to: imported.forward_dead_letters_to,
        duplicate_window_ms: imported.duplicate_window_ms,
        ..Description::decode(&view.options.description)
    };
    let options = merged(kind, view.options, asked, description.encode());
    let update = BusCommand::UpdateQueue {
        queue: entity,
        options,
    };
    let update = Submitted::within(broker, Some(epoch), update);
    update.answer().await.map(drop)
}

/// The settings of an entity with those that the file has. The others stay as they are.
fn merged(
    kind: EntityKind,
    existing: BusQueueOptions,
    asked: &BusQueueOptions,
    description: Box<[u8]>,
) -> BusQueueOptions {
    let asked = asked.clone();
    let both = BusQueueOptions {
        default_time_to_live_ms: asked.default_time_to_live_ms,
        duplicate_window_ms: asked.duplicate_window_ms,
        description,
        ..existing
    };
    match kind {
        EntityKind::Topic => both,
        EntityKind::Queue | EntityKind::Subscription => BusQueueOptions {
            lock_duration_ms: asked.lock_duration_ms,
            max_delivery_count: asked.max_delivery_count,
            requires_session: asked.requires_session,
            dead_letters_expired: asked.dead_letters_expired,
            forward_to: asked.forward_to,
            forward_dead_letters_to: asked.forward_dead_letters_to,
            ..both
        },
    }
}

async fn view_of(
    broker: &Broker,
    epoch: Epoch,
    queue: EntityName,
) -> Result<Option<BusQueueView>, Rejection> {
    let read = BusCommand::ReadQueue { queue };
    let read = Submitted::within(broker, Some(epoch), read);
    let answer = read.answer().await?;
    Ok(match answer.outcome {
        Outcome::Bus(BusOutcome::Queue(view)) => Some(*view),
        _ => None,
    })
}

/// Gives a subscription the rules of the file. Those that it has in this form already are left alone.
async fn put_rules(broker: &Broker, asked: &ImportedEntity) -> Result<(), ImportError> {
    let ImportedKind::Subscription { topic, rules } = &asked.kind else {
        return Ok(());
    };
    let names = [topic, &asked.entity];
    for rule in rules {
        let done = put_rule(broker, names, rule).await;
        done.map_err(|rejection| asked.failed(format!("rule {:?}: {rejection}", rule.name)))?;
    }
    let keeps_default = rules.is_empty()
        || rules
            .iter()
            .any(|rule| rule.name.eq_ignore_ascii_case(DEFAULT_RULE));
    if keeps_default {
        return Ok(());
    }
    let remove = BusCommand::RemoveRule {
        topic: topic.clone(),
        subscription: asked.entity.clone(),
        name: DEFAULT_RULE.into(),
    };
    match Submitted::new(broker, remove).answer().await {
        Ok(_) | Err(Rejection::Refused(Refusal::Bus(BusRefusal::RuleNotFound { .. }))) => Ok(()),
        Err(rejection) => Err(asked.failed(rejection)),
    }
}

async fn put_rule(
    broker: &Broker,
    [topic, subscription]: [&EntityName; 2],
    rule: &NewRule,
) -> Result<(), Rejection> {
    let (topic, subscription) = (topic.clone(), subscription.clone());
    let read = BusCommand::ReadRule {
        subscription: subscription.clone(),
        name: rule.name.clone(),
    };
    let rule = Box::new(rule.clone());
    let change = match Submitted::new(broker, read).answer().await {
        Ok(answer) => match answer.outcome {
            Outcome::Bus(BusOutcome::Rule(view))
                if *view.definition == *rule.definition.bytes() =>
            {
                return Ok(());
            }
            _ => BusCommand::SetRule {
                topic,
                subscription,
                rule,
            },
        },
        Err(Rejection::Refused(Refusal::Bus(BusRefusal::RuleNotFound { .. }))) => {
            BusCommand::AddRule {
                topic,
                subscription,
                rule,
            }
        }
        Err(rejection) => return Err(rejection),
    };
    Submitted::new(broker, change).answer().await.map(drop)
}

#[cfg(test)]
mod tests {
    use kew_filter::{
        Definition, Equality, FilterDefinition, OwnedValue, SqlDefinition, SystemProperty,
    };

    use super::*;
    use crate::authorization::rights::{AuthorizationRule, Rights};
    use crate::configuration::config::read_config;
    use crate::ground::address::entity_named;

    const FILE: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
        {"Name": "Orders.In", "Properties": {"MaxDeliveryCount": 3}}
    ]}]}}"#;

    #[tokio::test]
    async fn importing_again_keeps_settings_that_are_not_in_the_file() {
        let broker = Broker::start_in_memory().unwrap();
        let file = read_config(FILE).unwrap();
        let queue = file.entities[0].clone();
        import(&broker, file.clone()).await.unwrap();
        let rule = AuthorizationRule::generate("r", Rights::ALL, 1).unwrap();
        let description = Description {
            rules: vec![rule],
            ..Description::named("Orders.In")
        };
        let update = BusCommand::UpdateQueue {
            queue: queue.entity.clone(),
            options: BusQueueOptions {
                description: description.encode(),
                max_delivery_count: 9,
                size_bytes_max: 5 << 20,
                auto_delete_on_idle_ms: 600_000,
                ..queue.options.clone()
            },
        };
        Submitted::new(&broker, update).answer().await.unwrap();
        import(&broker, file).await.unwrap();
        let read = BusCommand::ReadQueue {
            queue: queue.entity,
        };
        let answer = Submitted::new(&broker, read).answer().await.unwrap();
        let Outcome::Bus(BusOutcome::Queue(view)) = answer.outcome else {
            panic!("{:?}", answer.outcome)
        };
        assert_eq!(Description::decode(&view.options.description), description);
        assert_eq!(view.options.max_delivery_count, 3);
        let kept = (
            view.options.size_bytes_max,
            view.options.auto_delete_on_idle_ms,
        );
        assert_eq!(kept, (5 << 20, 600_000));
        broker.stop();
    }

    /// A queue of an earlier version keeps such a name.
    #[tokio::test]
    async fn names_of_topics_and_subscriptions_are_refused() {
        let broker = Broker::start_in_memory().unwrap();
        let read = |name: &str| read_config(&FILE.replace("Orders.In", name)).unwrap();
        let create = |name: &str| BusCommand::CreateTopic {
            topic: read(name).entities[0].entity.clone(),
            options: BusQueueOptions::default(),
        };
        Submitted::new(&broker, create("t")).answer().await.unwrap();
        for (name, says) in [
            ("T", "'t' exists already"),
            ("t/Subscriptions/s", "which is for subscriptions"),
            ("t/subscriptions", "list of subscriptions of 't'"),
        ] {
            let refused = import(&broker, read(name)).await.unwrap_err().to_string();
            assert!(
                refused.contains(says) && refused.contains(name),
                "{refused}"
            );
            assert_eq!(
                kind_of(&broker, read(name).entities[0].entity.clone())
                    .await
                    .unwrap(),
                (name == "T").then_some(EntityKind::Topic)
            );
        }
        let file = read("old/subscriptions/s");
        let queue = file.entities[0].clone();
        let create = BusCommand::CreateQueue {
            queue: queue.entity.clone(),
            options: BusQueueOptions::default(),
        };
        Submitted::new(&broker, create).answer().await.unwrap();
        import(&broker, file).await.unwrap();
        broker.stop();
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

    async fn rules_of(broker: &Broker, subscription: &str) -> Vec<(String, FilterDefinition)> {
        let list = BusCommand::ListRules {
            subscription: entity_named(subscription).unwrap(),
            skip: 0,
            limit: 100,
        };
        let answer = Submitted::new(broker, list).answer().await.unwrap();
        let Outcome::Bus(BusOutcome::Rules(rules)) = answer.outcome else {
            panic!("{:?}", answer.outcome)
        };
        let rules = rules.into_iter().map(|rule| {
            let definition = Definition::decode(&rule.definition).unwrap();
            (rule.name.to_string(), definition.filter().clone())
        });
        rules.collect()
    }

    #[tokio::test]
    async fn the_file_that_the_emulator_comes_with_is_imported_as_it_is() {
        let text = include_str!("../../tests/fixtures/emulator-config.json");
        let broker = Broker::start_in_memory().unwrap();
        import(&broker, read_config(text).unwrap()).await.unwrap();
        let sql = |text: &str| {
            FilterDefinition::Sql(SqlDefinition {
                text: text.into(),
                ..SqlDefinition::default()
            })
        };
        let content_type = Equality::System {
            property: SystemProperty::ContentType,
            text: "application/json".into(),
        };
        let property = Equality::User {
            name: "prop1".into(),
            value: OwnedValue::Text("value1".into()),
        };
        for (subscription, name, filter) in [
            (
                "1",
                "app-prop-filter-1",
                FilterDefinition::Correlation(vec![content_type]),
            ),
            (
                "2",
                "user-prop-filter-1",
                FilterDefinition::Correlation(vec![property]),
            ),
            ("3", "$Default", FilterDefinition::True),
            (
                "4",
                "sql-filter-1",
                sql("sys.MessageId = '123456' AND userProp1 = 'value1'"),
            ),
        ] {
            let path = format!("topic.1/subscriptions/subscription.{subscription}");
            assert_eq!(
                rules_of(&broker, &path).await,
                [(name.to_owned(), filter)],
                "{path}"
            );
        }
        broker.stop();
    }

    #[tokio::test]
    async fn rules_that_the_file_does_not_name_stay() {
        let file = |rules: &str| {
            read_config(&format!(
                r#"{{"UserConfig": {{"Namespaces": [{{"Name": "sbemulatorns", "Topics": [
                    {{"Name": "t", "Subscriptions": [{{"Name": "s", "Rules": [{rules}]}}]}}]}}]}}}}"#
            ))
            .unwrap()
        };
        let rule = |name: &str, text: &str| {
            format!(
                r#"{{"Name": "{name}", "Properties": {{"FilterType": "Sql", "SqlFilter": {{"SqlExpression": "{text}"}}}}}}"#
            )
        };
        let broker = Broker::start_in_memory().unwrap();
        let names = async |broker: &Broker| {
            let rules = rules_of(broker, "t/subscriptions/s").await;
            let texts = rules.into_iter().map(|(name, filter)| match filter {
                FilterDefinition::Sql(sql) => format!("{name}: {}", sql.text),
                other => format!("{name}: {other:?}"),
            });
            texts.collect::<Vec<_>>()
        };
        for (rules, expected) in [
            (String::new(), &["$Default: True"][..]),
            (rule("a", "x = 1"), &["a: x = 1"]),
            (rule("A", "x = 2"), &["A: x = 2"]),
            (rule("b", "x = 3"), &["A: x = 2", "b: x = 3"]),
            (String::new(), &["A: x = 2", "b: x = 3"]),
            (
                rule("$default", "x = 4"),
                &["$default: x = 4", "A: x = 2", "b: x = 3"],
            ),
        ] {
            import(&broker, file(&rules)).await.unwrap();
            assert_eq!(names(&broker).await, expected);
        }
        broker.stop();
    }
}
