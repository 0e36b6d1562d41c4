//! Idle tasks sleep longer and end; work wakes up as many as it needs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_worker::{Idle, IdleAnswer, IdleBackOff, IdleState, Steady, WakeUp};
use tokio::time::sleep;

use crate::fake::Service;
use crate::listener::{until, works};

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn all_tasks_but_one_end_when_the_queue_stays_empty() {
    let service = Service::new(1);
    let listener = works::<false>(&service, Duration::ZERO).build();
    listener.start(100).unwrap();
    assert_eq!(listener.state().active_tasks, 100);
    until("all but one ended", || listener.state().active_tasks == 1).await;
    sleep(HOUR).await;
    let state = listener.state();
    assert_eq!((state.active_tasks, state.total_tasks), (1, 100));
    // A naive loop of 100 tasks makes 360,000 empty requests an hour.
    assert!(state.empty_polls <= 360_000 / 50, "{}", state.empty_polls);
    assert!(state.empty_polls >= 3_500, "{}", state.empty_polls);
}

#[tokio::test(start_paused = true)]
async fn the_idle_count_begins_again_at_each_message() {
    let service = Service::new(1);
    let policy = IdleBackOff {
        minimum: Duration::from_millis(100),
        maximum: Duration::from_mins(10),
    };
    let builder = works::<false>(&service, Duration::ZERO).idle(policy);
    let listener = builder.wake_up(Exactly(1)).build();
    listener.start(1).unwrap();
    let gets_in_a_minute = async |service: &Arc<Service>| {
        let before = service.counts(|it| it.gets);
        sleep(Duration::from_mins(1)).await;
        service.counts(|it| it.gets) - before
    };
    let first = gets_in_a_minute(&service).await;
    assert!((8..=12).contains(&first), "{first}");
    assert!(gets_in_a_minute(&service).await <= 1);
    service.put("x");
    until("it is deleted", || service.depth() == 0).await;
    let after = gets_in_a_minute(&service).await;
    assert!((8..=12).contains(&after), "{after}");
}

/// One policy of several listeners.
#[derive(Debug)]
struct Seen(Arc<Mutex<Vec<(String, u32)>>>);

impl Idle for Seen {
    fn answer(&self, state: &IdleState<'_>) -> IdleAnswer {
        let queue = state.source.queue.to_string();
        self.0.lock().unwrap().push((queue, state.idle_count));
        IdleAnswer {
            sleep: Duration::from_secs(10),
            ends: false,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_policy_knows_the_queue_and_how_often_it_was_empty() {
    let service = Service::new(1);
    let seen = Arc::new(Mutex::default());
    let builder = works::<false>(&service, Duration::ZERO).idle(Seen(seen.clone()));
    let listener = builder.build();
    listener.start(1).unwrap();
    sleep(Duration::from_secs(25)).await;
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen, [1, 2, 3].map(|count| ("jobs".to_owned(), count)));
}

#[tokio::test(start_paused = true)]
async fn a_steady_listener_polls_at_its_interval() {
    let service = Service::new(1);
    let builder = works::<false>(&service, Duration::ZERO);
    let listener = builder.idle(Steady::default()).build();
    listener.start(1).unwrap();
    sleep(HOUR).await;
    let polls = listener.state().empty_polls;
    assert!((3_590..=3_601).contains(&polls), "{polls}");
}

#[tokio::test(start_paused = true)]
async fn work_that_comes_to_an_idle_queue_starts_tasks_by_its_depth() {
    for (messages, target) in [(50, 10), (500, 50), (2_000, 100)] {
        let service = Service::new(1);
        let builder = works::<false>(&service, Duration::from_secs(10));
        let listener = builder.handlers_max(4).build();
        listener.start(3).unwrap();
        until("it is idle", || listener.state().active_tasks == 1).await;
        service.put_many(messages);
        until("it wakes up", || listener.state().active_tasks == target).await;
        assert_eq!(listener.state().depth, Some(messages));
        sleep(Duration::from_secs(5)).await;
        assert_eq!(listener.state().active_tasks, target);
        assert_eq!(listener.state().wake_ups, 1, "{messages}");
    }
}

/// A policy of the application.
#[derive(Debug)]
pub(crate) struct Exactly(pub(crate) u32);

impl WakeUp for Exactly {
    fn target(&self, _: Option<u64>) -> u32 {
        self.0
    }
}

#[tokio::test(start_paused = true)]
async fn the_rule_is_replaceable_and_starts_none_when_enough_run() {
    let service = Service::new(1);
    let builder = works::<false>(&service, Duration::from_secs(10));
    let listener = builder.wake_up(Exactly(7)).idle(Steady::default()).build();
    listener.start(5).unwrap();
    sleep(Duration::from_secs(5)).await;
    service.put("x");
    until("it is deleted", || service.depth() == 0).await;
    assert_eq!(listener.state().total_tasks, 7);
    sleep(Duration::from_secs(5)).await;
    service.put("x");
    until("it is deleted", || service.depth() == 0).await;
    let state = listener.state();
    assert_eq!((state.total_tasks, state.wake_ups), (7, 2));
}
