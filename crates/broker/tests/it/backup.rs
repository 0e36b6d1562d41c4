//! Backups of a broker with its threads, and what a restored one has.

use std::sync::Arc;

use kew_broker::{BackupRefused, Broker, BrokerOptions, PartitionOptions, Rejection, Restore};
use kew_engine::bus::{BusOutcome, DeliveredMessage, Disposition, Verdict};
use kew_engine::storage::{ReceivedMessage, StorageOutcome};
use kew_engine::{Command, Outcome};
use kew_log::{BeginBackupError, MemoryStorage, Storage, verify};

use crate::bus;
use crate::support::{create, delete, receive, send};

fn received(outcome: Outcome) -> Vec<ReceivedMessage> {
    match outcome {
        Outcome::Storage(StorageOutcome::Received(messages)) => messages,
        other => panic!("a receive receives: {other:?}"),
    }
}

#[tokio::test]
async fn there_is_one_backup_at_a_time_and_its_end_begins_the_next() {
    let broker = Broker::start_in_memory().unwrap();
    broker.submit(create()).await.unwrap();
    let pin = broker.begin_backup().await.unwrap();
    assert!(!pin.plan().segments.is_empty());
    assert_eq!(pin.held_bytes().await, Some(0));
    assert!(matches!(
        broker.begin_backup().await,
        Err(BackupRefused::Log(BeginBackupError::Busy))
    ));
    drop(pin);
    let pin = broker.begin_backup().await.unwrap();
    broker.stop();
    assert_eq!(pin.held_bytes().await, None);
    assert!(matches!(
        broker.begin_backup().await,
        Err(BackupRefused::Stopped)
    ));
}

#[tokio::test]
async fn a_receipt_from_after_the_backup_settles_nothing() {
    let storage = Arc::new(MemoryStorage::new());
    let (broker, _) = Broker::start(storage.clone(), BrokerOptions::default()).unwrap();
    broker.submit(create()).await.unwrap();
    for number in 0..10 {
        broker.submit(send(format!("{number}"))).await.unwrap();
    }
    broker.stop();
    let copied = copy(&storage);

    // The server goes on: it leases the messages, and sends more.
    let (broker, _) = Broker::start(storage, BrokerOptions::default()).unwrap();
    for number in 10..20 {
        broker.submit(send(format!("{number}"))).await.unwrap();
    }
    let late = received(broker.submit(receive(32)).await.unwrap().outcome);
    assert_eq!(late.len(), 20);
    broker.stop();

    let restore = Restore::read(&*copied).unwrap();
    assert_eq!(restore.counts(), (1, 10));
    restore
        .carry_out(copied.clone(), PartitionOptions::default(), 3, [7; 16])
        .unwrap();
    assert_eq!(verify(&*copied).unwrap().set_aside, [""; 0]);
    let (broker, _) = Broker::start(copied, BrokerOptions::default()).unwrap();
    for number in 10..20 {
        broker.submit(send(format!("new {number}"))).await.unwrap();
    }
    // As often leased as on the old server: without skipped numbers, the old receipts would fit.
    let leased = received(broker.submit(receive(32)).await.unwrap().outcome);
    assert_eq!(leased.len(), 20);
    for message in &late {
        let settled = broker.submit(delete(message)).await;
        assert!(matches!(settled, Err(Rejection::Refused(_))), "{settled:?}");
    }
    for message in &leased {
        let settled = broker.submit(delete(message)).await;
        assert!(settled.is_ok(), "{settled:?}");
    }
    broker.stop();
}

/// The same of a Service Bus queue: locks of old and of new messages.
#[tokio::test]
async fn a_lock_from_after_the_backup_settles_nothing() {
    let storage = Arc::new(MemoryStorage::new());
    let (broker, _) = Broker::start(storage.clone(), BrokerOptions::default()).unwrap();
    broker.submit(bus::create()).await.unwrap();
    for number in 0..10 {
        broker.submit(bus::send(format!("{number}"))).await.unwrap();
    }
    broker.stop();
    let copied = copy(&storage);

    let (broker, _) = Broker::start(storage, BrokerOptions::default()).unwrap();
    let late = send_and_lock(&broker).await;
    broker.stop();

    let restore = Restore::read(&*copied).unwrap();
    restore
        .carry_out(copied.clone(), PartitionOptions::default(), 3, [7; 16])
        .unwrap();
    let (broker, _) = Broker::start(copied, BrokerOptions::default()).unwrap();
    // Locked as often as on the old server: without skipped numbers, the old locks would fit.
    let locked = send_and_lock(&broker).await;
    let verdicts = settled(&broker, &late).await;
    assert_eq!(verdicts, [Verdict::LockLost; 20]);
    let verdicts = settled(&broker, &locked).await;
    assert_eq!(verdicts, [Verdict::Settled; 20]);
    broker.stop();
}

/// Sends ten messages, and locks all twenty of the queue.
async fn send_and_lock(broker: &Broker) -> Vec<DeliveredMessage> {
    for number in 10..20 {
        broker.submit(bus::send(format!("{number}"))).await.unwrap();
    }
    let answer = broker.submit(bus::receive(32)).await.unwrap();
    let Outcome::Bus(BusOutcome::Received(messages)) = answer.outcome else {
        panic!("a receive receives");
    };
    assert_eq!(messages.len(), 20);
    messages
}

async fn settled(broker: &Broker, messages: &[DeliveredMessage]) -> Vec<Verdict> {
    let settle: Command = bus::settle(messages, &Disposition::Complete);
    match broker.submit(settle).await.unwrap().outcome {
        Outcome::Bus(BusOutcome::Settled(verdicts)) => verdicts,
        other => panic!("a settlement settles: {other:?}"),
    }
}

fn copy(from: &MemoryStorage) -> Arc<MemoryStorage> {
    let to = Arc::new(MemoryStorage::new());
    for name in from.list().unwrap() {
        let file = from.open(&name).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        let copied = to.create(&name).unwrap();
        assert_eq!(copied.write_at(&bytes, 0).unwrap(), bytes.len());
    }
    to
}
