//! Received messages that are sent again, as the Python SDK encodes them: delivery annotations,
//! with the old lock token, come last, after body and footer.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Map, Symbol, Uuid, Value, write_described, write_list, write_map};
use kew_amqp::message::{BATCH_FORMAT, Message, write_batch};
use kew_amqp::performative::{DeliveryState, Modified, Outcome};
use kew_engine::bus::{BusCommand, BusQueueOptions};

use crate::client::{Client, Server, lock_of, message, queue_named};

const OLD_LOCK: [u8; 16] = [0xab; 16];
const TOKEN: &str = "x-opt-lock-token";

/// A message whose delivery annotations come last.
fn resent(body: &str) -> Bytes {
    let mut out = BytesMut::from(&message(body)[..]);
    write_described(&mut out, 0x78, |out| {
        write_map(out, |map| map.entry(&Symbol::from_static("foot"), &1));
    });
    write_described(&mut out, 0x71, |out| {
        write_map(out, |map| {
            map.entry(&Symbol::from_static(TOKEN), &Uuid(OLD_LOCK));
            map.entry(&Symbol::from_static("x-opt-own"), "kept");
        });
    });
    out.freeze()
}

/// Checks that everything arrived, with this lock token or none.
fn check(message: &Message, body: &str, lock: Option<[u8; 16]>) {
    let annotations = message.delivery_annotations();
    let own = annotations.get("x-opt-own").unwrap();
    assert_eq!(own.value(), Value::String("kept".into()));
    let tokens = annotations.iter().filter_map(|(key, value)| {
        let is_token = key.value().as_str() == Some(TOKEN);
        is_token.then(|| value.value())
    });
    let tokens: Vec<Value> = tokens.collect();
    let expected: Vec<Value> = lock
        .map(|lock| Value::Uuid(Uuid(lock)))
        .into_iter()
        .collect();
    assert_eq!(tokens, expected);
    assert_eq!(message.body(), crate::client::message(body));
    assert!(!message.footer().is_empty());
}

impl Client {
    /// Receives one message, and checks it.
    async fn check_next(&mut self, link: kew_amqp::LinkId, body: &str) -> kew_amqp::Delivery {
        self.connection.grant(link, 1);
        let delivery = self.delivery().await;
        let received = Message::scan(delivery.payload.clone()).unwrap();
        check(&received, body, Some(lock_of(&delivery)));
        delivery
    }

    /// Requests messages, and returns the only one.
    async fn one_of(&mut self, queue: &str, operation: &str, body: &Map) -> (Message, Map) {
        let name = format!("com.microsoft:{operation}");
        let properties = Map::build(|map| map.entry("operation", name.as_str()));
        let node = format!("{queue}/$management");
        let answer = self.ask_for(&node, &properties, body).await;
        let body = answer.body_values().next().unwrap().value();
        let Value::Map(body) = body else {
            panic!("{body:?}")
        };
        let Some(Value::List(messages)) = body.get("messages").map(|raw| raw.value()) else {
            panic!("{body:?}")
        };
        let Some(Value::Map(first)) = messages.iter().next().map(|raw| raw.value()) else {
            panic!("{messages:?}")
        };
        let Some(Value::Binary(bytes)) = first.get("message").map(|raw| raw.value()) else {
            panic!("{first:?}")
        };
        (Message::scan(bytes).unwrap(), first)
    }
}

#[tokio::test]
async fn one_message_a_batch_and_scheduled_ones_are_accepted() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let sent = client.send(sender, 0, resent("one")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let mut batch = BytesMut::new();
    write_batch(&mut batch, &[resent("two"), resent("three")]);
    // Delivery annotations after the first message may also belong to the batch.
    write_described(&mut batch, 0x71, |out| {
        write_map(out, |map| {
            map.entry(&Symbol::from_static(TOKEN), &Uuid(OLD_LOCK))
        });
    });
    let sent = client.send(sender, BATCH_FORMAT, batch.freeze()).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let properties = Map::build(|map| map.entry("operation", "com.microsoft:schedule-message"));
    let body = Map::build(|map| {
        map.entry_with("messages", |out| {
            write_list(out, |list| {
                list.with(|out| write_map(out, |map| map.entry("message", &resent("four"))));
            });
        });
    });
    let told = client.ask("jobs/$management", &properties, &body).await;
    let status = told.get("statusCode").unwrap().value();
    assert_eq!(status.as_integer(), Some(200));
    let receiver = client.receiver("jobs").await.unwrap();
    for body in ["one", "two", "three", "four"] {
        let delivery = client.check_next(receiver, body).await;
        client.tell(&delivery, DeliveryState::ACCEPTED).await;
    }
}

#[tokio::test]
async fn delivery_annotations_are_there_however_a_message_goes_out() {
    let server = Server::start().await;
    let forwarding = BusCommand::CreateQueue {
        queue: queue_named("ahead"),
        options: BusQueueOptions {
            forward_to: Some("jobs".into()),
            ..BusQueueOptions::default()
        },
    };
    server.order(forwarding).await;
    let mut client = server.trusted().await;
    let sender = client.sender("ahead").await.unwrap();
    let sent = client.send(sender, 0, resent("x")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let receiver = client.receiver("jobs").await.unwrap();
    let delivery = client.check_next(receiver, "x").await;
    let peek = Map::build(|map| {
        map.entry("from-sequence-number", &0_i64);
        map.entry("message-count", &1);
    });
    let (peeked, _) = client.one_of("jobs", "peek-message", &peek).await;
    check(&peeked, "x", None);
    let deferred = DeliveryState::from(Outcome::Modified(Modified {
        delivery_failed: None,
        undeliverable_here: Some(true),
        message_annotations: Some(Map::build(|map| map.entry("why", "later"))),
    }));
    client.tell(&delivery, deferred).await;
    let number = peeked.message_annotations().get("x-opt-sequence-number");
    let by_number = Map::build(|map| {
        map.entry_with("sequence-numbers", |out| {
            write_list(out, |list| list.field(&number.unwrap().value()));
        });
        map.entry("receiver-settle-mode", &1_u32);
    });
    let (found, entry) = client
        .one_of("jobs", "receive-by-sequence-number", &by_number)
        .await;
    let Some(Value::Uuid(lock)) = entry.get("lock-token").map(|raw| raw.value()) else {
        panic!("{entry:?}")
    };
    check(&found, "x", Some(lock.0));
    let why = Map::build(|map| {
        map.entry("disposition-status", "suspended");
        map.entry_with("lock-tokens", |out| {
            write_list(out, |list| list.field(&lock));
        });
    });
    let update = Map::build(|map| map.entry("operation", "com.microsoft:update-disposition"));
    client.ask("jobs/$management", &update, &why).await;
    let letters = client.receiver("jobs/$deadletterqueue").await.unwrap();
    client.check_next(letters, "x").await;
}
