//! Large messages through Kew, over both services.

use std::sync::Arc;
use std::time::Duration;

use kew_claim_check::{
    CLAIM_DAMAGED, CLAIM_MISSING, Checked, CheckedGroup, ClaimCheck, ClaimCheckOptions, ClaimStore,
};
use kew_worker::{
    BackOff, BusSource, BusTarget, Delivery, Envelopes, Failure, Json, Listener, ListenerBuilder,
    QueueSource, QueueTarget, Raw, Sender, Source, Stop, Target, Text, TextEncoding, handler_fn,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};

use crate::kew::Kew;
use crate::store::{Mood, TestStore};

const ACCOUNT: &str = "devstoreaccount1";

type Numbers = Vec<u32>;

/// One of the services: its queue `jobs` from both sides, and where failed messages go.
struct Door<S, K> {
    _kew: Arc<Kew>,
    store: TestStore,
    source: S,
    dead: S,
    target: K,
}

async fn storage(encoding: TextEncoding) -> Door<QueueSource, QueueTarget> {
    let kew = Kew::start().await;
    let client = kew.queue_client();
    let source = |queue| {
        let source = QueueSource::new(client.clone(), ACCOUNT, queue);
        source.envelopes(Envelopes::On).encoding(encoding)
    };
    let target = QueueTarget::new(client.clone(), ACCOUNT, "jobs");
    Door {
        source: source("jobs"),
        dead: source("jobs-poison"),
        target: target.envelopes(Envelopes::On).encoding(encoding),
        store: TestStore::new(),
        _kew: kew,
    }
}

async fn bus() -> Door<BusSource, BusTarget> {
    let kew = Kew::start().await;
    let client = kew.bus_client();
    let dead = kew_client::Entity::new("jobs").dead_letters();
    Door {
        source: BusSource::new(client.clone(), "ns", "jobs"),
        dead: BusSource::new(client.clone(), "ns", dead),
        target: BusTarget::open(&client, "ns", "jobs").await.unwrap(),
        store: TestStore::new(),
        _kew: kew,
    }
}

fn numbers() -> Numbers {
    (0..2_000).collect()
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let holds = async {
        while !condition().await {
            sleep(Duration::from_millis(2)).await;
        }
    };
    let holds = timeout(Duration::from_secs(60), holds).await;
    assert!(holds.is_ok(), "never: {what}");
}

fn quick<T: Send + Sync + 'static, S: Source>(
    builder: ListenerBuilder<T, S>,
) -> ListenerBuilder<T, S> {
    builder.message_delay(BackOff {
        first: Duration::ZERO,
        maximum: Duration::ZERO,
    })
}

/// A listener that passes messages on.
fn passes<S: Source + Clone>(
    source: &S,
    store: &TestStore,
) -> (Listener<Numbers, S>, UnboundedReceiver<Numbers>) {
    let (tell, told) = unbounded_channel();
    let codec = Checked::new(store.claim_check(), Json::<Numbers>::new());
    let builder = Listener::builder(source.clone(), codec).subscribe(handler_fn(
        move |delivery: Delivery<Numbers, S::Lease>| {
            let _ = tell.send(delivery.message().clone());
            async { Ok(()) }
        },
    ));
    (quick(builder).build(), told)
}

/// Sent, handled, and buried, and what becomes of the objects.
async fn a_large_message_comes_through<S: Source + Clone, K: Target>(door: Door<S, K>) {
    let (store, source) = (&door.store, &door.source);
    let codec = || Checked::new(store.claim_check(), Json::<Numbers>::new());
    let sender = Sender::new(codec(), door.target, "test");
    for round in 1..=3 {
        sender.send(&numbers()).await.unwrap();
        assert_eq!(store.names().await.len(), round);
    }
    let (listener, mut told) = passes(source, store);
    listener.start(1).unwrap();
    for _ in 0..3 {
        assert_eq!(told.recv().await.unwrap(), numbers());
    }
    until("they are deleted, and then their objects", async || {
        let state = listener.state();
        (state.completed, state.in_flight) == (3, 0)
    })
    .await;
    assert_eq!(store.names().await, []);
    listener.stop(Stop::default()).await;

    let fails = Listener::builder(source.clone(), codec()).subscribe(handler_fn(|_| async {
        Err(Failure::new("never").permanent("Poison"))
    }));
    let listener = quick(fails).build();
    sender.send(&numbers()).await.unwrap();
    listener.start(1).unwrap();
    until("it is buried", async || listener.state().buried == 1).await;
    listener.stop(Stop::default()).await;
    store.pass(Duration::from_hours(24 * 400));
    let swept = store.claim_check().sweep(9).await.unwrap();
    assert_eq!((swept.removed, swept.kept), (0, 1));
    // It is dug up, long after.
    let (digger, mut told) = passes(&door.dead, store);
    digger.start(1).unwrap();
    assert_eq!(told.recv().await.unwrap(), numbers());
    until("it is deleted", async || digger.state().completed == 1).await;
}

