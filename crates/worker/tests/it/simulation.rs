//! Listeners against a service that loses answers, hands messages out twice, settles late and is busy; with crashes
//! at every request, at every call of the database and in the middle of work. No work may be lost, nothing deleted
//! before it was done, no progress forgotten that was kept, no message of a session overtaken, and no effect may happen
//! twice under the guard.

use std::sync::Arc;
use std::time::Duration;

use kew_idempotency::{BusinessId, Guard, GuardOptions, Scope, StoreError};
use kew_worker::{
    AfterLoss, Ask, Delivery, Failure, Fixed, Intake as _, Lease as _, Listener, ListenerBuilder,
    LocalPush, Source, SourceError, Stop, Text, handler_fn,
};
use tokio::time::{sleep, timeout};

use crate::fake::{Faults, LOCK, Service, Stored};
use crate::fake_sessions::Sessions;
use crate::fake_source::{Polled, Waited};
use crate::fake_store::FakeStore;

/// Steps of the work of a message. After each its progress is saved, where there is a place for it.
const STEPS: u32 = 3;

/// A kind of source.
trait Kind: Source + Sized {
    fn of(service: &Arc<Service>) -> Self;

    /// Puts messages.
    fn put(service: &Service, count: u64) {
        service.put_many(count);
    }

    /// Saves progress. `false` if there is no place for it.
    fn save(
        delivery: &Delivery<String, Self::Lease>,
        progress: String,
    ) -> impl Future<Output = Result<bool, SourceError>> + Send;
}

impl Kind for Polled {
    fn of(service: &Arc<Service>) -> Self {
        Self::new(service)
    }

    async fn save(
        delivery: &Delivery<String, Self::Lease>,
        progress: String,
    ) -> Result<bool, SourceError> {
        delivery.save(progress).await.map(|()| true)
    }
}

impl Kind for Waited {
    fn of(service: &Arc<Service>) -> Self {
        Self::new(service)
    }

    async fn save(_: &Delivery<String, Self::Lease>, _: String) -> Result<bool, SourceError> {
        Ok(false)
    }
}

impl Kind for Sessions {
    fn of(service: &Arc<Service>) -> Self {
        Self::new(service)
    }

    fn put(service: &Service, count: u64) {
        for number in 0..count {
            service.add(Stored {
                body: number.to_string().into(),
                session: Some(number % 3),
                ..Stored::default()
            });
        }
    }

    async fn save(
        delivery: &Delivery<String, Self::Lease>,
        progress: String,
    ) -> Result<bool, SourceError> {
        delivery.save(progress).await.map(|()| true)
    }
}

/// How an effect happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effects {
    Guarded,
    /// As if there were no guard: the checker has to notice.
    Bare,
}

/// What handlers of one run share, also across crashes.
#[derive(Clone, Debug)]
struct World {
    service: Arc<Service>,
    store: FakeStore,
    effects: Effects,
}

impl World {
    fn new(seed: u64) -> Self {
        let service = Service::new(seed);
        Self {
            store: FakeStore::new(&service),
            service,
            effects: Effects::Guarded,
        }
    }

    /// Work in steps that resumes where an earlier attempt was, and an effect at its end.
    async fn handle<K: Kind>(&self, delivery: Delivery<String, K::Lease>) -> Result<(), Failure> {
        let service = &self.service;
        let id: u64 = delivery.meta().id.parse()?;
        let _at_work = service.works_on(id);
        let first = steps_of(id, delivery.checkpoint().map(|it| &**it));
        service.resumes(id, first);
        for step in first..STEPS {
            service.point().await;
            let most = u64::try_from(LOCK.as_millis())? / 2;
            sleep(Duration::from_millis(service.random(most))).await;
            service.point().await;
            match service.random(12) {
                0 => return Err(Failure::new("a failure")),
                1 if delivery.attempt() == 1 => panic!("a panic of the handler"),
                _ => service.did_step(id, step),
            }
            if K::save(&delivery, format!("{id}/{}", step + 1)).await? {
                service.saved(id, step + 1);
            }
        }
        match self.effects {
            Effects::Guarded => self.once(id).await,
            Effects::Bare => {
                self.store.affect(&id.to_string()).await;
                Ok(())
            }
        }
    }

