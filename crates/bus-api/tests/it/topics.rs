//! Messages of topics: links to them and to their subscriptions.

use bytes::BytesMut;
use kew_amqp::codec::{Encode as _, Map, Symbol, Timestamp, write_described};
use kew_amqp::message::{BATCH_FORMAT, write_batch};
use kew_amqp::performative::{DeliveryState, Outcome, Rejected};
use kew_engine::bus::{BusCommand, BusQueueOptions};

use crate::client::{Client, Server, message, queue_named};
use crate::rest::ask;

/// The descriptor of the section.
const MESSAGE_ANNOTATIONS: u64 = 0x72;

impl Server {
    /// With the topic `events` and these subscriptions.
    pub(crate) async fn with_topic(names: &[&str]) -> Self {
        let server = Self::start().await;
        let topic = queue_named("events");
        server
            .order(BusCommand::CreateTopic {
                topic: topic.clone(),
                options: BusQueueOptions::default(),
            })
            .await;
        for name in names {
            server
                .order(BusCommand::CreateSubscription {
                    topic: topic.clone(),
                    subscription: queue_named(&format!("events/subscriptions/{name}")),
                    options: BusQueueOptions::default(),
                    rule: None,
                })
                .await;
        }
        server
    }

    async fn active(&self, name: &str) -> u64 {
        self.view(&format!("events/subscriptions/{name}"))
            .await
            .counts
            .active
    }
}

async fn refused(client: &mut Client, is_sender: bool, address: &str) -> (String, String) {
    let refused = match is_sender {
        true => client.sender(address).await,
        false => client.receiver(address).await,
    };
    let error = refused.unwrap_err();
    let text = error.description.unwrap().as_str().to_owned();
    (error.condition.as_str().to_owned(), text)
}

#[tokio::test]
async fn each_subscription_gets_what_is_sent_to_its_topic() {
    let server = Server::with_topic(&["all", "more"]).await;
    let mut client = server.trusted().await;
    let all = client.receiver("Events/Subscriptions/ALL").await.unwrap();
    client.connection.grant(all, 10);
    client.say().await;
    // A receiver that waits is woken.
    server.waiting(1).await;
    client.send_one("Events", "one").await;
    let delivery = client.delivery().await;
    assert!(delivery.payload.ends_with(b"one"));
    let settled = client.tell(&delivery, DeliveryState::ACCEPTED).await;
    assert_eq!(settled, DeliveryState::ACCEPTED);
    assert_eq!(
        (server.active("all").await, server.active("more").await),
        (0, 1)
    );

    let mut batch = BytesMut::new();
    write_batch(&mut batch, &[message("two"), message("three")]);
    let sender = client.sender("events").await.unwrap();
    let sent = client.send(sender, BATCH_FORMAT, batch.freeze()).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    for body in ["two", "three"] {
        let delivery = client.delivery().await;
        assert!(delivery.payload.ends_with(body.as_bytes()), "{body}");
    }
    assert_eq!(server.active("more").await, 3);
}

#[tokio::test]
async fn links_in_the_wrong_direction_are_refused() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = server.trusted().await;
    let not_allowed = "amqp:not-allowed";
    let (condition, text) = refused(&mut client, false, "events").await;
    assert_eq!(condition, not_allowed);
    assert!(text.contains("receive them from a subscription"), "{text}");
    let (condition, text) = refused(&mut client, true, "events/subscriptions/all").await;
    assert_eq!(condition, not_allowed);
    assert!(text.contains("send them to its topic"), "{text}");
    for address in ["events/subscriptions/none", "events/$DeadLetterQueue"] {
        let (condition, _) = refused(&mut client, false, address).await;
        assert_eq!(condition, "amqp:not-found", "{address}");
    }
    let dead = "events/subscriptions/all/$DeadLetterQueue";
    client.receiver(dead).await.unwrap();
    let failed = "events/$Transfer/$DeadLetterQueue";
    client.receiver(failed).await.unwrap();
}

