//! Senders and listeners of `kew-worker` with claim checks: against a service in memory, with crashes at every await.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kew_claim_check::{
    CLAIM_DAMAGED, CLAIM_MISSING, CLAIM_TOO_LARGE, Checked, CheckedGroup, ClaimCheck,
    ClaimCheckOptions, ClaimStore,
};
use kew_worker::{
    BackOff, Codec as _, Delivery, ErrorKind, Failure, Fixed, Incoming, Listener, ListenerBuilder,
    MALFORMED_PAYLOAD, Meta, Outgoing, SendError, Sender, SourceError, SourceName, Target, Text,
    handler_fn,
};
use tokio::time::sleep;

use crate::fake::{Faults, LOCK, Service};
use crate::fake_source::{FakeLease, FakeSource};
use crate::store::{Mood, TestStore};

const DAY: Duration = Duration::from_hours(24);

/// A handler that gets this text fails for good.
const POISON: &str = "poison";

/// The service with its queue, and the object store behind it.
struct World {
    service: Arc<Service>,
    store: TestStore,
    /// What was put into the queue, by the number of the message.
    sent: Arc<Mutex<BTreeMap<u64, Bytes>>>,
}

/// The sending side of the service.
struct FakeTarget {
    service: Arc<Service>,
    name: SourceName,
    sent: Arc<Mutex<BTreeMap<u64, Bytes>>>,
    /// The next sends fail so. One whose outcome is unknown has its effect.
    failures: Mutex<Vec<ErrorKind>>,
}

impl Target for FakeTarget {
    fn name(&self) -> &SourceName {
        &self.name
    }

    fn carries_properties(&self) -> bool {
        true
    }

    async fn send(&self, message: &Outgoing) -> Result<SourceName, SourceError> {
        self.service.point().await;
        let failure = self.failures.lock().unwrap().pop();
        if !matches!(failure, Some(ErrorKind::Refused | ErrorKind::TryAgainLater)) {
            let id = self.service.put(message.body.clone());
            self.sent.lock().unwrap().insert(id, message.body.clone());
        }
        self.service.point().await;
        match failure {
            None => Ok(self.name.clone()),
            Some(kind) => Err(SourceError::new(kind, "as the test says")),
        }
    }

    async fn depth(&self) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }
}

