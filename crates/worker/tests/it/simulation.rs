//! Listeners against a service that loses answers, hands messages out twice, settles late and is busy; with crashes
//! at every request. No work may be lost, and nothing deleted before it was done.

use std::sync::Arc;
use std::time::Duration;

use kew_worker::{
    AfterLoss, Delivery, Failure, Fixed, Listener, ListenerBuilder, Text, handler_fn,
};
use tokio::time::{sleep, timeout};

use crate::fake::{Faults, LOCK, Service};
use crate::fake_source::FakeSource;

/// How many seeds a test runs. `KEW_WORKER_SEEDS` sets another number for a long run.
fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("KEW_WORKER_SEEDS").ok();
    0..count.map_or(60, |it| it.parse().unwrap())
}

/// What a seed decides on: how often what goes wrong, and how long work takes.
fn faults(service: &Service) -> Faults {
    let rate = |most| match service.random(3) {
        0 => 0,
        _ => service.random(most),
    };
    Faults {
        busy: rate(200),
        lost_answer: rate(200),
        slow: rate(100),
        duplicate: rate(100),
    }
}

fn listener<const WAITS: bool>(
    service: &Arc<Service>,
    seed: u64,
) -> ListenerBuilder<String, FakeSource<WAITS>> {
    let shared = service.clone();
    Listener::builder(FakeSource::<WAITS>::new(service), Text)
        .seed(seed)
        .handlers_max(4)
        .batch_size(3)
        .delayed_max(2)
        .attempts_max(1_000)
        .after_loss(match seed % 2 {
            0 => AfterLoss::Keep,
            _ => AfterLoss::Redo,
        })
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            let service = shared.clone();
            async move {
                service.point().await;
                let most = u64::try_from(LOCK.as_millis())? * 3 / 2;
                sleep(Duration::from_millis(service.random(most))).await;
                service.point().await;
                match service.random(5) {
                    0 => Err(Failure::new("a failure")),
                    1 if delivery.attempt() == 1 => panic!("a panic of the handler"),
                    _ => {
                        service.did(delivery.meta().key.parse()?);
                        service.point().await;
                        Ok(())
                    }
                }
            }
        }))
}

/// Waits until nothing is left.
async fn drained(service: &Service, what: &str) {
    let drained = async {
        while service.depth() > 0 {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let drained = timeout(Duration::from_hours(240), drained).await;
    assert!(
        drained.is_ok(),
        "{what}: {} messages are left",
        service.depth()
    );
}

fn check(service: &Service, messages: usize, what: &str) {
    let violations = service.violations();
    assert!(violations.is_empty(), "{what}: {violations:?}");
    assert_eq!(service.deleted(), messages, "{what}");
}

/// Panics of handlers are part of the test, and printing thousands of them is not.
fn silence_handlers() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.payload().downcast_ref::<&str>();
            if text != Some(&"a panic of the handler") {
                usual(info);
            }
        }));
    });
}

async fn run_seed<const WAITS: bool>(seed: u64) {
    let what = format!("seed {seed}, waits: {WAITS}");
    let service = Service::new(seed);
    let faults = faults(&service);
    service.set_faults(faults);
    service.put_many(20);
    // Some listeners crash, and others take their place.
    for crash in 0..service.random(4) {
        service.crash_after(Some(service.random(400)));
        let listener = listener::<WAITS>(&service, seed + crash).build();
        listener.start(2).unwrap();
        let most = Duration::from_hours(1);
        let _ = timeout(most, service.crashed.notified()).await;
        listener.abort();
        service.crash_after(None);
    }
    let listener = listener::<WAITS>(&service, seed).build();
    listener.start(2).unwrap();
    sleep(Duration::from_mins(30)).await;
    service.set_faults(Faults::default());
    drained(&service, &what).await;
    check(&service, 20, &what);
    // The listener is as it was before: no place is lost.
    let in_flight = async {
        while listener.state().in_flight > 0 {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let ended = timeout(Duration::from_hours(1), in_flight).await;
    assert!(ended.is_ok(), "{what}: {:?}", listener.state());
    // The last slow answers come.
    sleep(LOCK * 3).await;
    let report = listener.stop(kew_worker::Stop::default()).await;
    assert_eq!(report.dropped_tasks, 0, "{what}");
}

#[tokio::test(start_paused = true)]
async fn no_work_is_lost_and_nothing_is_deleted_before_it_was_done() {
    silence_handlers();
    for seed in seeds() {
        run_seed::<false>(seed).await;
        run_seed::<true>(seed).await;
    }
}

/// Everything stands still at one point of a short run, is dropped, and another listener goes on.
async fn crash_at<const WAITS: bool>(point: u64) -> bool {
    let what = format!("point {point}, waits: {WAITS}");
    let service = Service::new(7);
    service.put_many(3);
    let hour = Duration::from_hours(1);
    service.crash_after(Some(point));
    let first = listener::<WAITS>(&service, 7).build();
    first.start(1).unwrap();
    let drains = async {
        while service.depth() > 0 {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let crashed = tokio::select! {
        () = service.crashed.notified() => true,
        () = drains => false,
        () = sleep(hour * 24) => panic!("{what}: neither the end nor a crash"),
    };
    first.abort();
    service.crash_after(None);
    let second = listener::<WAITS>(&service, 8).build();
    second.start(1).unwrap();
    drained(&service, &what).await;
    check(&service, 3, &what);
    crashed
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_every_request_loses_nothing() {
    silence_handlers();
    for (crashes_at, name) in [(true, "waits"), (false, "polls")] {
        let mut points = 0;
        loop {
            let crashed = match crashes_at {
                true => crash_at::<true>(points).await,
                false => crash_at::<false>(points).await,
            };
            if !crashed {
                break;
            }
            points += 1;
        }
        assert!(points > 40, "{name}: only {points} points");
    }
}

/// The checker sees a listener that deletes too early.
#[tokio::test(start_paused = true)]
async fn the_checker_notices_a_delete_before_the_work() {
    let service = Service::new(1);
    service.put("x");
    let lies = Listener::builder(FakeSource::<false>::new(&service), Text)
        .subscribe(handler_fn(|_| async { Ok(()) }))
        .visibility(Fixed(LOCK))
        .build();
    lies.start(1).unwrap();
    drained(&service, "one message").await;
    assert_eq!(service.violations().len(), 1);
}
