//! Imports the queues of a configuration file into a broker.

use kew_broker::{Answer, Broker, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueOptions, BusRefusal, EntityKind};
use kew_engine::{Outcome, Refusal};

use crate::authorization::description::Description;
use crate::configuration::config::{ImportError, ImportedQueue};
use crate::ground::address::why_reserved;
use crate::ground::lookup::kind_of;
use crate::ground::submit::Submitted;

/// Creates missing queues and updates the settings of existing ones. Messages stay.
///
/// A queue that others forward to must exist before them. So queues that miss their destination are
/// retried after the others, as long as that makes progress.
pub async fn import(broker: &Broker, mut queues: Vec<ImportedQueue>) -> Result<(), ImportError> {
    while !queues.is_empty() {
        let before = queues.len();
        let mut missed = Vec::new();
        let mut why = None;
        for queue in queues {
            check_name(broker, &queue).await?;
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

/// Refuses a name that no new queue can have, unless there is such a queue.
async fn check_name(broker: &Broker, queue: &ImportedQueue) -> Result<(), ImportError> {
    let Some(why) = why_reserved(&queue.entity.name) else {
        return Ok(());
    };
    let failed = |why: String| ImportError(format!("queue {:?}: {why}", queue.name));
    match kind_of(broker, queue.entity.clone()).await {
        Ok(Some(EntityKind::Queue)) => Ok(()),
        Ok(Some(EntityKind::Topic | EntityKind::Subscription) | None) => Err(failed(why)),
        Err(rejection) => Err(failed(rejection.to_string())),
    }
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
            if view.kind != EntityKind::Queue {
                let queue = view.name;
                let exists = BusRefusal::QueueAlreadyExists { queue };
                return Err(Rejection::Refused(Refusal::Bus(exists)));
            }
            // The file contains neither its rules nor its user metadata.
            let imported = Description::decode(&options.description);
            let description = Description {
                forward_to: imported.forward_to,
                forward_dead_letters_to: imported.forward_dead_letters_to,
                duplicate_window_ms: imported.duplicate_window_ms,
                ..Description::decode(&view.options.description)
            };
            let options = BusQueueOptions {
                description: description.encode(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::rights::{AuthorizationRule, Rights};
    use crate::configuration::config::read_config;

    const FILE: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
        {"Name": "Orders.In", "Properties": {"MaxDeliveryCount": 3}}
    ]}]}}"#;

    #[tokio::test]
    async fn importing_again_keeps_settings_that_are_not_in_the_file() {
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

    /// A queue of an earlier version keeps such a name.
    #[tokio::test]
    async fn names_of_topics_and_subscriptions_are_refused() {
        let broker = Broker::start_in_memory().unwrap();
        let read = |name: &str| read_config(&FILE.replace("Orders.In", name)).unwrap();
        let create = |name: &str| BusCommand::CreateTopic {
            topic: read(name)[0].entity.clone(),
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
                kind_of(&broker, read(name)[0].entity.clone())
                    .await
                    .unwrap(),
                (name == "T").then_some(EntityKind::Topic)
            );
        }
        let [queue] = <[_; 1]>::try_from(read("old/subscriptions/s")).unwrap();
        let create = BusCommand::CreateQueue {
            queue: queue.entity.clone(),
            options: BusQueueOptions::default(),
        };
        Submitted::new(&broker, create).answer().await.unwrap();
        import(&broker, vec![queue]).await.unwrap();
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
}
