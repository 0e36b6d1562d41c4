//! Messages of topics: links to them and to their subscriptions.

use bytes::{Bytes, BytesMut};
use kew_amqp::Delivery;
use kew_amqp::codec::{
    Array, Encode as _, Map, Symbol, Timestamp, Value, write_described, write_list, write_map,
};
use kew_amqp::message::{BATCH_FORMAT, Message, write_application_properties, write_batch};
use kew_amqp::performative::DeliveryState;
use kew_engine::bus::{BusCommand, BusQueueOptions, NewRule};
use kew_filter::{Definition, Equality, FilterDefinition, OwnedValue, SqlDefinition};

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

/// A message that becomes active in the year 2096.
fn scheduled(body: &str) -> Bytes {
    let mut payload = BytesMut::new();
    let annotations = Map::build(|map| {
        let name = Symbol::from_static("x-opt-scheduled-enqueue-time");
        map.entry(&name, &Timestamp(4_000_000_000_000));
    });
    write_described(&mut payload, MESSAGE_ANNOTATIONS, |out| {
        annotations.encode(out)
    });
    payload.extend_from_slice(&message(body));
    payload.freeze()
}

#[tokio::test]
async fn messages_of_a_topic_are_scheduled_peeked_at_and_cancelled() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = server.trusted().await;
    let sender = client.sender("events").await.unwrap();
    let sent = client.send(sender, 0, scheduled("first")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let operation = |name: &str| {
        let name = format!("com.microsoft:{name}");
        Map::build(|map| map.entry("operation", &*name))
    };
    let body = Map::build(|map| {
        map.entry_with("messages", |out| {
            write_list(out, |list| {
                list.with(|out| write_map(out, |map| map.entry("message", &scheduled("second"))));
            });
        });
    });
    let node = "events/$management";
    let answer = client
        .ask(node, &operation("schedule-message"), &body)
        .await;
    let status = |answer: &Map| answer.get("statusCode").unwrap().value().as_integer();
    assert_eq!(status(&answer), Some(200));
    assert_eq!(server.active("all").await, 0);
    assert_eq!(server.view("events").await.counts.scheduled, 2);

    let peek = Map::build(|map| {
        map.entry("from-sequence-number", &0_i64);
        map.entry("message-count", &10_i32);
    });
    let answer = client.ask(node, &operation("peek-message"), &peek).await;
    assert_eq!(status(&answer), Some(200));
    let numbers = Value::Array(Array::longs([1, 2]));
    let cancel = Map::build(|map| map.entry("sequence-numbers", &numbers));
    let cancelled = operation("cancel-scheduled-message");
    let answer = client.ask(node, &cancelled, &cancel).await;
    assert_eq!(status(&answer), Some(200));
    assert_eq!(server.view("events").await.counts.scheduled, 0);
    let again = client.ask(node, &cancelled, &cancel).await;
    assert_eq!(status(&again), Some(404));
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

/// A rule in place of the one that a subscription is created with.
async fn with_rule(server: &Server, name: &str, filter: FilterDefinition, action: Option<&str>) {
    let action = action.map(|text| SqlDefinition {
        text: text.into(),
        ..SqlDefinition::default()
    });
    let rule = NewRule {
        name: "$Default".into(),
        definition: Definition::new(filter, action).unwrap(),
    };
    server
        .order(BusCommand::SetRule {
            topic: queue_named("events"),
            subscription: queue_named(&format!("events/subscriptions/{name}")),
            rule: Box::new(rule),
        })
        .await;
}

fn sql(text: &str) -> FilterDefinition {
    FilterDefinition::Sql(SqlDefinition {
        text: text.into(),
        ..SqlDefinition::default()
    })
}

/// A message with these application properties.
fn with_properties(color: &str, size: i32, body: &str) -> Bytes {
    let mut out = BytesMut::new();
    let properties = Map::build(|map| {
        map.entry("color", color);
        map.entry("size", &size);
    });
    write_application_properties(&mut out, &properties);
    out.extend_from_slice(&message(body));
    out.freeze()
}

/// The application properties of a message that came, in the order of their names, and its body.
fn shown(delivery: &Delivery) -> (Vec<String>, String) {
    let message = Message::scan(delivery.payload.clone()).unwrap();
    let properties = message.application_properties();
    let properties = properties.named();
    let mut properties: Vec<_> = properties
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}={text}"),
            other => format!("{name}={other:?}"),
        })
        .collect();
    properties.sort();
    let body = String::from_utf8(message.data().unwrap().to_vec()).unwrap();
    (properties, body)
}

