//! The same suite over Queue Storage and over Service Bus, at Kew.
//!
//! `KEW_WORKER_STORAGE` has a connection string of another service for Queue Storage, for example Azurite:
//! `cargo test -p kew-worker --test it suite::storage`. `conformance/worker` does that with processes of both.

use std::any::Any;
use std::time::Duration;

use kew_client::{QueueAccount, QueueClient, QueueOptions};
use kew_worker::{
    BusSource, BusTarget, Envelopes, Json, ListenerBuilder, QueueSource, QueueTarget, Sender,
};

use crate::kew::Kew;
use crate::scenarios::{
    Door, a_listener_that_dies_leaves_its_message_to_others, a_long_handler_keeps_its_message,
    a_message_that_fails_is_buried_with_its_history, a_stop_returns_what_is_not_finished,
    every_message_is_handled_once_and_deleted, progress_is_there_at_the_next_attempt,
    traces_and_ids_travel_with_messages,
};

pub(crate) use crate::scenarios::{Order, order, until};

async fn storage() -> Door<QueueSource, QueueTarget> {
    let (service, client) = match std::env::var("KEW_WORKER_STORAGE") {
        Ok(text) => {
            let account = QueueAccount::parse(&text).unwrap();
            let client = QueueClient::new(account, QueueOptions::default());
            (Box::new(()) as Box<dyn Any + Send>, client.unwrap())
        }
        Err(_) => {
            let kew = Kew::start().await;
            let client = kew.queue_client();
            (Box::new(kew) as Box<dyn Any + Send>, client)
        }
    };
    // Others may use the service too.
    let queue = format!("jobs-{:016x}", getrandom::u64().unwrap());
    client.create_queue(&queue, &[]).await.unwrap();
    let source = |queue: &str| {
        let source = QueueSource::new(client.clone(), "devstoreaccount1", queue);
        source.envelopes(Envelopes::On)
    };
    let target = QueueTarget::new(client.clone(), "devstoreaccount1", &queue);
    Door {
        source: source(&queue),
        dead: source(&format!("{queue}-poison")),
        sender: Sender::new(Json::new(), target.envelopes(Envelopes::On), "suite"),
        service,
    }
}

async fn bus() -> Door<BusSource, BusTarget> {
    let kew = Kew::start().await;
    let client = kew.bus_client();
    let source = BusSource::new(client.clone(), "ns", "jobs").admin(kew.admin());
    let dead = kew_client::Entity::new("jobs").dead_letters();
    let target = BusTarget::open(&client, "ns", "jobs").await.unwrap();
    Door {
        source: source.lock_duration(Duration::from_secs(15)),
        dead: BusSource::new(client, "ns", dead).admin(kew.admin()),
        sender: Sender::new(Json::new(), target, "suite"),
        service: Box::new(kew),
    }
}

#[tokio::test]
async fn storage_every_message_is_handled_once_and_deleted() {
    every_message_is_handled_once_and_deleted(storage().await).await;
}

#[tokio::test]
async fn bus_every_message_is_handled_once_and_deleted() {
    every_message_is_handled_once_and_deleted(bus().await).await;
}

#[tokio::test]
async fn storage_a_message_that_fails_is_buried_with_its_history() {
    a_message_that_fails_is_buried_with_its_history(storage().await).await;
}

#[tokio::test]
async fn bus_a_message_that_fails_is_buried_with_its_history() {
    a_message_that_fails_is_buried_with_its_history(bus().await).await;
}

#[tokio::test]
async fn storage_a_long_handler_keeps_its_message() {
    let lease = kew_worker::Fixed(Duration::from_secs(15));
    let build = |builder: ListenerBuilder<Order, QueueSource>| builder.visibility(lease).build();
    a_long_handler_keeps_its_message(storage().await, build).await;
}

#[tokio::test]
async fn bus_a_long_handler_keeps_its_message() {
    a_long_handler_keeps_its_message(bus().await, ListenerBuilder::build).await;
}

/// Short, so that the message comes back soon.
#[tokio::test]
async fn storage_a_listener_that_dies_leaves_its_message_to_others() {
    let lease = kew_worker::Fixed(Duration::from_secs(2));
    let build = |builder: ListenerBuilder<Order, QueueSource>| builder.visibility(lease).build();
    a_listener_that_dies_leaves_its_message_to_others(storage().await, build).await;
}

#[tokio::test]
async fn bus_a_listener_that_dies_leaves_its_message_to_others() {
    a_listener_that_dies_leaves_its_message_to_others(bus().await, ListenerBuilder::build).await;
}

#[tokio::test]
async fn storage_progress_is_there_at_the_next_attempt() {
    progress_is_there_at_the_next_attempt(storage().await).await;
}

#[tokio::test]
async fn storage_a_stop_returns_what_is_not_finished() {
    a_stop_returns_what_is_not_finished(storage().await).await;
}

#[tokio::test]
async fn bus_a_stop_returns_what_is_not_finished() {
    a_stop_returns_what_is_not_finished(bus().await).await;
}

#[tokio::test]
async fn storage_traces_and_ids_travel_with_messages() {
    traces_and_ids_travel_with_messages(storage().await).await;
}

#[tokio::test]
async fn bus_traces_and_ids_travel_with_messages() {
    traces_and_ids_travel_with_messages(bus().await).await;
}
