//! Remembered ids leave memory, and are read when one of them comes again.

mod topics;

use kew_broker::{PartitionOptions, Rejection, Reply};
use kew_engine::bus::{BusCommand, BusMessage, BusOutcome, BusQueueOptions, Purge};
use kew_engine::{Command, Outcome, RunLength, SequenceNumber};
use kew_log::{FaultyStorage, read_table};

use crate::bus::orders;
use crate::partition::Driver;
use crate::passed_over::{damage, snapshot, unlimited};
use crate::resident::{limited, rest};

const WINDOW_MS: u64 = 600_000;

fn create() -> Command {
    let options = BusQueueOptions {
        duplicate_window_ms: Some(WINDOW_MS),
        ..BusQueueOptions::default()
    };
    let queue = orders();
    Command::Bus(BusCommand::CreateQueue { queue, options })
}

fn send(ids: impl IntoIterator<Item = u64>) -> Command {
    let message = |id: u64| BusMessage {
        body: "x".into(),
        message_id: Some(format!("id {id}").into()),
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    };
    let messages = ids.into_iter().map(message).collect();
    let queue = orders();
    Command::Bus(BusCommand::Send { queue, messages })
}

/// Whether each message was sent. The others are duplicates.
fn sent(reply: Reply) -> Vec<bool> {
    match reply.map(|it| it.outcome) {
        Ok(Outcome::Bus(BusOutcome::Sent(numbers))) => {
            numbers.iter().map(Option::is_some).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Sends messages with these ids, which are new, and removes them.
fn remember(driver: &mut Driver, ids: std::ops::Range<u64>) {
    let ids: Vec<u64> = ids.collect();
    for ids in ids.chunks(500) {
        let reply = driver.ask(send(ids.iter().copied()));
        assert!(sent(reply).into_iter().all(|is_sent| is_sent));
    }
    let purge = Purge {
        from: SequenceNumber::default(),
        until: None,
        before: None,
        count: u32::MAX,
        with_locked: true,
        is_dry_run: false,
    };
    let queue = orders();
    driver
        .ask(Command::Bus(BusCommand::Purge { queue, purge }))
        .unwrap();
}

/// How many ids are in memory in full blocks, and how many blocks are not.
fn resident(driver: &Driver) -> (u64, u64) {
    let resident = driver.partition.state().resident();
    (resident.ids, resident.cold_blocks)
}

fn cool(driver: &mut Driver) {
    snapshot(driver);
    rest(driver);
    driver.partition.check_cold_pages();
    driver.partition.state().check_live_bytes();
}

fn killed(driver: Driver, options: PartitionOptions) -> Driver {
    let (storage, now) = (driver.storage.kill(), driver.now);
    let mut driver = Driver::with(storage, options);
    driver.now = now;
    driver
}

fn at_zero() -> PartitionOptions {
    PartitionOptions {
        snapshot_after_bytes: u64::MAX / 8,
        ..limited(Some(0))
    }
}

#[test]
fn ids_that_are_not_in_memory_are_read_when_they_come_again() {
    let mut driver = Driver::with(FaultyStorage::new(), at_zero());
    driver.ask(create()).unwrap();
    remember(&mut driver, 0..9_800);
    cool(&mut driver);
    assert_eq!(resident(&driver), (0, 9));
    for restart in 0..3_u64 {
        // New ids need no read.
        let loaded = driver.partition.loaded_count();
        let new = 20_000 + 100 * restart;
        let numbers = sent(driver.ask(send(new..new + 100)));
        assert!(numbers.into_iter().all(|is_sent| is_sent));
        assert_eq!(driver.partition.loaded_count(), loaded);
        // One of each block, and one that is in memory.
        let again = [3, 1500, 2500, 3500, 4500, 5500, 6500, 7500, 8500, 9700, new];
        let numbers = sent(driver.ask(send(again)));
        assert!(numbers.into_iter().all(|is_sent| !is_sent));
        assert_eq!(driver.partition.loaded_count(), loaded + 9);
        let numbers = sent(driver.ask(send([50_000 + restart, 3, 50_000 + restart])));
        assert_eq!(numbers, [true, false, false]);
        cool(&mut driver);
        assert_eq!(resident(&driver), (0, 9));
        driver = killed(driver, at_zero());
        assert_eq!(resident(&driver), (0, 9), "a start keeps none");
        // With no limit a start keeps all.
        if restart == 1 {
            driver = killed(driver, unlimited());
            assert_eq!(resident(&driver), (9 * 1024, 0));
            let numbers = sent(driver.ask(send([4000, 60_000])));
            assert_eq!(numbers, [false, true]);
            driver = killed(driver, at_zero());
        }
    }
    // They are forgotten with their window, in memory or not.
    driver.now = driver.now.plus_ms(WINDOW_MS + 1000);
    rest(&mut driver);
    assert_eq!(resident(&driver), (0, 0));
    let numbers = sent(driver.ask(send(0..100)));
    assert!(numbers.into_iter().all(|is_sent| is_sent));
    cool(&mut driver);
    let mut driver = killed(driver, at_zero());
    assert_eq!(sent(driver.ask(send([5, 101]))), [false, true]);
}

#[test]
fn ids_count_in_the_limit_of_resident_memory() {
    // 30,000 ids take as much as 10,000 records.
    let options = PartitionOptions {
        run_length: RunLength::DEFAULT,
        ..limited(Some(10_000))
    };
    let mut driver = Driver::with(FaultyStorage::new(), options);
    driver.ask(create()).unwrap();
    for part in 0..10 {
        remember(&mut driver, 10_000 * part..10_000 * (part + 1));
    }
    rest(&mut driver);
    let (ids, cold) = resident(&driver);
    assert!(
        ids < 40_000 && cold >= 60,
        "{ids} in memory, {cold} blocks are not"
    );
    driver.partition.check_cold_pages();
    let again = sent(driver.ask(send((0..100_000).step_by(1000))));
    assert!(again.into_iter().all(|is_sent| !is_sent));
}

/// What can no longer be read is neither accepted again nor taken for what is new.
#[test]
fn a_block_that_is_damaged_in_both_copies_refuses_its_own_ids_alone() {
    let mut driver = Driver::with(FaultyStorage::new(), at_zero());
    driver.ask(create()).unwrap();
    remember(&mut driver, 0..4000);
    cool(&mut driver);
    assert_eq!(resident(&driver), (0, 3));
    let names = driver.storage.files().into_iter().map(|(name, _)| name);
    let newest = names.filter_map(|name| name.strip_prefix("snapshot-")?.parse().ok());
    let newest = kew_log::LogPosition::new(newest.max().unwrap());
    let table = read_table(&driver.storage, newest).unwrap().table;
    // The head of the queue comes first, and then its ids.
    damage(&driver.storage, &table.pages()[2..3], 0..2);
    for _ in 0..2 {
        let refused = driver.ask(send([1500]));
        assert!(matches!(refused, Err(Rejection::ReadFailed)), "{refused:?}");
        let numbers = sent(driver.ask(send([3, 2500, 3999, 10_000])));
        assert_eq!(numbers[..3], [false; 3]);
        driver.now = driver.now.plus_ms(2000);
    }
    remember(&mut driver, 20_000..21_000);
    // It ends with its window.
    driver.now = driver.now.plus_ms(WINDOW_MS);
    rest(&mut driver);
    assert_eq!(sent(driver.ask(send([1500]))), [true]);
}
