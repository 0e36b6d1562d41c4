//! A scrub lists damaged bodies of messages whose records are not in memory.

use std::collections::VecDeque;

use kew_broker::{PartitionOptions, ScrubReport};
use kew_engine::bus::{BusCommand, BusMessage, BusQueueOptions};
use kew_engine::{BodyOwner, Command};
use kew_log::{FaultyStorage, JobKind};

use crate::bus;
use crate::cold::lose_second_copies;
use crate::partition::Driver;
use crate::passed_over::{create_named, damage, pages_of_runs, snapshot};
use crate::resident::{ask_all, limited, records, rest};
use crate::scrub::{find, scrub};
use crate::support::{create, moment, send};

/// Six runs of 1,024, and a few in another one. A segment has nearly three runs.
const COUNT: u64 = 6200;

fn body(number: u64) -> String {
    format!("message {number:06} {}", "x".repeat(300))
}

fn options(records_max: Option<u64>) -> PartitionOptions {
    PartitionOptions {
        snapshot_after_bytes: u64::MAX / 8,
        scrub_bytes_per_second: 1,
        ..limited(records_max)
    }
}

/// A disk with messages in several segments and on pages, and with damage in the bodies of these.
fn damaged(numbers: &[u64]) -> FaultyStorage {
    let mut driver = Driver::with(FaultyStorage::new(), options(None));
    driver.ask(create()).unwrap();
    let all: Vec<u64> = (0..COUNT).collect();
    for numbers in all.chunks(20) {
        let sends = numbers.iter().map(|number| send(body(*number)));
        assert!(ask_all(&mut driver, sends).iter().all(Result::is_ok));
    }
    assert!(driver.partition.log().files().unwrap().segments().count() > 2);
    snapshot(&mut driver);
    driver.ask(create_named("another")).unwrap();
    snapshot(&mut driver);
    let storage = driver.storage.kill();
    for number in numbers {
        let (file, at) = &find(&storage, "segment-", body(*number).as_bytes())[0];
        storage.flip(file, at + 20, 4);
    }
    storage
}

/// The numbers of the messages that are listed. The first message has the number 1.
fn listed(report: &ScrubReport) -> Vec<u64> {
    let numbers = report.bodies.iter().map(|it| match it.needed.of {
        BodyOwner::Message(number) => number.as_u64() - 1,
        BodyOwner::Session(_) => panic!("there are no sessions"),
    });
    numbers.collect()
}

#[test]
fn damaged_bodies_are_listed_whether_records_are_in_memory_or_not() {
    let storage = damaged(&[17, 1500, 1501, 4090]);
    let mut reports = Vec::new();
    for limit in [None, Some(0)] {
        let mut driver = Driver::with(storage.kill(), options(limit));
        assert_eq!(
            driver.partition.state().resident().cold_runs > 0,
            limit.is_some()
        );
        let report = scrub(&mut driver);
        assert_eq!(listed(&report), [17, 1500, 1501, 4090]);
        assert_eq!(report.bodies_count, 4);
        rest(&mut driver);
        let in_memory = records(&driver);
        // The hand may rest while the last run is still there.
        assert!(limit.is_none() || in_memory < 1200, "{in_memory} stay");
        reports.push((report.places, report.bodies));
        // Another pass lists each once.
        assert_eq!(listed(&scrub(&mut driver)), [17, 1500, 1501, 4090]);
    }
    assert_eq!(reports[0], reports[1]);
}

/// Goes on until a pass has ended. Returns what it has found, and how many jobs have read records.
fn scrub_slowly(driver: &mut Driver) -> (ScrubReport, u32) {
    let (mut loads, mut replies) = (0, Vec::new());
    for _ in 0..1000 {
        driver.now = driver.now.plus_ms(100);
        driver
            .partition
            .turn(moment(driver.now), &mut VecDeque::new(), &mut replies);
        while let Some(job) = driver.partition.next_job() {
            loads += u32::from(job.kind() == JobKind::Load);
            driver.partition.complete(job.run(), &mut replies).unwrap();
        }
        if let Some(job) = driver.partition.next_scrub() {
            driver.partition.scrubbed(job.run());
        }
        let report = driver.partition.scrub_report();
        if report.passes == 1 {
            return (report, loads);
        }
    }
    panic!("it does not end");
}

