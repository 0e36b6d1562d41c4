//! What the agent sees of queues, at Kew in memory.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kew_client::{Message, QueueSettings, SubscriptionSettings, TopicSettings};
use kew_scale::{ClientSources, Seen, Sources as _};

use crate::kew::Kew;
use crate::support::{open, source};

/// The sources of these queues at Kew.
fn sources(kew: &Arc<Kew>, queues: &[(&str, &str)]) -> ClientSources {
    let sources = queues.iter().map(|(queue, at)| source(queue, at, ""));
    open("", &sources.collect::<String>(), kew.clone())
}

async fn only(sources: &mut ClientSources) -> Seen {
    let mut seen = sources.read().await;
    assert_eq!(seen.len(), 1);
    seen.pop().unwrap()
}

#[tokio::test]
async fn a_queue_of_storage_has_a_backlog_and_an_age() {
    let kew = Kew::start().await;
    let client = kew.queue_client();
    let mut sources = sources(&kew, &[("jobs", "STORAGE")]);
    let empty = only(&mut sources).await.reading.unwrap();
    assert_eq!((empty.backlog, empty.oldest), (0, None));
    let before = SystemTime::now();
    for _ in 0..3 {
        client.put("jobs", "x", Default::default()).await.unwrap();
    }
    let seen = only(&mut sources).await;
    assert_eq!(seen.name, "jobs");
    let reading = seen.reading.unwrap();
    assert_eq!(reading.backlog, 3);
    // Times of the service are whole seconds.
    let bound = before.elapsed().unwrap() + Duration::from_secs(1);
    assert!(reading.oldest.unwrap() <= bound, "{reading:?}");
    assert_eq!((reading.arrived, reading.completed), (None, None));
    // Messages under lease count, and cannot be peeked.
    client.get("jobs", 32, Some(60)).await.unwrap();
    let leased = only(&mut sources).await.reading.unwrap();
    assert_eq!((leased.backlog, leased.oldest), (3, None));
}

#[tokio::test]
async fn a_queue_of_service_bus_has_active_messages_and_their_age() {
    let kew = Kew::start().await;
    let settings = QueueSettings::default();
    kew.admin().create_queue("orders", &settings).await.unwrap();
    let mut sources = sources(&kew, &[("orders", "BUS")]);
    let empty = only(&mut sources).await.reading.unwrap();
    assert_eq!((empty.backlog, empty.oldest), (0, None));
    let sender = kew.bus_client().sender("orders").await.unwrap();
    let mut later = Message::new("x");
    later.scheduled_at = Some(SystemTime::now() + Duration::from_hours(1));
    sender.schedule(&[later]).await.unwrap();
    let scheduled = only(&mut sources).await.reading.unwrap();
    assert_eq!((scheduled.backlog, scheduled.oldest), (0, None));
    let before = SystemTime::now();
    for _ in 0..2 {
        sender.send(&Message::new("x")).await.unwrap();
    }
    let reading = only(&mut sources).await.reading.unwrap();
    assert_eq!(reading.backlog, 2);
    let bound = before.elapsed().unwrap() + Duration::from_secs(1);
    assert!(reading.oldest.unwrap() <= bound, "{reading:?}");
}

#[tokio::test]
async fn a_source_that_cannot_be_read_does_not_hide_the_others() {
    let kew = Kew::start().await;
    let queues = [("jobs", "STORAGE"), ("absent", "STORAGE"), ("gone", "BUS")];
    let seen = sources(&kew, &queues).read().await;
    let names: Vec<_> = seen.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["jobs", "absent", "gone"]);
    assert!(seen[0].reading.is_ok());
    for (seen, named) in seen[1..].iter().zip(["QueueNotFound", "404"]) {
        let error = seen.reading.as_ref().unwrap_err();
        assert!(error.text.contains(named), "{error:?}");
        assert!(!error.is_throttled);
    }
}

#[tokio::test]
async fn a_subscription_is_a_source_and_a_topic_is_none() {
    let kew = Kew::start().await;
    let admin = kew.admin();
    admin
        .create_topic("t", &TopicSettings::default())
        .await
        .unwrap();
    let settings = SubscriptionSettings::default();
    let created = admin.create_subscription("t", "s", &settings).await;
    created.unwrap();
    let sender = kew.bus_client().sender("t").await.unwrap();
    for _ in 0..3 {
        sender.send(&Message::new("x")).await.unwrap();
    }
    let seen = sources(&kew, &[("t/subscriptions/s", "BUS"), ("t", "BUS")])
        .read()
        .await;
    assert_eq!(seen[0].name, "t/subscriptions/s");
    let reading = seen[0].reading.as_ref().unwrap();
    assert_eq!(reading.backlog, 3);
    assert!(reading.oldest.is_some());
    let error = seen[1].reading.as_ref().unwrap_err();
    assert!(
        error
            .text
            .contains("it is a topic: name one of its subscriptions"),
        "{error:?}"
    );
}
