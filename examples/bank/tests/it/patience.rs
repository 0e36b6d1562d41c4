//! Confirmed work is never given up: it waits forever, is tried forever, and can be returned.

use std::time::Duration;

use kew_bank::queue::{EnsureError, Queue};
use kew_bank::returns::{Returned, return_all};
use kew_bank::worker::Worker;
use kew_client::{BusAdmin, Changes, PutOptions, QueueSettings, ReceiverOptions};
use tokio::time::{sleep, timeout};

use crate::database::{Database, id, transaction};
use crate::kew::Kew;
use crate::service::{QUEUE, bus, queue, storage};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn until(condition: impl AsyncFn() -> bool) {
    let met = async {
        while !condition().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, met).await.unwrap();
}

pub(crate) fn message(number: u8) -> kew_bank::message::Message {
    kew_bank::message::Message {
        transaction: transaction(number, "5.00"),
        shape: kew_bank::message::Shape::Text,
    }
}

/// How many transactions are in the queue, or moved aside.
async fn counts(queue: &Queue, admin: &BusAdmin) -> (Option<u64>, Option<u64>) {
    let state = admin.queue(queue.name()).await.unwrap().state;
    (state.active_count, state.dead_letter_count)
}

#[tokio::test]
async fn a_message_that_failed_very_often_is_still_booked() {
    let (kew, database) = (Kew::start().await, Database::sqlite().await);
    let (client, queue) = (kew.queue_client(), queue(&storage(&kew)));
    queue.ensure().await.unwrap();
    queue.send(&message(1)).await.unwrap();
    for _ in 0..200 {
        let got = client.get(QUEUE, 1, Some(60)).await.unwrap().remove(0);
        let receipt = got.receipt.unwrap().value;
        let back = client.update(QUEUE, &got.id, &receipt, 0, None);
        back.await.unwrap();
    }
    let worker = Worker::start(&queue, database.ledger.clone());
    until(async || worker.state().completed + worker.state().buried > 0).await;
    assert_eq!(worker.state().buried, 0);
    assert_eq!(database.booked().await, 1);
    worker.stop().await;
}

#[tokio::test]
async fn a_message_that_its_service_would_bury_is_sent_again() {
    let (kew, database) = (Kew::start().await, Database::sqlite().await);
    let (admin, queue) = (kew.admin(), queue(&bus(&kew)));
    queue.ensure().await.unwrap();
    queue.send(&message(1)).await.unwrap();
    let receiver = kew.bus_client();
    let options = ReceiverOptions::default();
    let mut receiver = receiver.receiver(QUEUE, options).await.unwrap();
    for _ in 0..60 {
        let got = receiver.receive_batch(1, Duration::ZERO).await.unwrap();
        got[0].abandon(Changes::new()).await.unwrap();
    }
    receiver.close().await.unwrap();
    database
        .run("ALTER TABLE kew_outcomes RENAME TO away")
        .await;
    let worker = Worker::start(&queue, database.ledger.clone());
    // As another message, whose first attempt fails too.
    until(async || worker.state().completed == 1 && worker.state().failed > 0).await;
    assert_eq!(database.booked().await, 0);
    database
        .run("ALTER TABLE away RENAME TO kew_outcomes")
        .await;
    until(async || database.booked().await == 1).await;
    until(async || counts(&queue, &admin).await == (Some(0), Some(0))).await;
    worker.stop().await;
}

#[tokio::test]
async fn nothing_in_new_queues_expires() {
    let kew = Kew::start().await;
    let on_storage = queue(&storage(&kew));
    on_storage.ensure().await.unwrap();
    on_storage.send(&message(1)).await.unwrap();
    let client = kew.queue_client();
    let sent = client.peek(QUEUE, 1).await.unwrap().remove(0);
    let lives_for = sent.expires.duration_since(sent.inserted).unwrap();
    assert!(
        lives_for > Duration::from_hours(1_000 * 365 * 24),
        "{lives_for:?}"
    );

    let on_bus = queue(&bus(&kew));
    on_bus.ensure().await.unwrap();
    let settings = kew.admin().queue(QUEUE).await.unwrap().settings;
    let forever = Some(QueueSettings::FOREVER);
    assert_eq!(settings.default_time_to_live, forever);
    assert_eq!(settings.auto_delete_on_idle, forever);
    assert_eq!(settings.dead_letters_expired, Some(true));
    assert_eq!(settings.max_delivery_count, Some(2_000));
}

