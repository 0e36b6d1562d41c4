//! A full disk while messages are not in memory: their pages are copied, damage is mended, and a kill loses nothing.

use std::collections::BTreeSet;

use kew_broker::PartitionOptions;
use kew_engine::storage::ReceivedMessage;
use kew_log::{FaultyStorage, LogPosition, inspect, read_table};

use crate::partition::Driver;
use crate::resident::{ask_all, body, limited, received, records, rest};
use crate::support::{create, delete, receive, send};

/// How many records may be in memory: next to none.
const RECORDS: u64 = 1000;

/// A disk that was filled with small messages. All of them are returned.
fn full(records_max: Option<u64>, mib: u64) -> (Driver, BTreeSet<String>) {
    let storage = FaultyStorage::new();
    storage.set_capacity_bytes(Some(mib << 20));
    let mut driver = Driver::with(storage, limited(records_max));
    driver.ask(create()).unwrap();
    let mut left = BTreeSet::new();
    loop {
        let number = left.len() as u64;
        let sends = (number..number + 100).map(|number| send(body(number)));
        let replies = ask_all(&mut driver, sends);
        let taken = replies.iter().take_while(|reply| reply.is_ok()).count();
        left.extend((number..).take(taken).map(body));
        if taken < 100 {
            break;
        }
    }
    assert!(driver.partition.is_out_of_space());
    // What page files give back is not enough to end it.
    let used_bytes = driver.storage.used_bytes();
    driver.storage.set_capacity_bytes(Some(used_bytes));
    (driver, left)
}

/// Receives all messages, and deletes none.
fn receive_all(driver: &mut Driver) -> Vec<ReceivedMessage> {
    let mut all = Vec::new();
    loop {
        let (messages, _) = received(driver.ask(receive(32)));
        if messages.is_empty() {
            return all;
        }
        all.extend(messages);
    }
}

/// Receives and deletes so many messages, and takes them out of what is left.
fn drain(driver: &mut Driver, left: &mut BTreeSet<String>, count: usize) {
    let until = left.len().saturating_sub(count);
    while left.len() > until {
        let (messages, bodies) = received(driver.ask(receive(32)));
        assert!(!messages.is_empty(), "{} are left", left.len());
        let deletes = messages.iter().map(delete);
        assert!(ask_all(driver, deletes).iter().all(Result::is_ok));
        assert!(bodies.iter().all(|body| left.remove(body)), "once each");
    }
}

/// With some more space than was there when it was full.
fn takes_messages_again(driver: &mut Driver) -> bool {
    driver.storage.set_capacity_bytes(Some(32 << 20));
    (0..20).any(|_| {
        driver.now = driver.now.plus_seconds(1);
        driver.ask(send(body(0))).is_ok()
    })
}

fn newest(driver: &Driver) -> LogPosition {
    driver.partition.log().snapshots().last.unwrap()
}

/// Writes a snapshot that differs from the one before.
fn snapshot(driver: &mut Driver) {
    driver.now = driver.now.plus_seconds(700);
    received(driver.ask(receive(1)));
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
}

/// A lease is larger than what a page has of a message that waits. What is reserved holds all of them, more than once, and
/// each snapshot keeps to it: the partition checks that.
#[test]
fn all_messages_can_be_leased_again_and_again_on_a_full_disk() {
    for records_max in [None, Some(RECORDS)] {
        let (mut driver, left) = full(records_max, 16);
        let mut messages = Vec::new();
        for _ in 0..3 {
            messages = receive_all(&mut driver);
            assert_eq!(messages.len(), left.len());
            driver.now = driver.now.plus_seconds(601);
        }
        assert!(driver.partition.log().snapshots().failed.is_none());
        driver.now = driver.now.plus_seconds(1);
        // In an order in which hardly any segment becomes free.
        for few in messages.rchunks(100) {
            let deletes = few.iter().map(delete);
            assert!(ask_all(&mut driver, deletes).iter().all(Result::is_ok));
        }
        let (messages, _) = received(driver.ask(receive(32)));
        assert!(messages.is_empty());
        assert!(takes_messages_again(&mut driver));
    }
}

