//! The queues, topics and subscriptions of a broker as a configuration file of the emulator.

use kew_broker::{Broker, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView, BusRefusal, BusRuleView};
use kew_engine::{EntityName, Outcome, Refusal};
use thiserror::Error;

use crate::configuration::config::{Kept, exported_queue, exported_topic};
use crate::configuration::file::BusConfig;
use crate::ground::address::entity_named;
use crate::ground::constants::NAMESPACE;
use crate::ground::submit::Submitted;

/// How many entities or rules are read at once.
const PAGE: u32 = 100;

/// Why there is no file.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The broker could not be asked.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The file has no place for these.
    #[error("{}", of_lost(.0))]
    NoPlace(Vec<String>),
}

/// How many rules that a file has no place for an error names.
const NAMED_MAX: usize = 100;

/// All of them, so that they can be changed at once.
fn of_lost(lost: &[String]) -> String {
    let mut named = lost.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    if let Some(more) = lost.len().checked_sub(NAMED_MAX).filter(|&more| more > 0) {
        named.push(format!("and {more} more"));
    }
    format!(
        "the file has no place for what these rules have (`kew export` keeps it): {}",
        named.join("; ")
    )
}

/// Reads the settings of all queues, topics and subscriptions, and rules. What is created or deleted meanwhile may be
/// included or not.
pub(crate) async fn export(broker: &Broker) -> Result<BusConfig, ExportError> {
    let queues = all(broker, |skip| BusCommand::ListQueues {
        namespace: NAMESPACE.into(),
        from: "".into(),
        skip,
        limit: PAGE,
    });
    let topics = all(broker, |skip| BusCommand::ListTopics {
        namespace: NAMESPACE.into(),
        skip,
        limit: PAGE,
    });
    let queues = queues.await?.iter().map(exported_queue).collect();
    let (mut written, mut lost) = (Vec::new(), Vec::new());
    for topic in topics.await? {
        let Some(name) = entity_named(&topic.name) else {
            continue;
        };
        let subscriptions = all(broker, |skip| BusCommand::ListSubscriptions {
            topic: name.clone(),
            skip,
            limit: PAGE,
        });
        let Some(subscriptions) = unless_gone(subscriptions.await)? else {
            continue;
        };
        let mut kept = Vec::new();
        for view in subscriptions {
            let Some(name) = entity_named(&view.name) else {
                continue;
            };
            if let Some(rules) = unless_gone(rules_of(broker, &name).await)? {
                kept.push(Kept { view, rules });
            }
        }
        written.push(exported_topic(&topic, &kept, &mut lost));
    }
    match lost.is_empty() {
        true => Ok(BusConfig::of(queues, written)),
        false => Err(ExportError::NoPlace(lost)),
    }
}

/// `None` if it was deleted meanwhile.
fn unless_gone<T>(read: Result<T, Rejection>) -> Result<Option<T>, Rejection> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Rejection::Refused(Refusal::Bus(BusRefusal::QueueNotFound { .. }))) => Ok(None),
        Err(rejection) => Err(rejection),
    }
}

async fn all(
    broker: &Broker,
    list: impl Fn(u32) -> BusCommand,
) -> Result<Vec<BusQueueView>, Rejection> {
    let mut views = Vec::new();
    loop {
        let list = list(u32::try_from(views.len()).unwrap_or(u32::MAX));
        let answer = Submitted::new(broker, list).answer().await?;
        match answer.outcome {
            Outcome::Bus(BusOutcome::Queues(page)) if !page.is_empty() => views.extend(page),
            _ => break,
        }
    }
    views.dedup_by(|one, other| one.name == other.name);
    Ok(views)
}

