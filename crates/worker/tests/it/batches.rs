//! Messages of handlers that are swift: they are handled where they were received, and deleted together.

use std::sync::Arc;
use std::time::Duration;

use kew_worker::{
    Delivery, ErrorKind, Event, Failure, Listener, ListenerBuilder, SourceError, Text, handler_fn,
};
use tokio::time::{sleep, timeout};

use crate::fake::{Faults, LOCK, Service};
use crate::fake_source::FakeSource;
use crate::listener::until;
use crate::simulation::{drained, seeds, silence_handlers};

const SECOND: Duration = Duration::from_secs(1);

/// After so many swift messages in a row, the next ones are expected to be swift.
const FIRST: u64 = 8;

/// A handler that waits for nothing, unless the body of a message says so.
fn swift<const WAITS: bool>(service: &Arc<Service>) -> ListenerBuilder<String, FakeSource<WAITS>> {
    let done = service.clone();
    Listener::builder(FakeSource::<WAITS>::new(service), Text)
        .seed(1)
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            let service = done.clone();
            async move {
                let id: u64 = delivery.meta().id.parse()?;
                let _at_work = service.works_on(id);
                match (delivery.message().as_str(), delivery.attempt()) {
                    ("waits", _) => sleep(SECOND * 20).await,
                    ("fails", 1) => return Err(Failure::new("not now")),
                    ("panics", 1) => panic!("a panic of the handler"),
                    _ => {}
                }
                service.did(id);
                Ok(())
            }
        }))
}

/// A listener that expects swift messages.
async fn warm<const WAITS: bool>(service: &Arc<Service>) -> Listener<String, FakeSource<WAITS>> {
    let listener = swift::<WAITS>(service).build();
    service.put_many(FIRST);
    listener.start(1).unwrap();
    let is_warm = || listener.state().completed == FIRST && listener.state().in_flight == 0;
    until("the first are deleted", is_warm).await;
    listener
}

#[tokio::test(start_paused = true)]
async fn swift_messages_are_deleted_together_where_the_service_can() {
    async fn check<const WAITS: bool>(together: usize) {
        let service = Service::new(1);
        let listener = warm::<WAITS>(&service).await;
        assert_eq!(service.counts(|it| it.together_max), 0);
        service.put_many(20);
        until("all are deleted", || service.depth() == 0).await;
        until("all are counted", || listener.state().in_flight == 0).await;
        let state = listener.state();
        assert_eq!((state.received, state.completed), (28, 28));
        assert_eq!(service.counts(|it| it.together_max), together);
        assert_eq!(service.violations(), Vec::<String>::new());
    }
    check::<true>(20).await;
    check::<false>(0).await;
}

#[tokio::test(start_paused = true)]
async fn messages_that_fail_panic_or_wait_keep_no_other_from_its_delete() {
    async fn check<const WAITS: bool>() {
        silence_handlers();
        let service = Service::new(1);
        let listener = warm::<WAITS>(&service).await;
        for body in ["x", "fails", "panics", "x", "waits", "x", "waits"] {
            service.put(body);
        }
        sleep(SECOND / 2).await;
        let state = listener.state();
        assert_eq!((state.completed, state.failed), (FIRST + 3, 2));
        until("all are deleted", || service.depth() == 0).await;
        until("all are counted", || listener.state().in_flight == 0).await;
        let state = listener.state();
        assert_eq!((state.completed, state.failed), (FIRST + 7, 2));
        assert_eq!(service.violations(), Vec::<String>::new());
    }
    check::<true>().await;
    check::<false>().await;
}

