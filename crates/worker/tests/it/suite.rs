//! The same suite over Queue Storage and over Service Bus, at Kew.
//!
//! `KEW_WORKER_STORAGE` has a connection string of another service for Queue Storage, for example Azurite:
//! `cargo test -p kew-worker --test it suite::storage`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_client::{QueueAccount, QueueClient, QueueOptions};
use kew_worker::{
    BusSource, BusTarget, Delivery, Envelopes, Failure, Json, Listener, ListenerBuilder,
    QueueSource, QueueTarget, Sender, Source, State, Stop, Target, TraceContext, handler_fn,
};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::kew::Kew;

/// What senders and listeners of these tests exchange.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: u32,
    pub(crate) note: String,
}

pub(crate) fn order(id: u32) -> Order {
    Order {
        id,
        note: format!("<note> of {id} & more"),
    }
}

/// One of the services: its queue `jobs`, from both sides.
struct Door<S, K> {
    /// It stops when it is dropped.
    kew: Option<Arc<Kew>>,
    source: S,
    sender: Sender<Order, Json<Order>, K>,
    /// Where failed messages go, as a source of the same kind.
    dead: S,
}

async fn storage() -> Door<QueueSource, QueueTarget> {
    let (kew, client) = match std::env::var("KEW_WORKER_STORAGE") {
        Ok(text) => {
            let account = QueueAccount::parse(&text).unwrap();
            let client = QueueClient::new(account, QueueOptions::default());
            (None, client.unwrap())
        }
        Err(_) => {
            let kew = Kew::start().await;
            let client = kew.queue_client();
            (Some(kew), client)
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
        kew,
    }
}

async fn bus() -> Door<BusSource, BusTarget> {
    let kew = Kew::start().await;
    let client = kew.bus_client();
    let source = BusSource::new(client.clone(), "ns", "jobs").admin(kew.admin());
    let dead = kew_client::Entity::new("jobs").dead_letters();
    let target = BusTarget::open(&client, "ns", "jobs").await.unwrap();
    Door {
        source: source.lock_duration(Duration::from_secs(10)),
        dead: BusSource::new(client, "ns", dead).admin(kew.admin()),
        sender: Sender::new(Json::new(), target, "suite"),
        kew: Some(kew),
    }
}

type Seen = Arc<Mutex<BTreeMap<u32, u32>>>;

/// A listener that notes what it saw.
fn notes<S: Source + Clone>(source: &S, seen: &Seen) -> ListenerBuilder<Order, S> {
    let seen = seen.clone();
    let builder = Listener::builder(source.clone(), Json::<Order>::new());
    builder.subscribe(handler_fn(move |delivery: Delivery<Order, _>| {
        let message = delivery.message().clone();
        assert_eq!(message, order(message.id));
        *seen.lock().unwrap().entry(message.id).or_default() += 1;
        async { Ok(()) }
    }))
}

pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let holds = async {
        while !condition().await {
            sleep(Duration::from_millis(2)).await;
        }
    };
    let holds = timeout(Duration::from_secs(60), holds).await;
    assert!(holds.is_ok(), "never: {what}");
}

async fn every_message_is_handled_once_and_deleted<S: Source + Clone, K: Target>(door: Door<S, K>) {
    let seen = Seen::default();
    let listener = notes(&door.source, &seen).build();
    listener.start(2).unwrap();
    for id in 0..120 {
        door.sender.send(&order(id)).await.unwrap();
    }
    until("all are handled", async || {
        listener.state().completed == 120
    })
    .await;
    assert_eq!(listener.depth().await.unwrap(), Some(0));
    let report = listener.stop(Stop::default()).await;
    assert_eq!((report.returned, report.dropped_tasks), (0, 0));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 120);
    assert!(seen.values().all(|count| *count == 1), "{seen:?}");
}

