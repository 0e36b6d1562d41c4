//! A million messages at a server that nobody has configured: most of them leave memory, and come back one by one.

use std::path::Path;
use std::time::Instant;

use kew_client::{BusClient, Message, ReceiverOptions};
use tokio::task::JoinSet;

use crate::bus::{metric, metric_becomes};
use crate::bus_load::Door;
use crate::load::{self, stop_in_order};
use crate::operate::start;
use crate::server::{PATIENCE, Server, show};

const QUEUE: &str = "orders";

const MESSAGES: u64 = 1_000_000;

const BATCH: u64 = 1000;

const SENDERS: u64 = 4;

/// The size of a body.
const BODY_BYTES: usize = 64;

/// What the server may use at most, in MiB. The target for a million messages is 90 MB; a program with debug assertions is
/// larger.
const MEMORY_MIB_MAX: u64 = if cfg!(debug_assertions) {
    100
} else {
    90_000_000 >> 20
};

/// The limit for records of messages. While a snapshot is written more may come.
const LIMIT_BYTES: f64 = (32 << 20) as f64;

#[test]
fn a_million_messages_take_little_memory_by_default() {
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(fill_and_drain(&place.path().join("data")));
}

async fn fill_and_drain(data_dir: &Path) {
    let server = start(data_dir);
    fill(&server).await;
    metric_becomes(&server, "kew_partition_resident_bytes", &[], |it| {
        it < LIMIT_BYTES
    });
    assert!(metric(&server, "kew_partition_cold_runs", &[]) > 0.0);
    assert_memory(&server, "filled");
    server.kill();

    let begun = Instant::now();
    let server = start(data_dir);
    show(&format!("ready_after={:?}", begun.elapsed()));
    let resident = metric(&server, "kew_partition_resident_bytes", &[]);
    assert!(resident < LIMIT_BYTES, "{resident}");
    drain(&Door::of(&server).client()).await;
    metric_becomes(&server, "kew_messages", &[], |it| it == 0.0);
    assert!(metric(&server, "kew_partition_loads_total", &[]) > 0.0);
    assert_memory(&server, "drained");
    stop_in_order(server).await;
}

fn assert_memory(server: &Server, when: &str) {
    let peak_mib = server.peak_memory_kib() >> 10;
    show(&format!("{when} peak_rss_mib={peak_mib}"));
    assert!(peak_mib <= MEMORY_MIB_MAX, "{when}: {peak_mib} MiB");
}

async fn fill(server: &Server) {
    let mut senders = JoinSet::new();
    for _ in 0..SENDERS {
        let client = Door::of(server).client();
        senders.spawn(async move {
            let message = Message::new(vec![b'x'; BODY_BYTES]);
            let sender = client.sender(QUEUE).await.expect("attached");
            for _ in 0..MESSAGES / BATCH / SENDERS {
                let mut batch = sender.new_batch();
                for _ in 0..BATCH {
                    assert!(batch.try_add(&message).expect("it can be written"));
                }
                sender.send_batch(&batch).await.expect("sent");
            }
        });
    }
    senders.join_all().await;
}

/// Takes so many messages as there are.
async fn drain(client: &BusClient) {
    let options = ReceiverOptions::default();
    let mut receiver = client
        .deleting_receiver(QUEUE, options)
        .await
        .expect("attached");
    let mut taken = 0;
    while taken < MESSAGES {
        let messages = receiver
            .receive_batch(1000, PATIENCE)
            .await
            .expect("messages");
        assert!(!messages.is_empty(), "{taken} of {MESSAGES} messages");
        taken += messages.len() as u64;
    }
    receiver.close().await.expect("closed");
}
