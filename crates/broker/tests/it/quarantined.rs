//! Messages whose records are damaged in both copies of a page are set aside, and all others are served.

use std::collections::BTreeSet;

use kew_broker::{PartitionOptions, Rejection};
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueOptions, DeliveredMessage, Disposition, Purge,
};
use kew_engine::storage::StorageCommand;
use kew_engine::{Command, Outcome, Resident};
use kew_log::FaultyStorage;

use crate::bus;
use crate::cold::{named, short};
use crate::partition::Driver;
use crate::passed_over::{create_named, damage, on_pages, pages_of_runs, snapshot, unlimited};
use crate::resident::{ask_all, body, fill, limited, received, rest};
use crate::support::{create, delete, queue, receive, send};
use crate::warming::settle;

const COUNT: u64 = 5000;

/// What the second run has: messages begin at the number 1.
const LOST: std::ops::Range<u64> = 1023..2047;
const LOST_COUNT: u64 = LOST.end - LOST.start;

/// A start that reads no page of a run unless it must.
fn small() -> PartitionOptions {
    limited(Some(1000))
}

/// A queue, of which both copies of the second run's page are damaged.
fn damaged() -> FaultyStorage {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(create()).unwrap();
    fill(&mut driver, COUNT);
    with_damage(driver)
}

fn with_damage(driver: Driver) -> FaultyStorage {
    let storage = on_pages(driver, create_named("another"));
    let [newest, _] = pages_of_runs(&storage);
    damage(&storage, &newest[1..2], 0..2);
    storage
}

/// Takes out all messages that there are.
fn drain(driver: &mut Driver) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    loop {
        let (messages, bodies) = received(driver.ask(receive(32)));
        if messages.is_empty() {
            return all;
        }
        all.extend(bodies);
        let deletes = messages.iter().map(delete);
        assert!(ask_all(driver, deletes).iter().all(Result::is_ok));
    }
}

fn others() -> BTreeSet<String> {
    let others = (0..COUNT).filter(|number| !LOST.contains(number));
    others.map(body).collect()
}

/// How many messages there are, and how many of them are set aside.
fn counts(driver: &Driver) -> (u64, u64) {
    let state = driver.partition.state();
    state.check_live_bytes();
    (state.counts().1, driver.partition.quarantined_count())
}

fn assert_same(one: &Driver, other: &Driver) {
    let (one, other) = (one.partition.state(), other.partition.state());
    assert!(one == other, "the states differ");
}

#[test]
fn all_others_are_served() {
    let mut driver = Driver::with(damaged(), small());
    assert_eq!(counts(&driver), (COUNT, 0));
    assert_eq!(drain(&mut driver), others());
    assert_eq!(counts(&driver), (LOST_COUNT, LOST_COUNT));
    driver.ask(send("later")).unwrap();
    assert_eq!(drain(&mut driver), BTreeSet::from(["later".to_owned()]));
}

/// The event names them, so it means the same over an older snapshot.
#[test]
fn they_stay_aside_after_a_start() {
    let mut driver = Driver::with(damaged(), small());
    driver.ask(send("later")).unwrap();
    for _ in 0..40 {
        driver.ask(receive(32)).unwrap();
    }
    assert_eq!(counts(&driver), (COUNT + 1, LOST_COUNT));
    let replayed = Driver::with(driver.storage.kill(), small());
    assert_same(&replayed, &driver);
    snapshot(&mut driver);
    snapshot(&mut driver);
    for options in [small(), unlimited()] {
        let mut again = Driver::with(driver.storage.kill(), options);
        assert_eq!(counts(&again), (COUNT + 1, LOST_COUNT));
        assert_same(&again, &driver);
        again.now = again.now.plus_seconds(600);
        let mut expected = others();
        expected.insert("later".to_owned());
        assert_eq!(drain(&mut again), expected);
        snapshot(&mut again);
        snapshot(&mut again);
        let last = Driver::with(again.storage.kill(), unlimited());
        assert_eq!(counts(&last), (LOST_COUNT, LOST_COUNT));
        assert_same(&last, &again);
    }
}

