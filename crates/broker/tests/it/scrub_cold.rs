//! A scrub lists damaged bodies of messages whose records are not in memory.

use kew_broker::{PartitionOptions, ScrubReport};
use kew_engine::BodyOwner;
use kew_log::FaultyStorage;

use crate::partition::Driver;
use crate::passed_over::{create_named, damage, pages_of_runs, snapshot};
use crate::resident::{ask_all, limited, records, rest};
use crate::scrub::{find, scrub};
use crate::support::{create, send};

/// Three runs of 1,024, and a few in a fourth one.
const COUNT: u64 = 3100;

fn body(number: u64) -> String {
    format!("message {number:06} {}", "x".repeat(1000))
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
    assert!(driver.partition.log().segments().count() > 3);
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
    let storage = damaged(&[17, 1500, 1501, 3090]);
    let mut reports = Vec::new();
    for limit in [None, Some(0)] {
        let mut driver = Driver::with(storage.kill(), options(limit));
        assert_eq!(
            driver.partition.state().resident().cold_runs > 0,
            limit.is_some()
        );
        let report = scrub(&mut driver);
        assert_eq!(listed(&report), [17, 1500, 1501, 3090]);
        assert_eq!(report.bodies_count, 4);
        rest(&mut driver);
        let in_memory = records(&driver);
        assert!(
            limit.is_none() || in_memory < 100,
            "{in_memory} stay in memory"
        );
        reports.push((report.places, report.bodies));
        // Another pass lists each once.
        assert_eq!(listed(&scrub(&mut driver)), [17, 1500, 1501, 3090]);
    }
    assert_eq!(reports[0], reports[1]);
}

/// The page itself is listed.
#[test]
fn a_search_passes_over_messages_that_cannot_be_read() {
    let storage = damaged(&[17, 1500, 2500]);
    let [pages, _] = pages_of_runs(&storage);
    damage(&storage, &pages[1..2], 0..2);
    let mut driver = Driver::with(storage, options(Some(0)));
    let mut passes = 0;
    let report = loop {
        // The pauses between its tries pass.
        driver.now = driver.now.plus_seconds(1);
        driver.rest();
        while let Some(job) = driver.partition.next_scrub() {
            driver.partition.scrubbed(job.run());
            driver.rest();
        }
        let report = driver.partition.scrub_report();
        if report.passes == 1 {
            break report;
        }
        passes += 1;
        assert!(passes < 100, "it does not end");
    };
    assert_eq!(listed(&report), [17, 2500]);
    assert!(report.places.iter().any(|it| it.file.starts_with("pages-")));
    assert!(passes > 2, "it tries again");
}
