//! Records of bus queues leave memory in every state of their messages, and come back one by one.

use std::collections::VecDeque;

use kew_broker::{PartitionOptions, Reply};
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueCounts, BusQueueOptions, Disposition, ReceiveMode,
};
use kew_engine::{Command, EntityName, Outcome, RunLength, Timestamp, Token};
use kew_log::{FaultyStorage, LogOptions};

use crate::bus::{named, orders, received};
use crate::partition::{Driver, options};
use crate::resident::{limited, records, rest};
use crate::support::moment;

const LOCK_MS: u64 = 300_000;

fn create(queue: EntityName) -> Command {
    let options = BusQueueOptions {
        lock_duration_ms: LOCK_MS,
        ..BusQueueOptions::default()
    };
    Command::Bus(BusCommand::CreateQueue { queue, options })
}

fn send(queue: EntityName, count: u64, scheduled_at: Option<Timestamp>) -> Command {
    let message = |number: u64| BusMessage {
        body: format!("message {number}").into(),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at,
    };
    let messages = (0..count).map(message).collect();
    Command::Bus(BusCommand::Send { queue, messages })
}

/// Locks so many messages.
fn lock(driver: &mut Driver, queue: EntityName, count: u32) -> Vec<Token> {
    let receive = BusCommand::Receive {
        queue,
        count,
        mode: ReceiveMode::PeekLock,
        session: None,
    };
    let (messages, _) = received(driver.ask(Command::Bus(receive)).unwrap());
    messages.into_iter().map(|it| it.lock.unwrap()).collect()
}

fn counts(driver: &mut Driver, queue: EntityName) -> BusQueueCounts {
    let read = Command::Bus(BusCommand::ReadQueue { queue });
    match driver.ask(read).unwrap().outcome {
        Outcome::Bus(BusOutcome::Queue(view)) => view.counts,
        outcome => panic!("{outcome:?}"),
    }
}

/// Writes a snapshot, and takes what it has out of memory.
fn cool(driver: &mut Driver) {
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    rest(driver);
    driver.partition.check_cold_pages();
}

/// Asks a command, and returns the answer and the most records that were in memory until then.
fn watched(driver: &mut Driver, command: Command) -> (Reply, u64) {
    let mut commands = VecDeque::from([(0, command)]);
    let (mut replies, mut most) = (Vec::new(), 0);
    while replies.is_empty() {
        let now = moment(driver.now);
        driver.partition.turn(now, &mut commands, &mut replies);
        while let Some(job) = driver.partition.next_job() {
            let outcome = job.run();
            driver.partition.complete(outcome, &mut replies).unwrap();
            most = most.max(records(driver));
        }
    }
    (replies.remove(0).1, most)
}

/// All messages of a large queue are locked, and none is in memory. What is settled comes back, and nothing beside it.
#[test]
fn random_settlements_read_the_messages_that_they_name() {
    const COUNT: usize = 50_000;
    const SETTLED: usize = 5000;
    let options = PartitionOptions {
        log: LogOptions {
            segment_size_first_bytes: 16 << 20,
            segment_size_max_bytes: 16 << 20,
            batch_size_max_bytes: 8 << 20,
            ..options().log
        },
        // What is locked while it is cold stays beside its page.
        snapshot_after_bytes: u64::MAX / 8,
        ..limited(Some(0))
    };
    let mut driver = Driver::with(FaultyStorage::new(), options);
    driver.ask(create(orders())).unwrap();
    let mut locks = Vec::new();
    while locks.len() < COUNT {
        driver.ask(send(orders(), 1000, None)).unwrap();
        locks.extend(lock(&mut driver, orders(), 1000));
    }
    cool(&mut driver);
    assert_eq!(records(&driver), 0);
    // 7,919 is a prime: each is another one.
    let settled = (0..SETTLED).map(|nth| locks[nth * 7919 % COUNT]);
    let settlements = settled.map(|lock| (lock, Disposition::Complete)).collect();
    let queue = orders();
    let settle = Command::Bus(BusCommand::Settle { queue, settlements });
    let (reply, most) = watched(&mut driver, settle);
    reply.unwrap();
    assert!(most <= SETTLED as u64, "{most} records were in memory");
    assert!(most > 4000, "{most}: nothing was read");
    let left = (COUNT - SETTLED) as u64;
    assert_eq!(counts(&mut driver, orders()).active, left);
    driver.partition.state().check_live_bytes();
    // The others are as they were, also after a crash.
    let lock = locks[locks.len() - 1];
    let renew = |lock| {
        Command::Bus(BusCommand::RenewLocks {
            queue: orders(),
            locks: vec![lock],
        })
    };
    assert!(driver.ask(renew(locks[0])).is_err(), "it was settled");
    driver.ask(renew(lock)).unwrap();
    let (storage, now) = (driver.storage.kill(), driver.now);
    let mut driver = Driver::with(storage, limited(Some(0)));
    driver.now = now;
    assert_eq!(counts(&mut driver, orders()).active, left);
    driver.ask(renew(lock)).unwrap();
}

