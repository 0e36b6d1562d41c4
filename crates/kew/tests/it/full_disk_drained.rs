//! A disk of a realistic size, filled to its end, and drained to the last message without a
//! restart.
//!
//! Draining needs space that grows with the number of messages: for snapshots, of which two are
//! kept while a third is written, and for records of receives and deletes. So these disks hold
//! hundreds of thousands of messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use kew_client::{BusClient, Error as BusError, Message, ReceiverOptions, Sender};
use queue_load::{Client, Endpoint, Error, PutOptions};
use tokio::task::JoinSet;

use crate::bus_load::Door;
use crate::load::{self, stop_in_order};
use crate::operate::ok;
use crate::server::{PATIENCE, Server, show};
use crate::small_disk::SmallDisk;

const CLIENTS: usize = 24;

/// The only error that the server may log. It logs another one if it has no room for deletes.
const FULL: &str = "the disk is full: messages can be received";

/// Enough for a snapshot of several MiB.
const SMALL_MESSAGES: u64 = 150_000;
/// Nearly the largest size that fits a message of Queue Storage with any encoding.
const LARGE_SIZE: usize = 47 * 1024;

/// Runs one client for each number at the same time, and waits for all.
async fn at_once<F: Future<Output = ()> + Send + 'static>(client: impl Fn(usize) -> F) {
    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        tasks.spawn(client(number));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no client panics");
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Refused { status: 503, .. })
}

/// Puts messages until there are `count` or the disk is full; returns how many were accepted.
async fn put(endpoint: &Arc<Endpoint>, queue: &'static str, size: usize, count: u64) -> u64 {
    let (left, taken) = (Arc::new(AtomicU64::new(count)), Arc::new(AtomicU64::new(0)));
    let text: Arc<str> = "x".repeat(size).into();
    at_once(|_| {
        let mut client = Client::new(endpoint.clone());
        let (left, taken, text) = (left.clone(), taken.clone(), text.clone());
        async move {
            while left
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                .is_ok()
            {
                match client.put(queue, &text, PutOptions::default()).await {
                    Ok(_) => taken.fetch_add(1, Relaxed),
                    Err(error) if is_full(&error) => break,
                    Err(error) => panic!("an answer that was not expected: {error}"),
                };
            }
        }
    })
    .await;
    taken.load(Relaxed)
}

/// Puts large messages until not even a small one is taken; returns how many were accepted. The first snapshot of a full
/// disk replaces larger ones, which may leave room for some more messages.
async fn fill(endpoint: &Arc<Endpoint>, queue: &'static str, begun: Instant) -> u64 {
    let mut client = Client::new(endpoint.clone());
    let mut taken = put(endpoint, queue, LARGE_SIZE, u64::MAX).await;
    let full_first = begun.elapsed();
    loop {
        match client.put(queue, "x", PutOptions::default()).await {
            Ok(_) => taken += 1 + put(endpoint, queue, LARGE_SIZE, u64::MAX).await,
            Err(error) if is_full(&error) => return taken,
            Err(error) => panic!("an answer that was not expected: {error}"),
        }
        assert!(
            begun.elapsed() < full_first + PATIENCE,
            "{taken} messages, and it is not full"
        );
    }
}

/// Receives and deletes all messages; no request may be refused. Returns how many messages there
/// were.
async fn drain(endpoint: &Arc<Endpoint>, queue: &'static str) -> u64 {
    let drained = Arc::new(AtomicU64::new(0));
    at_once(|_| {
        let mut client = Client::new(endpoint.clone());
        let drained = drained.clone();
        async move {
            loop {
                let messages = client.get(queue, 32, 600).await.expect("received");
                if messages.is_empty() {
                    break;
                }
                for message in &messages {
                    let receipt = &message.receipt.as_ref().expect("it was received").value;
                    let deleted = client.delete(queue, &message.id, receipt);
                    deleted.await.expect("deleted");
                }
                drained.fetch_add(messages.len() as u64, Relaxed);
            }
        }
    })
    .await;
    drained.load(Relaxed)
}

#[test]
fn a_gibibyte_of_queue_storage_is_drained_to_the_last_message() {
    let place = tempfile::tempdir().expect("a temporary directory");
    if let Some(disk) = SmallDisk::new(&place.path().join("disk"), 1024, 0) {
        load::run(drain_queue_storage(&disk));
    }
}

