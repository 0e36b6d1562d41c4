//! A listener that stops finishes or returns what it holds, and never hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kew_worker::{Delivery, Event, Failure, Listener, Stop, Text, handler_fn};
use tokio::time::{Instant, sleep, timeout};

use crate::fake::Service;
use crate::fake_source::{Polled, Waited};
use crate::listener::{until, works};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_stop_finishes_what_is_under_way_and_receives_no_more() {
    let service = Service::new(1);
    service.put_many(100);
    let builder = works::<false>(&service, SECOND * 10);
    let listener = builder.handlers_max(20).build();
    listener.start(2).unwrap();
    sleep(SECOND).await;
    let began = Instant::now();
    let report = listener.stop(Stop::default()).await;
    assert_eq!(
        (report.completed, report.returned, report.dropped_tasks),
        (20, 0, 0)
    );
    assert!(began.elapsed() < SECOND * 10, "{:?}", began.elapsed());
    assert_eq!(listener.state().active_tasks, 0);
    sleep(SECOND * 60).await;
    assert_eq!(service.depth(), 80);
    assert_eq!(service.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_is_returned_at_once() {
    let service = Service::new(1);
    service.put_many(10);
    let listener = works::<true>(&service, SECOND * 600).build();
    listener.start(1).unwrap();
    sleep(SECOND).await;
    let began = Instant::now();
    let report = listener.stop(Stop::default()).await;
    assert_eq!((report.completed, report.returned), (0, 10));
    let took = began.elapsed().as_secs();
    assert_eq!(took, 20);
    let next = works::<true>(&service, SECOND).build();
    next.start(1).unwrap();
    let began = Instant::now();
    until("all are deleted", || service.depth() == 0).await;
    assert!(
        began.elapsed() < SECOND * 3,
        "their leases did not have to end"
    );
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_out_their_back_off_are_returned() {
    let service = Service::new(1);
    service.put("x");
    let failure = || Failure::new("x").retry_after(SECOND * 3_600);
    let listener = Listener::builder(Waited::new(&service), Text)
        .subscribe(handler_fn(move |_| async move { Err(failure()) }))
        .build();
    listener.start(1).unwrap();
    until("it waits", || listener.state().delayed == 1).await;
    let began = Instant::now();
    let report = listener.stop(Stop::default()).await;
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    assert_eq!((report.returned, report.dropped_tasks), (1, 0));
    let next = works::<true>(&service, Duration::ZERO).build();
    next.start(1).unwrap();
    let began = Instant::now();
    until("another one has it", || service.depth() == 0).await;
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_handler_starts_after_the_first_deadline_of_a_stop() {
    let service = Service::new(1);
    let hint = ("kew-lease-s".to_owned(), "120".to_owned());
    service.put_with("x", vec![hint]);
    // The receive takes 3 s, and the first renewal until the sixth second.
    service.set_answer_latency(SECOND * 3);
    let calls = Arc::new(AtomicU32::new(0));
    let called = calls.clone();
    let listener = Listener::builder(Polled::new(&service), Text)
        .subscribe(handler_fn(move |_| {
            called.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        }))
        .build();
    listener.start(1).unwrap();
    sleep(SECOND * 4).await;
    let at_once = Stop {
        finish_within: Duration::ZERO,
        return_within: SECOND * 60,
    };
    let report = listener.stop(at_once).await;
    assert_eq!((report.returned, report.dropped_tasks), (1, 0));
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_listener_end_with_it() {
    let service = Service::new(1);
    service.put("x");
    let listener = works::<false>(&service, SECOND * 5).build();
    let (mut watch, mut aborted) = (listener.watch(), listener.watch());
    listener.start(1).unwrap();
    until("it is handled", || listener.state().in_flight == 1).await;
    listener.stop(Stop::default()).await;
    let mut completed = 0;
    while let Some(event) = watch.next().await {
        completed += u32::from(matches!(*event, Event::Completed { .. }));
    }
    assert_eq!(completed, 1, "what happened before the end is seen");
    listener.abort();
    while aborted.next().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_answer_cannot_hold_up_a_stop() {
    let service = Service::new(1);
    service.put("x");
    let listener = works::<false>(&service, SECOND * 600).build();
    listener.start(2).unwrap();
    sleep(SECOND).await;
    service.set_latency(SECOND * 3_600);
    sleep(SECOND * 2).await;
    let began = Instant::now();
    let report = listener.stop(Stop::default()).await;
    assert_eq!(began.elapsed(), SECOND * 25);
    assert!(report.dropped_tasks >= 1, "{report:?}");
    assert_eq!(service.depth(), 1);
}

#[tokio::test(start_paused = true)]
async fn to_drop_the_future_of_a_stop_does_not_undo_it() {
    let service = Service::new(1);
    service.put("x");
    let listener = works::<false>(&service, SECOND * 10).build();
    listener.start(1).unwrap();
    sleep(SECOND).await;
    let given_up = timeout(SECOND, listener.stop(Stop::default())).await;
    assert!(given_up.is_err());
    let report = listener.stop(Stop::default()).await;
    assert_eq!((report.completed, service.depth()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn long_work_learns_of_the_stop_and_saves_its_progress() {
    let service = Service::new(1);
    let id = service.put("x");
    let listener = Listener::builder(Polled::new(&service), Text)
        .subscribe(handler_fn(|delivery: Delivery<String, _>| async move {
            delivery.stopping().await;
            delivery.save("halfway").await?;
            Err(Failure::new("the listener stops").retry_after(Duration::ZERO))
        }))
        .build();
    listener.start(1).unwrap();
    sleep(SECOND).await;
    listener.stop(Stop::default()).await;
    assert_eq!(service.stored(id).unwrap().checkpoint.unwrap(), "halfway");
}

#[tokio::test(start_paused = true)]
async fn a_listener_without_handles_receives_no_more() {
    let service = Service::new(1);
    let listener = works::<true>(&service, SECOND).build();
    let clone = listener.clone();
    listener.start(2).unwrap();
    drop(listener);
    service.put("x");
    until("it is deleted", || service.depth() == 0).await;
    drop(clone);
    sleep(SECOND).await;
    service.put("y");
    sleep(SECOND * 60).await;
    assert_eq!(service.depth(), 1);
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_receive_under_way_are_returned() {
    let service = Service::new(1);
    service.put_many(5);
    service.set_answer_latency(SECOND * 3);
    let listener = works::<false>(&service, SECOND).build();
    listener.start(1).unwrap();
    sleep(SECOND).await;
    let report = listener.stop(Stop::default()).await;
    assert_eq!((report.returned, report.dropped_tasks), (5, 0));
    let next = works::<false>(&service, SECOND).build();
    next.start(1).unwrap();
    let began = Instant::now();
    until("all are deleted", || service.depth() == 0).await;
    assert!(
        began.elapsed() < SECOND * 10,
        "their leases did not have to end"
    );
}

/// It would have one attempt less for nothing, and an application that is restarted often would bury its messages.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_receive_what_it_returns() {
    let service = Service::new(1);
    let id = service.put("x");
    let listener = works::<false>(&service, SECOND * 600).build();
    listener.start(1).unwrap();
    until("it is handled", || listener.state().in_flight == 1).await;
    begin_slow_receive(&listener, &service).await;
    let at_once = Stop {
        finish_within: Duration::ZERO,
        return_within: SECOND * 60,
    };
    let report = listener.stop(at_once).await;
    assert_eq!((report.returned, report.dropped_tasks), (1, 0));
    assert_eq!(service.stored(id).unwrap().attempt, 1);
}

/// Its request arrives after those that are sent half a second later.
async fn begin_slow_receive(listener: &Listener<String, Polled>, service: &Service) {
    sleep(SECOND).await;
    service.set_latency(SECOND * 3 / 4);
    listener.announce();
    sleep(SECOND / 4).await;
    service.set_latency(Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_receive_without_an_answer_does_not_keep_messages_from_being_returned() {
    let service = Service::new(1);
    service.put("x");
    let listener = works::<false>(&service, SECOND * 600).build();
    listener.start(2).unwrap();
    until("it is handled", || listener.state().in_flight == 1).await;
    begin_slow_receive(&listener, &service).await;
    let brief = Stop {
        finish_within: Duration::ZERO,
        return_within: SECOND / 5,
    };
    let report = listener.stop(brief).await;
    assert_eq!(report.returned, 1);
}