/// Long enough to be stored.
fn text(name: &str) -> String {
    let numbers: String = (0..400).map(|n| format!(" {n}")).collect();
    format!("{name}{numbers}")
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            service: Service::new(seed),
            store: TestStore::new(),
            sent: Arc::default(),
        }
    }

    fn codec(&self) -> Checked<Text> {
        Checked::new(self.store.claim_check(), Text)
    }

    fn sender(&self, failures: Vec<ErrorKind>) -> Sender<String, Checked<Text>, FakeTarget> {
        let target = FakeTarget {
            service: self.service.clone(),
            name: SourceName::new("account", "jobs"),
            sent: self.sent.clone(),
            failures: Mutex::new(failures),
        };
        Sender::new(self.codec(), target, "test")
    }

    /// A listener whose handler fails for good with messages that say so, if it is told to.
    fn listener<const WAITS: bool>(
        &self,
        fails: bool,
    ) -> ListenerBuilder<String, FakeSource<WAITS>> {
        let service = self.service.clone();
        let handler = move |delivery: Delivery<String, FakeLease<WAITS>>| {
            let service = service.clone();
            async move {
                let message = delivery.message();
                let name = message.split(' ').next().unwrap();
                assert_eq!(*message, text(name));
                if fails && name == POISON {
                    return Err(Failure::new("never").permanent("Poison"));
                }
                service.did(delivery.meta().id.parse().unwrap());
                Ok(())
            }
        };
        Listener::builder(FakeSource::new(&self.service), self.codec())
            .subscribe(handler_fn(handler))
            .message_delay(BackOff {
                first: Duration::from_secs(1),
                maximum: Duration::from_secs(5),
            })
            .seed(1)
    }

    async fn drained(&self, what: &str) {
        let drains = async {
            while self.service.depth() > 0 {
                sleep(Duration::from_secs(1)).await;
            }
        };
        let drained = tokio::time::timeout(DAY, drains).await;
        assert!(drained.is_ok(), "{what}: {} are left", self.service.depth());
    }

    /// Bodies of messages that are in the queue or were buried.
    fn referring(&self) -> Vec<Bytes> {
        let sent = self.sent.lock().unwrap();
        let there =
            |id: &u64| self.service.stored(*id).is_some() || self.service.burial(*id).is_some();
        let there = sent.iter().filter(|(id, _)| there(id));
        there.map(|(_, body)| body.clone()).collect()
    }

    /// Nothing that is referred to is missing.
    async fn check(&self, what: &str) {
        let claims = self.store.claim_check();
        for body in self.referring() {
            let found = claims.check_out(&body).await;
            // A listener that runs may have completed it meanwhile, and then nothing refers to it any more.
            let is_missing = found.is_err() && self.referring().contains(&body);
            assert!(!is_missing, "{what}: {found:?}");
        }
        assert_eq!(self.service.violations(), Vec::<String>::new(), "{what}");
    }

    /// Long after: what nothing refers to was swept, and what a buried message refers to was not.
    async fn check_swept(&self, what: &str) {
        self.store.pass(400 * DAY);
        let claims = self.store.claim_check();
        while claims.sweep(99).await.unwrap().has_more {}
        self.check(what).await;
        let names = self.store.names().await;
        let kept = names.iter().filter(|it| it.as_ref().ends_with(".kept"));
        let (kept, all) = (kept.count(), names.len());
        assert_eq!(all, 2 * kept, "{what}: {names:?}");
        let referring = self.referring().len();
        assert!(referring <= kept, "{what}: {referring} of {kept}");
    }
}