#[test]
fn they_end_with_what_their_queue_had() {
    let mut driver = Driver::with(damaged(), small());
    drain(&mut driver);
    assert_eq!(counts(&driver), (LOST_COUNT, LOST_COUNT));
    let clear = Command::Storage(StorageCommand::Clear { queue: queue() });
    driver.ask(clear).unwrap();
    assert_eq!(counts(&driver), (0, 0));
    assert_eq!(driver.partition.state().resident(), Resident::default());
    assert_eq!(driver.partition.state().live_bytes(), 0);
}

#[test]
fn they_end_with_their_queue() {
    let mut driver = Driver::with(damaged(), small());
    drain(&mut driver);
    let delete = StorageCommand::DeleteQueue { queue: queue() };
    driver.ask(Command::Storage(delete)).unwrap();
    assert_eq!(counts(&driver), (0, 0));
    assert_eq!(driver.partition.state().live_bytes(), 0);
}

/// Nothing says when a single one that is lost would have ended.
#[test]
fn they_end_when_all_of_their_run_have_expired() {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(create()).unwrap();
    for _ in 0..COUNT / 100 {
        let sends = (0..100).map(|_| short(queue(), 3600));
        assert!(ask_all(&mut driver, sends).iter().all(Result::is_ok));
    }
    let mut driver = Driver::with(with_damage(driver), small());
    drain(&mut driver);
    driver.now = driver.now.plus_seconds(3500);
    rest(&mut driver);
    assert_eq!(counts(&driver), (LOST_COUNT, LOST_COUNT));
    driver.now = driver.now.plus_seconds(200);
    rest(&mut driver);
    assert_eq!(counts(&driver), (0, 0));
    let again = Driver::with(driver.storage.kill(), small());
    assert_same(&again, &driver);
}

/// A file that is missing may come back.
#[test]
fn what_is_on_a_missing_file_is_not_lost() {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(create()).unwrap();
    fill(&mut driver, COUNT);
    let storage = on_pages(driver, create_named("another"));
    let mut driver = Driver::with(storage.clone(), small());
    let [newest, _] = pages_of_runs(&storage);
    let first = 2 * u64::from(newest[1].place.pair);
    for file in [first, first + 1] {
        storage.lose_file(&format!("pages-{file:020}"));
    }
    let refused = driver.ask(receive(1));
    assert!(matches!(refused, Err(Rejection::ReadFailed)), "{refused:?}");
    assert_eq!(counts(&driver), (COUNT, 0));
}

/// A queue of Service Bus with so many messages that live for a minute, of which both copies of the first run's page are
/// damaged.
fn damaged_orders(count: u64, time_to_live_ms: Option<u64>) -> Driver {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(bus::create()).unwrap();
    let numbers: Vec<u64> = (0..count).collect();
    for numbers in numbers.chunks(100) {
        let messages = numbers.iter().map(|number| BusMessage {
            body: body(*number).into(),
            message_id: None,
            session: None,
            time_to_live_ms,
            scheduled_at: None,
        });
        let (queue, messages) = (bus::orders(), messages.collect());
        let send = Command::Bus(BusCommand::Send { queue, messages });
        driver.ask(send).unwrap();
    }
    let another = Command::Bus(BusCommand::CreateQueue {
        queue: bus::named("another"),
        options: BusQueueOptions::default(),
    });
    let storage = on_pages(driver, another);
    let [newest, _] = pages_of_runs(&storage);
    let mut driver = Driver::with(storage.clone(), small());
    // Their locks are known, and their records are not in memory.
    let locked = locked(&mut driver, 10);
    assert_eq!(locked.len(), 10);
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    driver.partition.evict_if(|_, may| may);
    assert_eq!(driver.partition.state().resident().records, 10);
    damage(&driver.storage, &newest[..1], 0..2);
    driver
}

fn locked(driver: &mut Driver, count: u32) -> Vec<DeliveredMessage> {
    bus::received(driver.ask(bus::receive(count)).unwrap()).0
}

fn purge() -> Command {
    Command::Bus(BusCommand::Purge {
        queue: bus::orders(),
        purge: Purge {
            from: kew_engine::SequenceNumber::default(),
            until: None,
            before: None,
            count: u32::MAX,
            with_locked: true,
            is_dry_run: false,
        },
    })
}

