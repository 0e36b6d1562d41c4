//! Topics and subscriptions at Kew: management, and messages through them.

use std::sync::Arc;
use std::time::Duration;

use kew_client::{
    BusClient, Entity, EntityDescription, EntityStatus, ErrorKind, Message, ReceiverOptions, Right,
    SessionChoice, SubscriptionSettings, TopicSettings,
};

use crate::admin::{admin, rule};
use crate::server::Server;

const WAIT: Duration = Duration::from_mins(1);

/// A topic with subscriptions of these names.
async fn topic(server: &Arc<Server>, subscriptions: &[&str]) {
    let admin = admin(server);
    let settings = TopicSettings::default();
    admin.create_topic("News", &settings).await.unwrap();
    for name in subscriptions {
        let settings = SubscriptionSettings::default();
        let created = admin.create_subscription("news", name, &settings).await;
        created.unwrap();
    }
}

async fn send(client: &BusClient, message: Message) {
    let sender = client.sender("news").await.unwrap();
    sender.send(&message).await.unwrap();
}

#[tokio::test]
async fn settings_of_topics_are_kept() {
    let server = Server::start().await;
    let admin = admin(&server);
    let settings = TopicSettings {
        default_time_to_live: Some(Duration::from_hours(25)),
        max_size_megabytes: Some(2_048),
        enable_batched_operations: Some(false),
        authorization_rules: Some(vec![rule("publisher", &[Right::Send])]),
        user_metadata: Some("<team> & \"owner\"".to_owned()),
        support_ordering: Some(false),
        enable_partitioning: Some(true),
        enable_express: Some(true),
        max_message_size_kilobytes: Some(512),
        ..TopicSettings::default()
    };
    let created = admin.create_topic("A/Topic", &settings).await.unwrap();
    assert_eq!(created.name, "A/Topic");
    let read = admin.topic("a/topic").await.unwrap();
    for (ours, theirs) in [(&settings, &created.settings), (&settings, &read.settings)] {
        assert_eq!(theirs.default_time_to_live, ours.default_time_to_live);
        assert_eq!(theirs.max_size_megabytes, ours.max_size_megabytes);
        assert_eq!(theirs.enable_batched_operations, Some(false));
        let rules = theirs.authorization_rules.as_ref().unwrap();
        assert_eq!(
            (&*rules[0].name, &*rules[0].rights),
            ("publisher", &[Right::Send][..])
        );
        assert_eq!(theirs.user_metadata, ours.user_metadata);
        assert_eq!(theirs.support_ordering, Some(false));
        assert_eq!(theirs.enable_partitioning, Some(true));
        assert_eq!(theirs.enable_express, Some(true));
        assert_eq!(theirs.max_message_size_kilobytes, Some(512));
        // What was not said has its default.
        assert_eq!(theirs.requires_duplicate_detection, Some(false));
        assert_eq!(theirs.duplicate_window, Some(Duration::from_mins(10)));
        assert_eq!(theirs.filters_before_publishing, Some(false));
        assert_eq!(theirs.enable_subscription_partitioning, Some(false));
        assert_eq!(theirs.auto_delete_on_idle, Some(TopicSettings::FOREVER));
        assert_eq!(theirs.status, Some(EntityStatus::Active));
        assert_eq!(theirs.unknown.names().count(), 0);
    }
    let changed = TopicSettings {
        user_metadata: Some("new".to_owned()),
        ..read.settings
    };
    let updated = admin.update_topic("a/topic", &changed).await.unwrap();
    assert_eq!(updated.settings.user_metadata.as_deref(), Some("new"));
    assert_eq!(updated.settings.max_size_megabytes, Some(2_048));
    // A topic has no such status: the service says so.
    let closed = TopicSettings {
        status: Some(EntityStatus::ReceiveDisabled),
        ..updated.settings
    };
    let refused = admin.update_topic("a/topic", &closed).await.unwrap_err();
    assert_eq!(refused.status(), Some(400));
    assert!(refused.text().contains("Status"), "{refused}");
}