#[tokio::test]
async fn large_messages_over_queue_storage() {
    a_large_message_comes_through(storage(TextEncoding::Plain).await).await;
    a_large_message_comes_through(storage(TextEncoding::Base64).await).await;
}

#[tokio::test]
async fn large_messages_over_service_bus() {
    a_large_message_comes_through(bus().await).await;
}

/// A store that fails is tried again, and an object that is missing or damaged buries its message.
async fn trouble_with_the_store<S: Source + Clone, K: Target>(door: Door<S, K>) {
    let (store, source) = (&door.store, &door.source);
    let codec = Checked::new(store.claim_check(), Json::<Numbers>::new());
    let sender = Sender::new(codec, door.target, "test");
    let (listener, mut told) = passes(source, store);
    sender.send(&numbers()).await.unwrap();
    // Twice, and no longer: after ten deliveries a message would be buried.
    store.set_mood(Mood::FailingTimes(2));
    listener.start(1).unwrap();
    assert_eq!(told.recv().await.unwrap(), numbers());
    assert_eq!(listener.state().failed, 2);
    until("it is done", async || {
        let state = listener.state();
        (state.completed, state.in_flight) == (1, 0)
    })
    .await;
    assert_eq!(store.names().await, []);
    listener.stop(Stop::default()).await;

    let (dead, buried) = (&door.dead, unbounded_channel());
    for reason in [CLAIM_MISSING, CLAIM_DAMAGED] {
        sender.send(&numbers()).await.unwrap();
        let (name, mut bytes) = store.only().await;
        bytes[9] ^= 1;
        match reason {
            CLAIM_MISSING => store.remove(&name).await,
            _ => store.replace(&name, bytes).await,
        }
        let (listener, _told) = passes(source, store);
        listener.start(1).unwrap();
        until("it is buried", async || listener.state().buried == 1).await;
        listener.stop(Stop::default()).await;
    }
    // As people who look for the cause find them.
    let tell = buried.0;
    let digger = Listener::builder(dead.clone(), Raw)
        .subscribe(handler_fn(
            move |delivery: Delivery<bytes::Bytes, S::Lease>| {
                let _ = tell.send(delivery.meta().clone());
                async { Ok(()) }
            },
        ))
        .build();
    digger.start(1).unwrap();
    let mut buried = buried.1;
    for says in ["does not exist", "hash"] {
        let meta = buried.recv().await.unwrap();
        let last = meta.history.last().unwrap();
        assert!(last.error.contains(says), "{last:?}");
    }
}

#[tokio::test]
async fn trouble_with_the_store_over_queue_storage() {
    trouble_with_the_store(storage(TextEncoding::Plain).await).await;
}

#[tokio::test]
async fn trouble_with_the_store_over_service_bus() {
    trouble_with_the_store(bus().await).await;
}

/// Data that nearly fills a message is not stored, and fits in every form of a message of Queue Storage.
#[tokio::test]
async fn what_is_not_stored_fits_in_every_form() {
    let options = ClaimCheckOptions::default();
    for encoding in [TextEncoding::Plain, TextEncoding::Base64] {
        let door = storage(encoding).await;
        let claims = || ClaimCheck::new(ClaimStore::new(door.store.clone()), options.clone());
        let sender = Sender::new(Checked::new(claims().unwrap(), Text), door.target, "test");
        let listener = Listener::builder(door.source, Checked::new(claims().unwrap(), Text))
            .subscribe(handler_fn(|_| async { Ok(()) }))
            .build();
        listener.start(1).unwrap();
        // Half of the characters, or none, are quoted, twice.
        for text in ["\"x".repeat(7_000), "\"".repeat(11_000), "x".repeat(23_000)] {
            sender.send(&text).await.unwrap();
        }
        until("they are done", async || listener.state().completed == 3).await;
        assert_eq!(door.store.operations(), 0);
    }
}

#[tokio::test]
async fn a_group_comes_through_service_bus() {
    let door = bus().await;
    let codec = || CheckedGroup::new(door.store.claim_check(), Json::<u32>::new());
    let sender = Sender::new(codec(), door.target, "test");
    let (tell, mut told) = unbounded_channel();
    let listener = Listener::builder(door.source, codec())
        .subscribe(handler_fn(move |delivery: Delivery<Numbers, _>| {
            let _ = tell.send(delivery.message().clone());
            async { Ok(()) }
        }))
        .build();
    listener.start(1).unwrap();
    let group: Numbers = (0..10_000).map(|n| n * 7_919 % 10_007).collect();
    sender.send(&group).await.unwrap();
    assert_eq!(told.recv().await.unwrap(), group);
    until("its object is removed", async || {
        door.store.names().await.is_empty()
    })
    .await;
}
