//! Receive and delete of a backlog that is larger than what the server keeps in memory: in order, without a repetition,
//! and through ends of the server.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kew_client::{BusClient, Message, Received, ReceiverOptions};

use crate::bus_load::{Door, peek_all};
use crate::repair::block_on;
use crate::server::{PATIENCE, Server, show};

const ORDERS: &str = "orders";
const CONFIG: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "orders"}
]}]}}"#;

/// Together more than the log keeps of what was written last, which is 8 MiB.
const MESSAGES: u64 = 1500;
const SIZE_BYTES: usize = 8 * 1024;

fn start(data_dir: &Path) -> Server {
    let config = data_dir.with_extension("json");
    std::fs::write(&config, CONFIG).expect("writable");
    Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
        command.args(["--bus-listen", "127.0.0.1:0", "--import"]);
        command.arg(config);
    })
}

fn body(number: u64) -> Bytes {
    let mut body = number.to_be_bytes().to_vec();
    body.resize(SIZE_BYTES, u8::try_from(number % 251).expect("below 256"));
    body.into()
}

fn number_of(message: &Received) -> u64 {
    let bytes = message.body();
    let number = u64::from_be_bytes(*bytes.first_chunk().expect("a number"));
    assert_eq!(bytes, body(number), "message {number}");
    number
}

async fn fill(client: &BusClient) {
    let sender = client.sender(ORDERS).await.expect("attached");
    for number in 0..MESSAGES {
        let message = Message::new(body(number));
        sender.send(&message).await.expect("sent");
    }
}

/// Receives messages up to a number, each the one after the last, and leaves the receiver as it is.
async fn take(client: &BusClient, prefetch: u32, until: u64, next: &mut u64) {
    let options = ReceiverOptions { prefetch };
    let receiver = client.deleting_receiver(ORDERS, options).await;
    let mut receiver = receiver.expect("attached");
    let mut is_first = true;
    while *next < until {
        let message = tokio::time::timeout(PATIENCE, receiver.receive()).await;
        let message = message.expect("a message comes").expect("a message");
        let number = number_of(&message);
        // What was on its way when the link before ended is lost, as the client has asked.
        assert!(number == *next || is_first && number > *next, "{number}");
        is_first = false;
        *next = number + 1;
    }
}

#[test]
fn a_backlog_on_the_disk_is_received_and_deleted_in_order_through_ends_of_the_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let data_dir = directory.path().join("data");
    let server = start(&data_dir);
    block_on(async {
        let client = Door::of(&server).client();
        fill(&client).await;
    });
    server.kill();
    let mut next = 0;
    for prefetch in [0, 1, 20, 200] {
        let server = start(&data_dir);
        block_on(async {
            let client = Door::of(&server).client();
            let before = next;
            take(&client, prefetch, before + 120, &mut next).await;
            // At most what the link before had asked for.
            assert!(next - before <= 120 + 201, "from {before} to {next}");
        });
        // The client has not said goodbye, and the server gets no chance to.
        server.kill();
    }
    let server = start(&data_dir);
    block_on(async {
        let client = Door::of(&server).client();
        let options = ReceiverOptions { prefetch: 100 };
        let receiver = client.deleting_receiver(ORDERS, options).await;
        let mut receiver = receiver.expect("attached");
        let first = receiver.receive().await.expect("a message");
        let here = receiver.close().await.expect("closed");
        // What came ahead is here, in order.
        next = next.max(number_of(&first));
        for message in std::iter::once(&first).chain(&here) {
            assert_eq!(number_of(message), next);
            next += 1;
        }
        let left = peek_all(&client, ORDERS).await;
        let left: Vec<u64> = left.iter().map(number_of).collect();
        let first = *left.first().expect("some are left");
        assert!(next <= first && first <= next + 101, "{next} and {first}");
        assert_eq!(left, (first..MESSAGES).collect::<Vec<_>>());
        next = first;
        let (begun, count) = (Instant::now(), MESSAGES - next);
        take(&client, 100, MESSAGES, &mut next).await;
        let took = begun.elapsed();
        show(&format!(
            "receive and delete: {count} messages of 8 KiB from the disk in {took:?}"
        ));
        assert_eq!(next, MESSAGES);
        let options = ReceiverOptions::default();
        let receiver = client.deleting_receiver(ORDERS, options).await;
        let mut receiver = receiver.expect("attached");
        let more = tokio::time::timeout(Duration::from_millis(300), receiver.receive()).await;
        assert!(more.is_err(), "{more:?}");
    });
    server.kill();
}