    async fn once(&self, id: u64) -> Result<(), Failure> {
        let scope = Scope::new("jobs")?;
        let guard = Guard::new(self.store.clone(), scope, GuardOptions::default())?;
        let expected = format!("the outcome of {id}");
        let outcome = expected.clone();
        let id = BusinessId::new(&id.to_string())?;
        let done = guard.run(&id, |transaction| {
            Box::pin(async move {
                transaction.affect().await;
                Ok::<_, StoreError>(outcome)
            })
        });
        let answer = done.await?.into_outcome();
        if answer != expected {
            self.service.violates(format!("{id} has {answer}"));
        }
        Ok(())
    }

    fn listener<K: Kind>(&self, seed: u64) -> ListenerBuilder<String, K> {
        let world = self.clone();
        Listener::builder(K::of(&self.service), Text)
            .seed(seed)
            .handlers_max(4)
            .batch_size(3)
            .delayed_max(2)
            .attempts_max(match seed / 2 % 3 {
                0 => 3,
                1 => 10,
                _ => 1_000,
            })
            .after_loss(match seed % 2 {
                0 => AfterLoss::Keep,
                _ => AfterLoss::Redo,
            })
            .subscribe(handler_fn(move |delivery: Delivery<String, K::Lease>| {
                let world = world.clone();
                async move { world.handle::<K>(delivery).await }
            }))
    }

    fn check(&self, messages: u64, what: &str) {
        let violations = self.service.violations();
        assert!(violations.is_empty(), "{what}: {violations:?}");
        let settled = u64::try_from(self.service.settled()).unwrap();
        assert_eq!(settled, messages, "{what}");
        for id in 1..=messages {
            // One that was buried can have had its effect, too, if the answer to its delete was lost.
            let least = u32::from(self.service.burial(id).is_none());
            let effects = self.store.effects(id);
            assert!(
                (least..=1).contains(&effects),
                "{what}: {id} has {effects} effects"
            );
        }
    }
}

/// After how many steps the work of a message resumes. Of a session, the progress may be that of another message.
fn steps_of(id: u64, checkpoint: Option<&[u8]>) -> u32 {
    let text = checkpoint.map(|it| std::str::from_utf8(it).unwrap());
    let (of, steps) = text.and_then(|it| it.split_once('/')).unwrap_or_default();
    match of == id.to_string() {
        true => steps.parse().unwrap(),
        false => 0,
    }
}

