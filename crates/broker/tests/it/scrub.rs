//! A scrub lists damaged messages while all others are served, and makes damage harmless for the next start.

use std::sync::Arc;

use kew_broker::{Answered, Partition, PartitionOptions, Restore, ScrubReport};
use kew_engine::bus::{BusCommand, BusMessage, BusOutcome, BusQueueOptions, SessionChoice};
use kew_engine::storage::StorageCommand;
use kew_engine::{BodyOwner, Command, Outcome};
use kew_log::{FaultyStorage, inspect, read_table};

use crate::bus;
use crate::partition::{Driver, options};
use crate::support::{create, queue, receive, send};

/// Reads everything once, and lets the partition do what follows from that.
pub(crate) fn scrub(driver: &mut Driver) -> ScrubReport {
    let passes = driver.partition.scrub_report().passes;
    driver.now = driver.now.plus_ms(24 * 3600 * 1000);
    driver.rest();
    let mut jobs = 0;
    while driver.partition.scrub_report().passes == passes {
        if let Some(job) = driver.partition.next_scrub() {
            driver.partition.scrubbed(job.run());
        }
        driver.now = driver.now.plus_ms(10);
        driver.rest();
        jobs += 1;
        assert!(jobs < 1000, "it does not end");
    }
    for _ in 0..10 {
        driver.rest();
    }
    driver.partition.scrub_report()
}

/// Where some bytes are on the disk.
pub(crate) fn find(storage: &FaultyStorage, prefix: &str, wanted: &[u8]) -> Vec<(String, u64)> {
    let files = storage.files().into_iter();
    let files = files.filter(|(name, _)| name.starts_with(prefix));
    let mut found = Vec::new();
    for (name, _) in files {
        let content = storage.content(&name).unwrap();
        let mut windows = content.windows(wanted.len());
        if let Some(at) = windows.position(|window| window == wanted) {
            found.push((name, at as u64));
        }
    }
    found
}

fn body(number: u64) -> String {
    format!("body {number:06} {}", "x".repeat(3000))
}

/// No snapshot is due, however much is written.
fn quiet_options() -> PartitionOptions {
    PartitionOptions {
        snapshot_after_bytes: u64::MAX,
        snapshot_after_effects: u64::MAX,
        ..options()
    }
}

fn without_scrub() -> PartitionOptions {
    PartitionOptions {
        scrub_bytes_per_second: 0,
        ..quiet_options()
    }
}

/// A partition that writes no snapshot by itself, as long as it is not opened again.
fn quiet() -> Driver {
    let mut driver = Driver::with(FaultyStorage::new(), quiet_options());
    driver.ask(create()).unwrap();
    driver
}

/// Such a partition with messages in several segments, and how many there are.
fn filled() -> (Driver, u64) {
    let mut driver = quiet();
    let mut number = 0;
    while driver.partition.log().files().unwrap().segments().count() < 4 {
        driver.ask(send(body(number))).unwrap();
        number += 1;
        assert!(number < 10_000, "segments do not fill");
    }
    (driver, number)
}

fn snapshot(driver: &mut Driver) {
    driver.partition.snapshot();
    driver.rest();
}

/// The numbers of messages that can be read.
fn readable(driver: &mut Driver) -> Vec<u64> {
    let mut whole = Vec::new();
    loop {
        let Answered { bodies, .. } = driver.ask(receive(32)).unwrap();
        if bodies.is_empty() {
            return whole;
        }
        for body in bodies.read().into_iter().flatten() {
            let text = std::str::from_utf8(&body).unwrap();
            whole.push(text[5..11].parse().unwrap());
        }
    }
}

