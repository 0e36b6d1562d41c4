//! Runs whose pages are worth writing again are read back, and leave memory with what lay beside their pages.

use kew_broker::PartitionOptions;
use kew_engine::bus::{BusCommand, BusMessage, BusQueueOptions, Disposition, ReceiveMode};
use kew_engine::storage::StorageCommand;
use kew_engine::{BodyEncoding, Command, EntityName, RunLength, Token, VisibilityTimeout};
use kew_log::{FaultyStorage, LogOptions};

use crate::bus::{self, orders};
use crate::cold::lose_all_pages;
use crate::partition::{Driver, options};
use crate::passed_over::{create_named, pages_of_runs};
use crate::resident::{ask_all, body, limited, received, records};
use crate::support::next_wake;

/// Lets time pass until nothing is left to do for some seconds. Panics if that does not end. Returns how many snapshots
/// were written.
pub(crate) fn settle(driver: &mut Driver) -> u64 {
    let (mut snapshots, mut last) = (0, driver.partition.log().snapshots().last);
    for _ in 0..100_000 {
        let wake = next_wake(&driver.partition);
        let Some(wake) = wake.filter(|at| *at <= driver.now.plus_seconds(100)) else {
            return snapshots;
        };
        driver.now = wake.max(driver.now.plus_ms(1));
        driver.rest();
        driver.partition.check_cold_pages();
        let newest = driver.partition.log().snapshots().last;
        snapshots += u64::from(last != newest);
        last = newest;
    }
    panic!("it does not come to rest");
}

/// The size of all pages of runs that the newest snapshot names.
fn size_of_pages(driver: &Driver) -> u64 {
    let [newest, _] = pages_of_runs(&driver.storage);
    let sizes = newest.iter().map(|page| page.place.size_bytes);
    sizes.map(u64::from).sum()
}

/// Completes all of these but each `kept`th, in random order: so no run is ever in memory as a whole.
fn thin_out(driver: &mut Driver, locks: &[Token], kept: usize) {
    let order = (0..locks.len()).map(|nth| nth * 7919 % locks.len());
    let gone: Vec<Token> = order
        .filter(|at| !at.is_multiple_of(kept))
        .map(|at| locks[at])
        .collect();
    for gone in gone.chunks(500) {
        let settlements = gone.iter().map(|lock| (*lock, Disposition::Complete));
        let settle = BusCommand::Settle {
            queue: orders(),
            settlements: settlements.collect(),
        };
        driver.ask(Command::Bus(settle)).unwrap();
    }
}

/// Two in a thousand messages of a large queue are left, none of which was in memory. Their pages shrink with them,
/// although nothing else happens.
#[test]
fn pages_shrink_with_what_is_left() {
    const COUNT: usize = 40_000;
    let mut driver = Driver::with(FaultyStorage::new(), large_batches(Some(5000)));
    let locks = locked(&mut driver, COUNT);
    settle(&mut driver);
    let before = size_of_pages(&driver);
    thin_out(&mut driver, &locks, 500);
    driver.partition.snapshot();
    settle(&mut driver);
    driver.partition.state().check_live_bytes();
    let left = COUNT / 500;
    assert_eq!(driver.partition.state().counts().1, left as u64);
    let warmed = driver.partition.warmed_count();
    assert!(warmed > 20, "{warmed} runs were read back");
    let after = size_of_pages(&driver);
    assert!(after < before / 10, "{after} bytes of {before}");
    // They are still there after a crash.
    let mut driver = reopened(driver, large_batches(Some(5000)));
    assert_eq!(driver.partition.state().counts().1, left as u64);
    let locks = locks.iter().step_by(500).copied().collect();
    let queue = orders();
    let renew = BusCommand::RenewLocks { queue, locks };
    driver.ask(Command::Bus(renew)).unwrap();
}

fn large_batches(records_max: Option<u64>) -> PartitionOptions {
    PartitionOptions {
        log: LogOptions {
            segment_size_first_bytes: 16 << 20,
            segment_size_max_bytes: 16 << 20,
            batch_size_max_bytes: 8 << 20,
            ..options().log
        },
        ..limited(records_max)
    }
}

fn reopened(driver: Driver, options: PartitionOptions) -> Driver {
    let now = driver.now;
    let mut driver = Driver::with(driver.storage.kill(), options);
    driver.now = now;
    driver
}

fn send_to(queue: &str, number: u64) -> Command {
    Command::Storage(StorageCommand::Send {
        queue: EntityName::storage_queue("acct", queue),
        body: body(number).into(),
        encoding: BodyEncoding::Text,
        time_to_live_seconds: None,
        visibility_timeout: VisibilityTimeout::ZERO,
    })
}

/// None of them has as many messages as a run needs to get a page by itself.
#[test]
fn many_queues_of_few_messages_leave_memory() {
    const QUEUES: u64 = 400;
    const EACH: u64 = 60;
    const RECORDS_MAX: u64 = 4000;
    let mut driver = Driver::with(FaultyStorage::new(), limited(Some(RECORDS_MAX)));
    for queue in 0..QUEUES {
        let name = format!("q{queue}");
        driver.ask(create_named(&name)).unwrap();
        let sends = (0..EACH).map(|number| send_to(&name, number));
        assert!(ask_all(&mut driver, sends).iter().all(Result::is_ok));
    }
    settle(&mut driver);
    let left = records(&driver);
    assert!(left <= RECORDS_MAX, "{left} records are in memory");
    let snapshots = settle(&mut driver);
    assert_eq!(snapshots, 0, "nothing is left to do");
    // Each of them is still there after a crash, and counts what it has.
    let mut driver = reopened(driver, limited(Some(RECORDS_MAX)));
    assert_eq!(driver.partition.state().counts().1, QUEUES * EACH);
    for queue in [0, 7, QUEUES - 1] {
        let receive = Command::Storage(StorageCommand::Receive {
            queue: EntityName::storage_queue("acct", format!("q{queue}")),
            count: 32,
            visibility_timeout: VisibilityTimeout::ZERO,
        });
        let (_, bodies) = received(driver.ask(receive));
        assert!(bodies.into_iter().eq((0..32).map(body)), "{queue}");
    }
}

