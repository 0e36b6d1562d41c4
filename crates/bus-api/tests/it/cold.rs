//! Everything works while next to nothing of the messages is in memory: each operation reads what it needs from pages.

use std::collections::BTreeMap;
use std::time::Duration;

use kew_amqp::codec::{Array, Map, Uuid, Value, write_list};
use kew_amqp::message::Message;
use kew_amqp::performative::{DeliveryState, Outcome, Rejected};
use kew_amqp::{Delivery, LinkId};
use kew_engine::bus::{
    BusCommand, BusMessage, BusQueueCounts, BusQueueOptions, Purge, ReceiveMode,
};
use kew_engine::{SequenceNumber, Timestamp};

use crate::client::{Client, Server, lock_of, message, queue_named, settling};
use crate::messages::modified;

/// Runs have four numbers, of which the first is never given. So each has a page: a run of one message has none.
const COUNT: u32 = 39;

const NODE: &str = "cold/$management";

/// A server of which all records leave memory that can, with messages in a queue.
struct Cold {
    server: Server,
    client: Client,
    /// The links that receive, by address.
    links: BTreeMap<String, LinkId>,
}

impl Cold {
    async fn with_messages(message: impl Fn(u32) -> BusMessage) -> Self {
        let server = Server::start_cold().await;
        let options = BusQueueOptions {
            lock_duration_ms: 300_000,
            requires_session: message(0).session.is_some(),
            ..BusQueueOptions::default()
        };
        let queue = queue_named("cold");
        let create = BusCommand::CreateQueue {
            queue: queue.clone(),
            options,
        };
        server.order(create).await;
        let messages = (0..COUNT).map(message).collect();
        server.order(BusCommand::Send { queue, messages }).await;
        let client = server.trusted().await;
        let links = BTreeMap::new();
        Self {
            server,
            client,
            links,
        }
    }

    async fn counts(&self) -> BusQueueCounts {
        self.server.view("cold").await.counts
    }

    /// How many groups were read.
    async fn loads(&self) -> u64 {
        self.server.sample("kew_partition_loads_total").await
    }