async fn rules_of(
    broker: &Broker,
    subscription: &EntityName,
) -> Result<Vec<BusRuleView>, Rejection> {
    let mut rules: Vec<BusRuleView> = Vec::new();
    loop {
        let list = BusCommand::ListRules {
            subscription: subscription.clone(),
            skip: u32::try_from(rules.len()).unwrap_or(u32::MAX),
            limit: PAGE,
        };
        let answer = Submitted::new(broker, list).answer().await?;
        match answer.outcome {
            Outcome::Bus(BusOutcome::Rules(page)) if !page.is_empty() => rules.extend(page),
            _ => break,
        }
    }
    // A list has them by name. An import creates them one after the other, and copies come in the order of creation.
    rules.sort_by_key(|rule| rule.created_at);
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::config::{Imported, read_config};
    use crate::configuration::import::import;

    const FILE: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
        {"Name": "Plain"},
        {"Name": "All/Of.It", "Properties": {
            "DeadLetteringOnMessageExpiration": true, "DefaultMessageTimeToLive": "P1DT2.5S",
            "DuplicateDetectionHistoryTimeWindow": "PT20S", "ForwardTo": "Plain",
            "ForwardDeadLetteredMessagesTo": "PLAIN", "LockDuration": "PT1M30S",
            "MaxDeliveryCount": 2147483647, "RequiresDuplicateDetection": true}},
        {"Name": "sessions", "Properties": {
            "RequiresSession": true, "DuplicateDetectionHistoryTimeWindow": "PT5M"}}
    ], "Topics": [
        {"Name": "Empty"},
        {"Name": "A/Topic", "Properties": {
            "DefaultMessageTimeToLive": "PT2H", "DuplicateDetectionHistoryTimeWindow": "PT30S"},
        "Subscriptions": [
            {"Name": "Every.One"},
            {"Name": "settings", "Properties": {
                "DeadLetteringOnMessageExpiration": true, "DefaultMessageTimeToLive": "PT5M",
                "LockDuration": "PT10S", "MaxDeliveryCount": 9, "RequiresSession": true,
                "ForwardDeadLetteredMessagesTo": "Plain"}},
            {"Name": "forwards", "Properties": {"ForwardTo": "Plain"}},
            {"Name": "rules", "Rules": [
                {"Name": "act", "Properties": {"FilterType": "Sql",
                    "SqlFilter": {"SqlExpression": "a = 1"}, "Action": {"SqlExpression": "SET b = 2"}}},
                {"Name": "Red", "Properties": {"FilterType": "Correlation", "CorrelationFilter": {
                    "Label": "red", "Properties": {"size": 7}}}}
            ]},
            {"Name": "none", "Rules": [
                {"Name": "$Default", "Properties": {"FilterType": "Sql",
                    "SqlFilter": {"SqlExpression": "1=0"}}}
            ]}
        ]}
    ]}]}}"#;

    fn sorted(mut imported: Imported) -> Imported {
        let name = |it: &crate::configuration::config::ImportedEntity| it.entity.name.clone();
        imported.entities.sort_by_key(name);
        imported
    }

    #[tokio::test]
    async fn an_export_equals_its_import() {
        let mut text = FILE.to_owned();
        // More than one page.
        let many: String = (0..PAGE)
            .map(|number| format!(r#"{{"Name": "q{number}"}}, "#))
            .collect();
        text = text.replace(
            r#"{"Name": "Plain"},"#,
            &format!(r#"{{"Name": "Plain"}}, {many}"#),
        );
        let imported = read_config(&text).unwrap();
        assert_eq!(imported.count(), 103 + 2 + 5);
        let broker = Broker::start_in_memory().unwrap();
        // The second time, everything is there.
        for _ in 0..2 {
            import(&broker, imported.clone()).await.unwrap();
            let written = serde_json::to_string_pretty(&export(&broker).await.unwrap()).unwrap();
            let again = read_config(&written).unwrap();
            let (again, first) = (sorted(again), sorted(imported.clone()));
            for (again, first) in again.entities.iter().zip(&first.entities) {
                assert_eq!(again, first);
            }
            assert_eq!(again.count(), first.count());
        }
        broker.stop();
    }

    #[tokio::test]
    async fn what_the_file_cannot_have_is_no_silent_loss() {
        let broker = Broker::start_in_memory().unwrap();
        import(&broker, read_config(FILE).unwrap()).await.unwrap();
        let remove = |name: &str| BusCommand::RemoveRule {
            topic: entity_named("a/topic").unwrap(),
            subscription: entity_named("a/topic/subscriptions/every.one").unwrap(),
            name: name.into(),
        };
        let removed = Submitted::new(&broker, remove("$Default")).answer().await;
        removed.unwrap();
        let written = serde_json::to_string(&export(&broker).await.unwrap()).unwrap();
        // Without a rule, it would get every message after an import.
        let none = r#"{"Name":"$Default","Properties":{"FilterType":"Sql","SqlFilter":{"SqlExpression":"1=0"}}}"#;
        assert_eq!(written.matches(none).count(), 2, "{written}");
        let text = kew_filter::SqlDefinition {
            text: "a = @p".into(),
            parameters: vec![("@p".into(), kew_filter::OwnedValue::Text("x".into()))],
            compatibility_level: None,
        };
        let filter = kew_filter::FilterDefinition::Sql(text);
        for name in ["given", "more"] {
            let add = BusCommand::AddRule {
                topic: entity_named("a/topic").unwrap(),
                subscription: entity_named("a/topic/subscriptions/every.one").unwrap(),
                rule: Box::new(kew_engine::bus::NewRule {
                    name: name.into(),
                    definition: kew_filter::Definition::new(filter.clone(), None).unwrap(),
                }),
            };
            Submitted::new(&broker, add).answer().await.unwrap();
        }
        // All of them at once, so that nobody has to try again for each.
        let refused = export(&broker).await.unwrap_err().to_string();
        for name in ["given", "more"] {
            let says = format!(
                "the rule {name:?} of the subscription \"A/Topic/Subscriptions/Every.One\" has parameters"
            );
            assert!(refused.contains(&says), "{refused}");
        }
        broker.stop();
    }
}
