//! What holds for listeners of every service. `suite.rs` runs it at Kew in memory, and `conformance/worker` at processes
//! of Kew and of Azurite.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_worker::{
    Checkpoints, Delivery, Failure, Json, Listener, ListenerBuilder, Sender, Source, Stop, Target,
    TraceContext, handler_fn,
};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

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

/// A queue of one of the services, from both sides.
pub(crate) struct Door<S, K> {
    /// The service stops when this is dropped, if it is one of this test.
    pub(crate) service: Box<dyn Any + Send>,
    pub(crate) source: S,
    pub(crate) sender: Sender<Order, Json<Order>, K>,
    /// Where failed messages go, as a source of the same kind.
    pub(crate) dead: S,
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

pub(crate) async fn every_message_is_handled_once_and_deleted<S: Source + Clone, K: Target>(
    door: Door<S, K>,
) {
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

pub(crate) async fn a_message_that_fails_is_buried_with_its_history<
    S: Source + Clone,
    K: Target,
>(
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

pub(crate) async fn a_long_handler_keeps_its_message<S: Source + Clone, K: Target>(
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

pub(crate) async fn a_stop_returns_what_is_not_finished<S: Source + Clone, K: Target>(
    door: Door<S, K>,
) {
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
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let listener = Listener::builder(door.source.clone(), Json::<Order>::new())
        .subscribe(handler_fn(move |delivery: Delivery<Order, _>| {
            let _ = tell.send(delivery.meta().attempt);
            async { Ok(()) }
        }))
        .build();
    listener.start(1).unwrap();
    until("another one has them", async || {
        listener.state().completed == 3
    })
    .await;
    for _ in 0..3 {
        assert_eq!(told.recv().await, Some(2), "the one that stops had it once");
    }
}

/// Its lease ends, because nobody renews it any more.
pub(crate) async fn a_listener_that_dies_leaves_its_message_to_others<
    S: Source + Clone,
    K: Target,
>(
    door: Door<S, K>,
    build: impl Fn(ListenerBuilder<Order, S>) -> Listener<Order, S>,
) {
    let builder = Listener::builder(door.source.clone(), Json::<Order>::new());
    let dies = build(builder.subscribe(handler_fn(|_| std::future::pending())));
    dies.start(1).unwrap();
    door.sender.send(&order(1)).await.unwrap();
    until("it is under way", async || dies.state().in_flight == 1).await;
    dies.abort();
    let seen = Seen::default();
    let listener = notes(&door.source, &seen).build();
    listener.start(1).unwrap();
    until("another one has it", async || {
        listener.state().completed == 1
    })
    .await;
    assert_eq!(*seen.lock().unwrap(), BTreeMap::from([(1, 1)]));
}

pub(crate) async fn progress_is_there_at_the_next_attempt<S, K: Target>(door: Door<S, K>)
where
    S: Source<Lease: Checkpoints> + Clone,
{
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let listener = Listener::builder(door.source.clone(), Json::<Order>::new())
        .subscribe(handler_fn(move |delivery: Delivery<Order, _>| {
            let tell = tell.clone();
            async move {
                let progress = delivery.checkpoint().map(|it| it.to_vec());
                let _ = tell.send((delivery.attempt(), progress.clone()));
                if progress.is_none() {
                    delivery.save("page 3").await?;
                    return Err(Failure::new("stopped halfway"));
                }
                Ok(())
            }
        }))
        .build();
    listener.start(1).unwrap();
    door.sender.send(&order(1)).await.unwrap();
    until("it is deleted", async || listener.state().completed == 1).await;
    assert_eq!(told.recv().await.unwrap(), (1, None));
    assert_eq!(told.recv().await.unwrap(), (2, Some(b"page 3".to_vec())));
}

pub(crate) async fn traces_and_ids_travel_with_messages<S: Source + Clone, K: Target>(
    door: Door<S, K>,
) {
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
    drop(door.service);
}
