//! A start reads the log on one thread and applies it on another. It comes to the same as on one thread, also if something
//! is wrong with the log.

use std::sync::Arc;

use bytes::Bytes;
use kew_broker::{OpenPartitionError, Partition, PartitionOptions};
use kew_engine::bus::{BusCommand, BusQueueOptions};
use kew_engine::{Command, Timestamp};
use kew_log::{
    BatchBuilder, BoxError, FaultyStorage, LogPosition, Need, OpenError, PageContent, PageNumber,
    Replay, SegmentLog,
};

use crate::bus::named;
use crate::partition::{Driver, options};
use crate::support::{create, send};

/// Opens a copy of the files as a start after a kill does, both ways. Both must say the same.
fn open(storage: &FaultyStorage) -> Result<(Vec<Vec<u8>>, u64), OpenPartitionError> {
    let [alone, beside] = [false, true].map(|replays_beside| {
        let options = PartitionOptions {
            replays_beside,
            ..options()
        };
        let (storage, now) = (storage.kill(), Timestamp::from_ms(2_000_000));
        let before = storage.fingerprint();
        let opened = Partition::<u32>::open(Arc::new(storage.clone()), options, 1, [1; 16], now);
        let opened = opened.map(|(partition, recovery)| {
            let mut parts = Vec::new();
            partition.state().snapshot(|part| parts.push(part.to_vec()));
            (parts, recovery.events_replayed)
        });
        assert!(opened.is_ok() || storage.fingerprint() == before);
        opened
    });
    assert_eq!(format!("{alone:?}"), format!("{beside:?}"));
    beside
}

fn create_bus_queue(name: &str) -> Command {
    Command::Bus(BusCommand::CreateQueue {
        queue: named(name),
        options: BusQueueOptions::default(),
    })
}

/// A partition with more than a job reads at once behind its snapshot: 128 KiB.
fn filled(options: PartitionOptions) -> Driver {
    let mut driver = Driver::with(FaultyStorage::new(), options);
    driver.ask(create()).unwrap();
    for number in 0..40 {
        driver.ask(send("a".repeat(3000))).unwrap();
        if number % 4 == 0 {
            driver
                .ask(create_bus_queue(&format!("queue-{number}")))
                .unwrap();
        }
    }
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    for number in 0..4000 {
        driver.ask(send(format!("b{number:0500}"))).unwrap();
    }
    driver
}

fn snapshots(storage: &FaultyStorage) -> Vec<(String, LogPosition)> {
    let files = storage.files().into_iter();
    let mut found: Vec<_> = files
        .filter_map(|(name, _)| {
            let position = name.strip_prefix("snapshot-")?.parse().ok()?;
            Some((name, LogPosition::new(position)))
        })
        .collect();
    found.sort();
    found
}

#[test]
fn both_ways_to_start_come_to_the_same_state() {
    let options = PartitionOptions {
        // The log is long.
        snapshot_after_bytes: u64::MAX / 8,
        ..options()
    };
    let driver = filled(options);
    let (parts, events) = open(&driver.storage).unwrap();
    assert!(events >= 4000, "{events}");
    let mut expected = Vec::new();
    driver
        .partition
        .state()
        .snapshot(|part| expected.push(part.to_vec()));
    assert!(parts == expected, "the state is not what it was");
}

/// What was restored from a snapshot before its damage was found does not stay.
#[test]
fn a_start_begins_anew_after_a_damaged_snapshot() {
    let driver = filled(options());
    let whole = open(&driver.storage).unwrap();
    let found = snapshots(&driver.storage);
    assert_eq!(found.len(), 2, "{found:?}");
    let storage = driver.storage.kill();
    let (newest, _) = &found[1];
    let size_bytes = storage.content(newest).unwrap().len() as u64;
    // Near the end, behind many parts.
    storage.flip(newest, size_bytes - 40, 1);
    let (parts, events) = open(&storage).unwrap();
    assert!(parts == whole.0, "the state is not what it was");
    assert!(events > whole.1, "the older snapshot was not used");
}

/// A log whose contents the engine cannot read.
struct Foreign;

impl Replay for Foreign {
    fn begin(&mut self) {}

    fn snapshot_part(&mut self, _part: &[u8]) -> Result<(), BoxError> {
        Ok(())
    }

    fn snapshot_page(&mut self, _page: PageNumber, _: &PageContent) -> Result<(), BoxError> {
        Ok(())
    }

    fn event(&mut self, _record: LogPosition, _event: &[u8]) -> Result<(), BoxError> {
        Ok(())
    }
}

