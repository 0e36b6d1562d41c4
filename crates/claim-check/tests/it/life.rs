//! Crashes at every await, and the lives of messages.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kew_claim_check::{Claim, ClaimCheckOptions, Content, ErrorKind, Outgoing};
use proptest::prelude::*;

use crate::store::TestStore;

const DAY: Duration = Duration::from_hours(24);

fn large() -> Content {
    let text: String = (0..400).map(|n| format!("{n} ")).collect();
    Content::one("text/plain", text)
}

/// Runs a future up to its await number `steps`, and drops it there, as a crash would. `None`: it did not end before.
fn crash_at<T>(steps: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..=steps {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Some(done);
        }
    }
    None
}

/// Long after everything: no object is left, whatever happened before.
async fn is_swept(store: &TestStore) {
    store.pass(31 * DAY);
    store.claim_check().sweep(99).await.unwrap();
    assert_eq!(store.names().await, []);
}

#[tokio::test]
async fn a_crash_between_store_and_send_leaves_an_orphan_that_is_swept() {
    let mut steps = 0;
    let mut orphans = 0;
    loop {
        let store = TestStore::new();
        let claims = store.claim_check();
        let sent = crash_at(steps, claims.check_in(large()));
        // The process starts again and sweeps at once: what is young stays.
        let before = store.names().await;
        claims.sweep(99).await.unwrap();
        assert_eq!(store.names().await, before, "step {steps}");
        orphans += before.len();
        is_swept(&store).await;
        if sent.is_some() {
            break;
        }
        steps += 1;
    }
    assert!(
        steps >= 2 && orphans >= 2,
        "{steps} steps, {orphans} orphans"
    );
}

#[tokio::test]
async fn a_crash_between_settlement_and_release_leaves_an_orphan_that_is_swept() {
    let mut steps = 0;
    loop {
        let store = TestStore::new();
        let claims = store.claim_check();
        let sent = claims.check_in(large()).await.unwrap();
        let received = claims.check_out(&sent.body).await.unwrap();
        let released = crash_at(steps, claims.release(&received.claim));
        is_swept(&store).await;
        if let Some(released) = released {
            released.unwrap();
            break;
        }
        steps += 1;
    }
    assert!(steps >= 2, "{steps}");
}

/// A message is buried with its object, or the object counts as any other.
#[tokio::test]
async fn a_crash_of_keep_or_discard_leaves_what_a_sweep_finds() {
    let mut steps = 0;
    loop {
        let store = TestStore::new();
        let claims = store.claim_check();
        let sent = claims.check_in(large()).await.unwrap();
        let kept = crash_at(steps, claims.keep(&sent.claim));
        store.pass(31 * DAY);
        claims.sweep(99).await.unwrap();
        if let Some(kept) = &kept {
            kept.as_ref().unwrap();
            // However old: it was kept.
            store.pass(4_000 * DAY);
            let swept = claims.sweep(99).await.unwrap();
            assert_eq!((swept.removed, swept.kept), (0, 1));
            let received = claims.check_out(&sent.body).await.unwrap();
            assert_eq!(received.content, large());
        }
        crash_at(steps, claims.discard(&sent.claim));
        let left = store.names().await;
        let mut marks = left
            .iter()
            .filter_map(|it| it.as_ref().strip_suffix(".kept"));
        match marks.next() {
            // Still kept: a mark is never without its object, which nothing would find.
            Some(object) => assert!(left.contains(&object.into()), "step {steps}: {left:?}"),
            None => is_swept(&store).await,
        }
        if kept.is_some() {
            break;
        }
        steps += 1;
    }
    assert!(steps >= 4, "{steps}");
}

#[tokio::test]
async fn a_crash_of_a_sweep_loses_nothing_that_is_young() {
    let mut steps = 0;
    loop {
        let store = TestStore::new();
        let claims = store.claim_check();
        claims.check_in(large()).await.unwrap();
        store.pass(30 * DAY + Duration::from_secs(1));
        let young = claims.check_in(large()).await.unwrap();
        let swept = crash_at(steps, claims.sweep(99));
        assert_eq!(
            claims.check_out(&young.body).await.unwrap().content,
            large()
        );
        is_swept(&store).await;
        if swept.is_some() {
            break;
        }
        steps += 1;
    }
    assert!(steps >= 5, "{steps}");
}

