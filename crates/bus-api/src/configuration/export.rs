//! The queues of a broker as a configuration file of the emulator.

use kew_broker::{Broker, Rejection};
use kew_engine::Outcome;
use kew_engine::bus::{BusCommand, BusOutcome};

use crate::configuration::config::BusConfig;
use crate::ground::constants::NAMESPACE;
use crate::ground::submit::Submitted;

/// How many queues are read at once.
const PAGE: u32 = 100;

/// Reads the settings of all queues. A queue that is created or deleted meanwhile may be included
/// or not.
pub(crate) async fn export(broker: &Broker) -> Result<BusConfig, Rejection> {
    let mut views = Vec::new();
    loop {
        let list = BusCommand::ListQueues {
            namespace: NAMESPACE.into(),
            from: "".into(),
            skip: u32::try_from(views.len()).unwrap_or(u32::MAX),
            limit: PAGE,
        };
        let answer = Submitted::new(broker, list).answer().await?;
        match answer.outcome {
            Outcome::Bus(BusOutcome::Queues(page)) if !page.is_empty() => views.extend(page),
            _ => break,
        }
    }
    views.dedup_by(|one, other| one.name == other.name);
    Ok(BusConfig::of_queues(&views))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::configuration::config::{ImportedQueue, read_config};
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
    ]}]}}"#;

    fn by_name(queues: Vec<ImportedQueue>) -> BTreeMap<String, ImportedQueue> {
        let queues = queues.into_iter().map(|queue| (queue.name.clone(), queue));
        queues.collect()
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
        let queues = read_config(&text).unwrap();
        assert_eq!(queues.len(), 103);
        let broker = Broker::start_in_memory().unwrap();
        import(&broker, queues.clone()).await.unwrap();
        let written = serde_json::to_string_pretty(&export(&broker).await.unwrap()).unwrap();
        let again = read_config(&written).unwrap();
        assert_eq!(by_name(again), by_name(queues));
        broker.stop();
    }
}