fn foreign_log(storage: &FaultyStorage, events: &[&str]) -> (SegmentLog, Vec<LogPosition>) {
    let (mut log, _) =
        SegmentLog::open(Arc::new(storage.clone()), options().log, 1, &mut Foreign).unwrap();
    let positions = events.iter().map(|event| append(&mut log, event)).collect();
    (log, positions)
}

fn append(log: &mut SegmentLog, event: &str) -> LogPosition {
    let at = log.reserve(Need::grow(0)).unwrap();
    let mut batch = BatchBuilder::at(at.position);
    batch.push_event(event.as_bytes());
    log.append(at, batch).unwrap();
    log.run_commit().unwrap();
    at.position
}

/// Damages the first segment that has this.
fn flip(storage: &FaultyStorage, what: &[u8]) {
    let names = storage.files().into_iter().map(|(name, _)| name);
    let found = names
        .filter(|name| name.starts_with("segment-"))
        .find_map(|name| {
            let content = storage.content(&name)?;
            let offset = content.windows(what.len()).position(|it| it == what)?;
            Some((name, offset as u64))
        });
    let (name, offset) = found.unwrap();
    storage.flip(&name, offset, 1);
}

#[test]
fn an_event_that_cannot_be_read_is_named() {
    let storage = FaultyStorage::new();
    let (_, positions) = foreign_log(&storage, &["no event"]);
    match open(&storage) {
        Err(OpenPartitionError::Log(OpenError::Replay { position, .. })) => {
            assert_eq!(position, positions[0]);
        }
        other => panic!("{other:?}"),
    }
}

/// The state has taken other pieces before, and what was read ahead is not taken.
#[test]
fn an_event_that_cannot_be_read_is_named_behind_many_others() {
    let driver = filled(options());
    let storage = driver.storage.kill();
    let (mut log, _) =
        SegmentLog::open(Arc::new(storage.clone()), options().log, 2, &mut Foreign).unwrap();
    let position = append(&mut log, "no event");
    for _ in 0..3 {
        append(&mut log, "no event either");
    }
    match open(&storage) {
        Err(OpenPartitionError::Log(OpenError::Replay { position: at, .. })) => {
            assert_eq!(at, position);
        }
        other => panic!("{other:?}"),
    }
}

/// Reading fails at the damage, before the state has taken anything. The event lies before it.
#[test]
fn an_event_that_cannot_be_read_is_named_before_damage() {
    let storage = FaultyStorage::new();
    let (_, positions) = foreign_log(&storage, &["no event", "damaged", "whole"]);
    flip(&storage, b"damaged");
    match open(&storage) {
        Err(OpenPartitionError::Log(OpenError::Replay { position, .. })) => {
            assert_eq!(position, positions[0]);
        }
        other => panic!("{other:?}"),
    }
}

/// The job that reads goes on to the log before the state has refused the part. The snapshot is named all the same.
#[test]
fn a_snapshot_that_cannot_be_restored_is_named() {
    let storage = FaultyStorage::new();
    let (mut log, _) = foreign_log(&storage, &["no event"]);
    let parts: Vec<_> = (0..100).map(|_| Bytes::from_static(b"no part")).collect();
    let nothing = log.end()..log.end();
    assert!(log.begin_snapshot(&nothing).unwrap());
    log.write_snapshot(Box::new(parts));
    while let Some(job) = log.next_job() {
        log.complete(job.run()).unwrap();
    }
    append(&mut log, "no event");
    drop(log);
    let found = snapshots(&storage);
    assert_eq!(found.len(), 1);
    match open(&storage) {
        Err(OpenPartitionError::Log(OpenError::Replay { position, source })) => {
            assert_eq!(position, found[0].1);
            assert!(source.to_string().contains("not known"), "{source}");
        }
        other => panic!("{other:?}"),
    }
}

/// Reading fails at damage behind the snapshot, in the job that began it.
#[test]
fn a_snapshot_that_cannot_be_restored_is_named_before_damage() {
    let storage = FaultyStorage::new();
    let (mut log, _) = foreign_log(&storage, &["no event"]);
    let nothing = log.end()..log.end();
    assert!(log.begin_snapshot(&nothing).unwrap());
    log.write_snapshot(Box::new(vec![Bytes::from_static(b"no part")]));
    while let Some(job) = log.next_job() {
        log.complete(job.run()).unwrap();
    }
    append(&mut log, "damaged");
    append(&mut log, "whole");
    drop(log);
    flip(&storage, b"damaged");
    let found = snapshots(&storage);
    assert_eq!(found.len(), 1);
    match open(&storage) {
        Err(OpenPartitionError::Log(OpenError::Replay { position, source })) => {
            assert_eq!(position, found[0].1);
            assert!(source.to_string().contains("not known"), "{source}");
        }
        other => panic!("{other:?}"),
    }
}

