//! Workers that lose leases tell the web service, another process, which has new messages leased for longer.

use std::sync::Arc;
use std::time::Duration;

use kew_bank::queue::Queue;
use kew_bank::web::Bank;
use kew_bank::worker::Worker;
use serde_json::json;

use crate::database::{Database, id};
use crate::kew::Kew;
use crate::patience::{message, until};
use crate::progress::state_of;
use crate::service::{QUEUE, bus, post, serving_shared, storage};

const WORKER_TIMEOUT: Duration = Duration::from_mins(1);

/// As many as a worker has to lose before it says so.
const LOST: u8 = 10;

/// A web service that follows the workers' reports.
async fn following(database: &Database, queue: Queue) -> kew_bank::client::Client {
    let bank = Arc::new(Bank::new(database.ledger.clone(), queue));
    let follower = bank.clone();
    tokio::spawn(async move { follower.follow_lost_leases().await });
    serving_shared(bank).await
}

#[tokio::test]
async fn the_web_service_is_told_of_lost_leases_and_lengthens_new_ones() {
    let (kew, database) = (Kew::start().await, Database::sqlite().await);
    let client = kew.queue_client();
    let [queue, for_web] = [(); 2].map(|()| Queue::of(storage(&kew), QUEUE, WORKER_TIMEOUT));
    queue.ensure().await.unwrap();
    for number in 0..LOST {
        queue.send(&message(number)).await.unwrap();
    }
    let held = database.hold().await;
    let worker = Worker::start(&queue, database.ledger.clone());
    until(async || worker.state().in_flight == u64::from(LOST)).await;
    // As if they were late, and others had the messages.
    client.clear(QUEUE).await.unwrap();
    drop(held);
    until(async || worker.state().lost_leases >= u64::from(LOST)).await;
    until(async || database.ledger.losses().await.unwrap().len() == 1).await;
    worker.stop().await;

    let web = following(&database, for_web.clone()).await;
    until(async || state_of(&web).await["leaseHintS"] == 120).await;
    let body = json!({"userId": "ann", "accountId": "giro", "amount": "5.00"});
    let number = id(100).to_string();
    let (status, _) = post(&web, "/transactions/insert", Some(&number), body).await;
    assert_eq!(status, 202);
    let sent = client.peek(QUEUE, 1).await.unwrap().remove(0).text;
    assert!(sent.contains(r#""kew-lease-s":"120""#), "{sent}");
    assert!(sent.contains(&format!("ann|giro|{number}|5.00")), "{sent}");
    let worker = Worker::start(&queue, database.ledger.clone());
    until(async || worker.state().completed == 1).await;
    assert_eq!(worker.state().renewals, 1, "it was lengthened at once");
    worker.stop().await;

    // The report is old, and none came since.
    database
        .run("UPDATE lost_leases SET reported_at_ms = 0")
        .await;
    until(async || state_of(&web).await["leaseHintS"].is_null()).await;
    for_web.send(&message(101)).await.unwrap();
    let sent = client.peek(QUEUE, 1).await.unwrap().remove(0).text;
    assert!(sent.starts_with("ann|giro|"), "{sent}");
}

#[tokio::test]
async fn where_locks_are_a_setting_of_the_queue_the_page_says_what_to_change() {
    for database in Database::each("reports of lost leases").await {
        let kew = Kew::start().await;
        let queue = Queue::of(bus(&kew), QUEUE, WORKER_TIMEOUT);
        queue.ensure().await.unwrap();
        let web = following(&database, queue).await;
        let report = database.ledger.report_loss(WORKER_TIMEOUT);
        report.await.unwrap();
        until(async || state_of(&web).await["leaseHintS"] == 120).await;
        let state = state_of(&web).await;
        let trouble = state["trouble"][0].as_str().unwrap();
        assert!(trouble.contains("raise BANK_WORKER_TIMEOUT_S"), "{state}");
    }
}
