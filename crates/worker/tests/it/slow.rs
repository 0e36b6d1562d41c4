//! Services that were fast and time out: a listener of Service Bus slows down like one of Queue Storage.

use std::sync::Arc;
use std::time::Duration;

use kew_worker::{
    Delivery, ErrorKind, Fixed, Listener, Pace, RequestOutcome, SourceError, Steady, Text,
    handler_fn,
};
use tokio::time::{Instant, sleep};

use crate::fake::Service;
use crate::fake_source::{FakeLease, Polled, Waited};
use crate::listener::{until, works};

const SECOND: Duration = Duration::from_secs(1);
const FAST: Duration = Duration::from_millis(5);

/// Waits for a message without an end, as receives of Service Bus do.
const PATIENT: Steady = Steady {
    interval: Duration::from_hours(1),
};

/// A listener of a service that is fast: it has handled a message.
async fn fast(service: &Arc<Service>, takes: Duration) -> Listener<String, Waited> {
    let listener = works::<true>(service, takes).idle(PATIENT).build();
    service.set_latency(FAST);
    service.put("x");
    listener.start(1).unwrap();
    until("it is deleted", || listener.state().completed == 1).await;
    assert!(listener.state().pause.is_zero());
    listener
}

/// The service is fast again, and so is the listener after some messages.
async fn recovers(service: &Service, listener: &Listener<String, Waited>) {
    service.set_latency(FAST);
    service.put_many(10);
    until("all are deleted", || service.depth() == 0).await;
    until("it is fast again", || listener.state().pause.is_zero()).await;
}

#[tokio::test(start_paused = true)]
async fn settlements_that_time_out_slow_a_listener_of_service_bus_down() {
    let service = Service::new(1);
    let listener = fast(&service, SECOND).await;
    service.put("y");
    until("it is handled", || listener.state().in_flight == 1).await;
    service.set_latency(SECOND * 3_600);
    until("it slows down", || listener.state().pause == SECOND).await;
    recovers(&service, &listener).await;
}

#[tokio::test(start_paused = true)]
async fn renewals_that_time_out_slow_a_listener_of_service_bus_down() {
    let service = Service::new(1);
    let listener = fast(&service, SECOND * 20).await;
    service.put("y");
    until("it is handled", || listener.state().in_flight == 1).await;
    service.set_latency(SECOND * 3_600);
    let renews_until = Instant::now() + SECOND * 28;
    until("it slows down", || listener.state().pause == SECOND).await;
    assert!(
        Instant::now() < renews_until,
        "by the renewal, and not only by what follows"
    );
    recovers(&service, &listener).await;
}

#[tokio::test(start_paused = true)]
async fn receives_that_time_out_slow_a_listener_of_service_bus_down() {
    let service = Service::new(1);
    let listener = fast(&service, Duration::ZERO).await;
    service.set_latency(SECOND * 30);
    for _ in 0..3 {
        let error = SourceError::new(ErrorKind::TryAgainLater, "nothing was sent in time");
        service.fail_next("get", error);
    }
    until("it slows down", || listener.state().pause == SECOND * 4).await;
    recovers(&service, &listener).await;
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_refused_or_told_to_wait_is_no_time_out() {
    let service = Service::new(1);
    let listener = fast(&service, Duration::ZERO).await;
    service.set_latency(SECOND * 30);
    service.fail_next("get", SourceError::refused("the queue is disabled"));
    service.fail_next("get", SourceError::busy("server-busy"));
    until("both failed", || listener.state().failed_requests == 2).await;
    assert!(listener.state().pause.is_zero());
    recovers(&service, &listener).await;
}

/// A handler that saves a checkpoint when the service has become so slow, and then has more to do.
fn saves(
    service: &Arc<Service>,
    latency: Duration,
) -> impl kew_worker::Handler<String, FakeLease<false>> + use<> {
    let service = service.clone();
    handler_fn(move |delivery: Delivery<String, FakeLease<false>>| {
        let service = service.clone();
        async move {
            if delivery.message() == "y" {
                // The listener has looked into the queue once more, and finds nothing for an hour.
                sleep(SECOND).await;
                service.set_latency(latency);
                let saved = delivery.save("halfway").await;
                service.set_latency(FAST);
                assert!(saved.is_err(), "no answer came");
                sleep(SECOND).await;
            }
            service.did(delivery.meta().id.parse()?);
            Ok(())
        }
    })
}

/// The service is fast, until a handler saves a checkpoint. Waits until that slows the listener down.
async fn checkpoint(service: &Arc<Service>, latency: Duration) {
    let listener = Listener::builder(Polled::new(service), Text)
        .subscribe(saves(service, latency))
        .visibility(Fixed(SECOND * 30))
        .idle(PATIENT)
        .build();
    service.set_latency(FAST);
    service.put("x");
    listener.start(1).unwrap();
    until("it is deleted", || listener.state().completed == 1).await;
    service.put("y");
    listener.announce();
    until("it is handled", || listener.state().in_flight == 1).await;
    let other_requests_until = Instant::now() + SECOND * 29;
    until("it slows down", || listener.state().pause == SECOND).await;
    assert!(
        Instant::now() < other_requests_until,
        "by the checkpoint, and not only by what follows"
    );
}

#[tokio::test(start_paused = true)]
async fn checkpoints_that_time_out_slow_a_listener_down() {
    let service = Service::new(1);
    let error = SourceError::new(ErrorKind::TryAgainLater, "reset");
    service.fail_next("save", error);
    checkpoint(&service, SECOND * 10).await;
}

/// The handler is dropped when its lease is about to end. Nobody waits for the answer any more.
#[tokio::test(start_paused = true)]
async fn checkpoints_without_an_answer_slow_a_listener_down() {
    checkpoint(&Service::new(1), SECOND * 3_600).await;
}

/// A service that is as slow as it can be.
#[derive(Debug)]
struct AlwaysSlow;

impl Pace for AlwaysSlow {
    fn observe(&mut self, _: Duration, _: RequestOutcome) -> Duration {
        SECOND * 60
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_waits_makes_no_requests_and_does_not_pause_between_waits() {
    let service = Service::new(1);
    let builder = Listener::builder(Waited::new(&service), Text)
        .subscribe(handler_fn(|_| async { Ok(()) }))
        .idle(Steady::default())
        .pace(AlwaysSlow);
    let listener = builder.build();
    service.put("x");
    listener.start(1).unwrap();
    until("it is deleted", || listener.state().completed == 1).await;
    sleep(SECOND * 90).await;
    let began = Instant::now();
    service.put("y");
    until("it is deleted", || listener.state().completed == 2).await;
    assert!(began.elapsed() < SECOND * 2, "{:?}", began.elapsed());
    service.put("z");
    until("it is deleted", || listener.state().completed == 3).await;
    assert!(began.elapsed() >= SECOND * 60, "{:?}", began.elapsed());
}