/// How many seeds a test runs. `KEW_WORKER_SEEDS` sets another number for a long run.
pub(crate) fn seeds() -> std::ops::Range<u64> {
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

/// Waits until nothing is left.
pub(crate) async fn drained(service: &Service, what: &str) {
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

/// Panics of handlers are part of the test, and printing thousands of them is not.
pub(crate) fn silence_handlers() {
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

async fn run_seed<K: Kind>(seed: u64) {
    let what = format!("seed {seed}, {}", std::any::type_name::<K>());
    let world = World::new(seed);
    let service = &world.service;
    let faults = faults(service);
    service.set_faults(faults);
    K::put(service, 20);
    // Some listeners crash, and others take their place.
    for crash in 0..service.random(4) {
        service.crash_after(Some(service.random(800)));
        let listener = world.listener::<K>(seed + crash).build();
        listener.start(2).unwrap();
        let most = Duration::from_hours(1);
        match service.random(3) {
            // Some stop instead, at any moment.
            0 => {
                service.crash_after(None);
                sleep(Duration::from_millis(service.random(60_000))).await;
                let stop = Stop {
                    finish_within: Duration::from_millis(service.random(20_000)),
                    return_within: Duration::from_millis(service.random(5_000)),
                };
                listener.stop(stop).await;
            }
            _ => {
                let _ = timeout(most, service.crashed.notified()).await;
                listener.abort();
                service.crash_after(None);
            }
        }
    }
    let listener = world.listener::<K>(seed).build();
    listener.start(2).unwrap();
    sleep(Duration::from_mins(30)).await;
    // In every other run all goes on being as bad as it was.
    if seed.is_multiple_of(2) {
        service.set_faults(Faults::default());
    }
    drained(service, &what).await;
    world.check(20, &what);
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
    service.set_faults(Faults::default());
    sleep(LOCK * 3).await;
    let report = listener.stop(Stop::default()).await;
    assert_eq!(report.dropped_tasks, 0, "{what}");
}

#[tokio::test(start_paused = true)]
async fn no_work_is_lost_and_nothing_is_deleted_before_it_was_done() {
    silence_handlers();
    for seed in seeds() {
        run_seed::<Polled>(seed).await;
        run_seed::<Waited>(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn messages_of_sessions_are_not_lost_and_do_not_overtake_each_other() {
    silence_handlers();
    for seed in seeds() {
        run_seed::<Sessions>(seed).await;
    }
}

/// With push and no re-check, while answers are lost, the service is busy and hands messages out twice.
async fn run_pushed<K: Kind>(seed: u64) {
    let what = format!("push, seed {seed}, {}", std::any::type_name::<K>());
    let world = World::new(seed);
    let service = &world.service;
    let bad = faults(service);
    // An effect that is late by a minute is nothing that a listener can know of.
    service.set_faults(Faults { slow: 0, ..bad });
    K::put(service, 20);
    let push = LocalPush::new();
    let listener = world
        .listener::<K>(seed)
        .push(push.subscribe())
        .recheck(None)
        .build();
    listener.start(2).unwrap();
    drained(service, &what).await;
    world.check(20, &what);
}

#[tokio::test(start_paused = true)]
async fn with_push_no_message_waits_for_an_announcement_of_others() {
    silence_handlers();
    for seed in seeds() {
        run_pushed::<Polled>(seed).await;
        run_pushed::<Waited>(seed).await;
        run_pushed::<Sessions>(seed).await;
    }
}

/// Everything stands still at one point of a short run, is dropped, and another listener goes on.
async fn crash_at<K: Kind>(point: u64) -> bool {
    let what = format!("point {point}, {}", std::any::type_name::<K>());
    let world = World::new(7);
    let service = &world.service;
    K::put(service, 3);
    let hour = Duration::from_hours(1);
    service.crash_after(Some(point));
    let first = world.listener::<K>(7).build();
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
    let second = world.listener::<K>(8).build();
    second.start(1).unwrap();
    drained(service, &what).await;
    world.check(3, &what);
    crashed
}

async fn crash_everywhere<K: Kind>() {
    let mut points = 0;
    while crash_at::<K>(points).await {
        points += 1;
    }
    let name = std::any::type_name::<K>();
    assert!(points > 90, "{name}: only {points} points");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_every_request_loses_nothing() {
    silence_handlers();
    crash_everywhere::<Polled>().await;
    crash_everywhere::<Waited>().await;
    crash_everywhere::<Sessions>().await;
}

/// Everything is dropped where it waits at one moment of a run: also at awaits of the listener itself, and not only at
/// requests. Another listener goes on. Returns how long the run took.
async fn crash_in<K: Kind>(seed: u64, within: Duration) -> Duration {
    let what = format!("seed {seed}, {}", std::any::type_name::<K>());
    let world = World::new(seed);
    let service = &world.service;
    K::put(service, 6);
    let first = world.listener::<K>(seed).build();
    first.start(2).unwrap();
    let began = tokio::time::Instant::now();
    let micros = u64::try_from(within.as_micros()).unwrap();
    sleep(Duration::from_micros(service.random(micros.max(1)))).await;
    // Tasks that are awake are polled one after the other meanwhile.
    for _ in 0..service.random(30) {
        tokio::task::yield_now().await;
    }
    first.abort();
    let second = world.listener::<K>(seed + 1).build();
    second.start(1).unwrap();
    drained(service, &what).await;
    world.check(6, &what);
    began.elapsed()
}

async fn crash_at_moments<K: Kind>() {
    let mut took = Duration::from_secs(1);
    for seed in 0..400 {
        // A third of the moments are at the begin, where most happens at once.
        let within = if seed % 3 == 0 { took / 50 } else { took };
        took = crash_in::<K>(seed, within)
            .await
            .min(Duration::from_mins(2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_loses_nothing() {
    silence_handlers();
    crash_at_moments::<Polled>().await;
    crash_at_moments::<Waited>().await;
    crash_at_moments::<Sessions>().await;
}

/// What the checker found in the first seed that has anything.
async fn first_violation(effects: Effects) -> Option<String> {
    for seed in 0..100 {
        let world = World {
            effects,
            ..World::new(seed)
        };
        let service = &world.service;
        let faults = faults(service);
        service.set_faults(faults);
        Polled::put(service, 20);
        let listener = world.listener::<Polled>(seed).build();
        listener.start(2).unwrap();
        drained(service, "a run without checks").await;
        if let Some(first) = service.violations().into_iter().next() {
            return Some(first);
        }
    }
    None
}

/// The checker sees effects that happen twice, which they do without a guard.
#[tokio::test(start_paused = true)]
async fn the_checker_notices_that_the_guard_is_needed() {
    silence_handlers();
    let found = first_violation(Effects::Bare).await.unwrap();
    assert!(found.contains("happened 2 times"), "{found}");
    assert_eq!(first_violation(Effects::Guarded).await, None);
}

/// The checker sees progress that a service forgets, and progress of work that was not done.
#[tokio::test(start_paused = true)]
async fn the_checker_notices_progress_that_is_lost_or_wrong() {
    let service = Service::new(1);
    service.resumes(1, 0);
    service.did_step(1, 0);
    service.saved(1, 1);
    service.resumes(1, 1);
    assert_eq!(service.violations(), Vec::<String>::new());
    service.resumes(1, 0);
    service.resumes(1, 2);
    let [lost, wrong] = &service.violations()[..] else {
        panic!("{:?}", service.violations());
    };
    assert!(lost.contains("1 were kept"), "{lost}");
    assert!(wrong.contains("not all of them were done"), "{wrong}");
}

/// The checker sees a message that overtakes another one of its session.
#[tokio::test(start_paused = true)]
async fn the_checker_notices_a_message_that_overtakes_another() {
    let service = Service::new(1);
    Sessions::put(&service, 6);
    let mut intake = Sessions::new(&service).open().await.unwrap();
    let ask = Ask {
        count: 1,
        lease: LOCK,
    };
    let first = intake.receive(ask).await.unwrap();
    intake.forgets_what_is_unsettled();
    let second = intake.receive(ask).await.unwrap();
    assert_ne!(first[0].incoming().meta.key, second[0].incoming().meta.key);
    let violations = service.violations();
    assert!(
        violations[0].contains("was handed out before"),
        "{violations:?}"
    );
}

/// The checker sees a handler that works on after its lease.
#[tokio::test(start_paused = true)]
async fn the_checker_notices_work_after_the_end_of_a_lease() {
    let service = Service::new(1);
    let id = service.put("x");
    service.get("get", 1, LOCK).await.unwrap();
    let _at_work = service.works_on(id);
    assert_eq!(service.violations(), Vec::<String>::new());
    sleep(LOCK * 2).await;
    service.get("get", 1, LOCK).await.unwrap();
    assert_eq!(service.violations().len(), 1);
}

/// The checker sees a listener that deletes too early.
#[tokio::test(start_paused = true)]
async fn the_checker_notices_a_delete_before_the_work() {
    let service = Service::new(1);
    service.put("x");
    let lies = Listener::builder(Polled::new(&service), Text)
        .subscribe(handler_fn(|_| async { Ok(()) }))
        .visibility(Fixed(LOCK))
        .build();
    lies.start(1).unwrap();
    drained(&service, "one message").await;
    assert_eq!(service.violations().len(), 1);
}
