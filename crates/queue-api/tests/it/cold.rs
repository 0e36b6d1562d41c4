//! Everything works while next to nothing of the messages is in memory: each operation reads what it needs from pages.

use std::sync::Arc;
use std::time::Duration;

use kew_broker::{Broker, BrokerOptions, ResidentLimit};
use kew_engine::RunLength;
use kew_log::MemoryStorage;
use kew_metrics::{page, read};

use crate::client::{Answer, Door, Wire, call, escape, message, put};

/// Runs have four numbers, of which the first is never given. So each has a page: a run of one message has none.
const COUNT: u32 = 39;

struct Cold {
    broker: Broker,
    wire: Wire,
}

impl Drop for Cold {
    fn drop(&mut self) {
        self.broker.stop();
    }
}

impl Cold {
    /// With messages in the queue `orders`. All records leave memory that can, as soon as a snapshot has them. It starts with
    /// the messages: one that arrives in a run that is cold already stays beside its page.
    async fn open() -> Self {
        let storage = Arc::new(MemoryStorage::new());
        let start = |resident_limit, snapshot_after_bytes| {
            let mut options = BrokerOptions::default();
            options.partition.run_length = RunLength::TINY;
            options.partition.resident_limit = resident_limit;
            options.partition.snapshot_after_bytes = snapshot_after_bytes;
            options.partition.log.recent_bytes_max = 0;
            let (broker, _) = Broker::start(storage.clone(), options).unwrap();
            broker
        };
        let broker = start(ResidentLimit::None, 1 << 30);
        let mut wire = Door::with_broker(broker.clone()).connect();
        for queue in ["/orders", "/spare"] {
            wire.send(call("PUT", queue)).await.check_status(201);
        }
        for number in 0..COUNT {
            let sent = put("orders", "", &format!("m{number}"));
            wire.send(sent).await.check_status(201);
        }
        broker.stop();
        let broker = start(ResidentLimit::Bytes(0), 64 << 10);
        let wire = Door::with_broker(broker.clone()).connect();
        Self { broker, wire }
    }

    /// The value of a metric. It is whole.
    async fn sample(&self, name: &str) -> u64 {
        let families = self.broker.metrics(0, Duration::from_secs(60)).await;
        let families = read(&page(families)).unwrap();
        let mut samples = families.values().flat_map(|family| &family.samples);
        let found = samples.find(|it| it.0 == name);
        format!("{}", found.unwrap().2).parse().unwrap()
    }

    /// How many groups were read.
    async fn loads(&self) -> u64 {
        self.sample("kew_partition_loads_total").await
    }

    /// Lets everything leave memory. Snapshots follow from what comes and goes in another queue. Returns how many groups
    /// were read.
    async fn cool(&mut self) -> u64 {
        for _ in 0..20_000 {
            if self.sample("kew_partition_resident_bytes").await == 0 {
                return self.loads().await;
            }
            let pad = put("spare", "", &"x".repeat(8 << 10));
            self.wire.send(pad).await.check_status(201);
            let clear = call("DELETE", "/spare/messages");
            self.wire.send(clear).await.check_status(204);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("some records stay in memory");
    }

    async fn get(&mut self, query: &str) -> Vec<(String, String)> {
        let get = call("GET", &format!("/orders/messages{query}"));
        let answer = self.wire.send(get).await;
        answer.check_status(200);
        places(&answer)
    }

    async fn count(&mut self) -> u32 {
        let answer = self.wire.send(call("HEAD", "/orders?comp=metadata")).await;
        let count = answer.header("x-ms-approximate-messages-count");
        count.unwrap().parse().unwrap()
    }
}

/// The addresses of messages in an answer, with their receipts if it has any, and their texts.
fn places(answer: &Answer) -> Vec<(String, String)> {
    let receipts = answer.elements("PopReceipt");
    let ids = answer.elements("MessageId").into_iter();
    let all = ids.zip(answer.elements("MessageText")).enumerate();
    let all = all.map(|(nth, (id, text))| {
        let receipt = receipts.get(nth).map_or(String::new(), |it| escape(it));
        let place = format!("/orders/messages/{id}?popreceipt={receipt}");
        (place, text.to_owned())
    });
    all.collect()
}

#[tokio::test]
async fn messages_are_received_updated_and_deleted() {
    let mut cold = Cold::open().await;
    let mut received = cold.get("?numofmessages=32&visibilitytimeout=3600").await;
    received.extend(cold.get("?numofmessages=32&visibilitytimeout=3600").await);
    let texts: Vec<String> = received.iter().map(|(_, text)| text.clone()).collect();
    let expected: Vec<String> = (0..COUNT).map(|it| format!("m{it}")).collect();
    assert_eq!(texts, expected);
    let before = cold.cool().await;
    for (place, _) in received.iter().step_by(8) {
        let answer = cold.wire.send(call("DELETE", place)).await;
        answer.check_status(204);
    }
    assert!(cold.loads().await >= before + 5);
    let before = cold.loads().await;
    let place = format!("{}&visibilitytimeout=0", received[4].0);
    let update = cold
        .wire
        .send(call("PUT", &place).body(message("other")))
        .await;
    update.check_status(204);
    assert!(cold.loads().await > before, "nothing was read to update");
    let again = cold.get("").await;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].1, "other");
    assert_eq!(cold.count().await, COUNT - 5);
    // The old receipt stays without effect.
    let stale = cold.wire.send(call("DELETE", &received[4].0)).await;
    stale.check_error(404, "MessageNotFound");
}

#[tokio::test]
async fn messages_are_peeked_at_and_cleared() {
    let mut cold = Cold::open().await;
    let before = cold.cool().await;
    let peeked = cold.get("?peekonly=true&numofmessages=32").await;
    assert_eq!(peeked.len(), 32);
    assert!(cold.loads().await > before);
    cold.cool().await;
    let clear = cold.wire.send(call("DELETE", "/orders/messages")).await;
    clear.check_status(204);
    assert_eq!(cold.count().await, 0);
}