async fn a_message_that_fails_is_buried_with_its_history<S: Source + Clone, K: Target>(
    door: Door<S, K>,
) {
    let listener = Listener::builder(door.source.clone(), Json::<Order>::new())
        .subscribe(handler_fn(|_| async {
            Err(Failure::new("no such account").retry_after(Duration::ZERO))
        }))
        .attempts_max(3)
        .build();
    listener.start(1).unwrap();
    door.sender.send(&order(7)).await.unwrap();
    until("it is buried", async || listener.state().buried == 1).await;
    assert_eq!(listener.state().failed, 3);
    assert_eq!(listener.depth().await.unwrap(), Some(0));
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let dead = Listener::builder(door.dead.clone(), Json::<Order>::new())
        .subscribe(handler_fn(move |delivery: Delivery<Order, _>| {
            let _ = tell.send((delivery.message().clone(), delivery.meta().clone()));
            async { Ok(()) }
        }))
        .build();
    dead.start(1).unwrap();
    let (message, meta) = timeout(Duration::from_secs(60), told.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(message, order(7));
    let attempts: Vec<_> = meta
        .history
        .iter()
        .map(|it| (it.attempt, it.error.as_str()))
        .collect();
    let error = "no such account";
    assert_eq!(attempts, [(1, error), (2, error), (3, error)]);
    until("it is deleted there too", async || {
        dead.state().completed == 1
    })
    .await;
}

async fn a_long_handler_keeps_its_message<S: Source + Clone, K: Target>(
    door: Door<S, K>,
    build: impl Fn(ListenerBuilder<Order, S>) -> Listener<Order, S>,
) {
    let (go, is_going) = tokio::sync::watch::channel(false);
    let builder = Listener::builder(door.source.clone(), Json::<Order>::new());
    let listener = build(builder.subscribe(handler_fn(move |_| {
        let mut is_going = is_going.clone();
        async move { Ok(is_going.wait_for(|it| *it).await.map(drop)?) }
    })));
    listener.start(1).unwrap();
    door.sender.send(&order(1)).await.unwrap();
    until("its lease is renewed", async || {
        listener.state().renewals >= 2
    })
    .await;
    assert_eq!(listener.state().received, 1, "nobody else got it");
    go.send(true).unwrap();
    until("it is deleted", async || listener.state().completed == 1).await;
}

async fn a_stop_returns_what_is_not_finished<S: Source + Clone, K: Target>(door: Door<S, K>) {
    let hangs = Listener::builder(door.source.clone(), Json::<Order>::new())
        .subscribe(handler_fn(|_| std::future::pending()))
        .build();
    hangs.start(1).unwrap();
    for id in 0..3 {
        door.sender.send(&order(id)).await.unwrap();
    }
    until("all are under way", async || hangs.state().in_flight == 3).await;
    let stop = Stop {
        finish_within: Duration::ZERO,
        return_within: Duration::from_secs(60),
    };
    assert_eq!(hangs.stop(stop).await.returned, 3);
    let seen = Seen::default();
    let listener = notes(&door.source, &seen).build();
    listener.start(1).unwrap();
    until("another one has them", async || {
        listener.state().completed == 3
    })
    .await;
}

async fn traces_and_ids_travel_with_messages<S: Source + Clone, K: Target>(door: Door<S, K>) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let listener = Listener::builder(door.source.clone(), Json::<Order>::new())
        .subscribe(handler_fn(move |delivery: Delivery<Order, _>| {
            let _ = tell.send(delivery.meta().clone());
            async { Ok(()) }
        }))
        .build();
    listener.start(1).unwrap();
    let trace = TraceContext::begin().unwrap();
    let change = |message: &mut kew_worker::Outgoing| {
        message.id = Some("job-7".to_owned());
        message.properties.push(("tenant".into(), "blue".into()));
    };
    let message = order(1);
    let sent = door.sender.send_with(&message, change, Some(&trace));
    assert!(sent.await.unwrap().queue.starts_with("jobs"));
    let meta = timeout(Duration::from_secs(60), told.recv())
        .await
        .unwrap()
        .unwrap();
    let received = meta.trace.clone().unwrap();
    assert_eq!(received.trace_id, trace.trace_id);
    assert_ne!(received.parent_id, trace.parent_id);
    assert_eq!(meta.property("tenant"), Some("blue"));
    assert!(meta.id == "job-7" || meta.property("kew-id") == Some("job-7"));
    assert!(meta.enqueued_at.is_some());
    let _: State = listener.state();
    drop(door.kew);
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
    let lease = kew_worker::Fixed(Duration::from_secs(8));
    let build = |builder: ListenerBuilder<Order, QueueSource>| builder.visibility(lease).build();
    a_long_handler_keeps_its_message(storage().await, build).await;
}

#[tokio::test]
async fn bus_a_long_handler_keeps_its_message() {
    a_long_handler_keeps_its_message(bus().await, ListenerBuilder::build).await;
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
