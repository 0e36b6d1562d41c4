//! `docs/worker.md` agrees with the code: its examples compile and run, and its tables name every metric.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kew_client::{BusAdmin, BusClient, QueueClient};
use kew_worker::{
    Announcement, BackOff, BusSource, BusTarget, ByDepth, Delivery, Envelopes, Failure, Handler,
    IdleBackOff, Incoming, Json, Lease, LeaseHint, Listener, LostLeases, Meta, QueueLease,
    QueueSource, QueueTarget, Sender, Source as _, SourceError, StartError, Stop, StopReport,
    TopicAnnouncements, handler_fn,
};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::fake::Service;
use crate::kew::Kew;
use crate::listener::works;
use crate::suite::{Order, order, until};

const PAGE: &str = include_str!("../../../../docs/worker.md");
const SOURCE: &str = include_str!("documented.rs");

struct Books(Arc<AtomicU32>);

impl Books {
    async fn book(&self, order: &Order) -> Result<(), std::num::ParseIntError> {
        self.0.fetch_add(order.id, Ordering::SeqCst);
        order.id.to_string().parse::<u32>().map(drop)
    }
}

// begin: handler
impl<L: Lease> Handler<Order, L> for Books {
    async fn handle(&self, delivery: Delivery<Order, L>) -> Result<(), Failure> {
        let order = delivery.message();
        if order.note.is_empty() {
            // Another try would not change it: the message is buried at once.
            return Err(Failure::new("the order has no note").permanent("InvalidOrder"));
        }
        // Any error means: try again later.
        self.book(order).await?;
        Ok(())
    }
}
// end

async fn listens(client: QueueClient, books: Books) -> Result<StopReport, StartError> {
    // begin: listener
    let source = QueueSource::new(client, "myaccount", "orders");
    let listener = Listener::builder(source, Json::<Order>::new())
        .subscribe(books)
        .build();
    listener.start(4)?;
    // … until the application ends:
    let report = listener.stop(Stop::default()).await;
    // end
    Ok(report)
}

fn policies(source: BusSource, books: Books) -> Listener<Order, BusSource> {
    // begin: policies
    Listener::builder(source, Json::<Order>::new())
        .subscribe(books)
        .batch_size(16)
        .handlers_max(32)
        .attempts_max(5)
        .idle(IdleBackOff {
            minimum: Duration::from_millis(50),
            maximum: Duration::from_secs(30),
        })
        .wake_up(ByDepth)
        .message_delay(BackOff {
            first: Duration::from_secs(5),
            maximum: Duration::from_mins(2),
        })
        .build()
    // end
}

async fn pages(page: usize) -> Result<(), SourceError> {
    let _ = page;
    Ok(())
}

// begin: checkpoint
async fn long_work(delivery: Delivery<Order, QueueLease>) -> Result<(), Failure> {
    let saved = delivery
        .checkpoint()
        .map(|it| String::from_utf8_lossy(it).into_owned());
    let first = saved.and_then(|it| it.parse().ok()).unwrap_or(0);
    for page in first..100 {
        pages(page).await?;
        delivery.save((page + 1).to_string()).await?;
    }
    Ok(())
}
// end

async fn pushed(
    queues: QueueClient,
    client: BusClient,
    admin: BusAdmin,
) -> Result<Listener<Order, QueueSource>, StartError> {
    let source = QueueSource::new(queues, "myaccount", "orders");
    let books = Books(Arc::default());
    // begin: push
    let push = TopicAnnouncements::new(client, Some(admin), "wakeup", "worker-7", source.name());
    let listener = Listener::builder(source, Json::<Order>::new())
        .subscribe(books)
        .push(push)
        .build();
    listener.start(1)?;
    // end
    Ok(listener)
}

fn hinted(client: &QueueClient) -> (Listener<Order, QueueSource>, LeaseHint) {
    let source = QueueSource::new(client.clone(), "myaccount", "orders");
    let books = Books(Arc::default());
    // begin: lost
    let hint = LeaseHint::new(Duration::from_mins(1), Duration::from_hours(1));
    let target = QueueTarget::new(client.clone(), "myaccount", "orders");
    let sender = Sender::new(
        Json::<Order>::new(),
        target.envelopes(Envelopes::On),
        "web-1",
    )
    .lease_hint(hint.clone());
    let told = hint.clone();
    let listener = Listener::builder(source, Json::<Order>::new())
        .subscribe(books)
        .on_lost_leases(10, Duration::from_mins(5), move |lost: &LostLeases| {
            told.lengthen(lost.lease);
        })
        .build();
    // end
    drop(sender);
    (listener, hint)
}