#[test]
fn a_damaged_message_is_listed_and_all_others_are_served() {
    let (mut driver, count) = filled();
    snapshot(&mut driver);
    driver.ask(send("after")).unwrap();
    snapshot(&mut driver);
    let mut driver = driver.reopened();
    let report = scrub(&mut driver);
    assert_eq!(
        (report.places.as_slice(), report.bodies.as_slice()),
        (&[][..], &[][..])
    );
    assert!(report.read_bytes > 100_000, "{}", report.read_bytes);

    let places = find(&driver.storage, "segment-", body(3).as_bytes());
    let (file, at) = &places[0];
    driver.storage.flip(file, at + 20, 4);
    let report = scrub(&mut driver);
    assert_eq!(report.places_count, 1, "{:?}", report.places);
    assert_eq!(report.places[0].file, *file);
    assert!(report.places[0].offset <= *at);
    assert_eq!(report.bodies_count, 1);
    let damaged = &report.bodies[0];
    assert_eq!((&damaged.file, damaged.offset), (file, *at));
    assert_eq!(damaged.needed.queue, queue());
    let BodyOwner::Message(number) = damaged.needed.of else {
        panic!("a message is damaged");
    };
    // The first message has the number 1.
    assert_eq!(number.as_u64(), 4);

    // Another pass finds the same, and lists it once.
    let again = scrub(&mut driver);
    assert_eq!((again.places, again.bodies), (report.places, report.bodies));
    driver
        .ask(Command::Storage(StorageCommand::Clear { queue: queue() }))
        .unwrap();
    let report = driver.partition.scrub_report();
    assert_eq!(report.bodies, []);
    assert_eq!(report.bodies_count, 0);
    assert!(count > 5);
}

/// A small server writes to one segment for weeks.
#[test]
fn damage_in_the_segment_that_is_written_to_is_found_too() {
    let (mut driver, count) = filled();
    let last = count - 1;
    let spans = driver.partition.log().files().unwrap().segments().last();
    let active = format!("segment-{:020}", spans.unwrap().number);
    let places = find(&driver.storage, "segment-", body(last).as_bytes());
    let (file, at) = &places[0];
    assert_eq!(*file, active);
    driver.storage.flip(file, at + 20, 4);
    let report = scrub(&mut driver);
    assert_eq!((report.places_count, report.bodies_count), (1, 1));
    let damaged = &report.bodies[0];
    assert_eq!((&damaged.file, damaged.offset), (file, *at));
    // The next start does not need it.
    let mut driver = driver.reopened();
    assert_eq!(readable(&mut driver), (0..last).collect::<Vec<_>>());
}

/// The next start needs it, and nothing but the scrub looks at it before.
#[test]
fn a_damaged_header_of_the_segment_that_is_written_to_is_written_again() {
    let (mut driver, count) = filled();
    let span = driver.partition.log().files().unwrap().segments().last();
    let active = format!("segment-{:020}", span.unwrap().number);
    driver.storage.flip(&active, 8, 1);
    assert!(!inspect(&driver.storage).unwrap().damage.is_empty());
    let report = scrub(&mut driver);
    assert_eq!(report.places, []);
    assert_eq!(inspect(&driver.storage).unwrap().damage, []);
    let mut driver = driver.reopened();
    assert_eq!(readable(&mut driver), (0..count).collect::<Vec<_>>());
}

/// The segment may be left before a pass has come to its end. It is read again, and then the scrub writes its header.
#[test]
fn a_damaged_header_of_a_segment_that_was_left_meanwhile_is_written_again() {
    let (mut driver, mut count) = filled();
    let newest = |driver: &Driver| {
        let span = driver.partition.log().files().unwrap().segments().last();
        format!("segment-{:020}", span.unwrap().number)
    };
    let active = newest(&driver);
    driver.storage.flip(&active, 8, 1);
    driver.now = driver.now.plus_ms(24 * 3600 * 1000);
    driver.rest();
    let (mut jobs, mut reads) = (0, 0);
    while driver.partition.scrub_report().passes == 0 {
        if let Some(job) = driver.partition.next_scrub() {
            let outcome = job.run();
            if outcome.places().iter().any(|place| place.file == active) {
                reads += 1;
                while newest(&driver) == active {
                    driver.ask(send(body(count))).unwrap();
                    count += 1;
                }
                driver.ask(send(body(count))).unwrap();
                count += 1;
            }
            driver.partition.scrubbed(outcome);
        }
        driver.now = driver.now.plus_ms(10);
        driver.rest();
        jobs += 1;
        assert!(jobs < 1000, "it does not end");
    }
    assert_eq!(reads, 2);
    assert_eq!(driver.partition.scrub_report().places, []);
    assert_eq!(inspect(&driver.storage).unwrap().damage, []);
    let mut driver = driver.reopened();
    assert_eq!(readable(&mut driver), (0..count).collect::<Vec<_>>());
}

