//! With push: messages that come back from this listener are looked for, though nobody announces them.

use std::time::Duration;

use kew_worker::{
    Delivery, ErrorKind, Failure, Listener, LocalPush, SourceError, Text, handler_fn,
};
use tokio::time::Instant;

use crate::fake::{LOCK, Service};
use crate::fake_source::FakeSource;
use crate::listener::{until, works};

const SECOND: Duration = Duration::from_secs(1);

/// Fails at the first delivery, and returns how long it took until the message was deleted.
async fn fails_once<const WAITS: bool>(delay: Duration) -> Duration {
    let service = Service::new(1);
    let id = service.put("x");
    let (push, done) = (LocalPush::new(), service.clone());
    let listener = Listener::builder(FakeSource::<WAITS>::new(&service), Text)
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            let done = done.clone();
            async move {
                done.did(id);
                match delivery.attempt() {
                    1 => Err(Failure::new("later").retry_after(delay)),
                    _ => Ok(()),
                }
            }
        }))
        .push(push.subscribe())
        .recheck(None)
        .build();
    let began = Instant::now();
    listener.start(1).unwrap();
    until("it is deleted", || service.depth() == 0).await;
    let took = began.elapsed();
    until("all end", || listener.state().active_tasks == 0).await;
    took
}

#[tokio::test(start_paused = true)]
async fn a_message_that_failed_comes_back_after_its_delay() {
    for delay in [SECOND, SECOND * 100, SECOND * 3_600] {
        let hidden = fails_once::<false>(delay).await;
        assert!((delay..delay + SECOND * 3).contains(&hidden), "{hidden:?}");
        let held = fails_once::<true>(delay).await;
        assert!((delay..delay + SECOND * 3).contains(&held), "{held:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_of_lost_leases_and_lost_answers_come_back() {
    let unknown = || SourceError::new(ErrorKind::OutcomeUnknown, "no answer came");
    for (request, error) in [
        ("get", unknown()),
        ("renew", SourceError::lease_lost("gone")),
        ("complete", SourceError::lease_lost("gone")),
        ("complete", SourceError::refused("no right")),
    ] {
        let service = Service::new(1);
        service.put("x");
        service.fail_next(request, error);
        let push = LocalPush::new();
        let listener = works::<false>(&service, SECOND * 20)
            .push(push.subscribe())
            .recheck(None)
            .build();
        let began = Instant::now();
        listener.start(1).unwrap();
        until("it is deleted", || service.depth() == 0).await;
        let took = began.elapsed();
        assert!(took < LOCK * 4, "{request}: {took:?}");
        until("all end", || listener.state().active_tasks == 0).await;
    }
}
