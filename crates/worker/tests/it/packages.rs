//! Packages: what of them is announced, and how they are sent.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kew_worker::{
    AnnounceWhen, Announcements, Heard, LocalPush, Outgoing, Sender, Sharded, SourceError,
    SourceName, Target, Text,
};
use tokio::time::{Instant, sleep};

use crate::fake::Service;
use crate::listener::{until, works};

const SECOND: Duration = Duration::from_secs(1);

/// A queue that is slow at one message, or is busy from then on.
struct Queue {
    name: SourceName,
    service: std::sync::Arc<Service>,
    takes: Duration,
    busy_after: u32,
    sent: AtomicU32,
    under_way: AtomicU32,
    under_way_max: AtomicU32,
}

impl Queue {
    fn new(name: &str, service: &std::sync::Arc<Service>) -> Self {
        Self {
            name: SourceName::new("account", name),
            service: service.clone(),
            takes: Duration::ZERO,
            busy_after: u32::MAX,
            sent: AtomicU32::new(0),
            under_way: AtomicU32::new(0),
            under_way_max: AtomicU32::new(0),
        }
    }
}

impl Target for Queue {
    fn name(&self) -> &SourceName {
        &self.name
    }

    fn carries_properties(&self) -> bool {
        true
    }

    async fn send(&self, message: &Outgoing) -> Result<SourceName, SourceError> {
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.under_way_max.fetch_max(under_way, Ordering::SeqCst);
        sleep(self.takes).await;
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        if self.sent.fetch_add(1, Ordering::SeqCst) >= self.busy_after {
            return Err(SourceError::busy("503"));
        }
        let id = self.service.put(message.body.clone());
        self.service.did(id);
        Ok(self.name.clone())
    }

    async fn depth(&self) -> Result<Option<u64>, SourceError> {
        Ok(Some(u64::try_from(self.service.depth()).unwrap()))
    }
}

fn package(count: u32) -> Vec<String> {
    (0..count).map(|it| it.to_string()).collect()
}

/// The queues of all announcements that were made.
async fn heard(listener: &mut impl Announcements) -> Vec<String> {
    let mut queues = Vec::new();
    while let Ok(heard) = tokio::time::timeout(SECOND / 1_000, listener.next()).await {
        match heard.unwrap() {
            Heard::Work(announcement) => queues.push(announcement.queue),
            other => panic!("{other:?}"),
        }
    }
    queues.sort();
    queues
}

#[tokio::test(start_paused = true)]
async fn a_package_with_a_pause_in_it_strands_nothing() {
    for when in [AnnounceWhen::First, AnnounceWhen::Last] {
        let service = Service::new(1);
        let push = LocalPush::new();
        let listener = works::<false>(&service, Duration::ZERO)
            .push(push.subscribe())
            .recheck(None)
            .build();
        listener.start(1).unwrap();
        let mut target = Queue::new("jobs", &service);
        target.takes = SECOND * 60;
        let sender = Sender::new(Text, target, "test").in_flight(1);
        sender.send_package(&package(5), &push, when).await.unwrap();
        until("all are deleted", || service.depth() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_before_an_error_is_announced() {
    for when in [
        AnnounceWhen::First,
        AnnounceWhen::Last,
        AnnounceWhen::Depth(1),
    ] {
        let service = Service::new(1);
        let push = LocalPush::new();
        let mut listener = push.subscribe();
        let mut target = Queue::new("jobs", &service);
        target.busy_after = 3;
        let sender = Sender::new(Text, target, "test").in_flight(1);
        let sent = sender.send_package(&package(5), &push, when).await;
        assert!(sent.is_err());
        let sent = sender.target().sent.load(Ordering::SeqCst);
        assert_eq!(sent, 4, "no more after the error");
        assert!(!heard(&mut listener).await.is_empty(), "{when:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_queue_that_got_a_part_is_announced() {
    for (when, expected) in [
        (AnnounceWhen::First, vec!["a", "a", "a", "b", "b"]),
        (AnnounceWhen::Last, vec!["a", "b"]),
        (AnnounceWhen::Depth(1), vec!["a", "b"]),
        (AnnounceWhen::Depth(100), vec![]),
    ] {
        let service = Service::new(1);
        let push = LocalPush::new();
        let mut listener = push.subscribe();
        let mut first = Queue::new("a", &service);
        first.busy_after = 2;
        let target = Sharded::new(vec![first, Queue::new("b", &service)]);
        let sender = Sender::new(Text, target, "test").in_flight(1);
        sender.send_package(&package(5), &push, when).await.unwrap();
        assert_eq!(heard(&mut listener).await, expected, "{when:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ten_sends_of_a_package_are_under_way_at_once() {
    for (in_flight, seconds) in [(None, 5), (Some(1), 50), (Some(0), 50)] {
        let service = Service::new(1);
        let mut target = Queue::new("jobs", &service);
        target.takes = SECOND;
        let mut sender = Sender::new(Text, target, "test");
        let expected = in_flight.map_or(10, |it: u32| it.max(1));
        if let Some(count) = in_flight {
            sender = sender.in_flight(count);
        }
        let began = Instant::now();
        let push = LocalPush::new();
        let package = package(50);
        let sent = sender.send_package(&package, &push, AnnounceWhen::Last);
        sent.await.unwrap();
        assert_eq!(began.elapsed(), SECOND * seconds);
        let most = sender.target().under_way_max.load(Ordering::SeqCst);
        assert_eq!((most, service.depth()), (expected, 50));
    }
}