    /// Lets everything leave memory. Snapshots follow from what comes and goes in another queue. Returns how many groups
    /// were read.
    async fn cool(&self) -> u64 {
        let cooled = async {
            while self.server.sample("kew_partition_resident_bytes").await > 0 {
                let queue = queue_named("spare");
                let pad = BusMessage {
                    body: vec![b'x'; 8 << 10].into(),
                    ..plain(0)
                };
                self.server
                    .order(BusCommand::Send {
                        queue: queue.clone(),
                        messages: vec![pad],
                    })
                    .await;
                self.server
                    .order(BusCommand::Receive {
                        queue,
                        count: 1,
                        mode: ReceiveMode::ReceiveAndDelete,
                        session: None,
                    })
                    .await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let cooled = tokio::time::timeout(Duration::from_secs(300), cooled).await;
        cooled.expect("all records can leave memory");
        self.loads().await
    }

    async fn receive(&mut self, address: &str, count: u32) -> Vec<Delivery> {
        let link = match self.links.get(address) {
            Some(link) => *link,
            None => self.client.receiver(address).await.unwrap(),
        };
        self.links.insert(address.to_owned(), link);
        self.granted(link, count).await
    }

    /// So many deliveries of a link. What waits for something else meanwhile would lose some of them.
    async fn granted(&mut self, link: LinkId, count: u32) -> Vec<Delivery> {
        self.client.connection.grant(link, count);
        let mut deliveries = Vec::new();
        for _ in 0..count {
            deliveries.push(self.client.delivery().await);
        }
        deliveries
    }
}

fn plain(number: u32) -> BusMessage {
    BusMessage {
        body: message(&format!("m{number}")),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    }
}

/// Asks the queue's node, and returns status and body of the answer.
async fn ask(client: &mut Client, operation: &str, body: &Map) -> (i64, Message) {
    let operation = format!("com.microsoft:{operation}");
    let properties = Map::build(|map| map.entry("operation", operation.as_str()));
    let answer = client.ask_for(NODE, &properties, body).await;
    let properties = answer.application_properties();
    let status = properties.get("statusCode").unwrap().value();
    (status.as_integer().unwrap(), answer)
}

fn messages_of(answer: &Message) -> usize {
    let Value::Map(body) = answer.body_values().next().unwrap().value() else {
        panic!("{answer:?}")
    };
    match body.get("messages").map(|raw| raw.value()) {
        Some(Value::List(messages)) => messages.iter().count(),
        other => panic!("{other:?}"),
    }
}

fn tokens(deliveries: &[Delivery]) -> Map {
    Map::build(|map| {
        map.entry_with("lock-tokens", |out| {
            write_list(out, |list| {
                for delivery in deliveries {
                    list.field(&Uuid(lock_of(delivery)));
                }
            });
        });
    })
}

fn numbers(numbers: &[i64]) -> Map {
    let numbers = numbers.to_vec();
    Map::build(|map| {
        map.entry(
            "sequence-numbers",
            &Value::Array(Array::longs(numbers.iter().copied())),
        );
        map.entry("receiver-settle-mode", &1_u32);
    })
}

/// Locks for minutes outlast all of this.
#[tokio::test]
async fn locked_messages_are_renewed_and_settled() {
    let mut cold = Cold::with_messages(plain).await;
    let locked = cold.receive("cold", COUNT).await;
    let before = cold.cool().await;
    let (status, _) = ask(&mut cold.client, "renew-lock", &tokens(&locked[..2])).await;
    assert_eq!(status, 200);
    let after_renewal = cold.loads().await;
    assert!(after_renewal > before, "nothing was read to renew");
    // Over the link that has delivered them, and by a request.
    let rejected = DeliveryState::from(Outcome::Rejected(Rejected { error: None }));
    let outcomes = [
        (4, DeliveryState::ACCEPTED),
        (8, modified(false, None)),
        (12, modified(true, None)),
        (16, rejected),
    ];
    for (at, outcome) in outcomes {
        cold.client.tell(&locked[at], outcome).await;
    }
    assert!(
        cold.loads().await > after_renewal,
        "nothing was read to settle"
    );
    let before = cold.loads().await;
    for (at, status) in [
        (20, "completed"),
        (24, "abandoned"),
        (28, "defered"),
        (32, "suspended"),
    ] {
        let settling = settling(&locked[at], status);
        let (status, _) = ask(&mut cold.client, "update-disposition", &settling).await;
        assert_eq!(status, 200);
    }
    assert!(cold.loads().await >= before + 4);
    let counts = cold.counts().await;
    let active = u64::from(COUNT) - 4;
    assert_eq!((counts.active, counts.dead_letters), (active, 2));
    let again = cold.receive("cold", 2).await;
    let dead = cold.receive("cold/$deadletterqueue", 2).await;
    for delivery in again.iter().chain(&dead) {
        let told = cold.client.tell(delivery, DeliveryState::ACCEPTED).await;
        assert_eq!(told, DeliveryState::ACCEPTED);
    }
    let counts = cold.counts().await;
    assert_eq!((counts.active, counts.dead_letters), (active - 2, 0));
}

#[tokio::test]
async fn deferred_messages_are_received_by_their_numbers() {
    let mut cold = Cold::with_messages(plain).await;
    for delivery in cold.receive("cold", COUNT).await {
        cold.client.tell(&delivery, modified(true, None)).await;
    }
    let before = cold.cool().await;
    let asked = numbers(&[13, 29]);
    let (status, answer) = ask(&mut cold.client, "receive-by-sequence-number", &asked).await;
    assert_eq!((status, messages_of(&answer)), (200, 2));
    assert!(cold.loads().await >= before + 2);
    assert_eq!(cold.counts().await.active, u64::from(COUNT));
}

#[tokio::test]
async fn messages_are_peeked_at_received_and_deleted() {
    let mut cold = Cold::with_messages(plain).await;
    let before = cold.cool().await;
    let peek = Map::build(|map| {
        map.entry("from-sequence-number", &9_i64);
        map.entry("message-count", &100);
    });
    let (status, answer) = ask(&mut cold.client, "peek-message", &peek).await;
    assert_eq!((status, messages_of(&answer)), (200, 31));
    assert!(cold.loads().await > before);
    cold.cool().await;
    let locked = cold.receive("cold", 10).await;
    assert_eq!(locked.len(), 10);
    let before = cold.loads().await;
    let delete = Map::build(|map| {
        map.entry(
            "enqueued-time-utc",
            &kew_amqp::codec::Timestamp(253_402_300_799_999),
        );
        map.entry("message-count", &20);
    });
    let (status, _) = ask(&mut cold.client, "batch-delete-messages", &delete).await;
    assert_eq!(status, 200);
    assert!(cold.loads().await > before);
    assert_eq!(cold.counts().await.active, u64::from(COUNT) - 20);
    // To delete some, the first ones behind those that are locked were read, too.
    let before = cold.cool().await;
    let purge = Purge {
        from: SequenceNumber::default(),
        until: None,
        before: None,
        count: 1000,
        with_locked: true,
        is_dry_run: false,
    };
    let queue = queue_named("cold");
    cold.server.order(BusCommand::Purge { queue, purge }).await;
    assert!(cold.loads().await > before);
    assert_eq!(cold.counts().await.active, 0);
}

#[tokio::test]
async fn scheduled_messages_are_cancelled() {
    let far = Timestamp::from_ms(u64::MAX >> 16);
    let mut cold = Cold::with_messages(|number| BusMessage {
        scheduled_at: Some(far),
        ..plain(number)
    })
    .await;
    let before = cold.cool().await;
    assert_eq!(cold.counts().await.scheduled, u64::from(COUNT));
    let cancel = numbers(&[2, 11, 38]);
    let (status, _) = ask(&mut cold.client, "cancel-scheduled-message", &cancel).await;
    assert_eq!(status, 200);
    assert!(cold.loads().await >= before + 3);
    assert_eq!(cold.counts().await.scheduled, u64::from(COUNT) - 3);
}

#[tokio::test]
async fn messages_of_a_session_are_received_and_settled() {
    let mut cold = Cold::with_messages(|number| BusMessage {
        session: Some(
            if number.is_multiple_of(2) {
                "even"
            } else {
                "odd"
            }
            .into(),
        ),
        ..plain(number)
    })
    .await;
    let before = cold.cool().await;
    let link = cold.client.session("cold", "odd").await;
    let deliveries = cold.granted(link, 19).await;
    assert!(cold.loads().await > before);
    for delivery in &deliveries[..10] {
        let told = cold.client.tell(delivery, DeliveryState::ACCEPTED).await;
        assert_eq!(told, DeliveryState::ACCEPTED);
    }
    assert_eq!(cold.counts().await.active, u64::from(COUNT) - 10);
    // What is left of the session is free again once its link is gone.
    cold.client.connection.detach(link, true, None);
    let link = cold.client.session("cold", "odd").await;
    for delivery in cold.granted(link, 9).await {
        cold.client.tell(&delivery, DeliveryState::ACCEPTED).await;
    }
    assert_eq!(cold.counts().await.active, u64::from(COUNT) - 19);
}
