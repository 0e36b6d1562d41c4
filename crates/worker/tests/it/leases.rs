//! Leases: renewed while a handler runs, given up before they end, and never settled afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kew_worker::{
    Adaptive, AfterLoss, Delivery, ErrorKind, Failure, Fixed, LeaseHint, Listener, LostLeases,
    SourceError, Text, handler_fn,
};
use tokio::time::{Instant, sleep};

use crate::fake::Service;
use crate::fake_source::{Polled, Waited};
use crate::listener::{until, works};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_its_handler_runs() {
    let service = Service::new(1);
    service.put("x");
    let listener = works::<false>(&service, SECOND * 300)
        .visibility(Fixed(SECOND * 30))
        .build();
    listener.start(1).unwrap();
    until("it is deleted", || service.depth() == 0).await;
    let renewals = service.counts(|it| it.renewals);
    assert!((10..=30).contains(&renewals), "{renewals}");
    assert_eq!(listener.state().received, 1, "nobody else got it");
}

/// How long a handler that never ends ran before it was dropped.
#[derive(Clone, Default)]
struct Hangs {
    dropped_after_ms: Arc<AtomicU32>,
    calls: Arc<AtomicU32>,
}

struct OnDrop(Arc<AtomicU32>, Instant);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let ms = u32::try_from(self.1.elapsed().as_millis()).unwrap();
        self.0.store(ms, Ordering::SeqCst);
    }
}

