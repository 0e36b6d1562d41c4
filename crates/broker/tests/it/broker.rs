//! The broker with its threads.

use std::sync::Arc;

use kew_broker::{Broker, BrokerOptions, Rejection};
use kew_engine::Outcome;
use kew_engine::storage::StorageOutcome;
use kew_log::{Fault, FaultyStorage, MemoryStorage, Repeat};

use crate::support::{create, delete, peek, receive, send};

#[tokio::test]
async fn many_at_once_get_their_own_answers() {
    let broker = Broker::start_in_memory().unwrap();
    broker.submit(create()).await.unwrap();
    let mut senders = tokio::task::JoinSet::new();
    for number in 0..200 {
        let broker = broker.clone();
        senders.spawn(async move { broker.submit(send(format!("{number}"))).await });
    }
    while let Some(sent) = senders.join_next().await {
        assert!(matches!(
            sent.unwrap().unwrap().outcome,
            Outcome::Storage(StorageOutcome::Sent(_))
        ));
    }
    let mut bodies = Vec::new();
    while bodies.len() < 200 {
        let answer = broker.submit(receive(32)).await.unwrap();
        let Outcome::Storage(StorageOutcome::Received(messages)) = &answer.outcome else {
            panic!("a receive receives");
        };
        assert!(!messages.is_empty());
        for (message, body) in messages.iter().zip(&answer.bodies) {
            bodies.push(String::from_utf8(body.to_vec()).unwrap());
            broker.submit(delete(message)).await.unwrap();
        }
    }
    bodies.sort_by_key(|body| body.parse::<u32>().unwrap());
    let expected: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    assert_eq!(bodies, expected);
    broker.stop();
}

#[tokio::test]
async fn a_stopped_broker_has_its_messages_at_the_next_start() {
    let storage = Arc::new(MemoryStorage::new());
    let (broker, _) = Broker::start(storage.clone(), BrokerOptions::default()).unwrap();
    assert!(broker.is_ready());
    broker.submit(create()).await.unwrap();
    broker.submit(send("a")).await.unwrap();
    broker.stop();
    assert!(!broker.is_ready());
    assert_eq!(broker.submit(peek()).await, Err(Rejection::Stopped));

    let (broker, recovery) = Broker::start(storage, BrokerOptions::default()).unwrap();
    assert_eq!(recovery.events_replayed, 0, "a snapshot was left behind");
    assert_eq!(broker.submit(peek()).await.unwrap().bodies, ["a"]);
    broker.stop();
}

#[tokio::test]
async fn a_failing_disk_stops_it_with_the_reason() {
    let storage = Arc::new(FaultyStorage::new());
    let (broker, _) = Broker::start(storage.clone(), BrokerOptions::default()).unwrap();
    broker.submit(create()).await.unwrap();
    storage.fail_after(0, Fault::Eio, Repeat::Sticky);
    assert_eq!(broker.submit(send("a")).await, Err(Rejection::Stopped));
    let failure = broker.failed().await.to_string();
    // A job of a new partition for the slow threads may be the first to fail.
    let named = ["segment-", "prepare-", "ballast"];
    assert!(named.iter().any(|it| failure.contains(it)), "{failure}");
    assert!(!broker.is_ready());
    assert_eq!(broker.submit(peek()).await, Err(Rejection::Stopped));
    broker.stop();
}
