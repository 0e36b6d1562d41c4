//! Messages that wait in a topic: restarts between the steps of their copies, and a full disk.

use bytes::Bytes;
use kew_broker::PartitionOptions;
use kew_engine::bus::{BusCommand, BusMessage, BusOutcome, BusQueueCounts, BusQueueOptions};
use kew_engine::{Command, EntityName, Outcome};
use kew_log::FaultyStorage;

use crate::bus::{create, named, orders, send};
use crate::partition::{Driver, options};

/// More than a command copies at once, and than two turns do.
const COUNT: u32 = 150;

fn subscription(nth: u32) -> EntityName {
    named(&format!("t/subscriptions/{nth}"))
}

fn publish(body: &str) -> Command {
    let message = BusMessage {
        body: Bytes::copy_from_slice(body.as_bytes()),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    };
    Command::Bus(BusCommand::Send {
        queue: named("t"),
        messages: vec![message],
    })
}

impl Driver {
    fn with_subscriptions(options: PartitionOptions) -> Self {
        let mut driver = Self::with(FaultyStorage::new(), options);
        let topic = named("t");
        let options = BusQueueOptions::default();
        let created = BusCommand::CreateTopic { topic, options };
        driver.ask(Command::Bus(created)).unwrap();
        for nth in 0..COUNT {
            let created = BusCommand::CreateSubscription {
                topic: named("t"),
                subscription: subscription(nth),
                options: BusQueueOptions::default(),
                rule: None,
            };
            driver.ask(Command::Bus(created)).unwrap();
        }
        driver
    }

    fn counts_of(&mut self, queue: EntityName) -> BusQueueCounts {
        let read = self.ask(Command::Bus(BusCommand::ReadQueue { queue }));
        match read.unwrap().outcome {
            Outcome::Bus(BusOutcome::Queue(view)) => view.counts,
            other => panic!("{other:?}"),
        }
    }

    /// How many copies there are, and how many messages wait.
    fn copies(&self) -> (u64, u64) {
        let state = self.partition.state();
        let overview = state.counts().1;
        let waiting = self.waiting();
        (overview - waiting, waiting)
    }

    fn waiting(&self) -> u64 {
        let state = self.partition.state();
        let mut own = state.incarnations_of(&named("t")).into_iter();
        u64::from(own.any(|it| state.passes_on(it)))
    }

    /// Turns until nothing waits.
    fn fan_out(&mut self) {
        for _ in 0..2_000 {
            if self.waiting() == 0 {
                return;
            }
            self.rest();
        }
        panic!("messages still wait");
    }
}

/// The cursor and its copies are in one batch of the log. So each copy is made once, wherever the server stops.
#[test]
fn copies_go_on_after_a_restart_and_each_is_made_once() {
    for steps in 0..4 {
        let mut driver = Driver::with_subscriptions(options());
        driver.ask(publish("one")).unwrap();
        assert_eq!(driver.copies(), (0, 1));
        let copies = u64::from(COUNT.min(64 * steps));
        // A turn makes one step, unless it has something else to do.
        for _ in 0..10 {
            if driver.copies().0 < copies {
                driver.rest();
            }
        }
        assert_eq!(driver.copies().0, copies);
        if steps == 2 {
            driver.partition.snapshot();
            driver.jobs(&mut Vec::new());
        }
        let mut driver = driver.reopened();
        assert_eq!(driver.copies().0, copies);
        driver.ask(publish("two")).unwrap();
        driver.fan_out();
        for nth in 0..COUNT {
            assert_eq!(driver.counts_of(subscription(nth)).active, 2, "{nth}");
        }
        assert_eq!(driver.counts_of(named("t")).active, 0);
    }
}

/// Copies take room that nothing has kept free for them. They are made once the disk has room, and no turn is wasted
/// meanwhile.
#[test]
fn a_full_disk_leaves_topics_alone() {
    let few = PartitionOptions {
        tick_budget: 2,
        ..options()
    };
    let mut driver = Driver::with_subscriptions(few);
    driver.ask(create()).unwrap();
    let messages = 20;
    for _ in 0..messages {
        driver.ask(publish("x")).unwrap();
    }
    driver.storage.set_capacity_bytes(Some(9 << 19));
    driver.fill_up(|driver| {
        let body = "x".repeat(12_000);
        let sent = std::iter::repeat_with(|| driver.ask(send(body.clone())));
        sent.take_while(Result::is_ok).count()
    });
    assert_eq!(driver.waiting(), 1, "it was too quick");
    let (copies, _) = driver.copies();
    for _ in 0..20 {
        driver.rest();
    }
    assert_eq!(driver.copies().0, copies);
    // Nothing is due at once: a partition without commands sleeps.
    let now = driver.now;
    let next = driver.partition.state().next_deadline();
    assert!(next.is_none_or(|next| next > now), "{next:?} at {now:?}");

    driver.storage.set_capacity_bytes(None);
    driver.now = driver.now.plus_seconds(10);
    driver.fan_out();
    for nth in 0..COUNT {
        assert_eq!(
            driver.counts_of(subscription(nth)).active,
            messages,
            "{nth}"
        );
    }
    assert!(driver.counts_of(orders()).active > 0);
}
