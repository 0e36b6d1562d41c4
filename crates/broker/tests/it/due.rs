//! When a snapshot is due because of many small effects: what it costs is bounded too.

use bytes::Bytes;
use kew_broker::PartitionOptions;
use kew_engine::bus::{BusCommand, BusMessage, BusQueueOptions};
use kew_engine::storage::{Metadata, StorageCommand};
use kew_engine::{Command, EntityName, RunLength};
use kew_log::FaultyStorage;

use crate::bus::named;
use crate::partition::{Driver, options};
use crate::support::{create, send};

/// Only effects make a snapshot due.
fn by_effects(least: u64) -> PartitionOptions {
    PartitionOptions {
        snapshot_after_bytes: u64::MAX / 8,
        snapshot_after_effects: least,
        ..options()
    }
}

fn create_queue(number: u32) -> Command {
    Command::Storage(StorageCommand::CreateQueue {
        queue: EntityName::storage_queue("acct", format!("queue-{number}")),
        metadata: Metadata::default(),
    })
}

/// A partition with some queues and nothing in them, and one with a message.
fn with_queues(count: u32, least: u64) -> Driver {
    let mut driver = Driver::with(FaultyStorage::new(), by_effects(u64::MAX));
    driver.ask(create()).unwrap();
    (0..count).for_each(|number| drop(driver.ask(create_queue(number)).unwrap()));
    let mut driver = Driver::with(driver.storage.kill(), by_effects(least));
    driver.ask(send("a")).unwrap();
    driver
}

/// To look at all queues takes as long as many effects.
#[test]
fn a_snapshot_waits_the_longer_the_more_queues_there_are() {
    let mut driver = with_queues(20, 10);
    let before = driver.partition.log().snapshots().last;
    let mut sent = 1;
    while driver.partition.log().snapshots().last == before {
        driver.ask(send("a")).unwrap();
        sent += 1;
        assert!(sent < 1000, "no snapshot is written");
    }
    assert!((100..300).contains(&sent), "{sent}");
}

/// Here a turn gathers one queue, and takes a millisecond.
#[test]
fn snapshots_of_many_queues_rest_most_of_the_time() {
    const TURNS: u32 = 4000;
    let mut driver = with_queues(100, 1);
    let (mut gathering, mut count) = (0, 0);
    for _ in 0..TURNS {
        let before = driver.partition.log().snapshots().last;
        gathering += u32::from(driver.partition.is_gathering());
        driver.now = driver.now.plus_ms(1);
        driver.ask(send("a")).unwrap();
        count += u32::from(driver.partition.log().snapshots().last != before);
    }
    assert!(count >= 3, "{count}");
    assert!(gathering <= TURNS / 8, "{gathering} of {TURNS} turns");
}

/// Each effect changes another chunk of sessions, with long ids.
#[test]
fn snapshots_of_many_sessions_write_no_more_than_four_times_the_log() {
    const SESSIONS: u32 = 1000;
    let options = PartitionOptions {
        run_length: RunLength::UNTOLD,
        ..by_effects(1)
    };
    let mut driver = Driver::with(FaultyStorage::new(), options);
    let options = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    let queue = named("sessions");
    let created = BusCommand::CreateQueue {
        queue: queue.clone(),
        options,
    };
    driver.ask(Command::Bus(created)).unwrap();
    let to_session = |number: u32| {
        let message = BusMessage {
            body: Bytes::new(),
            message_id: None,
            session: Some(format!("{:0100}", number * 37 % SESSIONS).into()),
            time_to_live_ms: None,
            scheduled_at: None,
        };
        Command::Bus(BusCommand::Send {
            queue: queue.clone(),
            messages: vec![message],
        })
    };
    (0..SESSIONS).for_each(|number| drop(driver.ask(to_session(number)).unwrap()));
    let end = |driver: &Driver| driver.partition.log().end().as_u64();
    let (began, mut written, mut last) = (end(&driver), 0, 0);
    let mut count = 0;
    for number in 0..3000 {
        let before = driver.partition.log().snapshots().last;
        driver.ask(to_session(number)).unwrap();
        let log = driver.partition.log();
        if log.snapshots().last != before {
            // The log grows by as much before the next one.
            written += last;
            last = log.snapshots().written_bytes.unwrap();
            count += 1;
        }
    }
    let appended = end(&driver) - began;
    assert!(count >= 3, "{count}");
    assert!(
        written <= 4 * appended,
        "{written} bytes of {count} snapshots for {appended}"
    );
}
