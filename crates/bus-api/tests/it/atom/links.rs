//! AMQP links whose queue is changed or deleted.

use kew_amqp::performative::{DeliveryState, Outcome};
use kew_amqp::{Event, LinkId};

use super::topics::{create_topic, subscribe, update_topic};
use super::{ask, create, update};
use crate::client::{Client, Server, message};

/// The condition with which the server detaches a link, and that link.
async fn detached(client: &mut Client) -> (LinkId, String) {
    client
        .until(|event| match event {
            Event::Detached { link, error, .. } => {
                let condition = error.as_ref().unwrap().condition.to_string();
                Some((*link, condition))
            }
            _ => None,
        })
        .await
}

#[tokio::test]
async fn a_deleted_queue_detaches_its_links() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let idle = client.receiver("jobs").await.unwrap();
    let waiting = client.receiver("/jobs").await.unwrap();
    client.connection.grant(waiting, 1);
    let letters = client.receiver("jobs/$deadletterqueue").await.unwrap();
    let other = client.sender("steps").await.unwrap();
    ask("DELETE", "/jobs").of(&server).await.check(200);
    let mut links = Vec::new();
    for _ in 0..4 {
        let (link, condition) = detached(&mut client).await;
        assert_eq!(condition, "amqp:not-found");
        links.push(link);
    }
    links.sort();
    let mut expected = vec![sender, idle, waiting, letters];
    expected.sort();
    assert_eq!(links, expected);
    // A new queue with the same name is another queue.
    create(&server, "/jobs", "").await.check(201);
    let sender = client.sender("jobs").await.unwrap();
    let sent = client.send(sender, 0, message("new")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert!(client.connection.can_send(other));
}

#[tokio::test]
async fn a_disabled_queue_detaches_links_it_does_not_serve() {
    let server = Server::start().await;
    for (status, sends, receives) in [
        ("SendDisabled", false, true),
        ("ReceiveDisabled", true, false),
        ("Disabled", false, false),
    ] {
        let mut client = server.trusted().await;
        let sender = client.sender("jobs").await.unwrap();
        let receiver = client.receiver("jobs").await.unwrap();
        let status = format!("<Status>{status}</Status>");
        update(&server, "/jobs", &status).await.check(200);
        let mut expected = vec![(sender, sends), (receiver, receives)];
        expected.retain(|(_, is_served)| !is_served);
        for _ in 0..expected.len() {
            let (link, condition) = detached(&mut client).await;
            assert_eq!(condition, "com.microsoft:entity-disabled");
            expected.retain(|(other, _)| *other != link);
        }
        assert_eq!(expected, []);
        // And no other link can attach.
        let again = [client.sender("/jobs").await, client.receiver("/jobs").await];
        for (again, is_served) in again.into_iter().zip([sends, receives]) {
            match again {
                Ok(_) => assert!(is_served),
                Err(error) => {
                    assert!(!is_served);
                    assert_eq!(error.condition.as_str(), "com.microsoft:entity-disabled");
                }
            }
        }
        update(&server, "/jobs", "").await.check(200);
    }
}

