//! Runs whose pages are worth writing again are read back, and leave memory with what lay beside their pages.

use kew_broker::PartitionOptions;
use kew_engine::bus::{BusCommand, BusMessage, BusQueueOptions, ReceiveMode};
use kew_engine::storage::StorageCommand;
use kew_engine::{BodyEncoding, Command, EntityName, Token, VisibilityTimeout};
use kew_log::{FaultyStorage, LogOptions};

use crate::bus::{self, orders};
use crate::partition::{Driver, options};
use crate::passed_over::{create_named, damage, pages_of_runs};
use crate::resident::{ask_all, body, fill, limited, received, records};
use crate::support::{create, delete, next_wake, receive, send};

/// Lets time pass until nothing is left to do for some seconds. Panics if that does not end. Returns how many snapshots
/// were written.
fn settle(driver: &mut Driver) -> u64 {
    let (mut snapshots, mut last) = (0, driver.partition.log().last_snapshot());
    for _ in 0..100_000 {
        let wake = next_wake(&driver.partition);
        let Some(wake) = wake.filter(|at| *at <= driver.now.plus_seconds(100)) else {
            return snapshots;
        };
        driver.now = wake.max(driver.now.plus_ms(1));
        driver.rest();
        driver.partition.check_cold_pages();
        let newest = driver.partition.log().last_snapshot();
        snapshots += u64::from(last != newest);
        last = newest;
    }
    panic!("it does not come to rest");
}

fn size_of_pages(driver: &Driver) -> u64 {
    let files = driver.storage.files().into_iter();
    let pages = files.filter(|(name, _)| name.starts_with("pages-"));
    pages.map(|(_, size_bytes)| size_bytes as u64).sum()
}

/// Deletes all messages but each one whose number can be divided.
fn thin_out(driver: &mut Driver, count: u64, kept: u64) {
    let mut number = 0;
    while number < count {
        let (messages, _) = received(driver.ask(receive(32)));
        assert!(!messages.is_empty());
        let numbered = (number..).zip(&messages);
        let deleted = numbered.filter(|(number, _)| !number.is_multiple_of(kept));
        let deletes = deleted.map(|(_, message)| delete(message));
        assert!(ask_all(driver, deletes).iter().all(Result::is_ok));
        number += messages.len() as u64;
    }
}

/// Two in a thousand messages of a large queue are left. Their pages shrink with them, although nothing else happens.
#[test]
fn pages_shrink_with_what_is_left() {
    const COUNT: u64 = 60_000;
    let mut sizes = Vec::new();
    for records_max in [Some(6000), None] {
        let mut driver = Driver::with(FaultyStorage::new(), limited(records_max));
        driver.ask(create()).unwrap();
        fill(&mut driver, COUNT);
        thin_out(&mut driver, COUNT, 500);
        settle(&mut driver);
        assert_eq!(driver.partition.state().counts().1, COUNT / 500);
        driver.partition.state().check_live_bytes();
        let is_warmed = driver.partition.warmed_count() > 0;
        assert_eq!(is_warmed, records_max.is_some());
        sizes.push(size_of_pages(&driver));
        // All of them come again.
        driver.now = driver.now.plus_seconds(601);
        let mut driver = reopened(driver, limited(records_max));
        for number in (0..COUNT).step_by(32 * 500) {
            let left = (number..COUNT).step_by(500).take(32).map(body);
            let (_, bodies) = received(driver.ask(receive(32)));
            assert!(bodies.into_iter().eq(left), "from {number}");
        }
    }
    assert!(sizes[0] <= 60_000, "{sizes:?} bytes");
}

fn reopened(driver: Driver, options: PartitionOptions) -> Driver {
    let now = driver.now;
    let mut driver = Driver::with(driver.storage.kill(), options);
    driver.now = now;
    driver
}

fn send_to(queue: &str, number: u64) -> Command {
    Command::Storage(StorageCommand::Send {
        queue: EntityName::storage_queue("acct", queue),
        body: body(number).into(),
        encoding: BodyEncoding::Text,
        time_to_live_seconds: None,
        visibility_timeout: VisibilityTimeout::ZERO,
    })
}

/// None of them has as many messages as a run needs to get a page by itself.
#[test]
fn many_queues_of_few_messages_leave_memory() {
    const QUEUES: u64 = 400;
    const EACH: u64 = 60;
    const RECORDS_MAX: u64 = 4000;
    let mut driver = Driver::with(FaultyStorage::new(), limited(Some(RECORDS_MAX)));
    for queue in 0..QUEUES {
        let name = format!("q{queue}");
        driver.ask(create_named(&name)).unwrap();
        let sends = (0..EACH).map(|number| send_to(&name, number));
        assert!(ask_all(&mut driver, sends).iter().all(Result::is_ok));
    }
    settle(&mut driver);
    let left = records(&driver);
    assert!(left <= RECORDS_MAX, "{left} records are in memory");
    let snapshots = settle(&mut driver);
    assert_eq!(snapshots, 0, "nothing is left to do");
    // Each of them is still there after a crash, and counts what it has.
    let mut driver = reopened(driver, limited(Some(RECORDS_MAX)));
    assert_eq!(driver.partition.state().counts().1, QUEUES * EACH);
    for queue in [0, 7, QUEUES - 1] {
        let receive = Command::Storage(StorageCommand::Receive {
            queue: EntityName::storage_queue("acct", format!("q{queue}")),
            count: 32,
            visibility_timeout: VisibilityTimeout::ZERO,
        });
        let (_, bodies) = received(driver.ask(receive));
        assert!(bodies.into_iter().eq((0..32).map(body)), "{queue}");
    }
}