/// Small events are many in few bytes, and a start applies each.
#[test]
fn a_snapshot_is_due_after_so_many_effects() {
    let options = PartitionOptions {
        snapshot_after_bytes: u64::MAX / 8,
        snapshot_after_effects: 500,
        ..options()
    };
    let driver = filled(options);
    let (_, events) = open(&driver.storage).unwrap();
    assert!((1..=500).contains(&events), "{events}");
}

/// But a tenth of the messages may change, if those are more.
#[test]
fn a_snapshot_waits_until_a_tenth_of_the_messages_has_changed() {
    let options = PartitionOptions {
        snapshot_after_bytes: u64::MAX / 8,
        snapshot_after_effects: 10,
        ..options()
    };
    let mut driver = filled(options.clone());
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    let messages = driver.partition.state().counts().1;
    assert!(messages > 200);
    // An earlier start has written that one, or not.
    for _ in 0..2 {
        driver = Driver::with(driver.storage.kill(), options.clone());
        let before = driver.partition.log().snapshots().last;
        let mut sent = 0;
        while driver.partition.log().snapshots().last == before {
            driver.ask(send("a")).unwrap();
            sent += 1;
            assert!(sent <= messages, "no snapshot is written");
        }
        assert!((messages / 10..messages / 5).contains(&sent), "{sent}");
    }
}

/// And it waits for four times the bytes that the last one has written, but no longer than for four times the least.
#[test]
fn a_snapshot_waits_for_four_times_what_the_last_one_wrote() {
    const LEAST_BYTES: u64 = 4 << 10;
    let mut options = PartitionOptions {
        snapshot_after_bytes: u64::MAX / 8,
        snapshot_after_effects: u64::MAX,
        ..options()
    };
    let mut driver = filled(options.clone());
    options.snapshot_after_bytes = LEAST_BYTES;
    driver = Driver::with(driver.storage.kill(), options);
    let until_next = |driver: &mut Driver| {
        let before = driver.partition.log().snapshots().last;
        let mut written = 0;
        while driver.partition.log().snapshots().last == before {
            driver.ask(send("a".repeat(500))).unwrap();
            written += 500;
        }
        written
    };
    // The first one has to write everything.
    until_next(&mut driver);
    let wrote = driver.partition.log().snapshots().written_bytes.unwrap();
    assert!(wrote > LEAST_BYTES, "{wrote}");
    let written = until_next(&mut driver);
    assert!(
        (2 * LEAST_BYTES..5 * LEAST_BYTES).contains(&written),
        "{written}"
    );
    // The second one, and those after it, write a little more than the least.
    let wrote = driver.partition.log().snapshots().written_bytes.unwrap();
    let written = until_next(&mut driver);
    let expected = (4 * wrote).clamp(LEAST_BYTES, 4 * LEAST_BYTES);
    assert!(
        (expected / 2..2 * expected).contains(&written),
        "{written} after {wrote}"
    );
}

/// Versions without topics allowed such names.
#[test]
fn a_start_names_a_queue_that_has_the_name_of_a_subscription() {
    let warnings = |names: &[&str]| {
        let mut driver = Driver::with(FaultyStorage::new(), options());
        for name in names {
            driver.ask(create_bus_queue(name)).unwrap();
        }
        let storage = driver.storage.kill();
        let now = Timestamp::from_ms(2_000_000);
        let opened = Partition::<u32>::open(Arc::new(storage), options(), 1, [1; 16], now);
        opened.unwrap().1.warnings
    };
    assert_eq!(
        warnings(&["a", "subscriptions/a", "a/subscription/b"]),
        [""; 0]
    );
    let one = warnings(&["a", "t/subscriptions/b"]);
    let all = warnings(&["t/subscriptions", "t/subscriptions/b"]);
    let begins = [
        "the queue t/subscriptions/b of the namespace ns has a name reserved for subscriptions of a topic, ",
        "2 queues, such as t/subscriptions of the namespace ns, have names reserved for subscriptions of a topic, ",
    ];
    for (warnings, begin) in [one, all].iter().zip(begins) {
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        assert!(warning.starts_with(begin), "{warning}");
        assert!(warning.len() < 200, "{warning}");
    }
}