#[tokio::test]
async fn a_queue_that_loses_or_buries_work_is_refused() {
    let kew = Kew::start().await;
    let (admin, queue) = (kew.admin(), queue(&bus(&kew)));
    let lossy = QueueSettings {
        default_time_to_live: Some(Duration::from_hours(1)),
        lock_duration: Some(Duration::from_secs(30)),
        ..QueueSettings::default()
    };
    admin.create_queue(QUEUE, &lossy).await.unwrap();
    let error = queue.ensure().await.unwrap_err();
    assert!(matches!(error, EnsureError::Unfit(_)) && !error.can_pass());
    let text = error.to_string();
    for expected in [
        "deleted after 3600s",
        "after 10 deliveries",
        "last 30 s, and the worker's timeout is 5 s",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    let refused = queue.send(&message(1)).await.unwrap_err();
    assert!(refused.to_string().contains("not fit"), "{refused}");
    let mut settings = admin.queue(QUEUE).await.unwrap().settings;
    settings.default_time_to_live = Some(QueueSettings::FOREVER);
    settings.max_delivery_count = Some(100);
    settings.lock_duration = Some(queue.worker_timeout());
    admin.update_queue(QUEUE, &settings).await.unwrap();
    queue.ensure().await.unwrap();
    queue.send(&message(1)).await.unwrap();
}

#[tokio::test]
async fn messages_that_were_moved_aside_are_returned_and_booked() {
    let database = Database::sqlite().await;
    let kew = Kew::start().await;
    let (client, queue) = (kew.queue_client(), queue(&storage(&kew)));
    queue.ensure().await.unwrap();
    assert_eq!(return_all(&queue).await.unwrap(), Returned::default());
    let good = format!("ann|giro|{}|5.00", id(2));
    let again = format!("ann|giro|{}|7.00", id(1));
    database.ledger.book(&transaction(1, "5.00")).await.unwrap();
    for text in ["no transaction", &again] {
        let put = client.put(QUEUE, text, PutOptions::default());
        put.await.unwrap();
    }
    let worker = Worker::start(&queue, database.ledger.clone());
    until(async || worker.state().buried == 2).await;
    worker.stop().await;
    // One that another program moved aside, as it was.
    let poison = queue.poison();
    let put = client.put(&poison, &good, PutOptions::default());
    put.await.unwrap();
    let expected = Returned {
        returned: 2,
        unreadable: 1,
    };
    assert_eq!(return_all(&queue).await.unwrap(), expected);
    let texts = client.peek(QUEUE, 32).await.unwrap();
    let mut texts: Vec<&str> = texts.iter().map(|it| it.text.as_str()).collect();
    texts.sort_unstable();
    let mut as_they_were = [good.as_str(), &again];
    as_they_were.sort_unstable();
    assert_eq!(texts, as_they_were);
    let left = client.peek(&poison, 32).await.unwrap();
    assert_eq!(left.len(), 1);
    assert!(left[0].text.contains("no transaction"));
    let worker = Worker::start(&queue, database.ledger.clone());
    until(async || worker.state().buried == 1 && worker.state().completed == 1).await;
    assert_eq!(database.booked().await, 2);
    worker.stop().await;
}

#[tokio::test]
async fn dead_letters_are_returned_too() {
    let (kew, database) = (Kew::start().await, Database::sqlite().await);
    let (admin, queue) = (kew.admin(), queue(&bus(&kew)));
    queue.ensure().await.unwrap();
    queue.send(&message(1)).await.unwrap();
    let client = kew.bus_client();
    let sender = client.sender(QUEUE).await.unwrap();
    let bad = kew_client::Message::new("no transaction".to_owned());
    sender.send(&bad).await.unwrap();
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver(QUEUE, options).await.unwrap();
    for _ in 0..2 {
        let got = receiver.receive_batch(1, Duration::ZERO).await.unwrap();
        let bury = got[0].dead_letter("Reason", "text", Changes::new());
        bury.await.unwrap();
    }
    receiver.close().await.unwrap();
    assert_eq!(counts(&queue, &admin).await, (Some(0), Some(2)));
    let expected = Returned {
        returned: 1,
        unreadable: 1,
    };
    assert_eq!(return_all(&queue).await.unwrap(), expected);
    assert_eq!(counts(&queue, &admin).await, (Some(1), Some(1)));
    let worker = Worker::start(&queue, database.ledger.clone());
    until(async || database.booked().await == 1).await;
    worker.stop().await;
}