fn locked(driver: &mut Driver, count: usize) -> Vec<Token> {
    let options = BusQueueOptions {
        lock_duration_ms: 300_000,
        ..BusQueueOptions::default()
    };
    let queue = orders();
    let create = BusCommand::CreateQueue { queue, options };
    driver.ask(Command::Bus(create)).unwrap();
    let message = || BusMessage {
        body: "message".into(),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    };
    let mut locks = Vec::new();
    while locks.len() < count {
        let send = BusCommand::Send {
            queue: orders(),
            messages: (0..1000).map(|_| message()).collect(),
        };
        driver.ask(Command::Bus(send)).unwrap();
        let receive = BusCommand::Receive {
            queue: orders(),
            count: 1000,
            mode: ReceiveMode::PeekLock,
            session: None,
        };
        let (messages, _) = bus::received(driver.ask(Command::Bus(receive)).unwrap());
        locks.extend(messages.into_iter().map(|it| it.lock.unwrap()));
    }
    locks
}

/// Every message of a large queue is locked for longer, in random order: a few of each run at a time. What has changed stays
/// beside the pages for a while only.
#[test]
fn random_leases_do_not_stay_in_memory() {
    const COUNT: usize = 40_000;
    const RECORDS_MAX: u64 = 4000;
    let mut most = Vec::new();
    for records_max in [Some(RECORDS_MAX), None] {
        let options = PartitionOptions {
            log: LogOptions {
                segment_size_first_bytes: 16 << 20,
                segment_size_max_bytes: 16 << 20,
                batch_size_max_bytes: 8 << 20,
                ..options().log
            },
            snapshot_after_bytes: 64 << 10,
            ..limited(records_max)
        };
        let mut driver = Driver::with(FaultyStorage::new(), options);
        let mut locks = locked(&mut driver, COUNT);
        settle(&mut driver);
        let mut most_now = 0;
        for round in 0..COUNT / 500 {
            // 7,919 is a prime: each is another one.
            let at = (0..500).map(|nth| (500 * round + nth) * 7919 % COUNT);
            let at: Vec<usize> = at.collect();
            let renew = BusCommand::RenewLocks {
                queue: orders(),
                locks: at.iter().map(|at| locks[*at]).collect(),
            };
            driver.ask(Command::Bus(renew)).unwrap();
            for _ in 0..20 {
                driver.now = driver.now.plus_ms(10);
                driver.rest();
            }
            most_now = most_now.max(records(&driver));
        }
        locks.clear();
        settle(&mut driver);
        driver.partition.state().check_live_bytes();
        let resident = driver.partition.state().resident();
        most.push((most_now, resident.records));
    }
    let [(most, left), (_, without)] = most[..] else {
        panic!("two limits were tried");
    };
    assert_eq!(without, COUNT as u64);
    assert!(
        most <= RECORDS_MAX * 5 / 4 && left <= RECORDS_MAX,
        "{most} records were in memory, and {left} are"
    );
}

/// A page that cannot be read stays as it is, and what is found again after each snapshot makes none.
#[test]
fn what_cannot_be_read_is_left_alone() {
    const COUNT: u64 = 5000;
    let mut driver = Driver::with(FaultyStorage::new(), limited(Some(20_000)));
    driver.ask(create()).unwrap();
    fill(&mut driver, COUNT);
    thin_out(&mut driver, COUNT, 10);
    for _ in 0..2 {
        driver.ask(send("more")).unwrap();
        driver.partition.snapshot();
        driver.jobs(&mut Vec::new());
    }
    let storage = driver.storage.kill();
    let [pages, _] = pages_of_runs(&storage);
    damage(&storage, &pages, 0..2);
    let mut driver = Driver::with(storage, limited(Some(20_000)));
    driver.now = driver.now.plus_seconds(60);
    driver.ask(send("one more")).unwrap();
    driver.partition.snapshot();
    let snapshots = settle(&mut driver);
    assert!(snapshots < 20, "{snapshots} snapshots were written");
    assert_eq!(driver.partition.warmed_count(), 0);
    assert!(driver.partition.scrub_report().places_count > 0);
    assert_eq!(driver.partition.state().counts().1, COUNT / 10 + 3);
}