#[test]
fn the_messages_of_a_damaged_batch_that_are_whole_are_served() {
    let (mut driver, count) = filled();
    snapshot(&mut driver);
    let mut driver = driver.reopened();
    let places = find(&driver.storage, "segment-", body(3).as_bytes());
    let (file, at) = &places[0];
    driver.storage.flip(file, at + 20, 4);
    let report = scrub(&mut driver);
    assert_eq!(report.bodies_count, 1);
    let expected: Vec<u64> = (0..count).filter(|number| *number != 3).collect();
    assert_eq!(readable(&mut driver), expected);
}

/// Damage behind the snapshots would make the next start fail. The partition writes snapshots behind it.
#[test]
fn a_start_does_not_need_what_a_scrub_has_found_damaged() {
    let (driver, count) = filled();
    let places = find(&driver.storage, "segment-", body(3).as_bytes());
    let (file, at) = &places[0];
    driver.storage.flip(file, at + 20, 4);
    let now = driver.now;
    let disk = driver.storage.kill();
    let refused = Partition::<u32>::open(Arc::new(disk.clone()), options(), 1, [1; 16], now);
    assert!(refused.is_err(), "the start needs the damaged record");

    let mut driver = driver;
    let report = scrub(&mut driver);
    assert_eq!((report.places_count, report.bodies_count), (1, 1));
    let mut driver = driver.reopened();
    let expected: Vec<u64> = (0..count).filter(|number| *number != 3).collect();
    assert_eq!(readable(&mut driver), expected);
}

/// A new snapshot takes the place of a damaged one. The other one stays until then.
#[test]
fn a_damaged_snapshot_is_replaced() {
    for is_newest in [true, false] {
        let (mut driver, _) = filled();
        snapshot(&mut driver);
        driver.ask(send("between")).unwrap();
        snapshot(&mut driver);
        driver.ask(send("behind")).unwrap();
        let before = inspect(&driver.storage).unwrap().snapshots;
        assert_eq!(before.len(), 2);
        let (damaged, whole) = match is_newest {
            true => (&before[1], &before[0]),
            false => (&before[0], &before[1]),
        };
        driver.storage.flip(&damaged.file, 30, 1);
        let report = scrub(&mut driver);
        assert_eq!(report.places_count, 0, "it was replaced: {report:?}");
        let after = inspect(&driver.storage).unwrap();
        assert_eq!(after.damage, []);
        assert_eq!(after.snapshots.len(), 2);
        assert!(after.snapshots.iter().all(|it| it.is_whole));
        assert!(after.snapshots.contains(whole), "{after:?}");
        assert!(!after.snapshots.iter().any(|it| it.file == damaged.file));
    }
}

/// A damaged copy of a page is written again from the other one, and a page that is lost from memory. Nobody waits for
/// the next snapshot that is due anyway.
#[test]
fn a_damaged_page_is_written_again_at_once() {
    for copies in [&[0][..], &[1], &[0, 1]] {
        let (mut driver, count) = filled();
        snapshot(&mut driver);
        driver.ask(send(body(count))).unwrap();
        snapshot(&mut driver);
        let newest = driver.partition.log().snapshots().last.unwrap();
        let read = read_table(&driver.storage, newest).unwrap();
        let shared = read.table.pages()[1].place;
        for copy in copies {
            let file = format!("pages-{:020}", 2 * u64::from(shared.pair) + copy);
            driver.storage.flip(&file, u64::from(shared.offset) + 33, 1);
        }
        assert!(!inspect(&driver.storage).unwrap().damage.is_empty());
        let report = scrub(&mut driver);
        assert_eq!(report.places, [], "copies {copies:?}");
        assert!(driver.partition.log().files().unwrap().replays_from() > Some(newest));
        assert_eq!(inspect(&driver.storage).unwrap().damage, []);
        let mut driver = driver.reopened();
        let expected: Vec<u64> = (0..=count).collect();
        assert_eq!(readable(&mut driver), expected, "copies {copies:?}");
    }
}