/// Everything stands still at one point between the first send and the last settlement, and is dropped. Another listener
/// goes on. Whether there was such a point.
async fn crash_at<const WAITS: bool>(point: u64, then_fails: bool) -> bool {
    let what = format!("point {point}, waits: {WAITS}, fails then: {then_fails}");
    let world = World::new(7);
    world.store.crash_with(&world.service);
    world.service.crash_after(Some(point));
    let first = world.listener::<WAITS>(true).build();
    first.start(1).unwrap();
    let sender = world.sender(Vec::new());
    let works = async {
        for name in ["good", POISON, "better"] {
            sender.send(&text(name)).await.unwrap();
        }
        world.drained(&what).await;
        while first.state().in_flight > 0 {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let crashed = tokio::select! {
        () = world.service.crashed.notified() => true,
        () = works => false,
    };
    first.abort();
    world.service.crash_after(None);
    world.check(&what).await;
    if !crashed {
        // Nothing was left to a sweep, but the object of the buried message with its mark.
        assert_eq!(world.store.names().await.len(), 2, "{what}");
    }
    let second = world.listener::<WAITS>(then_fails).build();
    second.start(1).unwrap();
    world.drained(&what).await;
    while second.state().in_flight > 0 {
        sleep(Duration::from_secs(1)).await;
    }
    world.check(&what).await;
    world.check_swept(&what).await;
    crashed
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_every_await_between_send_and_settlement_loses_no_object() {
    for then_fails in [true, false] {
        for waits in [true, false] {
            let mut point = 0;
            while match waits {
                true => crash_at::<true>(point, then_fails).await,
                false => crash_at::<false>(point, then_fails).await,
            } {
                point += 1;
            }
            assert!(point > 30, "only {point} points, waits: {waits}");
        }
    }
}

/// Requests that are lost, late and repeated: what was not certainly settled keeps its object.
async fn run_seed<const WAITS: bool>(seed: u64) {
    let what = format!("seed {seed}, waits: {WAITS}");
    let world = World::new(seed);
    let random = |below| world.service.random(below);
    world.service.set_faults(Faults {
        busy: random(200),
        lost_answer: random(300),
        slow: random(50),
        duplicate: 0,
    });
    let failures = (0..10)
        .map(|_| match world.service.random(3) {
            0 => ErrorKind::Refused,
            1 => ErrorKind::TryAgainLater,
            _ => ErrorKind::OutcomeUnknown,
        })
        .collect();
    let sender = world.sender(failures);
    for number in 0..20_u32 {
        let name = if number.is_multiple_of(5) {
            POISON
        } else {
            "good"
        };
        // The first ten fail.
        let _ = sender.send(&text(name)).await;
    }
    let listener = world.listener::<WAITS>(true).build();
    listener.start(2).unwrap();
    for _ in 0..20 {
        sleep(Duration::from_secs(10)).await;
        world.check(&what).await;
    }
    world.drained(&what).await;
    sleep(LOCK * 3).await;
    world.check(&what).await;
    world.check_swept(&what).await;
}

#[tokio::test(start_paused = true)]
async fn with_lost_and_late_answers_no_object_is_lost() {
    for seed in 0..10 {
        run_seed::<false>(seed).await;
        run_seed::<true>(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_that_certainly_failed_leaves_no_object() {
    let world = World::new(1);
    for (kind, objects) in [
        (ErrorKind::Refused, 0),
        (ErrorKind::TryAgainLater, 0),
        // The message may be in the queue, and here it is.
        (ErrorKind::OutcomeUnknown, 1),
    ] {
        let sender = world.sender(vec![kind]);
        let Err(SendError::Target(error)) = sender.send(&text("good")).await else {
            panic!("it was sent");
        };
        assert_eq!(error.kind(), kind);
        assert_eq!(world.store.names().await.len(), objects, "{kind:?}");
    }
    world.check("after the sends").await;
    world.sender(Vec::new()).send(&text("good")).await.unwrap();
    assert_eq!(world.store.names().await.len(), 2);
}

/// A message whose object cannot be used is buried with the reason, and is not tried forever.
#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_used_buries_its_message() {
    for (reason, deliveries) in [
        (CLAIM_MISSING, 1),
        (CLAIM_DAMAGED, 2),
        (CLAIM_TOO_LARGE, 1),
        (MALFORMED_PAYLOAD, 1),
    ] {
        let world = World::new(1);
        world.sender(Vec::new()).send(&text("good")).await.unwrap();
        let (name, mut bytes) = world.store.only().await;
        let mut builder = world.listener::<false>(true);
        match reason {
            CLAIM_MISSING => world.store.remove(&name).await,
            CLAIM_DAMAGED => {
                bytes[7] ^= 1;
                world.store.replace(&name, bytes).await;
            }
            CLAIM_TOO_LARGE => {
                let options = ClaimCheckOptions {
                    size_max_bytes: 1_000,
                    ..TestStore::options()
                };
                let store = ClaimStore::new(world.store.clone());
                let claims = ClaimCheck::new(store, options).unwrap();
                let source = FakeSource::new(&world.service);
                builder = Listener::builder(source, Checked::new(claims, Text))
                    .subscribe(handler_fn(|_| async { Ok(()) }));
            }
            _ => {
                world.service.put("no claim check");
                world.service.did(1);
            }
        }
        let listener = builder.visibility(Fixed(LOCK)).build();
        listener.start(1).unwrap();
        world.drained(reason).await;
        let state = listener.state();
        let id = if reason == MALFORMED_PAYLOAD { 2 } else { 1 };
        let burial = world.service.burial(id).unwrap();
        assert_eq!(burial.reason, reason);
        assert_eq!(state.failed, deliveries, "{reason}");
        assert!(!burial.chain.is_empty(), "{reason}");
        let says = match reason {
            CLAIM_MISSING => "does not exist",
            CLAIM_DAMAGED => "hash",
            CLAIM_TOO_LARGE => "1000 are allowed",
            _ => "not a claim check",
        };
        assert!(
            burial.chain[0].contains(says),
            "{reason}: {:?}",
            burial.chain
        );
        // Once the options are corrected, the object is still there.
        if reason == CLAIM_TOO_LARGE {
            world.check_swept(reason).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_while_is_tried_again() {
    for mood in [Mood::Failing, Mood::Silent, Mood::Forbidden] {
        let world = World::new(1);
        world.sender(Vec::new()).send(&text("good")).await.unwrap();
        world.store.set_mood(mood);
        let listener = world.listener::<false>(true).build();
        listener.start(1).unwrap();
        while listener.state().failed < 3 {
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(world.service.deleted(), 0);
        let delay = world.service.counts(|it| it.last_delay);
        assert!(delay > Duration::from_secs(1), "{mood:?}: {delay:?}");
        world.store.set_mood(Mood::Well);
        world.drained("it is handled").await;
        assert_eq!(world.service.deleted(), 1);
        while listener.state().in_flight > 0 {
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(world.store.names().await, []);
    }
}

/// Its object could be swept otherwise: the message is buried when the store answers.
#[tokio::test(start_paused = true)]
async fn a_message_is_not_buried_before_its_object_is_kept() {
    let world = World::new(1);
    world.sender(Vec::new()).send(&text(POISON)).await.unwrap();
    let (store, is_first) = (world.store.clone(), AtomicBool::new(true));
    let listener = Listener::builder(FakeSource::<false>::new(&world.service), world.codec())
        .subscribe(handler_fn(move |_| {
            if is_first.swap(false, Ordering::SeqCst) {
                // After the message was fetched.
                store.set_mood(Mood::Failing);
            }
            async { Err(Failure::new("never").permanent("Poison")) }
        }))
        .build();
    listener.start(1).unwrap();
    while listener.state().failed < 3 {
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!((world.service.depth(), listener.state().buried), (1, 0));
    world.store.set_mood(Mood::Well);
    world.drained("it is buried").await;
    world.check_swept("it is buried").await;
    assert_eq!(world.store.names().await.len(), 2);
}

/// Missing rights must not keep a message from being buried.
#[tokio::test(start_paused = true)]
async fn without_rights_to_keep_it_a_message_is_buried_nevertheless() {
    let world = World::new(1);
    world.sender(Vec::new()).send(&text(POISON)).await.unwrap();
    let store = world.store.clone();
    let listener = Listener::builder(FakeSource::<false>::new(&world.service), world.codec())
        .subscribe(handler_fn(move |_| {
            store.set_mood(Mood::Forbidden);
            async { Err(Failure::new("never").permanent("Poison")) }
        }))
        .build();
    listener.start(1).unwrap();
    world.drained("it is buried").await;
    assert_eq!(world.service.burial(1).unwrap().reason, "Poison");
}

#[tokio::test]
async fn a_group_is_one_message() {
    let store = TestStore::new();
    let codec = CheckedGroup::new(store.claim_check(), Text);
    let group: Vec<String> = (0..50).map(|n| text(&n.to_string())).collect();
    let sent = codec.encode(&group).await.unwrap();
    assert_eq!(
        sent.content_type.as_deref(),
        Some(kew_claim_check::CONTENT_TYPE)
    );
    let received = Incoming {
        body: sent.body,
        meta: Meta::new("jobs".into(), "1", 1).into(),
    };
    assert_eq!(codec.decode(&received).await.unwrap(), group);
    let one = Checked::new(store.claim_check(), Text);
    let other: Result<String, _> = one.decode(&received).await;
    assert!(other.unwrap_err().to_string().contains("CheckedGroup"));
    // The copies of a topic's subscriptions have the same object.
    codec.clone().shared().completed(&received).await;
    assert_eq!(codec.decode(&received).await.unwrap(), group);
    codec.completed(&received).await;
    assert_eq!(store.names().await, []);
    let too_many = vec![text("x"); 1_000];
    let error = codec.encode(&too_many).await.unwrap_err();
    assert!(error.to_string().contains("the group is full"), "{error}");
    let single = one.encode(&"x".to_owned()).await.unwrap();
    let received = Incoming {
        body: single.body,
        ..received
    };
    let error = codec.decode(&received).await.unwrap_err();
    assert!(error.to_string().contains("expects a group"), "{error}");
}
