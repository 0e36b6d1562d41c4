//! Push: nobody polls an empty queue, and no announcement is lost.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_worker::{
    Announce, AnnounceWhen, Announcement, Announcements, Heard, LocalPush, Outgoing, Sender,
    SourceError, SourceName, Target, Text,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::fake::Service;
use crate::idle::Exactly;
use crate::listener::{until, works};

const HOUR: Duration = Duration::from_hours(1);

/// The service in memory as a target.
#[derive(Clone)]
struct Puts(Arc<Service>, SourceName);

impl Target for Puts {
    fn name(&self) -> &SourceName {
        &self.1
    }

    fn carries_properties(&self) -> bool {
        true
    }

    async fn send(&self, message: &Outgoing) -> Result<SourceName, SourceError> {
        self.0
            .put_with(message.body.clone(), message.properties.clone());
        Ok(self.1.clone())
    }

    async fn depth(&self) -> Result<Option<u64>, SourceError> {
        Ok(Some(self.0.depth() as u64))
    }
}

fn name() -> SourceName {
    SourceName::new("account", "jobs")
}

#[tokio::test(start_paused = true)]
async fn with_push_an_idle_queue_costs_nothing_and_wakes_up_at_once() {
    let service = Service::new(1);
    let push = LocalPush::new();
    let listener = works::<false>(&service, Duration::ZERO)
        .push(push.subscribe())
        .recheck(None)
        .build();
    listener.start(10).unwrap();
    until("all end", || listener.state().active_tasks == 0).await;
    let requests = listener.state().requests;
    sleep(HOUR).await;
    assert_eq!(listener.state().requests, requests, "no request in an hour");

    let sender = Sender::new(Text, Puts(service.clone(), name()), "test");
    let messages: Vec<String> = (0..150).map(|it| it.to_string()).collect();
    let began = Instant::now();
    sender
        .send_package(&messages, &push, AnnounceWhen::Last)
        .await
        .unwrap();
    until("all are deleted", || service.depth() == 0).await;
    assert!(
        began.elapsed() < Duration::from_millis(300),
        "{:?}",
        began.elapsed()
    );
    let state = listener.state();
    assert_eq!((state.announcements, state.completed), (1, 150));
    until("all end", || listener.state().active_tasks == 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_announcement_starts_as_many_tasks_as_the_rule_wants() {
    let service = Service::new(1);
    let push = LocalPush::new();
    let listener = works::<false>(&service, Duration::from_secs(10))
        .push(push.subscribe())
        .recheck(None)
        .handlers_max(4)
        .build();
    listener.start(3).unwrap();
    until("all end", || listener.state().active_tasks == 0).await;
    let before = listener.state().wake_ups;
    service.put_many(500);
    push.announce(&Announcement::new(&name(), "test"))
        .await
        .unwrap();
    until("it wakes up", || listener.state().active_tasks == 50).await;
    assert_eq!(listener.state().wake_ups, before + 1);
    assert_eq!(listener.state().depth, Some(500));
}

#[tokio::test(start_paused = true)]
async fn an_announcement_wakes_a_task_that_sleeps() {
    let service = Service::new(1);
    let push = LocalPush::new();
    let idle = kew_worker::IdleBackOff {
        minimum: Duration::from_mins(10),
        maximum: HOUR,
    };
    let listener = works::<false>(&service, Duration::ZERO)
        .push(push.subscribe())
        .idle(idle)
        .build();
    listener.start(1).unwrap();
    sleep(Duration::from_mins(15)).await;
    assert_eq!(listener.state().active_tasks, 1);
    service.put("x");
    push.announce(&Announcement::new(&name(), "test"))
        .await
        .unwrap();
    let began = Instant::now();
    until("it is deleted", || service.depth() == 0).await;
    assert!(began.elapsed() < Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn announcements_for_other_queues_are_ignored() {
    let service = Service::new(1);
    let push = LocalPush::new();
    let listener = works::<false>(&service, Duration::ZERO)
        .push(push.subscribe())
        .recheck(None)
        .build();
    listener.start(1).unwrap();
    until("all end", || listener.state().active_tasks == 0).await;
    let requests = listener.state().requests;
    for other in [
        SourceName::new("account", "other"),
        SourceName::new("x", "jobs"),
    ] {
        push.announce(&Announcement::new(&other, "test"))
            .await
            .unwrap();
    }
    sleep(HOUR).await;
    assert_eq!(listener.state().requests, requests);
    // More announcements than a listener can be behind: it looks once.
    for _ in 0..200 {
        let other = SourceName::new("account", "other");
        push.announce(&Announcement::new(&other, "test"))
            .await
            .unwrap();
    }
    until("it looked", || listener.state().requests > requests).await;
}

#[tokio::test(start_paused = true)]
async fn messages_that_come_back_by_themselves_are_found_by_the_recheck() {
    let service = Service::new(1);
    let push = LocalPush::new();
    let listener = works::<false>(&service, Duration::ZERO)
        .push(push.subscribe())
        .build();
    listener.start(1).unwrap();
    until("all end", || listener.state().active_tasks == 0).await;
    // It was leased by a process that ended.
    service.put("x");
    let began = Instant::now();
    until("it is deleted", || service.depth() == 0).await;
    assert!(began.elapsed() <= Duration::from_mins(10));
    let polls = listener.state().empty_polls;
    until("all end", || listener.state().active_tasks == 0).await;
    let polls_after = listener.state().empty_polls;
    sleep(HOUR).await;
    assert_eq!(listener.state().empty_polls, polls_after, "from {polls}");
}

#[tokio::test(start_paused = true)]
async fn a_package_is_announced_when_the_sender_says() {
    let service = Service::new(1);
    let sender = Sender::new(Text, Puts(service.clone(), name()), "test");
    let push = LocalPush::new();
    let mut heard = push.subscribe();
    let two = ["a".to_owned(), "b".to_owned()];
    for (when, expected) in [
        // Before the first message, when it is there, and at the end.
        (AnnounceWhen::First, 3),
        (AnnounceWhen::Last, 1),
        (AnnounceWhen::Depth(9), 0),
        (AnnounceWhen::Depth(8), 1),
    ] {
        sender.send_package(&two, &push, when).await.unwrap();
        let mut count = 0;
        while tokio::time::timeout(Duration::from_millis(1), heard.next())
            .await
            .is_ok()
        {
            count += 1;
        }
        assert_eq!(count, expected, "{when:?}");
        if when == AnnounceWhen::Depth(9) {
            sender.send(&two[0]).await.unwrap();
            service.end_leases();
        }
    }
    sender
        .send_package(&[], &push, AnnounceWhen::First)
        .await
        .unwrap();
    let next = tokio::time::timeout(Duration::from_millis(1), heard.next()).await;
    assert!(next.is_err(), "an empty package is no work");
}

/// Push that a test breaks and repairs.
#[derive(Clone, Default)]
struct Breaks {
    script: Arc<Mutex<VecDeque<Result<Heard, SourceError>>>>,
    is_down: Arc<Mutex<bool>>,
    changed: Arc<Notify>,
}

impl Announcements for Breaks {
    async fn ready(&mut self) -> Result<(), SourceError> {
        match *self.is_down.lock().unwrap() {
            true => Err(SourceError::busy("push is down")),
            false => Ok(()),
        }
    }

    async fn next(&mut self) -> Result<Heard, SourceError> {
        loop {
            if let Some(next) = self.script.lock().unwrap().pop_front() {
                return next;
            }
            self.changed.notified().await;
        }
    }
}

/// Push whose announcers do not know of the listener for a time.
#[derive(Clone, Default)]
struct Unknown(Arc<Mutex<bool>>);

impl Announcements for Unknown {
    async fn ready(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn next(&mut self) -> Result<Heard, SourceError> {
        std::future::pending().await
    }

    fn unknown_for(&self) -> Duration {
        Duration::from_secs(40)
    }

    async fn close(&mut self) {
        *self.0.lock().unwrap() = true;
    }
}

#[tokio::test(start_paused = true)]
async fn while_announcers_do_not_know_a_listener_it_looks_itself() {
    let service = Service::new(1);
    let push = Unknown::default();
    let listener = works::<false>(&service, Duration::ZERO)
        .push(push.clone())
        .recheck(None)
        .build();
    listener.start(1).unwrap();
    for _ in 0..2 {
        sleep(Duration::from_secs(13)).await;
        service.put("unannounced");
        let began = Instant::now();
        until("it is deleted", || service.depth() == 0).await;
        assert!(began.elapsed() < Duration::from_secs(11));
    }
    until("all end", || listener.state().active_tasks == 0).await;
    sleep(HOUR).await;
    let polls = listener.state().empty_polls;
    sleep(HOUR).await;
    assert_eq!(listener.state().empty_polls, polls);
    assert!(!*push.0.lock().unwrap());
    listener.stop(kew_worker::Stop::default()).await;
    assert!(*push.0.lock().unwrap(), "it was closed");
}

#[tokio::test(start_paused = true)]
async fn while_push_is_broken_the_listener_polls() {
    let service = Service::new(1);
    let push = Breaks::default();
    let listener = works::<false>(&service, Duration::ZERO)
        .push(push.clone())
        .recheck(None)
        .build();
    listener.start(1).unwrap();
    until("all end", || listener.state().active_tasks == 0).await;
    *push.is_down.lock().unwrap() = true;
    push.script
        .lock()
        .unwrap()
        .push_back(Err(SourceError::refused("lost")));
    push.changed.notify_one();
    until("one polls", || listener.state().active_tasks == 1).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(listener.state().active_tasks, 1);
    service.put("unannounced");
    until("it is deleted", || service.depth() == 0).await;
    *push.is_down.lock().unwrap() = false;
    until("all end", || listener.state().active_tasks == 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_announcement_during_the_last_look_of_a_task_is_not_lost() {
    let service = Service::new(1);
    let push = LocalPush::new();
    let listener = works::<false>(&service, Duration::ZERO)
        .push(push.subscribe())
        .wake_up(Exactly(1))
        .recheck(None)
        .build();
    // The answer that the queue is empty takes a second.
    service.set_answer_latency(Duration::from_secs(1));
    listener.start(1).unwrap();
    // At each moment of the looks of the task: what is announced is found.
    for step in 0_u32..60 {
        sleep(Duration::from_millis(137) * (step % 60)).await;
        service.put(step.to_string());
        let announcement = Announcement::new(&name(), "test");
        push.announce(&announcement).await.unwrap();
        let began = Instant::now();
        until("it is deleted", || service.depth() == 0).await;
        let took = began.elapsed();
        assert!(took < Duration::from_secs(6), "{step}: {took:?}");
    }
}
