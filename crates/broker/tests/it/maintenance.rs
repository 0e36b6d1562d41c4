//! Disk space follows live data: snapshots that free segments, and evacuation.

use std::collections::BTreeSet;

use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{BodyEncoding, Command, Outcome, VisibilityTimeout};
use kew_log::{Fault, FaultyStorage, LogSpace, Repeat};

use crate::partition::{Driver, options};
use crate::support::{create, delete, next_wake, queue, receive, send};

const SEGMENT_BYTES: u64 = 64 * 1024;

/// More turns than an idle partition needs for what these tests leave behind.
const TURNS_MAX: usize = 400;

pub(crate) fn space(driver: &Driver) -> LogSpace {
    driver.partition.log().files().unwrap().space()
}

fn bytes_max(driver: &Driver) -> u64 {
    driver.partition.state().live_bytes() * 14 / 10 + 4 * SEGMENT_BYTES
}

/// Lets an idle partition do what it wants to do, within a minute. Returns the number of turns until it wants nothing.
fn settle(driver: &mut Driver) -> usize {
    settle_within(driver, TURNS_MAX)
}

/// The same with another number of turns.
pub(crate) fn settle_within(driver: &mut Driver, turns_max: usize) -> usize {
    let until = driver.now.plus_seconds(60);
    for turns in 0..turns_max {
        let Some(at) = next_wake(&driver.partition).filter(|at| *at <= until) else {
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
    send_many(&mut driver, 2400);
    assert!(space(&driver).size_bytes > 8 * SEGMENT_BYTES);
    driver
        .ask(Command::Storage(StorageCommand::Clear { queue: queue() }))
        .unwrap();
    let turns = settle(&mut driver);
    assert!(turns < 40, "{turns} turns");
    let found = space(&driver);
    assert!(found.size_bytes <= bytes_max(&driver), "{found:?}");
    assert!(found.recycled <= 1, "{found:?}");
    // The ballast is at most twice as large as the state needs.
    let others_bytes = found.disk_bytes - found.size_bytes - found.pages_bytes;
    assert!(others_bytes < 24 * SEGMENT_BYTES, "{found:?}");
    // Page files are emptied when more than half of one is dead. There are two copies, and one pair is appended to.
    assert!(found.pages_bytes <= 2 * 2 * 64 * 1024, "{found:?}");
    assert_eq!(driver.partition.moved_count(), 0);
}

#[test]
fn an_idle_partition_writes_nothing_that_frees_nothing() {
    let mut driver = Driver::new();
    send_many(&mut driver, 600);
    let snapshot = driver.partition.log().snapshots().last;
    let turns = settle(&mut driver);
    assert!(turns < 20, "{turns} turns");
    let log = driver.partition.log();
    assert_eq!(log.snapshots().last, snapshot);
    assert_eq!(driver.partition.moved_count(), 0);
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

/// Sends a message, receives and deletes it.
fn pass_through(driver: &mut Driver, body: String) {
    driver.ask(send(body)).unwrap();
    let answer = driver.ask(receive(1)).unwrap();
    let Outcome::Storage(StorageOutcome::Received(messages)) = &answer.outcome else {
        panic!("a receive receives");
    };
    driver.ask(delete(&messages[0])).unwrap();
}

/// Sends messages, and deletes all but every nth. Returns the bodies of the others.
fn sparse(driver: &mut Driver, count: usize, nth: usize) -> BTreeSet<String> {
    let mut kept = BTreeSet::new();
    for number in 0..count {
        let body = format!("{number}:{}", "x".repeat(1000));
        driver.ask(send(body.clone())).unwrap();
        let answer = driver.ask(receive(1)).unwrap();
        let Outcome::Storage(StorageOutcome::Received(messages)) = &answer.outcome else {
            panic!("a receive receives");
        };
        if number % nth == 0 {
            kept.insert(body);
        } else {
            driver.ask(delete(&messages[0])).unwrap();
        }
    }
    kept
}

/// The bodies of all messages that can be read, once their leases have ended.
fn bodies(driver: &mut Driver) -> BTreeSet<String> {
    driver.now = driver.now.plus_seconds(601);
    let mut found = BTreeSet::new();
    loop {
        let answer = driver.ask(receive(32)).unwrap();
        if answer.bodies.is_empty() {
            return found;
        }
        let read = answer.bodies.read().into_iter().flatten();
        found.extend(read.map(|body| String::from_utf8(body.to_vec()).unwrap()));
    }
}

#[test]
fn the_few_bodies_of_a_segment_move() {
    let mut driver = Driver::new();
    let kept = sparse(&mut driver, 1000, 40);
    let turns = settle(&mut driver);
    assert!(
        space(&driver).size_bytes <= bytes_max(&driver),
        "{:?}",
        space(&driver)
    );
    assert!(
        driver.partition.moved_count() >= 15,
        "{} in {turns} turns",
        driver.partition.moved_count()
    );
    assert_eq!(bodies(&mut driver), kept);
    let now = driver.now;
    let mut driver = driver.reopened();
    driver.now = now;
    driver.partition.state().check_live_bytes();
    assert_eq!(bodies(&mut driver), kept);
}

#[test]
fn a_restart_goes_on_with_what_has_not_moved() {
    let mut driver = Driver::new();
    let kept = sparse(&mut driver, 1000, 10);
    let mut restarts = 0;
    while space(&driver).size_bytes > bytes_max(&driver) {
        for _ in 0..60 {
            let Some(at) = next_wake(&driver.partition) else {
                break;
            };
            driver.now = at.max(driver.now.plus_ms(1));
            driver.rest();
        }
        let now = driver.now;
        driver = driver.reopened();
        driver.now = now;
        driver.partition.state().check_live_bytes();
        restarts += 1;
        assert!(restarts < 100, "{:?}", space(&driver));
    }
    assert!(restarts > 1, "{restarts} restarts");
    assert_eq!(bodies(&mut driver), kept);
}

#[test]
fn a_busy_partition_moves_bodies_in_a_share_of_its_bandwidth() {
    let mut driver = Driver::new();
    let mut kept = sparse(&mut driver, 400, 20);
    let (mut number, before) = (0, driver.partition.moved_count());
    while driver.partition.moved_count() == before {
        driver.now = driver.now.plus_ms(1);
        pass_through(&mut driver, format!("busy {number}:{}", "y".repeat(500)));
        number += 1;
        assert!(number < 20_000, "commands have kept bodies from moving");
    }
    kept.retain(|body| !body.starts_with("busy"));
    assert_eq!(bodies(&mut driver), kept);
}

/// Lets commands write beside segments of which a few are sparse, and returns how many bytes of bodies have moved
/// meanwhile. So many bytes of the disk are free, if its size is known.
fn moved_beside_commands(free_bytes: Option<u64>) -> u64 {
    let mut options = options();
    // In smaller segments, what batches leave at their ends is far too much space already.
    options.log.segment_size_max_bytes = 2 * SEGMENT_BYTES;
    let mut driver = Driver::with(FaultyStorage::new(), options);
    driver.ask(create()).unwrap();
    for _ in 0..800 {
        driver.ask(send_hidden("x".repeat(4000))).unwrap();
    }
    sparse(&mut driver, 250, 5);
    // The log looks at its space after a second.
    for number in 0..1400 {
        let used_bytes = driver.storage.used_bytes();
        let capacity_bytes = free_bytes.map(|free| used_bytes + free);
        driver.storage.set_capacity_bytes(capacity_bytes);
        driver.now = driver.now.plus_ms(1);
        pass_through(&mut driver, format!("{number}:{}", "y".repeat(500)));
    }
    assert!(!driver.partition.is_out_of_space());
    driver.partition.moved_bytes()
}

/// A message that cannot be received meanwhile.
fn send_hidden(body: String) -> Command {
    Command::Storage(StorageCommand::Send {
        queue: queue(),
        body: body.into(),
        encoding: BodyEncoding::Text,
        time_to_live_seconds: None,
        visibility_timeout: VisibilityTimeout::from_seconds(600).unwrap(),
    })
}

/// Less than a tenth of the disk, of what segments take or could take, is little. Segments take 4 MiB.
#[test]
fn a_busy_partition_moves_more_bytes_while_little_of_the_disk_is_free() {
    let usual = moved_beside_commands(None);
    assert!(usual > 0);
    assert_eq!(moved_beside_commands(Some(4 << 20)), usual);
    let with_little = moved_beside_commands(Some(320 << 10));
    assert!(with_little > 3 * usual, "{with_little} and {usual}");
}

/// Damages the body on the disk.
fn damage(storage: &FaultyStorage, body: &str) {
    for (name, _) in storage.files() {
        let content = storage.content(&name).unwrap();
        let mut windows = content.windows(body.len());
        if let Some(at) = windows.position(|window| window == body.as_bytes()) {
            storage.flip(&name, at as u64 + 500, 1);
            return;
        }
    }
    panic!("the body is on the disk");
}

#[test]
fn a_damaged_body_keeps_its_segment_alone() {
    let mut driver = Driver::new();
    let mut kept = sparse(&mut driver, 1000, 40);
    let damaged = kept
        .iter()
        .find(|body| body.starts_with("400:"))
        .unwrap()
        .clone();
    damage(&driver.storage, &damaged);
    settle(&mut driver);
    assert!(driver.partition.moved_count() >= 15);
    assert!(
        space(&driver).size_bytes <= bytes_max(&driver) + SEGMENT_BYTES,
        "{:?}",
        space(&driver)
    );
    // The message is neither lost nor moved.
    let (_, count) = driver.partition.state().counts();
    assert_eq!(count, 25);
    kept.remove(&damaged);
    assert_eq!(bodies(&mut driver), kept);
}

#[test]
fn a_process_without_descriptors_moves_bodies_later() {
    let mut driver = Driver::new();
    let kept = sparse(&mut driver, 1000, 40);
    for calls in [0, 1, 5, 20, 60, 61, 62, 200] {
        driver
            .storage
            .fail_after(calls, Fault::Emfile, Repeat::Once);
    }
    settle(&mut driver);
    driver.storage.clear_faults();
    settle(&mut driver);
    assert!(!driver.partition.is_stopped());
    assert!(
        space(&driver).size_bytes <= bytes_max(&driver),
        "{:?}",
        space(&driver)
    );
    assert_eq!(bodies(&mut driver), kept);
}
/// What moves is bounded: moved bodies do not move again before something is deleted.
#[test]
fn small_bodies_move_once() {
    let mut driver = Driver::new();
    for number in 0..6000 {
        driver.ask(send(format!("{number}"))).unwrap();
        let answer = driver.ask(receive(1)).unwrap();
        let Outcome::Storage(StorageOutcome::Received(messages)) = &answer.outcome else {
            panic!("a receive receives");
        };
        if number % 3 != 0 {
            driver.ask(delete(&messages[0])).unwrap();
        }
    }
    settle(&mut driver);
    let moved = driver.partition.moved_count();
    assert!(moved > 0 && moved <= 2000, "{moved}");
    // A command shows nothing new.
    driver.ask(receive(1)).unwrap();
    settle(&mut driver);
    assert_eq!(driver.partition.moved_count(), moved);
}