#[tokio::test]
async fn settings_of_subscriptions_are_kept() {
    let server = Server::start().await;
    topic(&server, &[]).await;
    let admin = admin(&server);
    let settings = SubscriptionSettings {
        lock_duration: Some(Duration::from_millis(30_500)),
        requires_session: Some(true),
        default_time_to_live: Some(Duration::from_hours(25)),
        dead_letters_expired: Some(true),
        dead_letters_filter_failures: Some(false),
        max_delivery_count: Some(3),
        enable_batched_operations: Some(false),
        status: Some(EntityStatus::ReceiveDisabled),
        user_metadata: Some("mine".to_owned()),
        forward_dead_letters_to: Some("spare".to_owned()),
        auto_delete_on_idle: Some(Duration::from_hours(24 * 30)),
        ..SubscriptionSettings::default()
    };
    let created = admin.create_subscription("NEWS", "Mine", &settings).await;
    let created = created.unwrap();
    assert_eq!(created.name, "Mine");
    assert_eq!(format!("{:?}", created.settings), format!("{settings:?}"));
    let mut read = admin.subscription("news", "mine").await.unwrap();
    assert_eq!(format!("{:?}", read.settings), format!("{settings:?}"));
    read.settings.max_delivery_count = Some(7);
    let updated = admin.update_subscription("news", "mine", &read.settings);
    let updated = updated.await.unwrap();
    let (now, wanted) = (&updated.settings, &read.settings);
    assert_eq!(format!("{now:?}"), format!("{wanted:?}"));
    let plain = SubscriptionSettings {
        forward_to: Some("jobs".to_owned()),
        ..SubscriptionSettings::default()
    };
    let created = admin.create_subscription("news", "plain", &plain).await;
    let settings = created.unwrap().settings;
    assert_eq!(settings.forward_to.as_deref(), Some("jobs"));
    assert_eq!(settings.lock_duration, Some(Duration::from_mins(1)));
    assert_eq!(settings.dead_letters_filter_failures, Some(true));
    let forever = Some(SubscriptionSettings::FOREVER);
    assert_eq!(settings.auto_delete_on_idle, forever);
    let server_client = server.client();
    send(&server_client, Message::new("x")).await;
    assert_eq!(server.view("jobs").await.counts.active, 1);
}

#[tokio::test]
async fn topics_and_subscriptions_come_and_go() {
    let server = Server::start().await;
    let admin = admin(&server);
    assert!(!admin.topic_exists("news").await.unwrap());
    assert!(!admin.subscription_exists("news", "a").await.unwrap());
    let settings = SubscriptionSettings::default();
    let orphan = admin.create_subscription("news", "a", &settings).await;
    assert_eq!(orphan.unwrap_err().code(), Some("40400"));
    topic(&server, &["a", "b"]).await;
    assert!(admin.topic_exists("news").await.unwrap());
    assert!(admin.subscription_exists("news", "A").await.unwrap());
    for again in [
        admin
            .create_topic("news", &TopicSettings::default())
            .await
            .map(drop),
        admin
            .create_subscription("news", "a", &settings)
            .await
            .map(drop),
        admin
            .create_topic("jobs", &TopicSettings::default())
            .await
            .map(drop),
    ] {
        let again = again.unwrap_err();
        assert_eq!((again.status(), again.code()), (Some(409), Some("40900")));
    }
    let state = admin.topic("news").await.unwrap().state;
    assert_eq!(state.subscription_count, Some(2));
    // A kind that was not asked for is not there.
    for other in [
        admin.queue("news").await.map(drop),
        admin.topic("jobs").await.map(drop),
        admin.queue("news/subscriptions/a").await.map(drop),
    ] {
        let other = other.unwrap_err();
        assert_eq!((other.status(), other.code()), (Some(404), Some("40400")));
    }
    let kind = |found| match found {
        EntityDescription::Queue(it) => format!("queue {}", it.name),
        EntityDescription::Topic(it) => format!("topic {}", it.name),
        EntityDescription::Subscription(it) => format!("subscription {}", it.name),
        other => panic!("{other:?}"),
    };
    for (name, expected) in [
        ("jobs", "queue jobs"),
        ("news", "topic News"),
        ("news/Subscriptions/b", "subscription b"),
    ] {
        assert_eq!(kind(admin.entity(name).await.unwrap()), expected);
    }
    admin.delete_subscription("news", "b").await.unwrap();
    let gone = admin.delete_subscription("news", "b").await.unwrap_err();
    assert_eq!(gone.code(), Some("40400"));
    let left = admin.subscriptions("news", 0).await.unwrap();
    assert_eq!(left.items.len(), 1);
    admin.delete_topic("news").await.unwrap();
    assert!(!admin.subscription_exists("news", "a").await.unwrap());
}

#[tokio::test]
async fn lists_have_pages() {
    let server = Server::start().await;
    let admin = admin(&server);
    let settings = TopicSettings::default();
    for number in 0..103 {
        let name = format!("many/{number:03}");
        admin.create_topic(&name, &settings).await.unwrap();
    }
    let first = admin.topics(0).await.unwrap();
    assert_eq!((first.items.len(), first.next), (100, Some(100)));
    let rest = admin.topics(100).await.unwrap();
    let names: Vec<&str> = rest.items.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["many/100", "many/101", "many/102"]);
    assert_eq!(rest.next, None);
    // Queues are in a list of their own.
    assert_eq!(admin.queues(0).await.unwrap().items.len(), 4);
    let none = admin.subscriptions("many/000", 0).await.unwrap();
    assert!(none.items.is_empty() && none.next.is_none());
    for name in ["x", "y"] {
        let settings = SubscriptionSettings::default();
        let created = admin.create_subscription("many/000", name, &settings);
        created.await.unwrap();
    }
    let page = admin.subscriptions("many/000", 1).await.unwrap();
    let names: Vec<&str> = page.items.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["y"]);
    let missing = admin.subscriptions("many/999", 0).await.unwrap_err();
    assert_eq!(missing.status(), Some(404), "{missing}");
}