impl<L: Send + 'static> kew_worker::Handler<String, L> for Hangs {
    async fn handle(&self, _: Delivery<String, L>) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let _dropped = OnDrop(self.dropped_after_ms.clone(), Instant::now());
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_stopped_before_a_lease_that_cannot_be_renewed_ends() {
    let service = Service::new(1);
    service.put("x");
    let hangs = Hangs::default();
    let listener = Listener::builder(Polled::new(&service), Text)
        .subscribe(hangs.clone())
        .visibility(Fixed(SECOND * 30))
        .build();
    for _ in 0..100 {
        service.fail_next("renew", SourceError::busy("503"));
    }
    listener.start(1).unwrap();
    until("it was stopped", || listener.state().stopped_handlers == 1).await;
    let ran = hangs.dropped_after_ms.load(Ordering::SeqCst);
    assert!((26_000..30_000).contains(&ran), "{ran}");
    let asked = listener.state().failed_requests;
    assert!((2..=4).contains(&asked), "busy is at least 4 s: {asked}");
    until("it comes back", || hangs.calls.load(Ordering::SeqCst) == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_stopped_at_once_when_its_lease_is_lost() {
    let service = Service::new(1);
    service.put("x");
    let hangs = Hangs::default();
    let listener = Listener::builder(Waited::new(&service), Text)
        .subscribe(hangs.clone())
        .build();
    service.fail_next("renew", SourceError::lease_lost("gone"));
    listener.start(1).unwrap();
    until("it was stopped", || listener.state().lost_leases == 1).await;
    let ran = hangs.dropped_after_ms.load(Ordering::SeqCst);
    assert!((10_000..16_000).contains(&ran), "{ran}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_is_stopped_after_its_longest_time() {
    let service = Service::new(1);
    let id = service.put("x");
    let listener = Listener::builder(Waited::new(&service), Text)
        .subscribe(Hangs::default())
        .handling_time_max(SECOND * 600)
        .attempts_max(1)
        .build();
    listener.start(1).unwrap();
    until("it is buried", || service.burial(id).is_some()).await;
    assert_eq!(service.burial(id).unwrap().reason, "HandlingTimeExceeded");
    assert!(service.counts(|it| it.renewals) > 10);
}

#[tokio::test(start_paused = true)]
async fn a_result_whose_delete_failed_is_kept_or_redone() {
    for (choice, expected) in [(AfterLoss::Keep, 1), (AfterLoss::Redo, 2)] {
        let service = Service::new(1);
        let id = service.put("x");
        let calls = Arc::new(AtomicU32::new(0));
        let (done, called) = (service.clone(), calls.clone());
        let listener = Listener::builder(Polled::new(&service), Text)
            .subscribe(handler_fn(move |_| {
                called.fetch_add(1, Ordering::SeqCst);
                done.did(id);
                async { Ok(()) }
            }))
            .after_loss(choice)
            .build();
        service.fail_next("complete", SourceError::lease_lost("gone"));
        listener.start(1).unwrap();
        until("it could not be deleted", || {
            listener.state().unsettled == 1
        })
        .await;
        until("it is deleted", || service.depth() == 0).await;
        until("it is counted", || listener.state().completed == 1).await;
        assert_eq!(calls.load(Ordering::SeqCst), expected, "{choice:?}");
        assert_eq!(listener.state().lost_leases, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_a_stale_receipt_drops_that_message_and_goes_on() {
    let service = Service::new(1);
    let id = service.put("x");
    let listener = works::<false>(&service, SECOND * 10)
        .handlers_max(1)
        .build();
    listener.start(1).unwrap();
    until("it is handled", || listener.state().in_flight == 1).await;
    // Another worker has it, for a day.
    service.end_leases();
    let day = Duration::from_hours(24);
    let other = service.get("get", 1, day).await.unwrap();
    assert_eq!(other[0].0, id);
    let next = service.put("y");
    until("the next one is deleted", || service.stored(next).is_none()).await;
    let state = listener.state();
    assert_eq!((state.completed, state.unsettled), (1, 1));
    sleep(SECOND * 3_600).await;
    assert!(service.stored(id).is_some(), "it is the other worker's");
    let attempts = service.stored(id).unwrap().attempt;
    assert_eq!((attempts, service.counts(|it| it.completes)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_delete_without_an_answer_is_repeated() {
    let service = Service::new(1);
    service.put("x");
    service.fail_next(
        "complete",
        SourceError::new(ErrorKind::TryAgainLater, "reset"),
    );
    service.fail_next(
        "complete",
        SourceError::new(ErrorKind::OutcomeUnknown, "lost"),
    );
    let listener = works::<false>(&service, SECOND).build();
    listener.start(1).unwrap();
    until("it is gone", || service.depth() == 0).await;
    until("the listener knows", || listener.state().in_flight == 0).await;
    let state = listener.state();
    assert_eq!(
        (state.received, state.unsettled, state.lost_leases),
        (1, 1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn the_front_end_is_told_of_lost_leases_and_lengthens_new_ones() {
    let service = Service::new(1);
    let hint = LeaseHint::new(SECOND * 120, SECOND * 3_600);
    let told = Arc::new(AtomicU32::new(0));
    let (lengthens, calls) = (hint.clone(), told.clone());
    let listener = works::<false>(&service, SECOND)
        .visibility(Fixed(SECOND * 30))
        .on_lost_leases(3, SECOND * 3_600, move |report: &LostLeases| {
            calls.fetch_add(report.count, Ordering::SeqCst);
            lengthens.lengthen(report.lease);
        })
        .build();
    for number in 0..3 {
        service.put(number.to_string());
        service.fail_next("complete", SourceError::lease_lost("gone"));
    }
    listener.start(1).unwrap();
    until("the front end is told", || told.load(Ordering::SeqCst) == 3).await;
    assert_eq!(hint.get(), Some(SECOND * 120));
    until("all are deleted", || service.depth() == 0).await;
    let renewals = service.counts(|it| it.renewals);
    service.put_with("x", vec![("kew-lease-s".to_owned(), "120".to_owned())]);
    until("it is deleted", || service.depth() == 0).await;
    assert_eq!(
        service.counts(|it| it.renewals),
        renewals + 1,
        "it was lengthened at once"
    );
}

#[tokio::test(start_paused = true)]
async fn visibility_timeouts_follow_handling_times() {
    let service = Service::new(1);
    let listener = works::<false>(&service, SECOND * 100).build();
    assert_eq!(listener.state().lease, SECOND * 30);
    service.put_many(50);
    listener.start(1).unwrap();
    until("all are deleted", || service.depth() == 0).await;
    service.put("x");
    until("it is deleted", || service.depth() == 0).await;
    let lease = service.counts(|it| it.last_lease).as_secs();
    assert!((200..=220).contains(&lease), "{lease}");
}

#[tokio::test(start_paused = true)]
async fn long_work_resumes_from_its_checkpoint() {
    let service = Service::new(1);
    let id = service.put("x");
    let done = service.clone();
    let listener = Listener::builder(Polled::new(&service), Text)
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            let done = done.clone();
            async move {
                match delivery.checkpoint().map(|it| &**it) {
                    None => {
                        delivery.save("page 3").await?;
                        Err(Failure::new("stopped halfway"))
                    }
                    Some(progress) => {
                        assert_eq!(progress, b"page 3");
                        done.did(id);
                        Ok(())
                    }
                }
            }
        }))
        .build();
    listener.start(1).unwrap();
    until("it is deleted", || service.depth() == 0).await;
    assert_eq!(listener.state().failed, 1);
    assert_eq!(service.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_message_that_waits_out_its_back_off_is_held() {
    let service = Service::new(1);
    let id = service.put("x");
    let done = service.clone();
    let listener = Listener::builder(Waited::new(&service), Text)
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            let done = done.clone();
            async move {
                done.did(id);
                match (delivery.message().as_str(), delivery.attempt()) {
                    ("x", 1) => Err(Failure::new("later").retry_after(SECOND * 100)),
                    _ => Ok(()),
                }
            }
        }))
        .handlers_max(1)
        .batch_size(1)
        .build();
    let began = Instant::now();
    listener.start(1).unwrap();
    until("it waits", || listener.state().delayed == 1).await;
    let other = service.put("other");
    service.did(other);
    sleep(SECOND * 5).await;
    assert_eq!(service.depth(), 1, "its place is free");
    until("it is deleted", || service.depth() == 0).await;
    let took = began.elapsed().as_secs();
    assert!((100..=102).contains(&took), "{took}");
    assert!(service.counts(|it| it.renewals) >= 4);
    assert_eq!(listener.state().received, 3);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_under_way_is_answered_before_the_message_is_settled() {
    let service = Service::new(1);
    service.put("x");
    let builder = works::<false>(&service, SECOND * 17);
    let listener = builder.visibility(Fixed(SECOND * 30)).build();
    listener.start(1).unwrap();
    sleep(SECOND * 5).await;
    // The renewal after 13.5 s has its effect at once, and its answer after the handler's end.
    service.set_answer_latency(SECOND * 6);
    until("it is gone", || service.depth() == 0).await;
    until("the listener knows", || listener.state().in_flight == 0).await;
    let state = listener.state();
    assert_eq!(
        (state.renewals, state.completed, state.unsettled),
        (1, 1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_save_that_hangs_does_not_keep_a_handler_beyond_its_lease() {
    let service = Service::new(1);
    service.put("x");
    let hangs = Hangs::default();
    let slow = service.clone();
    let listener = Listener::builder(Polled::new(&service), Text)
        .subscribe(hangs.clone())
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            let slow = slow.clone();
            async move {
                sleep(SECOND * 5).await;
                slow.set_latency(SECOND * 3_600);
                delivery.save("halfway").await?;
                Ok(())
            }
        }))
        .visibility(Fixed(SECOND * 30))
        .build();
    listener.start(1).unwrap();
    until("it was stopped", || listener.state().stopped_handlers == 1).await;
    let ran = hangs.dropped_after_ms.load(Ordering::SeqCst);
    assert!((26_000..30_000).contains(&ran), "{ran}");
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_bounded_and_only_for_services_that_let_the_listener_choose() {
    let hint = || vec![("kew-lease-s".to_owned(), u64::MAX.to_string())];
    let service = Service::new(1);
    service.put_with("x", hint());
    let bounds = Adaptive::between(SECOND * 30, SECOND * 60);
    let builder = works::<false>(&service, SECOND * 45);
    let listener = builder.visibility(bounds).build();
    listener.start(1).unwrap();
    until("it is deleted", || service.depth() == 0).await;
    // At the beginning for 60 s, at half of that for 30 s, and at half of that.
    assert_eq!(service.counts(|it| it.renewals), 3);

    let service = Service::new(1);
    service.put_with("x", hint());
    let listener = works::<true>(&service, SECOND).build();
    listener.start(1).unwrap();
    until("it is deleted", || service.depth() == 0).await;
    assert_eq!(service.counts(|it| it.renewals), 0);
}