#[tokio::test(start_paused = true)]
async fn each_message_of_a_batch_has_its_own_outcome() {
    let service = Service::new(1);
    let listener = warm::<true>(&service).await;
    let mut events = listener.watch();
    let later = SourceError::new(ErrorKind::TryAgainLater, "reset");
    service.fail_next("complete", SourceError::refused("not this one"));
    service.fail_next("complete", later);
    service.put_many(5);
    let ended = || listener.state().completed + listener.state().unsettled;
    until("all have an end", || ended() == FIRST + 5).await;
    let state = listener.state();
    assert_eq!(service.counts(|it| it.together_max), 5);
    assert_eq!((state.completed, state.unsettled), (FIRST + 4, 1));
    assert_eq!(state.failed_requests, 2, "one was tried again");
    let mut ends = (0, 0);
    while ends.0 + ends.1 < 5 {
        match &*events.next().await.unwrap() {
            Event::Completed { .. } => ends.0 += 1,
            Event::Unsettled { .. } => ends.1 += 1,
            _ => {}
        }
    }
    assert_eq!(ends, (4, 1));
    // It comes back when its lease ends, and is deleted without its handler.
    until("all are deleted", || service.depth() == 0).await;
    assert_eq!(service.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn tasks_share_places_out_by_batches() {
    const BATCH: u32 = 8;
    let service = Service::new(1);
    service.set_connections(8);
    service.set_latency(SECOND / 1_000);
    let listener = swift::<false>(&service)
        .batch_size(BATCH)
        .tasks_max(8)
        .handlers_max(8 * BATCH)
        .build();
    service.put_many(1_600);
    listener.start(8).unwrap();
    until("all are deleted", || service.depth() == 0).await;
    let requests = service.counts(|it| it.gets - it.empty_gets);
    assert!(requests <= 220, "{requests} requests for 200 batches");
}

/// Handlers that are mostly swift, against a service that is not, with listeners that crash.
async fn run_seed<const WAITS: bool>(seed: u64) {
    let what = format!("seed {seed}, waits: {WAITS}");
    let service = Service::new(seed);
    let rate = |most| service.random(most);
    service.set_faults(Faults {
        busy: rate(60),
        lost_answer: rate(60),
        slow: rate(30),
        duplicate: rate(30),
    });
    let random = service.clone();
    let listener = |crash: u64| {
        let service = random.clone();
        let builder = Listener::builder(FakeSource::<WAITS>::new(&service), Text);
        builder
            .seed(seed + crash)
            .handlers_max(20)
            .attempts_max(1_000)
            .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
                let service = service.clone();
                async move {
                    let id: u64 = delivery.meta().id.parse()?;
                    let _at_work = service.works_on(id);
                    match service.random(60) {
                        0 => sleep(LOCK * 2).await,
                        1 => panic!("a panic of the handler"),
                        2 => return Err(Failure::new("a failure")),
                        _ => {}
                    }
                    service.did(id);
                    Ok(())
                }
            }))
            .build()
    };
    service.put_many(100);
    for crash in 0..service.random(4) {
        service.crash_after(Some(service.random(300)));
        let listener = listener(crash);
        listener.start(2).unwrap();
        let _ = timeout(Duration::from_mins(10), service.crashed.notified()).await;
        listener.abort();
        service.crash_after(None);
    }
    let listener = listener(10);
    listener.start(2).unwrap();
    drained(&service, &what).await;
    assert_eq!(service.violations(), Vec::<String>::new(), "{what}");
    let settled = service.settled();
    assert_eq!(settled, 100, "{what}");
    until("no place is lost", || listener.state().in_flight == 0).await;
}

#[tokio::test(start_paused = true)]
async fn no_swift_message_is_lost_or_deleted_before_it_was_done() {
    silence_handlers();
    for seed in seeds() {
        run_seed::<true>(seed).await;
        run_seed::<false>(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_begin_while_others_are_deleted_and_the_rest_stays_in_the_queue() {
    async fn check<const WAITS: bool>(swift_before: u64, held: u64) {
        let service = Service::new(1);
        let listener = swift::<WAITS>(&service).handlers_max(3).build();
        service.put_many(swift_before);
        listener.start(1).unwrap();
        until("the first are deleted", || service.depth() == 0).await;
        service.set_delete_latency(SECOND * 20);
        service.put_many(20);
        sleep(SECOND * 10).await;
        let handled = service.done() as u64 - swift_before;
        assert_eq!(handled, held);
        assert_eq!(listener.state().in_flight, held);
        assert_eq!(listener.state().deleting, held - 3);
        service.set_delete_latency(Duration::ZERO);
        until("all are deleted", || service.depth() == 0).await;
        assert_eq!(service.violations(), [""; 0]);
    }
    // Three are deleted, and three keep their places. While handlers are swift, nine are three whole batches before: no
    // receiver waits with fewer places.
    check::<true>(0, 6).await;
    check::<true>(FIRST + 1, 6).await;
    // Here each delete is a request.
    check::<false>(0, 3).await;
    check::<false>(FIRST + 1, 3).await;
}
