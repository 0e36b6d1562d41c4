//! Disk space follows live data: snapshots that free segments.

use kew_engine::Command;
use kew_engine::storage::StorageCommand;
use kew_log::LogSpace;

use crate::partition::{Driver, options};
use crate::support::{queue, send};

const SEGMENT_BYTES: u64 = 64 * 1024;

/// More turns than an idle partition needs for what these tests leave behind.
const TURNS_MAX: usize = 400;

fn space(driver: &Driver) -> LogSpace {
    driver.partition.log().space()
}

fn bytes_max(driver: &Driver) -> u64 {
    driver.partition.state().live_bytes() * 14 / 10 + 4 * SEGMENT_BYTES
}

/// Lets an idle partition do what it wants to do, within a minute. Returns the number of turns until it wants nothing.
fn settle(driver: &mut Driver) -> usize {
    let until = driver.now.plus_seconds(60);
    for turns in 0..TURNS_MAX {
        let Some(at) = driver.partition.next_wake().filter(|at| *at <= until) else {
            driver.partition.state().check_live_bytes();
            return turns;
        };
        driver.now = at.max(driver.now.plus_ms(1));
        driver.rest();
    }
    panic!("there is always something to do: {:?}", space(driver));
}

fn send_many(driver: &mut Driver, count: usize) {
    for number in 0..count {
        let body = format!("{number}:{}", "x".repeat(1000));
        driver.ask(send(body)).unwrap();
    }
}

#[test]
fn an_idle_partition_frees_its_segments_after_a_purge() {
    let mut driver = Driver::new();
    assert_eq!(options().log.segment_size_max_bytes, SEGMENT_BYTES);
    send_many(&mut driver, 600);
    assert!(space(&driver).size_bytes > 8 * SEGMENT_BYTES);
    driver
        .ask(Command::Storage(StorageCommand::Clear { queue: queue() }))
        .unwrap();
    let turns = settle(&mut driver);
    assert!(turns < 40, "{turns} turns");
    let found = space(&driver);
    assert!(found.size_bytes <= bytes_max(&driver), "{found:?}");
    assert!(found.recycled <= 1, "{found:?}");
    // The ballast is as small as the state.
    let others_bytes = found.disk_bytes - found.size_bytes;
    assert!(others_bytes < 12 * SEGMENT_BYTES, "{found:?}");
}

#[test]
fn an_idle_partition_writes_nothing_that_frees_nothing() {
    let mut driver = Driver::new();
    send_many(&mut driver, 600);
    let snapshot = driver.partition.log().last_snapshot();
    let turns = settle(&mut driver);
    assert!(turns < 20, "{turns} turns");
    let log = driver.partition.log();
    assert_eq!(log.last_snapshot(), snapshot);
    assert!(space(&driver).size_bytes <= bytes_max(&driver));
    let end = log.end();
    driver.now = driver.now.plus_seconds(3600);
    driver.rest();
    assert_eq!(settle(&mut driver), 0);
    assert_eq!(driver.partition.log().end(), end);
}

#[test]
fn a_restart_frees_what_was_left() {
    let mut driver = Driver::new();
    send_many(&mut driver, 600);
    driver
        .ask(Command::Storage(StorageCommand::Clear { queue: queue() }))
        .unwrap();
    let now = driver.now;
    let mut driver = driver.reopened();
    driver.now = now;
    assert!(space(&driver).size_bytes > 8 * SEGMENT_BYTES);
    driver.rest();
    settle(&mut driver);
    assert!(space(&driver).size_bytes <= bytes_max(&driver));
}