/// The send of a message takes time. Sweeps go on meanwhile.
#[tokio::test]
async fn a_sweep_during_a_send_removes_nothing_of_it() {
    let store = TestStore::new();
    let claims = store.claim_check();
    let mut steps = 0;
    loop {
        let mut check_in = pin!(claims.check_in(large()));
        let mut context = Context::from_waker(Waker::noop());
        let mut sent = None;
        for _ in 0..=steps {
            if let Poll::Ready(done) = check_in.as_mut().poll(&mut context) {
                sent = Some(done.unwrap());
                break;
            }
        }
        let is_done = sent.is_some();
        // A sweep in the middle, by a process that has run for long.
        claims.sweep(99).await.unwrap();
        let sent: Outgoing = match sent {
            Some(sent) => sent,
            None => check_in.await.unwrap(),
        };
        let options = TestStore::options();
        store.pass(options.send_time_max + options.message_life.unwrap());
        claims.sweep(99).await.unwrap();
        let received = claims.check_out(&sent.body).await.unwrap();
        assert_eq!(received.content, large());
        claims.release(&received.claim).await.unwrap();
        if is_done {
            break;
        }
        steps += 1;
    }
    assert!(steps >= 2, "{steps}");
}

/// What happens, in any order, and how many hours pass before it.
#[derive(Clone, Debug)]
enum Event {
    CheckIn,
    /// Of the oldest that is stored and not sent.
    Send,
    /// Of the oldest that was sent.
    Receive,
    /// The oldest that was sent fails for good.
    Bury,
    Sweep,
}

fn event() -> impl Strategy<Value = (u64, Event)> {
    let event = prop_oneof![
        Just(Event::CheckIn),
        Just(Event::Send),
        Just(Event::Receive),
        Just(Event::Bury),
        Just(Event::Sweep),
        Just(Event::Sweep),
    ];
    (0..100_u64, event)
}

struct Life {
    body: bytes::Bytes,
    claim: Claim,
    /// In hours.
    stored: u64,
    sent: Option<u64>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A message that is sent in time, and that lives, always has its object; in the end none is left.
    #[test]
    fn a_live_message_has_its_object(events in proptest::collection::vec(event(), 1..60)) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(live(events));
    }
}

async fn live(events: Vec<(u64, Event)>) {
    let ClaimCheckOptions {
        message_life,
        send_time_max,
        ..
    } = TestStore::options();
    let hours = |time: Duration| time.as_secs() / 3_600;
    let store = TestStore::new();
    let claims = store.claim_check();
    let mut lives: Vec<Life> = Vec::new();
    let mut buried: Vec<Life> = Vec::new();
    let mut now = 0;
    for (passed, event) in events {
        now += passed;
        store.pass(Duration::from_hours(passed));
        // Too late to be sent, or too old to be received: nobody refers to these any more.
        lives.retain(|life| match life.sent {
            None => now <= life.stored + hours(send_time_max),
            Some(sent) => now <= sent + hours(message_life.unwrap()),
        });
        match event {
            Event::CheckIn => {
                let sent = claims.check_in(large()).await.unwrap();
                lives.push(Life {
                    body: sent.body,
                    claim: sent.claim,
                    stored: now,
                    sent: None,
                });
            }
            Event::Send => {
                if let Some(life) = lives.iter_mut().find(|life| life.sent.is_none()) {
                    life.sent = Some(now);
                }
            }
            Event::Receive => {
                if let Some(at) = lives.iter().position(|life| life.sent.is_some()) {
                    let life = lives.remove(at);
                    let received = claims.check_out(&life.body).await.unwrap();
                    assert_eq!(received.content, large());
                    claims.release(&life.claim).await.unwrap();
                    let again = claims.check_out(&life.body).await.unwrap_err();
                    assert_eq!(again.kind(), ErrorKind::Missing);
                }
            }
            Event::Bury => {
                if let Some(at) = lives.iter().position(|life| life.sent.is_some()) {
                    let life = lives.remove(at);
                    claims.keep(&life.claim).await.unwrap();
                    buried.push(life);
                }
            }
            Event::Sweep => {
                claims.sweep(3).await.unwrap();
            }
        }
        for life in lives.iter().chain(&buried) {
            let received = claims.check_out(&life.body).await;
            assert!(received.is_ok(), "at hour {now}: {received:?}");
        }
    }
    for life in buried {
        claims.discard(&life.claim).await.unwrap();
    }
    is_swept(&store).await;
}
