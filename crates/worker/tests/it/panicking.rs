//! Policies and push that panic: a listener goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kew_worker::{
    Announcements, Heard, Idle, IdleAnswer, IdleBackOff, IdleState, LocalPush, SourceError, Stop,
    WakeUp,
};
use tokio::time::{Instant, sleep};

use crate::fake::Service;
use crate::listener::{until, works};

const SECOND: Duration = Duration::from_secs(1);

/// Panics so many times.
#[derive(Debug, Clone)]
struct Panics(Arc<AtomicU32>);

impl Panics {
    fn times(count: u32) -> Self {
        Self(Arc::new(AtomicU32::new(count)))
    }

    fn maybe(&self) {
        let left = self.0.load(Ordering::SeqCst);
        if left > 0 {
            self.0.store(left - 1, Ordering::SeqCst);
            panic!("a panic of the handler");
        }
    }
}

impl Idle for Panics {
    fn answer(&self, state: &IdleState<'_>) -> IdleAnswer {
        self.maybe();
        IdleBackOff::default().answer(state)
    }
}

impl WakeUp for Panics {
    fn target(&self, _: Option<u64>) -> u32 {
        self.maybe();
        1
    }
}

impl Announcements for Panics {
    async fn ready(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn next(&mut self) -> Result<Heard, SourceError> {
        sleep(SECOND * 60).await;
        self.maybe();
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_dequeue_task_that_panics_is_replaced() {
    let service = Service::new(1);
    service.put("x");
    let listener = works::<false>(&service, Duration::ZERO)
        .idle(Panics::times(3))
        .build();
    listener.start(1).unwrap();
    until("it is deleted", || service.depth() == 0).await;
    sleep(SECOND * 60).await;
    assert_eq!(listener.state().active_tasks, 1);
}

#[tokio::test(start_paused = true)]
async fn the_listener_polls_after_a_panic_of_push_or_of_a_wake_up() {
    for wakes in [true, false] {
        let service = Service::new(1);
        let push = LocalPush::new();
        let builder = works::<false>(&service, Duration::ZERO).recheck(None);
        let listener = match wakes {
            true => builder.wake_up(Panics::times(1)).push(push.subscribe()),
            false => builder.push(Panics::times(1)),
        };
        let listener = listener.build();
        listener.start(1).unwrap();
        until("all end", || listener.state().active_tasks == 0).await;
        if wakes {
            listener.announce();
        }
        // One polls while push does not work, and then it works again.
        until("one polls", || listener.state().active_tasks == 1).await;
        until("all end", || listener.state().active_tasks == 0).await;
        service.put("x");
        listener.announce();
        until("it is deleted", || service.depth() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn times_that_never_come_are_no_panics() {
    let service = Service::new(1);
    let push = LocalPush::new();
    let listener = works::<false>(&service, SECOND * 10)
        .push(push.subscribe())
        .recheck(Some(Duration::MAX))
        .build();
    listener.start(1).unwrap();
    until("all end", || listener.state().active_tasks == 0).await;
    service.put("x");
    listener.announce();
    until("it is handled", || listener.state().in_flight == 1).await;
    let began = Instant::now();
    let endless = Stop {
        finish_within: Duration::MAX,
        return_within: Duration::MAX,
    };
    let report = listener.stop(endless).await;
    assert_eq!((report.completed, report.dropped_tasks), (1, 0));
    assert!(began.elapsed() <= SECOND * 10);
}
