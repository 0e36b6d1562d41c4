//! What a listener does with messages when nothing goes wrong.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use kew_worker::{
    Codec, CodecError, Delivery, Event, Failure, Fixed, Incoming, Listener, ListenerBuilder,
    Outgoing, Raw, Source, StartError, Text, handler_fn,
};
use tokio::time::{sleep, timeout};

use crate::fake::Service;
use crate::fake_source::{FakeSource, Polled, Waited};

/// A handler of a test: it notes that the work is done after a while.
pub(crate) fn works<const WAITS: bool>(
    service: &Arc<Service>,
    takes: Duration,
) -> ListenerBuilder<String, FakeSource<WAITS>> {
    let done = service.clone();
    let builder = Listener::builder(FakeSource::<WAITS>::new(service), Text);
    builder
        .seed(1)
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            let service = done.clone();
            async move {
                sleep(takes).await;
                service.did(delivery.meta().id.parse()?);
                Ok(())
            }
        }))
}

/// Waits for a condition, on paused time.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let holds = async {
        let mut looks = 0;
        while !condition() {
            looks += 1;
            let pause = if looks < 200 { 1 } else { 20 };
            sleep(Duration::from_millis(pause)).await;
        }
    };
    let limit = Duration::from_hours(2);
    timeout(limit, holds)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test(start_paused = true)]
