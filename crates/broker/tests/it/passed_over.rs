//! A start with a limit for records in memory passes over the pages of runs.

use kew_broker::{Partition, PartitionOptions, Rejection};
use kew_engine::storage::{Metadata, StorageCommand};
use kew_engine::{Command, Resident, Timestamp};
use kew_log::{FaultyStorage, read_table};

use crate::cold::named;
use crate::partition::Driver;
use crate::resident::{ask_all, body, fill, limited, received, records, rest};
use crate::support::{create, delete, receive, send};

/// A queue with so many messages, of which a snapshot has all, on a disk after a kill.
fn filled(count: u64) -> FaultyStorage {
    let options = PartitionOptions {
        snapshot_after_bytes: u64::MAX / 8,
        ..limited(None)
    };
    let mut driver = Driver::with(FaultyStorage::new(), options);
    driver.ask(create()).unwrap();
    fill(&mut driver, count);
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    // Both snapshots that are kept name the same pages.
    driver.ask(create_named("another")).unwrap();
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    driver.storage.kill()
}

fn create_named(name: &str) -> Command {
    Command::Storage(StorageCommand::CreateQueue {
        queue: named(name),
        metadata: Metadata::default(),
    })
}

/// Damages both copies of each page of a run, and no others: those of the queue and of its directory come first.
fn damage_runs(storage: &FaultyStorage) -> usize {
    let names = storage.files().into_iter().map(|(name, _)| name);
    let newest = names.filter_map(|name| name.strip_prefix("snapshot-")?.parse().ok());
    let newest = newest.map(kew_log::LogPosition::new).max().unwrap();
    let table = read_table(storage, newest).unwrap().table;
    let places = table.pages().iter().map(|page| page.place);
    let of_runs: Vec<_> = places.skip(2).collect();
    for place in &of_runs {
        for copy in 0..2 {
            let name = format!("pages-{:020}", 2 * u64::from(place.pair) + copy);
            (0..u64::from(place.size_bytes))
                .step_by(16)
                .for_each(|at| storage.flip(&name, u64::from(place.offset) + at, 1));
        }
    }
    of_runs.len()
}

fn opens(storage: &FaultyStorage, options: PartitionOptions) -> bool {
    let now = Timestamp::from_ms(1_000_000);
    Partition::<u32>::open(storage, options, 1, [1; 16], now).is_ok()
}

/// Takes all messages out, in order.
fn drain(driver: &mut Driver, count: u64) {
    let mut next = 0;
    while next < count {
        let (messages, bodies) = received(driver.ask(receive(32)));
        let expected = (next..).take(messages.len()).map(body);
        assert!(!messages.is_empty() && bodies.into_iter().eq(expected));
        next += messages.len() as u64;
        let deletes = messages.iter().map(delete);
        assert!(ask_all(driver, deletes).iter().all(Result::is_ok));
    }
    assert_eq!(driver.partition.state().resident(), Resident::default());
    driver.partition.state().check_live_bytes();
}

#[test]
fn memory_after_a_start_does_not_grow_with_the_backlog() {
    for replays_beside in [true, false] {
        for count in [5 * 1024, 20 * 1024] {
            let options = PartitionOptions {
                replays_beside,
                ..limited(Some(1000))
            };
            let mut driver = Driver::with(filled(count), options);
            // The last message is alone in its run, which needs no page.
            assert_eq!(records(&driver), 1);
            let state = driver.partition.state();
            assert_eq!(state.resident().cold_runs, count / 1024);
            assert_eq!(state.counts().1, count);
            driver.partition.check_cold_pages();
            drain(&mut driver, count);
        }
    }
}

/// A start without a limit reads everything: nothing is slower than before it was built.
#[test]
fn without_a_limit_all_is_in_memory() {
    let driver = Driver::with(filled(5000), limited(None));
    let (records, cold_runs) = (5000, 0);
    let found = driver.partition.state().resident();
    assert_eq!(found, Resident { records, cold_runs });
}

/// What comes after the snapshot, and what waits for a time.
#[test]
fn a_replay_goes_on_over_cold_runs() {
    const COUNT: u64 = 4000;
    let options = limited(Some(1000));
    let mut driver = Driver::with(filled(COUNT), options.clone());
    let (leased, _) = received(driver.ask(receive(32)));
    let deletes = leased.iter().take(16).map(delete);
    assert!(ask_all(&mut driver, deletes).iter().all(Result::is_ok));
    driver.ask(send(body(COUNT))).unwrap();
    // The next start replays it, and the one after that finds it in a snapshot.
    for _ in 0..2 {
        let now = driver.now;
        driver = Driver::with(driver.storage.kill(), options.clone());
        driver.now = now;
        let state = driver.partition.state();
        assert_eq!(state.counts().1, COUNT + 1 - 16);
        assert!(state.resident().cold_runs >= 4);
        state.check_live_bytes();
        driver.partition.check_cold_pages();
        let (messages, bodies) = received(driver.ask(receive(1)));
        assert_eq!(bodies.len(), 1);
        assert!(
            messages
                .iter()
                .all(|it| leased.iter().all(|one| one.message != it.message))
        );
        driver.partition.snapshot();
        driver.jobs(&mut Vec::new());
        rest(&mut driver);
    }
    // The receipts of the first life still work.
    let deletes = leased.iter().skip(16).map(delete);
    assert!(ask_all(&mut driver, deletes).iter().all(Result::is_ok));
    assert_eq!(driver.partition.state().counts().1, COUNT + 1 - 32);
}

/// Nobody reads them at a start. Their messages fail, and all others are served.
#[test]
fn pages_that_are_damaged_in_both_copies_do_not_refuse_the_start() {
    let storage = filled(5000);
    assert_eq!(damage_runs(&storage), 5);
    assert!(!opens(&storage.kill(), limited(None)), "it reads them");
    let mut driver = Driver::with(storage, limited(Some(1000)));
    assert_eq!(driver.partition.state().counts().1, 5000);
    let refused = driver.ask(receive(1));
    assert!(matches!(refused, Err(Rejection::ReadFailed)), "{refused:?}");
    let other = || named("other");
    driver.ask(create_named("other")).unwrap();
    driver.ask(crate::cold::short(other(), 60)).unwrap();
    let (queue, count) = (other(), 1);
    let peek = Command::Storage(StorageCommand::Peek { queue, count });
    driver.ask(peek).unwrap();
    driver.now = driver.now.plus_seconds(60);
    rest(&mut driver);
    // The damage was met by a load, so the operator knows of it.
    assert!(driver.partition.scrub_report().unreadable_pages > 0);
    assert!(opens(&driver.storage.kill(), limited(Some(1000))));
}