/// A start that has read the second copy of a page, or passed over a snapshot, leaves no damage behind, also if nothing
/// else makes a snapshot due and there is no scrub.
#[test]
fn damage_that_a_start_finds_is_written_again_at_once() {
    for damaged in ["page", "header", "snapshot", "lost page"] {
        let (mut driver, count) = filled();
        snapshot(&mut driver);
        driver.ask(send(body(count))).unwrap();
        snapshot(&mut driver);
        let newest = driver.partition.log().snapshots().last.unwrap();
        let read = read_table(&driver.storage, newest).unwrap();
        let last = read.table.pages().iter().map(|page| page.place).max();
        let place = last.unwrap();
        let first = format!("pages-{:020}", 2 * u64::from(place.pair));
        let second = format!("pages-{:020}", 2 * u64::from(place.pair) + 1);
        let in_page = u64::from(place.offset) + 33;
        let disk = driver.storage.kill();
        match damaged {
            "page" => disk.flip(&first, in_page, 1),
            "header" => disk.flip(&first, 45, 1),
            "snapshot" => disk.flip(&format!("snapshot-{:020}", newest.as_u64()), 30, 1),
            _ => {
                disk.flip(&first, in_page, 1);
                disk.flip(&second, in_page, 1);
            }
        }
        assert!(!inspect(&disk).unwrap().damage.is_empty());
        let mut driver = Driver::with(disk, without_scrub());
        for _ in 0..5 {
            driver.rest();
        }
        assert!(
            driver
                .partition
                .log()
                .files()
                .unwrap()
                .replays_from()
                .is_some(),
            "{damaged}"
        );
        assert_eq!(inspect(&driver.storage).unwrap().damage, [], "{damaged}");
        let settled = driver.partition.log().snapshots().last;
        for _ in 0..5 {
            driver.rest();
        }
        let still = driver.partition.log().snapshots().last;
        assert_eq!(still, settled, "{damaged}: it ends");
        let expected: Vec<u64> = (0..=count).collect();
        assert_eq!(readable(&mut driver), expected, "{damaged}");
    }
}

/// On a full disk, snapshots are written that make space. One for damage alone can wait: it would take the ballast, and
/// the space of the snapshot that is whole.
#[test]
fn damage_that_a_start_finds_on_a_full_disk_waits_for_space() {
    let mut driver = Driver::new();
    let used = driver.storage.used_bytes();
    driver.storage.set_capacity_bytes(Some(used + (320 << 10)));
    driver.fill_up(|driver| {
        let sent = std::iter::repeat_with(|| driver.ask(send("x".repeat(2000))));
        sent.take_while(Result::is_ok).count()
    });
    // It lacks a segment, and not ballast.
    let files = driver.storage.files();
    assert!(files.iter().any(|(name, _)| name == "ballast"));
    let newest = driver.partition.log().snapshots().last.unwrap();
    let capacity = driver.storage.used_bytes();
    let disk = driver.storage.kill();
    disk.flip(&format!("snapshot-{:020}", newest.as_u64()), 30, 1);
    disk.set_capacity_bytes(Some(capacity));
    let mut driver = Driver::with(disk, without_scrub());
    driver.rest();
    assert!(driver.partition.is_out_of_space());
    let before = driver.storage.files();
    for _ in 0..30 {
        driver.now = driver.now.plus_seconds(1);
        driver.rest();
    }
    assert_eq!(driver.storage.files(), before);
    assert_ne!(inspect(&driver.storage).unwrap().damage, []);
    driver.storage.set_capacity_bytes(None);
    for _ in 0..5 {
        driver.now = driver.now.plus_seconds(1);
        driver.rest();
    }
    assert!(!driver.partition.is_out_of_space());
    assert_eq!(inspect(&driver.storage).unwrap().damage, []);
}

/// A restore keeps segments, and the one that was written to last is not full.
#[test]
fn a_restored_log_has_no_damage() {
    let (driver, count) = filled();
    let storage = driver.storage.kill();
    let restore = Restore::read(&storage).unwrap();
    restore
        .carry_out(Arc::new(storage.clone()), options(), 3, [7; 16])
        .unwrap();
    let mut driver = Driver::on(storage);
    let report = scrub(&mut driver);
    assert!(report.read_bytes > 100_000, "{}", report.read_bytes);
    let found = (report.places.as_slice(), report.bodies.as_slice());
    assert_eq!(found, (&[][..], &[][..]));
    assert_eq!(readable(&mut driver).len() as u64, count);
}