async fn messages_are_handled_in_parallel_and_deleted_after_that() {
    let service = Service::new(1);
    service.put_many(100);
    let listener = works::<false>(&service, Duration::from_secs(5))
        .handlers_max(40)
        .build();
    assert_eq!(listener.start(4), Ok(4));
    sleep(Duration::from_secs(4)).await;
    assert_eq!((listener.state().in_flight, service.deleted()), (40, 0));
    assert_eq!(
        service.counts(|it| it.leased_max),
        40,
        "none waits for a place"
    );
    until("all are deleted", || service.depth() == 0).await;
    let state = listener.state();
    assert_eq!(
        (state.received, state.completed, state.failed),
        (100, 100, 0)
    );
    assert_eq!(service.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn batches_are_no_larger_than_the_service_allows() {
    let service = Service::new(1);
    service.put_many(200);
    let listener = works::<false>(&service, Duration::ZERO)
        .batch_size(1_000)
        .handlers_max(500)
        .build();
    listener.start(1).unwrap();
    until("all are deleted", || service.depth() == 0).await;
    assert_eq!(service.counts(|it| it.largest_ask), 32);
    let service = Service::new(1);
    service.put_many(20);
    let smaller = works::<false>(&service, Duration::ZERO);
    let smaller = smaller.batch_size(5).build();
    smaller.start(1).unwrap();
    until("all are deleted", || service.depth() == 0).await;
    assert_eq!(service.counts(|it| it.largest_ask), 5);
}

#[tokio::test(start_paused = true)]
async fn every_handler_gets_every_message_and_one_failure_prevents_the_delete() {
    let service = Service::new(1);
    let id = service.put("x");
    let (first, second) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (one, two, done) = (first.clone(), second.clone(), service.clone());
    let listener = Listener::builder(Polled::new(&service), Text)
        .subscribe(handler_fn(move |_| {
            one.fetch_add(1, Ordering::SeqCst);
            let done = done.clone();
            async move {
                done.did(id);
                Ok(())
            }
        }))
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            two.fetch_add(1, Ordering::SeqCst);
            async move {
                match delivery.attempt() {
                    1 => Err(Failure::new("not now")),
                    _ => Ok(()),
                }
            }
        }))
        .build();
    listener.start(1).unwrap();
    until("the first attempt failed", || listener.state().failed == 1).await;
    sleep(Duration::from_millis(400)).await;
    assert_eq!(service.depth(), 1);
    until("the second attempt succeeds", || service.depth() == 0).await;
    let calls = [&first, &second].map(|it| it.load(Ordering::SeqCst));
    assert_eq!(calls, [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn watchers_see_messages_errors_and_the_end_of_tasks() {
    let service = Service::new(1);
    service.put("x");
    let listener = works::<false>(&service, Duration::from_secs(1)).build();
    let mut watch = listener.watch();
    listener.start(2).unwrap();
    let event = watch.next().await.unwrap();
    match &*event {
        Event::Completed {
            message,
            meta,
            handled_for,
        } => {
            assert_eq!((message.as_str(), meta.attempt), ("x", 1));
            assert_eq!(handled_for.as_secs(), 1);
        }
        other => panic!("{other:?}"),
    }
    let mut rest = Box::pin(watch.into_stream());
    loop {
        match &*rest.next().await.unwrap() {
            Event::TaskEnded { active } => break assert_eq!(*active, 1),
            Event::WokeUp { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let mut slow = listener.watch();
    service.put_many(2_000);
    until("all are deleted", || service.depth() == 0).await;
    assert!(matches!(*slow.next().await.unwrap(), Event::Missed(_)));
}

#[tokio::test(start_paused = true)]
async fn start_adds_tasks_up_to_a_bound() {
    let service = Service::new(1);
    let listener = works::<true>(&service, Duration::ZERO).tasks_max(5).build();
    assert_eq!(listener.start(0), Err(StartError::NoTasks));
    assert_eq!(listener.start(2), Ok(2));
    assert_eq!(listener.start(9), Ok(3));
    let state = listener.state();
    assert_eq!((state.active_tasks, state.total_tasks), (5, 5));
    listener.stop(kew_worker::Stop::default()).await;
    assert_eq!(listener.start(1), Err(StartError::Stopped));
}

/// A codec that fetches what a message refers to.
struct Fetches(Arc<AtomicUsize>);

impl Codec<Bytes> for Fetches {
    async fn decode(&self, incoming: &Incoming) -> Result<Bytes, CodecError> {
        sleep(Duration::from_millis(10)).await;
        match self.0.load(Ordering::SeqCst) {
            0 => {
                self.0.store(1, Ordering::SeqCst);
                Err(CodecError::Unavailable("the store is down".to_owned()))
            }
            _ => Raw.decode(incoming).await,
        }
    }

    async fn encode(&self, message: &Bytes) -> Result<Outgoing, CodecError> {
        Raw.encode(message).await
    }

    async fn completed(&self, _: &Incoming) {
        self.0.store(7, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_codec_can_fetch_and_clean_up() {
    let service = Service::new(1);
    let id = service.put("x");
    service.did(id);
    let cleaned = Arc::new(AtomicUsize::new(0));
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let seen = bodies.clone();
    let listener = Listener::builder(Waited::new(&service), Fetches(cleaned.clone()))
        .subscribe(handler_fn(move |delivery: Delivery<Bytes, _>| {
            seen.lock().unwrap().push(delivery.message().clone());
            async { Ok(()) }
        }))
        .build();
    listener.start(1).unwrap();
    until("it is cleaned up", || cleaned.load(Ordering::SeqCst) == 7).await;
    assert_eq!(*bodies.lock().unwrap(), ["x"]);
    assert_eq!((listener.state().failed, service.depth()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn metrics_have_the_names_of_their_queue() {
    let service = Service::new(1);
    service.put("x");
    let builder = works::<false>(&service, Duration::from_secs(1));
    let listener = builder.visibility(Fixed(Duration::from_secs(60))).build();
    listener.start(1).unwrap();
    until("it is deleted", || service.depth() == 0).await;
    assert_eq!(service.counts(|it| it.last_lease).as_secs(), 60);
    let page = kew_worker::metrics_page([listener.metrics()]);
    for line in [
        "kew_worker_completed_total{account=\"account\",queue=\"jobs\"} 1\n",
        "kew_worker_lease_seconds{account=\"account\",queue=\"jobs\"} 60",
        "kew_worker_handling_seconds_count{account=\"account\",queue=\"jobs\"} 1\n",
    ] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
}

/// One API for both kinds of sources.
fn name_of<S: Source>(source: &S) -> &str {
    &source.name().queue
}

#[tokio::test(start_paused = true)]
async fn a_source_that_waits_is_used_in_the_same_way() {
    let service = Service::new(1);
    assert_eq!(
        name_of(&Waited::new(&service)),
        name_of(&Polled::new(&service))
    );
    let listener = works::<true>(&service, Duration::from_secs(1)).build();
    listener.start(3).unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(listener.state().active_tasks, 1, "the others end");
    service.put_many(500);
    until("all are deleted", || service.depth() == 0).await;
    let state = listener.state();
    assert_eq!((state.completed, state.empty_polls), (500, 0));
    assert_eq!(service.violations(), Vec::<String>::new());
}

/// How long a listener takes for messages of one millisecond each.
async fn time_for<const WAITS: bool>(messages: u64, handlers: u32, tasks: u32) -> Duration {
    let service = Service::new(1);
    service.put_many(messages);
    let builder = works::<WAITS>(&service, Duration::from_millis(1));
    let listener = builder.handlers_max(handlers).build();
    let began = tokio::time::Instant::now();
    listener.start(tasks).unwrap();
    until("all are deleted", || service.depth() == 0).await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_busy_listener_keeps_its_handlers_busy() {
    for (handlers, tasks) in [(4, 1), (4, 8), (64, 1), (64, 10)] {
        let messages = u64::from(handlers) * 100;
        let took = [
            time_for::<false>(messages, handlers, tasks).await,
            time_for::<true>(messages, handlers, tasks).await,
        ];
        // 100 ms would be ideal; timers of tokio round up to milliseconds.
        let most = Duration::from_millis(250);
        assert!(
            took.iter().all(|it| *it < most),
            "{handlers}, {tasks}: {took:?}"
        );
    }
}