async fn drain_queue_storage(disk: &SmallDisk) {
    let mut server = disk.start();
    server.expect_error(FULL);
    let endpoint = server.endpoint();
    let mut client = server.client();
    for queue in ["small", "large", "cleared", "deleted"] {
        client.create_queue(queue, &[]).await.expect("created");
    }
    let begun = Instant::now();
    for queue in ["cleared", "deleted"] {
        assert_eq!(put(&endpoint, queue, 1000, 2000).await, 2000);
    }
    let small = put(&endpoint, "small", 1000, SMALL_MESSAGES).await;
    let large = fill(&endpoint, "large", begun).await;
    show(&format!(
        "full_after={:?} small={small} large={large}",
        begun.elapsed()
    ));
    assert_eq!(small, SMALL_MESSAGES);
    assert!(large > 10_000, "{large} large messages fill no GiB");

    let begun = Instant::now();
    client.clear("cleared").await.expect("cleared");
    client.delete_queue("deleted").await.expect("deleted");
    assert_eq!(drain(&endpoint, "small").await, small);
    let small_took = begun.elapsed();
    assert_eq!(drain(&endpoint, "large").await, large);
    show(&format!(
        "drained_after={:?} small_after={small_took:?}",
        begun.elapsed()
    ));

    // Nearly all of the space is free again.
    takes_messages(&mut client).await;
    let (mut again, begun) = (0, Instant::now());
    while again < large * 3 / 4 {
        again += put(&endpoint, "large", LARGE_SIZE, large * 3 / 4 - again).await;
        assert!(
            begun.elapsed() < PATIENCE,
            "only {again} messages fit again"
        );
    }
    show(&format!("filled_again_after={:?}", begun.elapsed()));
    client.clear("large").await.expect("cleared");
    stop_in_order(server).await;
}

async fn takes_messages(client: &mut Client) {
    let begun = Instant::now();
    while let Err(error) = client.put("small", "x", PutOptions::default()).await {
        assert!(is_full(&error), "{error}");
        assert!(
            begun.elapsed() < PATIENCE,
            "a drained disk takes no messages"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    show(&format!("puts_work_again_after={:?}", begun.elapsed()));
}

const CONFIG: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "orders", "Properties": {"LockDuration": "PT5M", "MaxDeliveryCount": 1000}},
    {"Name": "purged", "Properties": {}}
]}]}}"#;

const BUS_SIZE: usize = 1024;
const BATCH_COUNT: usize = 500;

#[test]
fn a_full_disk_of_service_bus_is_drained_to_the_last_message() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let config = place.path().join("Config.json");
    std::fs::write(&config, CONFIG).expect("writable");
    if let Some(disk) = SmallDisk::new(&place.path().join("disk"), 400, 0) {
        let config = config.to_str().expect("UTF-8");
        let server = disk.start_with(&["--bus-listen", "127.0.0.1:0", "--import", config]);
        load::run(drain_service_bus(server));
    }
}

async fn drain_service_bus(mut server: Server) {
    server.expect_error(FULL);
    let begun = Instant::now();
    let client = Door::of(&server).client();
    let orders = client.sender("orders").await.expect("attached");
    let purged = client.sender("purged").await.expect("attached");
    let mut sent = [0u64; 2];
    let refusal = 'full: loop {
        for (place, sender) in [&orders, &purged].into_iter().enumerate() {
            match send(sender, sent[0] + sent[1]).await {
                Ok(()) => sent[place] += BATCH_COUNT as u64,
                Err(error) => break 'full error,
            }
        }
    };
    show(&format!("full_after={:?} sent={sent:?}", begun.elapsed()));
    assert!(
        refusal.to_string().contains("disk of the server is full"),
        "{refusal}"
    );
    assert!(sent[0] > 100_000, "{sent:?} messages fill no 400 MiB");

    let begun = Instant::now();
    // Half is received while the disk is full, and the other half after the purge has begun to free
    // space.
    let receiver = Door::of(&server).client();
    let half = receive(&receiver, "orders", sent[0] / 2).await;
    let text = ok(&server, &["bus", "purge", "purged", "--yes"]);
    assert!(
        text.contains(&format!("{} of {} messages deleted", sent[1], sent[1])),
        "{text}"
    );
    let purged_after = begun.elapsed();
    let rest = receive(&receiver, "orders", sent[0] - half).await;
    assert_eq!(half + rest, sent[0]);
    show(&format!(
        "drained_after={:?} purged_after={purged_after:?}",
        begun.elapsed()
    ));

    let begun = Instant::now();
    while let Err(error) = send(&orders, 0).await {
        assert!(
            error.to_string().contains("disk of the server is full"),
            "{error}"
        );
        assert!(
            begun.elapsed() < PATIENCE,
            "a drained disk takes no messages"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    show(&format!("sends_work_again_after={:?}", begun.elapsed()));
    stop_in_order(server).await;
}

async fn send(sender: &Sender, number: u64) -> Result<(), BusError> {
    let mut batch = sender.new_batch();
    for index in 0..BATCH_COUNT as u64 {
        let message = Message {
            id: Some((number + index).to_string()),
            ..Message::new(vec![b'x'; BUS_SIZE])
        };
        let has_room = batch.try_add(&message).expect("it can be written");
        assert!(has_room, "a batch is smaller than the largest");
    }
    sender.send_batch(&batch).await
}

/// Receives and completes `count` messages, many at once; each settlement must succeed.
async fn receive(client: &BusClient, queue: &str, count: u64) -> u64 {
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver(queue, options).await.expect("attached");
    let mut received = 0;
    while received < count {
        let wanted = u32::try_from((count - received).min(1000)).expect("1000 at most");
        let messages = receiver.receive_batch(wanted, PATIENCE).await;
        let mut settling = JoinSet::new();
        for message in messages.expect("messages") {
            received += 1;
            settling.spawn(async move { message.complete().await });
        }
        while let Some(settled) = settling.join_next().await {
            settled.expect("no task panics").expect("its lock holds");
        }
    }
    receiver.close().await.expect("closed");
    received
}