/// A page that cannot be read costs what is on it, and the page itself is listed. It is read four times in each search.
#[test]
fn a_search_passes_over_messages_that_cannot_be_read() {
    for (lost, listed_then, tries) in [(0..1, &[1030, 2060, 4500][..], 4), (0..2, &[2060, 4500], 8)]
    {
        // All but the last one are in one segment.
        let storage = damaged(&[17, 1030, 2060, 4500]);
        let [pages, _] = pages_of_runs(&storage);
        damage(&storage, &pages[lost], 0..2);
        let mut driver = Driver::with(storage, options(Some(0)));
        lose_second_copies(&driver.storage);
        let (report, loads) = scrub_slowly(&mut driver);
        assert_eq!(listed(&report), listed_then);
        assert!(report.places.iter().any(|it| it.file.starts_with("pages-")));
        // And each run that can be read, once for each segment that has bytes of it.
        assert!((tries..tries + 9).contains(&loads), "{loads} reads");
    }
}

/// What it waits for stays in memory until it has seen it, and no longer.
#[test]
fn records_that_a_search_waits_for_stay_in_memory() {
    let mut driver = Driver::with(damaged(&[17]), options(Some(0)));
    let mut replies = Vec::new();
    let mut most = 0;
    for _ in 0..200 {
        if let Some(job) = driver.partition.next_scrub() {
            driver.partition.scrubbed(job.run());
        }
        // The pace of the search puts it off for some turns.
        for _ in 0..5 {
            driver.now = driver.now.plus_ms(1);
            driver
                .partition
                .turn(moment(driver.now), &mut VecDeque::new(), &mut replies);
            driver.jobs(&mut replies);
            driver.partition.evict_if(|_, may| may);
            most = most.max(records(&driver));
        }
    }
    let report = driver.partition.scrub_report();
    assert_eq!((report.passes, listed(&report)), (1, vec![17]));
    // A run, and what has no page.
    assert!((1024..1200).contains(&most), "{most} were in memory");
    assert!(records(&driver) < 100, "{} stay", records(&driver));
}

/// Copies of messages, of which each subscription has one, in two queues of Service Bus.
#[test]
fn damaged_bodies_of_copies_that_are_not_in_memory_are_listed_for_each() {
    let mut driver = Driver::with(FaultyStorage::new(), options(None));
    let topic = bus::named("t");
    let options_of = BusQueueOptions::default();
    driver
        .ask(Command::Bus(BusCommand::CreateTopic {
            topic: topic.clone(),
            options: options_of.clone(),
        }))
        .unwrap();
    let subscriptions = ["a", "b"].map(|of| bus::named(&format!("t/subscriptions/{of}")));
    for subscription in &subscriptions {
        let create = BusCommand::CreateSubscription {
            topic: topic.clone(),
            subscription: subscription.clone(),
            options: options_of.clone(),
            rule: None,
        };
        driver.ask(Command::Bus(create)).unwrap();
    }
    let all: Vec<u64> = (0..COUNT).collect();
    for numbers in all.chunks(50) {
        let message = |number: &u64| BusMessage {
            body: body(*number).into(),
            message_id: None,
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        };
        let messages = numbers.iter().map(message).collect();
        let queue = topic.clone();
        let sent = driver.ask(Command::Bus(BusCommand::Send { queue, messages }));
        sent.unwrap();
    }
    snapshot(&mut driver);
    driver.ask(create()).unwrap();
    snapshot(&mut driver);
    let storage = driver.storage.kill();
    let (file, at) = &find(&storage, "segment-", body(1500).as_bytes())[0];
    storage.flip(file, at + 20, 4);
    let mut driver = Driver::with(storage, options(Some(0)));
    assert!(records(&driver) < 200, "{}", records(&driver));
    let (report, _) = scrub_slowly(&mut driver);
    let queues = report.bodies.iter().map(|it| it.needed.queue.clone());
    assert_eq!(queues.collect::<Vec<_>>(), subscriptions);
    assert_eq!(listed(&report), [1500, 1500]);
    // A subscription that is gone does not need its copy, nor does another one of its name.
    let [first, second] = subscriptions;
    let delete = BusCommand::DeleteQueue {
        queue: first.clone(),
    };
    driver.ask(Command::Bus(delete)).unwrap();
    let create = BusCommand::CreateSubscription {
        topic,
        subscription: first,
        options: options_of,
        rule: None,
    };
    driver.ask(Command::Bus(create)).unwrap();
    let report = driver.partition.scrub_report();
    let queues = report.bodies.into_iter().map(|it| it.needed.queue);
    assert_eq!(queues.collect::<Vec<_>>(), [second]);
}
