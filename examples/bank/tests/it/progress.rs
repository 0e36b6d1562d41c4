//! The page shows work in progress while it runs.

use std::time::Duration;

use hyper::Method;
use kew_bank::client::Client;
use kew_bank::queue::Queue;
use kew_bank::worker::Worker;
use serde_json::{Value, json};

use crate::database::Database;
use crate::kew::Kew;
use crate::patience::{message, until};
use crate::service::{QUEUE, storage, web};

/// Longer than the test, so that no handler ends before it may.
const WORKER_TIMEOUT: Duration = Duration::from_mins(5);

pub(crate) async fn state_of(web: &Client) -> Value {
    let reply = web.call(Method::GET, "/state", None, "").await.unwrap();
    serde_json::from_slice(&reply.body).unwrap()
}

#[tokio::test]
async fn the_page_shows_what_each_worker_does_now() {
    let kew = Kew::start().await;
    // The handler waits for its stores, and the worker reports to others, which do not wait.
    let (books, page) = (Database::sqlite().await, Database::sqlite().await);
    let queue = Queue::of(storage(&kew), QUEUE, WORKER_TIMEOUT);
    let web = web(&page.ledger, queue.clone()).await;
    queue.ensure().await.unwrap();
    let held = books.hold().await;
    queue.send(&message(1)).await.unwrap();
    let worker = Worker::start(&queue, books.ledger.clone());
    let story = async {
        until(async || state_of(&web).await["workers"][0]["inFlight"] == 1).await;
        let state = state_of(&web).await;
        assert_eq!(state["workers"][0]["instance"], "worker-1", "{state}");
        assert_eq!(state["workers"][0]["completed"], 0, "{state}");
        assert_eq!(
            (&state["queue"], &state["depth"]),
            (&json!(QUEUE), &json!(1))
        );
        drop(held);
        until(async || state_of(&web).await["workers"][0]["completed"] == 1).await;
        let state = state_of(&web).await;
        assert_eq!(state["workers"][0]["inFlight"], 0, "{state}");
        assert_eq!(state["depth"], 0, "{state}");
    };
    tokio::select! {
        () = story => {}
        () = worker.report_to(&page.ledger, "worker-1") => {}
    }
    assert_eq!(books.booked().await, 1);
    worker.stop().await;
}
