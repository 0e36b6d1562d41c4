//! A million messages at a server that nobody has configured: most of them leave memory, and come back one by one.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kew_broker::{Moment, Partition, PartitionOptions, TurnEnd};
use kew_client::{BusClient, Message, PutOptions, ReceiverOptions};
use kew_engine::storage::{Metadata, StorageCommand};
use kew_engine::{BodyEncoding, Command, EntityName, Timestamp, VisibilityTimeout};
use kew_log::{BootTime, DataDir};
use tokio::task::JoinSet;

use crate::bus::{metric, metric_becomes};
use crate::bus_load::Door;
use crate::load::{self, stop_in_order};
use crate::operate::start;
use crate::server::{PATIENCE, Server, show};

const QUEUE: &str = "orders";

/// How many messages of Queue Storage arrive and leave after the start.
const REPLACED: u64 = 5_000;

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

/// Clients would need a minute to send them, so they are in the data directory already.
#[test]
fn a_million_messages_of_queue_storage_take_little_memory_by_default() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    fill_directory(&data_dir);
    load::run(replace(&data_dir));
}

/// Fills a queue of the development account.
fn fill_directory(data_dir: &Path) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = since.expect("a clock after 1970").as_millis();
    let now = Timestamp::from_ms(u64::try_from(now_ms).expect("a year before 10,000"));
    let directory = DataDir::open(data_dir).expect("a new directory");
    let storage = Arc::new(directory.storage().expect("a new directory"));
    let options = PartitionOptions::default();
    let (mut partition, _) =
        Partition::open(storage, options, 1, [1; 16], now).expect("a new partition");
    let queue = EntityName::storage_queue("devstoreaccount1", QUEUE);
    let create = StorageCommand::CreateQueue {
        queue: queue.clone(),
        metadata: Metadata::default(),
    };
    let send = StorageCommand::Send {
        queue,
        body: Bytes::from_static(&[b'x'; BODY_BYTES]),
        encoding: BodyEncoding::Text,
        time_to_live_seconds: None,
        visibility_timeout: VisibilityTimeout::ZERO,
    };
    ask_all(&mut partition, now, vec![create]);
    for _ in 0..MESSAGES / BATCH {
        let batch = (0..BATCH).map(|_| send.clone());
        ask_all(&mut partition, now, batch.collect());
    }
}

fn ask_all(partition: &mut Partition<()>, now: Timestamp, commands: Vec<StorageCommand>) {
    let commands = commands.into_iter().map(Command::Storage);
    let mut commands: VecDeque<_> = commands.map(|command| ((), command)).collect();
    let now = Moment {
        time: now,
        boot: BootTime::ZERO.plus_ms(now.as_ms()),
    };
    let mut replies = Vec::new();
    let mut end = TurnEnd::WaitForJob;
    while end != TurnEnd::Done {
        end = partition.turn(now, &mut commands, &mut replies);
        while let Some(job) = partition.next_job() {
            let outcome = job.run();
            let completed = partition.complete(outcome, &mut replies);
            completed.expect("a disk without faults");
        }
    }
    assert!(replies.iter().all(|(_, reply)| reply.is_ok()));
}

async fn replace(data_dir: &Path) {
    let begun = Instant::now();
    let server = start(data_dir);
    show(&format!("ready_after={:?}", begun.elapsed()));
    let is_full = metric(&server, "kew_messages", &[]) == MESSAGES as f64;
    assert!(is_full, "the directory has all messages");
    assert!(metric(&server, "kew_partition_cold_runs", &[]) > 0.0);
    let client = server.queue_client();
    let mut left = REPLACED;
    while left > 0 {
        for message in client.get(QUEUE, 32, None).await.expect("messages") {
            let receipt = message.receipt.expect("it was received").value;
            let deleted = client.delete_message(QUEUE, &message.id, &receipt).await;
            deleted.expect("deleted");
            let text = "x".repeat(BODY_BYTES);
            let put = client.put(QUEUE, &text, PutOptions::default()).await;
            put.expect("put");
            left = left.saturating_sub(1);
        }
    }
    metric_becomes(&server, "kew_partition_resident_bytes", &[], |it| {
        it < LIMIT_BYTES
    });
    assert!(metric(&server, "kew_partition_loads_total", &[]) > 0.0);
    assert_memory(&server, "replaced");
    stop_in_order(server).await;
}