#[tokio::test]
async fn a_queue_that_forwards_detaches_its_receivers() {
    let server = Server::start().await;
    create(&server, "/next", "").await.check(201);
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    let letters = client.receiver("jobs/$deadletterqueue").await.unwrap();
    let forward = "<ForwardTo>next</ForwardTo>";
    let update_jobs = ask("PUT", "/jobs").header("If-Match", "*").queue(forward);
    update_jobs.forwards().of(&server).await.check(200);
    let (link, condition) = detached(&mut client).await;
    assert_eq!((link, condition.as_str()), (receiver, "amqp:not-allowed"));
    let sent = client.send(sender, 0, message("on")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let next = client.receiver("next").await.unwrap();
    client.connection.grant(next, 1);
    client.delivery().await;
    let forward = "<ForwardDeadLetteredMessagesTo>next</ForwardDeadLetteredMessagesTo>";
    let update_jobs = ask("PUT", "/jobs").header("If-Match", "*").queue(forward);
    update_jobs.forwards().of(&server).await.check(200);
    let (link, condition) = detached(&mut client).await;
    assert_eq!((link, condition.as_str()), (letters, "amqp:not-allowed"));
}

/// Nobody receives from a subscription of a disabled topic, although the subscription is active.
#[tokio::test]
async fn a_disabled_topic_detaches_all_links_and_one_without_sends_its_senders() {
    let server = Server::start().await;
    let path = "/t/subscriptions/s";
    let disabled = "com.microsoft:entity-disabled";
    create_topic(&server, "/t", "").await.check(201);
    subscribe(&server, path, "").await.check(201);
    for status in ["Disabled", "SendDisabled"] {
        let is_drained = status == "SendDisabled";
        let mut client = server.trusted().await;
        let sender = client.sender("t").await.unwrap();
        let waiting = client.receiver(&path[1..]).await.unwrap();
        client.connection.grant(waiting, 1);
        let idle = client.receiver(path).await.unwrap();
        let letters = client.receiver("t/subscriptions/s/$deadletterqueue").await;
        let mut expected = match is_drained {
            true => vec![sender],
            false => vec![sender, waiting, idle, letters.unwrap()],
        };
        let elements = format!("<Status>{status}</Status>");
        let updated = update_topic(&server, "/t", &elements).await.check(200);
        assert_eq!(updated.text("Status"), status);
        for _ in 0..expected.len() {
            let (link, condition) = detached(&mut client).await;
            assert_eq!(condition, disabled);
            expected.retain(|it| *it != link);
        }
        assert_eq!(expected, []);
        // And no other link can attach.
        let mut other = server.trusted().await;
        let refused = other.sender("t").await.unwrap_err();
        assert_eq!(refused.condition.as_str(), disabled);
        match other.receiver(&path[1..]).await {
            Ok(_) => assert!(is_drained),
            Err(refused) => {
                assert!(!is_drained);
                assert_eq!(refused.condition.as_str(), disabled);
            }
        }
        let read = ask("GET", path).of(&server).await.check(200);
        assert_eq!(read.text("Status"), "Active");
        update_topic(&server, "/t", "").await.check(200);
        let mut last = server.trusted().await;
        last.receiver(&path[1..]).await.unwrap();
    }
}

/// Links to a topic, to its subscription and to its dead letters learn of new settings as those of queues do.
#[tokio::test]
async fn changes_of_topics_and_subscriptions_reach_their_links() {
    let server = Server::start().await;
    let (topic, subscription) = ("TopicDescription", "SubscriptionDescription");
    let path = "/t/subscriptions/s";
    for (kind, path) in [(topic, "/t"), (subscription, path)] {
        let create = ask("PUT", path).description(kind, "");
        create.of(&server).await.check(201);
    }
    let change = async |kind, path, elements| {
        let update = ask("PUT", path).header("If-Match", "*");
        update
            .description(kind, elements)
            .of(&server)
            .await
            .check(200);
    };
    let mut client = server.trusted().await;
    let sender = client.sender("t").await.unwrap();
    let size = "<MaxMessageSizeInKilobytes>1</MaxMessageSizeInKilobytes>";
    change(topic, "/t", size).await;
    let large = client.send(sender, 0, message(&"x".repeat(2000))).await;
    assert!(matches!(large.outcome(), Some(Outcome::Rejected(_))));
    for (elements, condition) in [
        (
            "<Status>ReceiveDisabled</Status>",
            "com.microsoft:entity-disabled",
        ),
        ("<ForwardTo>jobs</ForwardTo>", "amqp:not-allowed"),
    ] {
        let receiver = client.receiver("t/subscriptions/s").await.unwrap();
        client.connection.grant(receiver, 1);
        change(subscription, path, elements).await;
        let detached = detached(&mut client).await;
        assert_eq!((detached.0, detached.1.as_str()), (receiver, condition));
        change(subscription, path, "").await;
    }
    let sent = client.send(sender, 0, message("small")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
}

#[tokio::test]
async fn other_changes_hold_for_links_that_are_there() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 2);
    let changes = "<MaxDeliveryCount>1</MaxDeliveryCount>\
        <MaxMessageSizeInKilobytes>1</MaxMessageSizeInKilobytes>";
    update(&server, "/jobs", changes).await.check(200);
    let large = client.send(sender, 0, message(&"x".repeat(2000))).await;
    assert!(matches!(large.outcome(), Some(Outcome::Rejected(_))));
    client.send(sender, 0, message("one")).await;
    let delivery = client.delivery().await;
    let released = Outcome::Modified(kew_amqp::performative::Modified {
        delivery_failed: Some(true),
        undeliverable_here: Some(false),
        message_annotations: None,
    });
    client.tell(&delivery, released.into()).await;
    let read = ask("GET", "/jobs").of(&server).await.check(200);
    assert_eq!(read.text("d2p1:DeadLetterMessageCount"), "1");
    assert_eq!(read.text("d2p1:ActiveMessageCount"), "0");
    assert_eq!(read.text("MessageCount"), "1");
}