#[tokio::test]
async fn receivers_and_senders_learn_that_their_topic_is_deleted() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = server.trusted().await;
    let sender = client.sender("events").await.unwrap();
    let receiver = client.receiver("events/subscriptions/all").await.unwrap();
    let queue = queue_named("events");
    server.order(BusCommand::DeleteQueue { queue }).await;
    let mut ended = Vec::new();
    while ended.len() < 2 {
        let (link, error) = client
            .until(|event| match event {
                kew_amqp::Event::Detached { link, error, .. } => Some((*link, error.clone())),
                _ => None,
            })
            .await;
        assert_eq!(error.unwrap().condition.as_str(), "amqp:not-found");
        ended.push(link);
    }
    assert!(ended.contains(&sender) && ended.contains(&receiver));
}

#[tokio::test]
async fn a_scheduled_message_for_a_topic_is_refused() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = server.trusted().await;
    let mut payload = BytesMut::new();
    let annotations = Map::build(|map| {
        let name = Symbol::from_static("x-opt-scheduled-enqueue-time");
        map.entry(&name, &Timestamp(4_000_000_000_000));
    });
    write_described(&mut payload, MESSAGE_ANNOTATIONS, |out| {
        annotations.encode(out)
    });
    payload.extend_from_slice(&message("later"));
    let sender = client.sender("events").await.unwrap();
    let refused = client.send(sender, 0, payload.freeze()).await;
    let Some(Outcome::Rejected(Rejected { error: Some(error) })) = refused.outcome() else {
        panic!("{refused:?}");
    };
    assert_eq!(error.condition.as_str(), "amqp:not-implemented");
    let text = error.description.as_ref().unwrap();
    let says = "a scheduled message for a topic is not supported yet";
    assert!(text.as_str().contains(says), "{text}");
    assert_eq!(server.active("all").await, 0);
}

#[tokio::test]
async fn messages_of_a_subscription_are_peeked_at() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = server.trusted().await;
    client.send_one("events", "one").await;
    let properties = Map::build(|map| map.entry("operation", "com.microsoft:peek-message"));
    let body = Map::build(|map| {
        map.entry("from-sequence-number", &0_i64);
        map.entry("message-count", &10_i32);
    });
    for (node, status) in [("events/subscriptions/all", 200), ("events", 204)] {
        let node = format!("{node}/$management");
        let answer = client.ask(&node, &properties, &body).await;
        let told = answer.get("statusCode").unwrap().value().as_integer();
        assert_eq!(told, Some(status), "{node}");
    }
}

#[tokio::test]
async fn messages_of_topics_go_over_http() {
    let server = Server::with_topic(&["all"]).await;
    let sent = ask(&server, "POST", "Events/messages", &[], "one").await;
    assert_eq!(sent.status, 201, "{sent:?}");
    let head = "Events/Subscriptions/All/messages/head?timeout=0";
    let received = ask(&server, "DELETE", head, &[], "").await;
    assert_eq!((received.status, received.body.as_str()), (200, "one"));
    ask(&server, "POST", "events/messages", &[], "two").await;
    // Unlocked, received again, and completed.
    for method in ["PUT", "DELETE"] {
        let locked = ask(&server, "POST", head, &[], "").await;
        assert_eq!((locked.status, locked.body.as_str()), (201, "two"));
        let location = locked.header("location").unwrap().to_lowercase();
        let path = location.strip_prefix("http://localhost/").unwrap();
        let message = "events/subscriptions/all/messages/2/";
        assert!(path.starts_with(message), "{path}");
        let settled = ask(&server, method, path, &[], "").await;
        assert_eq!(settled.status, 200, "{method}: {settled:?}");
    }
    let none = ask(&server, "POST", head, &[], "").await;
    assert_eq!(none.status, 204, "{none:?}");
    let head = "events/messages/head?timeout=0";
    let refused = ask(&server, "DELETE", head, &[], "").await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.body.contains("receive them from a subscription"));
}