#[test]
fn a_bus_queue_serves_all_others() {
    let mut driver = damaged_orders(3000, None);
    let mut bodies = 0;
    loop {
        let messages = locked(&mut driver, 100);
        if messages.is_empty() {
            break;
        }
        bodies += messages.len() as u64;
        driver
            .ask(bus::settle(&messages, &Disposition::Complete))
            .unwrap();
    }
    // The ten that are locked have changed, so their records are in memory.
    assert_eq!(bodies, 3000 - 1023);
    let lost = 1023 - 10;
    assert_eq!(counts(&driver), (lost + 10, lost));
    let again = Driver::with(driver.storage.kill(), small());
    assert_same(&again, &driver);
    snapshot(&mut driver);
    snapshot(&mut driver);
    let mut driver = Driver::with(driver.storage.kill(), unlimited());
    assert_eq!(counts(&driver), (lost + 10, lost));
    let purged = driver.ask(purge()).unwrap().outcome;
    assert!(
        matches!(&purged, Outcome::Bus(BusOutcome::Purged(it)) if it.count == 10),
        "{purged:?}"
    );
    assert_eq!(counts(&driver), (0, 0));
    assert_eq!(driver.partition.state().resident(), Resident::default());
    let again = Driver::with(driver.storage.kill(), unlimited());
    assert_same(&again, &driver);
}

#[test]
fn lost_messages_of_a_bus_queue_expire_with_their_run() {
    let mut driver = damaged_orders(1500, Some(600_000));
    locked(&mut driver, 1);
    let (count, lost) = counts(&driver);
    assert_eq!((count, lost), (1500, 1013));
    driver.now = driver.now.plus_seconds(1000);
    for _ in 0..20 {
        rest(&mut driver);
        driver.ask(bus::read()).unwrap();
    }
    assert_eq!(counts(&driver).1, 0);
    let again = Driver::with(driver.storage.kill(), small());
    assert_same(&again, &driver);
}

#[test]
fn the_others_of_a_queue_are_named_apart() {
    let mut driver = Driver::with(damaged(), small());
    driver.ask(create_named("other")).unwrap();
    drain(&mut driver);
    let quarantined: Vec<_> = driver.partition.state().quarantined().collect();
    let [(_, first, count)] = quarantined[..] else {
        panic!("{quarantined:?}");
    };
    assert_eq!((first.as_u64(), count), (1024, LOST_COUNT));
    driver.ask(short(named("other"), 60)).unwrap();
}

/// The page with the damage goes once all that is left of its run was read back, so a backup can be made again.
#[test]
fn what_is_left_of_their_run_gets_another_page() {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(create()).unwrap();
    fill(&mut driver, COUNT);
    let storage = on_pages(driver, create_named("another"));
    let [newest, _] = pages_of_runs(&storage);
    let damaged = newest[1];
    for copy in 0..2 {
        // A byte of the last group.
        let name = format!("pages-{:020}", 2 * u64::from(damaged.place.pair) + copy);
        let last = damaged.place.offset + damaged.place.size_bytes - 8;
        storage.flip(&name, u64::from(last), 1);
    }
    let mut driver = Driver::with(storage, small());
    // They are met by a receiver.
    for _ in 0..64 {
        driver.ask(receive(32)).unwrap();
    }
    let (_, lost) = counts(&driver);
    assert!(lost > 0 && lost <= 128, "{lost}");
    settle(&mut driver);
    for _ in 0..2 {
        driver.ask(send("later")).unwrap();
        driver.partition.snapshot();
        settle(&mut driver);
    }
    let [newest, before] = pages_of_runs(&driver.storage);
    let names = |pages: &[kew_log::TablePage]| pages.iter().any(|it| it.number == damaged.number);
    assert!(!names(&newest) && !names(&before), "{newest:?}");
    assert_eq!(counts(&driver), (COUNT + 2, lost));
    let again = Driver::with(driver.storage.kill(), unlimited());
    assert_same(&again, &driver);
}