fn message() -> BusMessage {
    BusMessage {
        body: "message".into(),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    }
}

fn locked(driver: &mut Driver, count: usize) -> Vec<Token> {
    let options = BusQueueOptions {
        lock_duration_ms: 300_000,
        ..BusQueueOptions::default()
    };
    let queue = orders();
    let create = BusCommand::CreateQueue { queue, options };
    driver.ask(Command::Bus(create)).unwrap();
    let mut locks = Vec::new();
    while locks.len() < count {
        let send = BusCommand::Send {
            queue: orders(),
            messages: (0..1000).map(|_| message()).collect(),
        };
        driver.ask(Command::Bus(send)).unwrap();
        let receive = BusCommand::Receive {
            queue: orders(),
            count: 1000,
            mode: ReceiveMode::PeekLock,
            session: None,
        };
        let (messages, _) = bus::received(driver.ask(Command::Bus(receive)).unwrap());
        locks.extend(messages.into_iter().map(|it| it.lock.unwrap()));
    }
    locks
}

/// Every message of a large queue is locked for longer, in random order: a few of each run at a time. What has changed stays
/// beside the pages for a while only: beside what has changed since the last snapshot.
#[test]
fn random_leases_do_not_stay_in_memory() {
    const COUNT: usize = 40_000;
    const RECORDS_MAX: u64 = 8000;
    let options = PartitionOptions {
        // 313 runs. An eighth of the limit is eight of them.
        run_length: RunLength::UNTOLD,
        snapshot_after_bytes: 8 << 10,
        snapshot_after_effects: 500,
        ..large_batches(Some(RECORDS_MAX))
    };
    let mut driver = Driver::with(FaultyStorage::new(), options);
    let locks = locked(&mut driver, COUNT);
    settle(&mut driver);
    let mut most = 0;
    for round in 0..COUNT / 100 {
        // 7,919 is a prime: each is another one.
        let at = (0..100).map(|nth| (100 * round + nth) * 7919 % COUNT);
        let renew = BusCommand::RenewLocks {
            queue: orders(),
            locks: at.map(|at| locks[at]).collect(),
        };
        driver.ask(Command::Bus(renew)).unwrap();
        for _ in 0..20 {
            driver.now = driver.now.plus_ms(10);
            driver.rest();
        }
        most = most.max(records(&driver));
    }
    assert!(most <= RECORDS_MAX * 3 / 2, "{most} records were in memory");
    settle(&mut driver);
    driver.partition.state().check_live_bytes();
    let left = records(&driver);
    assert!(left <= RECORDS_MAX, "{left} records are in memory");
}

/// A snapshot writes directories and a manifest, too. For little that was read back it waits, and comes then.
#[test]
fn little_does_not_make_a_snapshot_due_at_once() {
    let mut driver = Driver::with(FaultyStorage::new(), large_batches(Some(20_000)));
    let locks = locked(&mut driver, 40_000);
    settle(&mut driver);
    // One run of 1,024 has ten messages left.
    let few = &locks[2048..3072];
    thin_out(&mut driver, few, 100);
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    let (began, newest) = (driver.now, driver.partition.log().snapshots().last);
    while driver.partition.log().snapshots().last == newest {
        let wake = next_wake(&driver.partition).expect("it has something to do");
        driver.now = wake.max(driver.now.plus_ms(1));
        driver.rest();
    }
    assert_eq!(driver.partition.warmed_count(), 1);
    assert!(driver.now >= began.plus_seconds(60), "{:?}", driver.now);
    assert!(driver.now <= began.plus_seconds(70), "{:?}", driver.now);
}

/// Pages that cannot be read stay as they are, and what is found again after each snapshot makes none.
#[test]
fn what_cannot_be_read_is_left_alone() {
    let options = PartitionOptions {
        snapshot_after_bytes: u64::MAX / 8,
        ..large_batches(Some(5000))
    };
    let mut driver = Driver::with(FaultyStorage::new(), options);
    let locks = locked(&mut driver, 30_000);
    driver.partition.snapshot();
    settle(&mut driver);
    thin_out(&mut driver, &locks, 500);
    // Records on missing files are not lost: nothing is set aside.
    lose_all_pages(&driver.storage);
    driver.partition.snapshot();
    let before = driver.loads;
    let snapshots = settle(&mut driver);
    assert!(snapshots < 10, "{snapshots} snapshots were written");
    assert!(driver.loads > before, "nothing was read");
    // Another round finds them again, and does not read them.
    let loads = driver.loads;
    let renew = BusCommand::RenewLocks {
        queue: orders(),
        locks: vec![locks[0]],
    };
    driver.ask(Command::Bus(renew)).unwrap_err();
    let sent = driver.ask(Command::Bus(BusCommand::Send {
        queue: orders(),
        messages: vec![message()],
    }));
    assert!(sent.is_ok());
    let by_commands = driver.loads;
    assert!(by_commands > loads, "a command still tries");
    driver.partition.snapshot();
    settle(&mut driver);
    assert_eq!(driver.loads, by_commands);
    assert_eq!(driver.partition.state().counts().1, 61);
    driver.partition.state().check_live_bytes();
}