/// Also while the disk is full: the next snapshots copy the pages.
#[test]
fn records_leave_memory_on_a_full_disk() {
    let (mut driver, mut left) = full(None, 16);
    let capacity_bytes = driver.storage.used_bytes();
    let storage = driver.storage.kill();
    storage.set_capacity_bytes(Some(capacity_bytes));
    // Without a limit a start has read all. With one of half of them, some go.
    let half = left.len() as u64 / 2;
    driver = Driver::with(storage, limited(Some(half)));
    assert!(driver.ask(send(body(0))).is_err(), "it is full still");
    snapshot(&mut driver);
    rest(&mut driver);
    let before = driver.partition.state().resident().cold_runs;
    receive_all(&mut driver);
    snapshot(&mut driver);
    rest(&mut driver);
    assert!(driver.partition.log().limits().full.is_some());
    assert!(records(&driver) <= half, "{} records", records(&driver));
    let cold_runs = driver.partition.state().resident().cold_runs;
    assert!(cold_runs > 0, "{cold_runs}, and {before} before");
    driver.now = driver.now.plus_seconds(700);
    drain(&mut driver, &mut left, usize::MAX);
    assert!(takes_messages_again(&mut driver));
}

/// The copies of pages that are damaged are written anew by the snapshots of the full disk, from the other copy.
#[test]
fn damage_is_mended_on_a_full_disk() {
    let (mut driver, mut left) = full(Some(RECORDS), 16);
    snapshot(&mut driver);
    assert!(driver.partition.log().limits().full.is_some());
    let places: Vec<_> = {
        let table = read_table(&driver.storage, newest(&driver)).unwrap().table;
        table.pages().iter().map(|page| page.place).collect()
    };
    for (place, copy) in places.iter().zip([0, 1].into_iter().cycle()) {
        let file = format!("pages-{:020}", 2 * place.pair + copy);
        driver.storage.flip(&file, u64::from(place.offset) + 40, 1);
    }
    assert_ne!(inspect(&driver.storage).unwrap().damage, []);
    for _ in 0..2 {
        snapshot(&mut driver);
        assert!(driver.partition.log().limits().full.is_some());
    }
    assert_eq!(inspect(&driver.storage).unwrap().damage, []);
    assert_eq!(driver.partition.scrub_report().unreadable_pages, 0);
    driver.now = driver.now.plus_seconds(700);
    drain(&mut driver, &mut left, usize::MAX);
    assert!(takes_messages_again(&mut driver));
}

/// Messages on a page that is lost fail, and all others can be drained: the disk is full only until then.
#[test]
fn a_lost_page_on_a_full_disk_costs_its_messages_alone() {
    let (mut driver, _) = full(Some(RECORDS), 16);
    snapshot(&mut driver);
    let table = read_table(&driver.storage, newest(&driver)).unwrap().table;
    // Of a run in the middle.
    let pages = table.pages();
    let lost = pages[pages.len() / 2].place;
    for copy in 0..2 {
        let file = format!("pages-{:020}", 2 * lost.pair + copy);
        (0..lost.size_bytes)
            .step_by(16)
            .for_each(|at| driver.storage.flip(&file, u64::from(lost.offset + at), 1));
    }
    for _ in 0..3 {
        snapshot(&mut driver);
        assert!(driver.partition.log().limits().full.is_some());
        assert_eq!(driver.partition.scrub_report().unreadable_pages, 1);
    }
    let table = read_table(&driver.storage, newest(&driver)).unwrap().table;
    let places = table.pages().iter().map(|page| page.place);
    let older: Vec<_> = places.filter(|place| place.pair <= lost.pair).collect();
    assert_eq!(older, [lost], "all others are elsewhere");
}

/// A kill at any time on a full disk, also while a snapshot with all pages anew is half written: nothing is lost, and
/// nothing comes twice.
#[test]
fn kills_on_a_full_disk_lose_nothing_that_is_on_pages_alone() {
    let options = || PartitionOptions {
        replays_beside: false,
        ..limited(Some(RECORDS))
    };
    let (mut driver, mut left) = full(Some(RECORDS), 16);
    let (mut calls, mut killed_within) = (7, 0);
    let capacity_bytes = driver.storage.used_bytes();
    while !left.is_empty() {
        drain(&mut driver, &mut left, 700);
        // Changes the pages of several runs, which a snapshot then writes.
        let (held, _) = received(driver.ask(receive(32)));
        driver.partition.snapshot();
        driver.storage.crash_after(calls);
        driver.jobs(&mut Vec::new());
        let log = driver.partition.log();
        killed_within += usize::from(driver.partition.is_stopped() && log.limits().full.is_some());
        driver.storage.clear_faults();
        calls = (calls * 5 + 3) % 23;
        let now = driver.now.plus_seconds(601);
        let storage = driver.storage.crash(&mut |count| count - 1);
        // Space is reserved for two starts, and these are more: each makes a segment.
        let needed_bytes = storage.used_bytes() + (3 << 19);
        storage.set_capacity_bytes(Some(capacity_bytes.max(needed_bytes)));
        driver = Driver::with(storage, options());
        driver.now = now;
        drop(held);
    }
    assert!(killed_within > 3, "{killed_within} within a snapshot");
    assert!(takes_messages_again(&mut driver));
}
