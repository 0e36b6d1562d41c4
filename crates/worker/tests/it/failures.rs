//! Messages and requests that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kew_worker::{
    AUTHENTICATION_FAILED, Delivery, ErrorKind, Event, Failure, Incoming, Json, Listener,
    MALFORMED_PAYLOAD, MAX_DELIVERY_COUNT_EXCEEDED, SourceError, Stop, Text, handler_fn,
    install_panic_hook,
};
use tokio::time::{Instant, sleep};

use crate::fake::Service;
use crate::fake_source::{Polled, Waited};
use crate::listener::{until, works};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[error("cannot book {amount}")]
struct CannotBook {
    amount: u32,
    source: std::num::ParseIntError,
}

fn cannot_book() -> CannotBook {
    let source = "x".parse::<u32>().unwrap_err();
    CannotBook { amount: 7, source }
}

#[tokio::test(start_paused = true)]
async fn after_n_attempts_a_message_is_buried_with_its_history() {
    let service = Service::new(1);
    let id = service.put("x");
    let listener = Listener::builder(Polled::new(&service), Text)
        .subscribe(handler_fn(|_| async { Err(cannot_book().into()) }))
        .attempts_max(4)
        .seed(1)
        .build();
    let mut watch = listener.watch();
    let began = Instant::now();
    listener.start(1).unwrap();
    until("it is buried", || service.burial(id).is_some()).await;
    // 1, 2 and 4 s, each between half and all of it, and the polls after them.
    let took = began.elapsed();
    assert!(took >= SECOND * 7 / 2 && took < SECOND * 12, "{took:?}");
    let burial = service.burial(id).unwrap();
    assert!(burial.reason.ends_with("CannotBook"), "{}", burial.reason);
    assert_eq!(burial.description, "cannot book 7");
    assert_eq!(burial.chain.len(), 2);
    let attempts: Vec<u32> = burial.history.iter().map(|it| it.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
    for _ in 0..3 {
        let event = watch.next().await.unwrap();
        assert!(
            matches!(*event, Event::Failed { .. } | Event::WokeUp { .. }),
            "{event:?}"
        );
    }
    let state = listener.state();
    assert_eq!((state.failed, state.buried, state.completed), (4, 1, 0));
    assert_eq!(service.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_succeed_is_buried_at_once() {
    let service = Service::new(1);
    let id = service.put("not a number");
    let listener = Listener::builder(Waited::new(&service), Json::<u32>::new())
        .subscribe(handler_fn(|_| async { Ok(()) }))
        .build();
    listener.start(1).unwrap();
    until("it is buried", || service.burial(id).is_some()).await;
    let burial = service.burial(id).unwrap();
    assert_eq!(burial.reason, MALFORMED_PAYLOAD);
    assert!(
        burial.description.contains("line 1 column"),
        "{}",
        burial.description
    );

    let id = service.put("7");
    let refuses = |incoming: &Incoming| match incoming.meta.property("signature") {
        Some(_) => Ok(()),
        None => Err("the message has no signature".to_owned()),
    };
    listener.abort();
    let listener = Listener::builder(Waited::new(&service), Json::<u32>::new())
        .subscribe(handler_fn(|delivery: Delivery<u32, _>| async move {
            let failure = Failure::new(format!("no account {}", delivery.message()));
            Err(failure.permanent("NoSuchAccount"))
        }))
        .verify(refuses)
        .build();
    listener.start(1).unwrap();
    until("it is buried", || service.burial(id).is_some()).await;
    assert_eq!(service.burial(id).unwrap().reason, AUTHENTICATION_FAILED);
    let signature = ("signature".to_owned(), "s".to_owned());
    let id = service.put_with("8", vec![signature]);
    until("it is buried", || service.burial(id).is_some()).await;
    let burial = service.burial(id).unwrap();
    assert_eq!(burial.reason, "NoSuchAccount");
    assert_eq!(burial.history[0].error, "no account 8");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_with_its_place() {
    install_panic_hook();
    let service = Service::new(1);
    let id = service.put("x");
    let listener = Listener::builder(Polled::new(&service), Text)
        .subscribe(handler_fn(|_| async { panic!("no money") }))
        .attempts_max(2)
        .build();
    listener.start(1).unwrap();
    until("it is buried", || service.burial(id).is_some()).await;
    let burial = service.burial(id).unwrap();
    assert_eq!((burial.reason.as_str(), burial.history.len()), ("Panic", 2));
    assert!(
        burial.description.contains("failures.rs"),
        "{}",
        burial.description
    );
    assert!(burial.backtrace.is_some());
}

/// As in a process that was started with `RUST_BACKTRACE`: the variable is read once, so this test has a process of its
/// own.
#[test]
fn an_error_has_a_backtrace_if_the_environment_asks_for_it() {
    const CHILD: &str = "KEW_TEST_BACKTRACE";
    if std::env::var_os(CHILD).is_none() {
        for (asked, has) in [("1", true), ("0", false)] {
            let test = "failures::an_error_has_a_backtrace_if_the_environment_asks_for_it";
            let ran = std::process::Command::new(std::env::current_exe().unwrap())
                .args([test, "--exact"])
                .env("RUST_BACKTRACE", asked)
                .env(CHILD, has.to_string())
                .output()
                .unwrap();
            assert!(ran.status.success(), "{asked}: {ran:?}");
            assert!(
                String::from_utf8_lossy(&ran.stdout).contains("1 passed"),
                "{ran:?}"
            );
        }
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
    let burial = runtime.block_on(async {
        let service = Service::new(1);
        let id = service.put("x");
        let listener = Listener::builder(Polled::new(&service), Text)
            .subscribe(handler_fn(|_| async {
                Err(Failure::new("no money").permanent("Account"))
            }))
            .build();
        listener.start(1).unwrap();
        until("it is buried", || service.burial(id).is_some()).await;
        service.burial(id).unwrap()
    });
    let has = std::env::var(CHILD).unwrap() == "true";
    let text = burial.backtrace.unwrap_or_default();
    assert_eq!(text.contains("failures::"), has, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_ends_its_process_each_time_is_buried_unhandled() {
    let service = Service::new(1);
    let id = service.put("x");
    let calls = Arc::new(AtomicU32::new(0));
    // Three deliveries more than the limit: a delivery is no failure.
    for _ in 0..6 {
        let called = calls.clone();
        let listener = Listener::builder(Polled::new(&service), Text)
            .subscribe(handler_fn(move |_| {
                called.fetch_add(1, Ordering::SeqCst);
                std::future::pending()
            }))
            .attempts_max(2)
            .build();
        listener.start(1).unwrap();
        sleep(SECOND).await;
        listener.abort();
        service.end_leases();
    }
    let burial = service.burial(id).unwrap();
    assert_eq!(burial.reason, MAX_DELIVERY_COUNT_EXCEEDED);
    assert_eq!(calls.load(Ordering::SeqCst), 5);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_nobody_saw_is_no_failure() {
    let service = Service::new(1);
    service.put("x");
    service.fail_next("get", SourceError::new(ErrorKind::OutcomeUnknown, "lost"));
    let listener = works::<false>(&service, SECOND).attempts_max(1).build();
    listener.start(1).unwrap();
    until("it is gone", || service.depth() == 0).await;
    until("it is known", || listener.state().in_flight == 0).await;
    let state = listener.state();
    assert_eq!((state.completed, state.buried), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_no_failure_where_failures_are_noted() {
    let service = Service::new(1);
    let id = service.put("x");
    let calls = Arc::new(AtomicU32::new(0));
    let listener = |hangs: bool| {
        let called = calls.clone();
        Listener::builder(Polled::new(&service), Text)
            .subscribe(handler_fn(move |_| {
                called.fetch_add(1, Ordering::SeqCst);
                async move {
                    match hangs {
                        true => std::future::pending().await,
                        false => Err(Failure::new("x").retry_after(SECOND)),
                    }
                }
            }))
            .attempts_max(3)
            .build()
    };
    // One failure, then a stop, then failures until it is buried.
    for (hangs, expected) in [(false, 1), (true, 2)] {
        let listener = listener(hangs);
        listener.start(1).unwrap();
        until("it is called", || calls.load(Ordering::SeqCst) == expected).await;
        sleep(SECOND / 10).await;
        let at_once = Stop {
            finish_within: Duration::ZERO,
            ..Stop::default()
        };
        listener.stop(at_once).await;
    }
    let last = listener(false);
    last.start(1).unwrap();
    until("it is buried", || service.burial(id).is_some()).await;
    let attempts = service.burial(id).unwrap().history;
    let attempts: Vec<u32> = attempts.iter().map(|it| it.attempt).collect();
    assert_eq!(attempts, [1, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_burial_was_cut_short_is_not_handled_again() {
    for error in [
        SourceError::lease_lost("gone"),
        SourceError::refused("no right to delete"),
    ] {
        let service = Service::new(1);
        service.put("x");
        service.fail_next("complete", error);
        let calls = Arc::new(AtomicU32::new(0));
        let called = calls.clone();
        let listener = Listener::builder(Polled::new(&service), Text)
            .subscribe(handler_fn(move |_| {
                called.fetch_add(1, Ordering::SeqCst);
                async { Err(Failure::new("x").permanent("X")) }
            }))
            .build();
        listener.start(1).unwrap();
        until("it is gone", || {
            service.depth() == 0 && listener.state().in_flight == 0
        })
        .await;
        let state = listener.state();
        assert_eq!((state.received, state.buried, state.completed), (2, 1, 0));
        assert_eq!(service.counts(|it| it.burials), 1);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_one_handler_does_not_stop_another_one() {
    let service = Service::new(1);
    let id = service.put("x");
    let finished = Arc::new(AtomicU32::new(0));
    let counts = finished.clone();
    let listener = Listener::builder(Polled::new(&service), Text)
        .subscribe(handler_fn(|_| async { panic!("a panic of the handler") }))
        .subscribe(handler_fn(move |_| {
            let counts = counts.clone();
            async move {
                sleep(SECOND * 5).await;
                counts.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        }))
        .attempts_max(2)
        .build();
    listener.start(1).unwrap();
    until("it is buried", || service.burial(id).is_some()).await;
    assert_eq!(service.burial(id).unwrap().reason, "Panic");
    assert_eq!(finished.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_buried_comes_back() {
    let service = Service::new(1);
    let id = service.put("x");
    service.fail_next(
        "bury",
        SourceError::refused("dead letters cannot be dead-lettered"),
    );
    let listener = Listener::builder(Waited::new(&service), Text)
        .subscribe(handler_fn(|_| async {
            Err(Failure::new("x").permanent("X"))
        }))
        .build();
    listener.start(1).unwrap();
    until("it is buried", || service.burial(id).is_some()).await;
    assert_eq!(listener.state().failed, 2);
}

#[tokio::test(start_paused = true)]
async fn requests_that_fail_are_followed_by_a_growing_pause() {
    let service = Service::new(1);
    let listener = works::<false>(&service, SECOND).build();
    for _ in 0..4 {
        let error = SourceError::new(ErrorKind::TryAgainLater, "connection reset");
        service.fail_next("get", error);
    }
    service.fail_next("get", SourceError::busy("503"));
    let mut watch = listener.watch();
    listener.start(1).unwrap();
    let mut pauses = Vec::new();
    while pauses.len() < 5 {
        if let Event::RequestFailed { pause, .. } = &*watch.next().await.unwrap() {
            pauses.push(pause.as_secs_f64());
        }
    }
    let ranges = [(0.5, 1.0), (1.0, 2.0), (2.0, 4.0), (4.0, 8.0), (8.0, 16.0)];
    for (pause, (least, most)) in pauses.iter().zip(ranges) {
        assert!((least..=most).contains(pause), "{pauses:?}");
    }
    service.put("x");
    until("it is deleted", || service.depth() == 0).await;
    assert_eq!(listener.state().failed_requests, 5);
    service.fail_next("get", SourceError::busy("503"));
    until("it paused", || listener.state().failed_requests == 6).await;
    let gets = service.counts(|it| it.gets);
    sleep(Duration::from_millis(3_900)).await;
    assert_eq!(service.counts(|it| it.gets), gets, "busy is at least 4 s");
}

#[tokio::test(start_paused = true)]
async fn requests_that_were_fast_and_time_out_slow_the_listener_down() {
    let service = Service::new(1);
    let listener = works::<false>(&service, Duration::ZERO).build();
    service.set_latency(Duration::from_millis(5));
    service.put("x");
    listener.start(1).unwrap();
    until("it is deleted", || service.depth() == 0).await;
    service.set_latency(SECOND * 30);
    for _ in 0..3 {
        service.fail_next(
            "get",
            SourceError::new(ErrorKind::TryAgainLater, "timed out"),
        );
    }
    until("it slows down", || listener.state().pause == SECOND * 4).await;
    service.set_latency(Duration::from_millis(5));
    service.put("x");
    until("it is deleted", || service.depth() == 0).await;
    until("it is fast again", || listener.state().pause.is_zero()).await;
}