#[tokio::test]
async fn rules_select_and_change_what_subscriptions_get() {
    let server = Server::with_topic(&["red", "large", "changed", "fails"]).await;
    let red = FilterDefinition::Correlation(vec![Equality::User {
        name: "color".into(),
        value: OwnedValue::Text("red".into()),
    }]);
    with_rule(&server, "red", red, None).await;
    with_rule(&server, "large", sql("size > 5"), None).await;
    let action = "SET size = size * 2; SET sys.Label = 'changed'; REMOVE color";
    with_rule(&server, "changed", sql("color = 'blue'"), Some(action)).await;
    with_rule(&server, "fails", sql("10 / size > 0"), None).await;
    server
        .order(BusCommand::UpdateQueue {
            queue: queue_named("events/subscriptions/fails"),
            options: BusQueueOptions {
                dead_letters_filter_failures: true,
                ..BusQueueOptions::default()
            },
        })
        .await;

    let mut client = server.trusted().await;
    let sender = client.sender("events").await.unwrap();
    for (color, size, body) in [("red", 1, "one"), ("blue", 9, "two"), ("green", 0, "three")] {
        let payload = with_properties(color, size, body);
        assert_eq!(
            client.send(sender, 0, payload).await,
            DeliveryState::ACCEPTED
        );
    }
    let mut received = Vec::new();
    for (name, count) in [("red", 1), ("large", 1), ("changed", 1), ("fails", 2)] {
        assert_eq!(server.active(name).await, count, "{name}");
        if name == "fails" {
            continue;
        }
        let address = format!("events/subscriptions/{name}");
        let link = client.receiver(&address).await.unwrap();
        client.connection.grant(link, 1);
        let delivery = client.delivery().await;
        let (properties, body) = shown(&delivery);
        received.push((name, properties.join(" "), body));
        if name == "changed" {
            let message = Message::scan(delivery.payload.clone()).unwrap();
            let label = message.properties().unwrap().subject;
            assert_eq!(label.as_ref().map(|it| it.as_str()), Some("changed"));
        }
    }
    let expected = [
        ("red", "color=red size=Int(1)", "one"),
        ("large", "color=blue size=Int(9)", "two"),
        ("changed", "RuleName=$Default size=Int(18)", "two"),
    ];
    let expected =
        expected.map(|(name, properties, body)| (name, properties.to_owned(), body.to_owned()));
    assert_eq!(received, expected);

    // The dead letter says which error it was.
    let dead = "events/subscriptions/fails/$DeadLetterQueue";
    let link = client.receiver(dead).await.unwrap();
    client.connection.grant(link, 1);
    let (properties, body) = shown(&client.delivery().await);
    let expected = [
        "DeadLetterErrorDescription=column 4: division by zero",
        "DeadLetterReason=FilterException",
        "color=green",
        "size=Int(0)",
    ];
    assert_eq!(
        (properties, body),
        (expected.map(str::to_owned).to_vec(), "three".into())
    );
}

impl Server {
    /// Waits until each of these subscriptions has so many messages, and none more.
    async fn has_copies(&self, names: &[String], count: u64) {
        let copied = async {
            for name in names {
                while self.active(name).await < count {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
        };
        let copied = tokio::time::timeout(std::time::Duration::from_secs(60), copied).await;
        copied.expect("copies are made");
        for name in names {
            assert_eq!(self.active(name).await, count, "{name}");
        }
    }
}

/// What takes too many steps is stored, and copied soon after.
#[tokio::test]
async fn messages_that_rules_take_long_for_are_accepted_and_copied_in_order() {
    let server = Server::with_topic(&["slow", "other"]).await;
    with_rule(&server, "slow", sql("color NOT LIKE '%y%'"), None).await;
    let mut client = server.trusted().await;
    let sender = client.sender("events").await.unwrap();
    let bodies = ["1", "2", "3", "4", "5"];
    let large = bodies.map(|body| with_properties(&"x".repeat(20_000), 0, body));
    let mut batch = BytesMut::new();
    write_batch(&mut batch, &large);
    let sent = client.send(sender, BATCH_FORMAT, batch.freeze()).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    for name in ["slow", "other"] {
        server.has_copies(&[name.to_owned()], 5).await;
        let address = format!("events/subscriptions/{name}");
        let link = client.receiver(&address).await.unwrap();
        client.connection.grant(link, 5);
        for body in bodies {
            let delivery = client.delivery().await;
            assert_eq!(shown(&delivery).1, body);
        }
    }
}

/// No body stays in memory: rules look at what was read from the disk.
#[tokio::test]
async fn each_of_2000_subscriptions_gets_one_copy_of_each_message_in_order() {
    let server = Server::start_forgetful(std::sync::Arc::new(kew_log::MemoryStorage::new())).await;
    let topic = queue_named("events");
    let options = BusQueueOptions::default();
    let created = BusCommand::CreateTopic { topic, options };
    server.order(created).await;
    let mut names: Vec<String> = Vec::new();
    let mut client = server.trusted().await;
    let sender = client.sender("events").await.unwrap();
    for count in [200, 2000] {
        for nth in names.len()..count {
            let name = nth.to_string();
            let subscription = queue_named(&format!("events/subscriptions/{name}"));
            server
                .order(BusCommand::CreateSubscription {
                    topic: queue_named("events"),
                    subscription,
                    options: BusQueueOptions::default(),
                    rule: None,
                })
                .await;
            names.push(name);
        }
        with_rule(&server, "7", sql("size > 5"), None).await;
        let before = match count {
            200 => 0,
            _ => 2,
        };
        for (size, body) in [(9, "one"), (10, "two")] {
            let payload = with_properties("red", size, body);
            let sent = client.send(sender, 0, payload).await;
            assert_eq!(sent, DeliveryState::ACCEPTED);
        }
        server.has_copies(&names[..200], before + 2).await;
        server.has_copies(&names[200..], 2).await;
    }
    let link = client.receiver("events/subscriptions/7").await.unwrap();
    client.connection.grant(link, 4);
    for body in ["one", "two", "one", "two"] {
        assert_eq!(shown(&client.delivery().await).1, body);
    }
}