fn is_signed(_: &Incoming) -> bool {
    true
}

fn observed(source: QueueSource, books: Books) -> Listener<Order, QueueSource> {
    // begin: hooks
    Listener::builder(source, Json::<Order>::new())
        .subscribe(books)
        .verify(|incoming: &Incoming| match is_signed(incoming) {
            true => Ok(()),
            false => Err("the signature is wrong".to_owned()),
        })
        .on_span(set_parent)
        .build()
    // end
}

// begin: parent
/// Makes the span of an attempt a child of the one that sent the message.
pub(crate) fn set_parent(span: &Span, meta: &Meta) {
    let trace = meta.property("traceparent").unwrap_or_default();
    let headers = HashMap::from([("traceparent".to_owned(), trace.to_owned())]);
    let parent = TraceContextPropagator::new().extract(&headers);
    // It fails if nothing follows spans.
    let _ = span.set_parent(parent);
}
// end

#[tokio::test]
async fn the_examples_run() {
    let kew = Kew::start().await;
    let client = kew.queue_client();
    client.create_queue("orders", &[]).await.unwrap();
    let stopped = listens(client.clone(), Books(Arc::default()));
    assert_eq!(stopped.await.unwrap().dropped_tasks, 0);
    let bus = BusSource::new(kew.bus_client(), "ns", "jobs");
    let booked = Arc::new(AtomicU32::new(0));
    let listener = policies(bus, Books(booked.clone()));
    let bus_client = kew.bus_client();
    let target = BusTarget::open(&bus_client, "ns", "jobs");
    let sender = Sender::new(Json::<Order>::new(), target.await.unwrap(), "test");
    sender.send(&order(7)).await.unwrap();
    listener.start(1).unwrap();
    until("it is booked", async || listener.state().completed == 1).await;
    assert_eq!(booked.load(Ordering::SeqCst), 7);
    let source = QueueSource::new(client.clone(), "myaccount", "orders");
    let source = source.envelopes(Envelopes::On);
    let target = QueueTarget::new(client.clone(), "myaccount", "orders");
    let sender = Sender::new(Json::<Order>::new(), target, "test");
    let long = Listener::builder(source.clone(), Json::<Order>::new())
        .subscribe(handler_fn(long_work))
        .build();
    long.start(1).unwrap();
    sender.send(&order(1)).await.unwrap();
    until("the long work is done", async || {
        long.state().completed == 1
    })
    .await;
    long.stop(Stop::default()).await;
    let (hinted, hint) = hinted(&client);
    assert_eq!((hinted.state().lost_leases, hint.get()), (0, None));
    let observed = observed(source, Books(Arc::default()));
    observed.start(1).unwrap();
    sender.send(&order(2)).await.unwrap();
    until("it is handled", async || observed.state().completed == 1).await;
    observed.stop(Stop::default()).await;
    let pushed = pushed(client, kew.bus_client(), kew.admin()).await.unwrap();
    until("it sleeps", async || pushed.state().active_tasks == 0).await;
    let announcement = r#"{"account":"a","queue":"jobs","size_bytes":1024,"sender":"web-1"}"#;
    assert!(PAGE.contains(announcement));
    let read: Announcement = serde_json::from_str(announcement).unwrap();
    assert_eq!(
        (read.size_bytes, read.sender.as_str()),
        (Some(1_024), "web-1")
    );
}

/// Lines without their indentation.
fn trimmed(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().map(str::trim).collect();
    lines.join("\n")
}

#[test]
fn every_example_of_the_page_is_code_of_this_file() {
    let source = trimmed(SOURCE);
    let blocks: Vec<&str> = PAGE
        .split("```rust\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert_eq!(blocks.len(), 8);
    for block in blocks {
        assert!(source.contains(&trimmed(block)), "not compiled: {block}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_names_every_metric() {
    let service = Service::new(1);
    let listener = works::<false>(&service, Duration::ZERO).build();
    listener.depth().await.unwrap();
    let page = kew_worker::metrics_page([listener.metrics()]);
    let names = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names.len(), 25);
    for name in names {
        assert!(
            PAGE.contains(&format!("`{name}`")),
            "{name} is not documented"
        );
    }
}