/// The state of a session has bytes of its own.
#[test]
fn a_damaged_session_state_is_listed() {
    let mut driver = Driver::new();
    let sessions = bus::orders();
    let options = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    let create = BusCommand::CreateQueue {
        queue: sessions.clone(),
        options,
    };
    driver.ask(Command::Bus(create)).unwrap();
    let accept = BusCommand::AcceptSession {
        queue: sessions.clone(),
        session: SessionChoice::Named("alone".into()),
    };
    let accepted = driver.ask(Command::Bus(accept)).unwrap();
    let Outcome::Bus(BusOutcome::SessionAccepted(session)) = accepted.outcome else {
        panic!("a session is accepted");
    };
    let set = BusCommand::SetSessionState {
        queue: sessions.clone(),
        session: session.lock,
        state: Some(body(77).into()),
    };
    driver.ask(Command::Bus(set)).unwrap();
    while driver.partition.log().files().unwrap().segments().count() < 4 {
        driver.ask(send(body(0))).unwrap();
    }
    let places = find(&driver.storage, "segment-", body(77).as_bytes());
    driver.storage.flip(&places[0].0, places[0].1 + 50, 1);
    let report = scrub(&mut driver);
    assert_eq!(report.bodies_count, 1);
    assert_eq!(report.bodies[0].needed.queue, sessions);
    assert_eq!(
        report.bodies[0].needed.of,
        BodyOwner::Session("alone".into())
    );
}

/// Each subscription has a copy of the message, and all copies have one body.
#[test]
fn a_damaged_body_of_many_copies_is_read_once_and_listed_for_each() {
    let mut driver = quiet();
    let topic = bus::named("t");
    let options = BusQueueOptions::default();
    driver
        .ask(Command::Bus(BusCommand::CreateTopic {
            topic: topic.clone(),
            options: options.clone(),
        }))
        .unwrap();
    let subscriptions = ["a", "b", "c"].map(|of| bus::named(&format!("t/subscriptions/{of}")));
    for subscription in &subscriptions {
        let create = BusCommand::CreateSubscription {
            topic: topic.clone(),
            subscription: subscription.clone(),
            options: options.clone(),
            rule: None,
        };
        driver.ask(Command::Bus(create)).unwrap();
    }
    for number in [900, 901] {
        let message = BusMessage {
            body: body(number).into(),
            message_id: None,
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        };
        let queue = topic.clone();
        let messages = vec![message];
        driver
            .ask(Command::Bus(BusCommand::Send { queue, messages }))
            .unwrap();
    }
    while driver.partition.log().files().unwrap().segments().count() < 4 {
        driver.ask(send(body(0))).unwrap();
    }
    snapshot(&mut driver);
    driver.ask(send("between")).unwrap();
    snapshot(&mut driver);
    let places = find(&driver.storage, "segment-", body(901).as_bytes());
    let (file, at) = places[0].clone();
    driver.storage.flip(&file, at + 20, 1);

    // A job reads a body in each step.
    driver.now = driver.now.plus_ms(24 * 3600 * 1000);
    driver.rest();
    let mut read_count = 0;
    while let Some(mut job) = driver.partition.next_scrub() {
        let mut steps = 0;
        while job.step().is_some() {
            steps += 1;
        }
        let outcome = job.finish();
        if !outcome.bodies().is_empty() {
            read_count += steps;
        }
        driver.partition.scrubbed(outcome);
    }
    assert_eq!(read_count, 1);
    let report = driver.partition.scrub_report();
    let damaged = |report: &ScrubReport| -> Vec<_> {
        let bodies = report.bodies.iter();
        let damaged = bodies.map(|it| {
            assert_eq!((&it.file, it.offset), (&file, at));
            let BodyOwner::Message(number) = it.needed.of else {
                panic!("a message is damaged");
            };
            (it.needed.queue.clone(), number.as_u64())
        });
        damaged.collect()
    };
    let each = subscriptions.clone().map(|it| (it, 2));
    assert_eq!(damaged(&report), each);
    assert_eq!(report.bodies_count, 3);
    // A copy that is gone is not listed any more, and each of the others is listed once.
    let purge = BusCommand::DeleteQueue {
        queue: subscriptions[1].clone(),
    };
    driver.ask(Command::Bus(purge)).unwrap();
    let report = scrub(&mut driver);
    assert_eq!(damaged(&report), [each[0].clone(), each[2].clone()]);
}