/// Locks that end and schedules that fall due are carried out on messages that are not in memory.
#[test]
fn what_falls_due_is_read() {
    const COUNT: u64 = 900;
    let mut driver = Driver::with(FaultyStorage::new(), limited(Some(0)));
    driver.ask(create(orders())).unwrap();
    driver.ask(create(named("later"))).unwrap();
    let at = driver.now.plus_seconds(100);
    for _ in 0..3 {
        driver.ask(send(orders(), COUNT / 3, None)).unwrap();
        driver
            .ask(send(named("later"), COUNT / 3, Some(at)))
            .unwrap();
    }
    assert_eq!(lock(&mut driver, orders(), 900).len(), 900);
    cool(&mut driver);
    assert_eq!(records(&driver), 0);
    let (locked, later) = (
        counts(&mut driver, orders()),
        counts(&mut driver, named("later")),
    );
    assert_eq!((locked.active, locked.ready), (COUNT, 0));
    assert_eq!((later.scheduled, later.ready), (COUNT, 0));
    driver.now = driver.now.plus_ms(LOCK_MS + 1);
    for _ in 0..400 {
        driver.rest();
    }
    let (locked, later) = (
        counts(&mut driver, orders()),
        counts(&mut driver, named("later")),
    );
    assert_eq!((locked.active, locked.ready), (COUNT, COUNT));
    assert_eq!((later.scheduled, later.ready), (0, COUNT));
    assert_eq!(lock(&mut driver, named("later"), 900).len(), 900);
    assert_eq!(lock(&mut driver, orders(), 900).len(), 900);
}

/// However long the work takes, what stays in memory for it is what it needs next, beside what changed since the last
/// snapshot.
#[test]
fn due_work_keeps_what_it_needs_next() {
    // The last run has a page: one of a single message would have none.
    const COUNT: u64 = 399;
    let options = PartitionOptions {
        run_length: RunLength::TINY,
        snapshot_after_bytes: u64::MAX / 8,
        tick_budget: 2,
        ..limited(Some(0))
    };
    let mut driver = Driver::with(FaultyStorage::new(), options);
    driver.ask(create(orders())).unwrap();
    let at = driver.now.plus_seconds(100);
    for _ in 0..3 {
        driver.ask(send(orders(), COUNT / 3, Some(at))).unwrap();
    }
    cool(&mut driver);
    assert_eq!(records(&driver), 0);
    driver.now = at.plus_ms(1);
    let mut most = 0;
    for _ in 0..60 {
        driver.partition.snapshot();
        for _ in 0..16 {
            driver.rest();
            most = most.max(records(&driver));
        }
    }
    assert!(driver.partition.state().next_deadline().is_none());
    assert_eq!(counts(&mut driver, orders()).ready, COUNT);
    assert!(most <= 150, "{most} records were in memory");
}

/// A tick comes to few of them. What the others have read stays until it comes to them.
#[test]
fn due_work_of_many_queues_reads_each_message_once() {
    const QUEUES: usize = 60;
    let options = PartitionOptions {
        run_length: RunLength::TINY,
        snapshot_after_bytes: u64::MAX / 8,
        tick_budget: 2,
        ..limited(Some(0))
    };
    let mut driver = Driver::with(FaultyStorage::new(), options);
    let queues: Vec<EntityName> = (0..QUEUES).map(|it| named(&format!("q{it}"))).collect();
    for queue in &queues {
        driver.ask(create(queue.clone())).unwrap();
        driver.ask(send(queue.clone(), 7, None)).unwrap();
        lock(&mut driver, queue.clone(), 7);
    }
    cool(&mut driver);
    assert_eq!(records(&driver), 0);
    driver.now = driver.now.plus_ms(LOCK_MS + 1);
    for _ in 0..2000 {
        driver.rest();
    }
    for queue in &queues {
        assert_eq!(counts(&mut driver, queue.clone()).ready, 7);
    }
    let loaded = driver.partition.loaded_count();
    assert!(loaded <= 7 * QUEUES as u64, "{loaded} groups were read");
}