#[tokio::test]
async fn each_subscription_has_its_copy() {
    let server = Server::start().await;
    topic(&server, &["a", "b"]).await;
    let (admin, client) = (admin(&server), server.client());
    send(&client, Message::new("one")).await;
    send(&client, Message::new("two")).await;
    // The service's form of the name, and another one.
    for (name, settled) in [
        ("News/Subscriptions/a", true),
        ("news/subscriptions/b", false),
    ] {
        let receiver = client.receiver(name, ReceiverOptions::default());
        let mut receiver = receiver.await.unwrap();
        let message = receiver.receive_batch(1, WAIT).await.unwrap().remove(0);
        assert_eq!(message.body(), "one");
        match settled {
            true => message.complete().await.unwrap(),
            false => message.dead_letter("odd", "", Vec::new()).await.unwrap(),
        }
    }
    let a = admin.subscription("news", "a").await.unwrap().state;
    let b = admin.subscription("news", "b").await.unwrap().state;
    assert_eq!((a.active_count, a.dead_letter_count), (Some(1), Some(0)));
    assert_eq!((b.active_count, b.dead_letter_count), (Some(1), Some(1)));
    assert_eq!((a.message_count, b.message_count), (Some(1), Some(2)));
    assert_eq!((b.transfer_count, b.scheduled_count), (Some(0), Some(0)));
    assert_eq!(b.transfer_dead_letter_count, Some(0));
    assert_eq!((b.size_bytes, b.subscription_count), (None, None));
    assert!(b.created_at.is_some() && b.accessed_at.is_some());
    let topic = admin.topic("news").await.unwrap().state;
    assert!(topic.size_bytes > Some(0));
    assert_eq!(topic.message_count, None);
    let dead = Entity::subscription("news", "b").dead_letters();
    let peeked = client.peek(&dead, 0, 10).await.unwrap();
    assert_eq!(peeked[0].dead_letter_reason().as_deref(), Some("odd"));
    let receiver = client.deleting_receiver(&dead, ReceiverOptions::default());
    let mut receiver = receiver.await.unwrap();
    assert_eq!(
        receiver.receive_batch(1, WAIT).await.unwrap()[0].body(),
        "one"
    );
}

#[tokio::test]
async fn subscriptions_have_sessions() {
    let server = Server::start().await;
    topic(&server, &["plain"]).await;
    let settings = SubscriptionSettings {
        requires_session: Some(true),
        ..SubscriptionSettings::default()
    };
    let created = admin(&server)
        .create_subscription("news", "talks", &settings)
        .await;
    created.unwrap();
    let client = server.client();
    let message = Message {
        session_id: Some("s1".to_owned()),
        ..Message::new("x")
    };
    send(&client, message).await;
    let name = "news/Subscriptions/talks";
    let (ids, _) = client.sessions(name, 0).await.unwrap();
    assert_eq!(ids, ["s1"]);
    let session = client.session(name, SessionChoice::named("s1"), ReceiverOptions::default());
    let mut session = session.await.unwrap();
    let message = session.receive().await.unwrap();
    assert_eq!(
        (message.body(), message.session_id()),
        ("x".into(), Some("s1"))
    );
    message.complete().await.unwrap();
    session.set_state(Some(b"there"[..].into())).await.unwrap();
    assert_eq!(
        session.state().await.unwrap().as_deref(),
        Some(&b"there"[..])
    );
}

#[tokio::test]
async fn what_does_not_fit_the_entity_is_refused() {
    let server = Server::start().await;
    topic(&server, &["a"]).await;
    let client = server.client();
    let receive = |name: &'static str| {
        let client = client.clone();
        async move {
            let receiver = client.receiver(name, ReceiverOptions::default()).await;
            receiver.map(drop).unwrap_err()
        }
    };
    for (refused, code) in [
        (
            client
                .sender("news/subscriptions/a")
                .await
                .map(drop)
                .unwrap_err(),
            "amqp:not-allowed",
        ),
        (receive("news").await, "amqp:not-allowed"),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Refused);
        assert_eq!(refused.code(), Some(code), "{refused}");
    }
    for missing in [
        receive("news/subscriptions/none").await,
        client.sender("none").await.map(drop).unwrap_err(),
    ] {
        let (kind, status) = (missing.kind(), missing.status());
        assert_eq!((kind, status), (ErrorKind::Refused, Some(404)), "{missing}");
    }
    // These names are of no service, which is not asked.
    let connections = server.connections();
    for (name, what) in [
        ("", "is empty"),
        ("news/subscriptions//a", "empty part"),
        ("news/subscriptions/a/$dead", "neither $DeadLetterQueue nor"),
    ] {
        let refused = receive(name).await;
        assert_eq!((refused.kind(), refused.code()), (ErrorKind::Refused, None));
        assert!(refused.text().contains(what), "{name}: {refused}");
        let refused = client.peek(name, 0, 1).await.unwrap_err();
        assert!(refused.text().contains(what), "{name}: {refused}");
    }
    assert_eq!(server.connections(), connections);
}
