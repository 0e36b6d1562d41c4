//! A start with a limit for records in memory passes over the pages of runs.

use std::ops::Range;
use std::sync::Arc;

use kew_broker::{Partition, PartitionOptions, Rejection, Repair, Restore};
use kew_engine::bus::{BusCommand, BusMessage, BusQueueOptions};
use kew_engine::storage::{Metadata, StorageCommand};
use kew_engine::{Command, Resident, Timestamp};
use kew_log::{FaultyStorage, JobKind, LogPosition, Storage, TablePage, read_table};

use crate::bus;
use crate::cold::{lose_second_copies, named};
use crate::partition::Driver;
use crate::resident::{ask_all, body, fill, limited, received, records, rest};
use crate::support::{create, delete, receive, send};

/// No snapshot is written but those that a test asks for, and all is in memory.
pub(crate) fn unlimited() -> PartitionOptions {
    PartitionOptions {
        snapshot_after_bytes: u64::MAX / 8,
        ..limited(None)
    }
}

/// A queue with so many messages, of which a snapshot has all, on a disk after a kill.
fn filled(count: u64) -> FaultyStorage {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(create()).unwrap();
    fill(&mut driver, count);
    on_pages(driver, create_named("another"))
}

/// The disk after a kill. Both snapshots that are kept name the same pages of runs.
pub(crate) fn on_pages(mut driver: Driver, other: Command) -> FaultyStorage {
    snapshot(&mut driver);
    driver.ask(other).unwrap();
    snapshot(&mut driver);
    driver.storage.kill()
}

pub(crate) fn snapshot(driver: &mut Driver) {
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
}

pub(crate) fn create_named(name: &str) -> Command {
    Command::Storage(StorageCommand::CreateQueue {
        queue: named(name),
        metadata: Metadata::default(),
    })
}

/// The snapshots on a disk, newest first.
fn snapshots(storage: &FaultyStorage) -> Vec<LogPosition> {
    let names = storage.files().into_iter().map(|(name, _)| name);
    let all = names.filter_map(|name| name.strip_prefix("snapshot-")?.parse().ok());
    let mut all: Vec<_> = all.map(LogPosition::new).collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    all
}

/// The pages of runs that the newest snapshot names: those of the queue and of its directory come first. And those of the
/// one before.
pub(crate) fn pages_of_runs(storage: &FaultyStorage) -> [Vec<TablePage>; 2] {
    let mut pages = snapshots(storage).into_iter();
    [(); 2].map(|()| pages_of(storage, pages.next().unwrap()))
}

fn pages_of(storage: &FaultyStorage, snapshot: LogPosition) -> Vec<TablePage> {
    let table = read_table(storage, snapshot).unwrap().table;
    table.pages().iter().skip(2).copied().collect()
}

/// Damages copies of pages.
pub(crate) fn damage(storage: &FaultyStorage, pages: &[TablePage], copies: Range<u64>) {
    for page in pages {
        let place = page.place;
        for copy in copies.clone() {
            let name = format!("pages-{:020}", 2 * u64::from(place.pair) + copy);
            (0..u64::from(place.size_bytes))
                .step_by(16)
                .for_each(|at| storage.flip(&name, u64::from(place.offset) + at, 1));
        }
    }
}

/// Damages both copies of each page of a run, and no others.
fn damage_runs(storage: &FaultyStorage) -> usize {
    let [newest, _] = pages_of_runs(storage);
    damage(storage, &newest, 0..2);
    newest.len()
}

fn opens(storage: &FaultyStorage, options: PartitionOptions) -> bool {
    let now = Timestamp::from_ms(1_000_000);
    Partition::<u32>::open(Arc::new(storage.clone()), options, 1, [1; 16], now).is_ok()
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

/// A log that begins anew has its messages on pages, and both of its snapshots name the same ones: also the first start
/// passes over them.
#[test]
fn the_first_start_after_a_restore_or_a_repair_passes_over_pages() {
    const COUNT: u64 = 5 * 1024;
    for is_repaired in [false, true] {
        let storage = filled(COUNT);
        let disk: Arc<dyn Storage> = Arc::new(storage.clone());
        let secret = [7; 16];
        match is_repaired {
            true => {
                let repair = Repair::look(disk, "acct").unwrap();
                repair.carry_out(unlimited(), 3, secret).unwrap();
            }
            false => {
                let restore = Restore::read(&*disk).unwrap();
                restore.carry_out(disk, unlimited(), 3, secret).unwrap();
            }
        }
        let [newest, older] = pages_of_runs(&storage);
        assert_eq!(newest.len(), 5);
        assert_eq!(newest, older);
        let mut driver = Driver::with(storage, limited(Some(1000)));
        assert_eq!(records(&driver), 1);
        driver.partition.check_cold_pages();
        drain(&mut driver, COUNT);
    }
}

/// A start without a limit reads everything: nothing is slower than before it was built.
#[test]
fn without_a_limit_all_is_in_memory() {
    let driver = Driver::with(filled(5000), limited(None));
    let expected = Resident::of_records(5000);
    let found = driver.partition.state().resident();
    assert_eq!(found, expected);
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
    let mut driver = Driver::with(storage, limited(Some(1000)));
    lose_second_copies(&driver.storage);
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

/// What one interval between snapshots has written is verified at a start: the snapshot before, with the log, has it too.
#[test]
fn pages_that_the_newest_snapshot_has_alone_are_not_lost() {
    const COUNT: u64 = 10_000;
    let mut driver = Driver::with(filled(COUNT / 2), unlimited());
    let numbers: Vec<u64> = (COUNT / 2..COUNT).collect();
    for numbers in numbers.chunks(100) {
        let sends = numbers.iter().map(|number| send(body(*number)));
        assert!(ask_all(&mut driver, sends).iter().all(Result::is_ok));
    }
    snapshot(&mut driver);
    let storage = driver.storage.kill();
    let [mut new, older] = pages_of_runs(&storage);
    new.retain(|page| !older.contains(page));
    assert_eq!(new.len(), 6);
    damage(&storage, &new[3..4], 0..2);
    let mut driver = Driver::with(storage, limited(Some(1000)));
    assert_eq!(driver.partition.state().counts().1, COUNT);
    drain(&mut driver, COUNT);
}

/// A kill came before the oldest of three snapshots was removed. It is the only one without a page that is lost.
fn on_three_snapshots(count: u64) -> (FaultyStorage, Vec<LogPosition>) {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(create()).unwrap();
    fill(&mut driver, count / 2);
    snapshot(&mut driver);
    let numbers: Vec<u64> = (count / 2..count).collect();
    for numbers in numbers.chunks(100) {
        let sends = numbers.iter().map(|number| send(body(*number)));
        assert!(ask_all(&mut driver, sends).iter().all(Result::is_ok));
    }
    snapshot(&mut driver);
    driver.ask(create_named("another")).unwrap();
    driver.partition.snapshot();
    while let Some(job) = driver.partition.next_job() {
        if job.kind() != JobKind::Retire {
            driver
                .partition
                .complete(job.run(), &mut Vec::new())
                .unwrap();
        }
    }
    let storage = driver.storage.kill();
    let positions = snapshots(&storage);
    assert_eq!(positions.len(), 3);
    let [mut new, middle, oldest] = [0, 1, 2].map(|index| pages_of(&storage, positions[index]));
    new.retain(|page| middle.contains(page) && !oldest.contains(page));
    assert!(new.len() > 3);
    damage(&storage, &new[3..4], 0..2);
    (storage, positions)
}

/// The next snapshot names what the start has passed over, and removes the others.
#[test]
fn all_older_snapshots_are_compared_before_a_page_is_passed_over() {
    const COUNT: u64 = 10_000;
    let (storage, _) = on_three_snapshots(COUNT);
    let mut driver = Driver::with(storage, limited(Some(1000)));
    assert_eq!(driver.partition.state().counts().1, COUNT);
    drain(&mut driver, COUNT);
}

#[test]
fn a_damaged_table_does_not_end_the_comparison() {
    const COUNT: u64 = 10_000;
    let (storage, positions) = on_three_snapshots(COUNT);
    let name = format!("snapshot-{:020}", positions[1].as_u64());
    let (_, size_bytes) = (storage.files().into_iter())
        .find(|(file, _)| *file == name)
        .expect("it is named by its position");
    for at in (0..size_bytes).step_by(16) {
        storage.flip(&name, at, 1);
    }
    let mut driver = Driver::with(storage, limited(Some(1000)));
    assert_eq!(driver.partition.state().counts().1, COUNT);
    drain(&mut driver, COUNT);
}

/// Messages of a bus queue expire, and cannot be read. That is due before each command on the queue.
#[test]
fn due_work_that_cannot_be_read_holds_no_command_back() {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(bus::create()).unwrap();
    let messages = (0..100).map(|number| BusMessage {
        body: body(number).into(),
        message_id: None,
        session: None,
        time_to_live_ms: Some(60_000),
        scheduled_at: None,
    });
    let messages: Vec<BusMessage> = messages.collect();
    for _ in 0..30 {
        let (queue, messages) = (bus::orders(), messages.clone());
        let send = Command::Bus(BusCommand::Send { queue, messages });
        driver.ask(send).unwrap();
    }
    let another = Command::Bus(BusCommand::CreateQueue {
        queue: bus::named("another"),
        options: BusQueueOptions::default(),
    });
    let storage = on_pages(driver, another);
    assert_eq!(damage_runs(&storage), 3);
    let mut driver = Driver::with(storage, limited(Some(1000)));
    lose_second_copies(&driver.storage);
    driver.now = driver.now.plus_seconds(61);
    // The first one waits for the read, which fails. The next ones know that it does.
    for _ in 0..2 {
        driver.ask(bus::send("later")).unwrap();
        driver.ask(bus::read()).unwrap();
    }
    assert_eq!(driver.partition.decided_without_due_count(), 4);
    let refused = driver.ask(bus::receive(1));
    assert!(matches!(refused, Err(Rejection::ReadFailed)), "{refused:?}");
    let queue = bus::orders();
    let deleted = driver.ask(Command::Bus(BusCommand::DeleteQueue { queue }));
    deleted.unwrap();
    assert_eq!(driver.partition.state().counts().1, 0);
}

/// The second copy of a page may be the last one. What a start reads from it stays in memory: here the runs of a session.
#[test]
fn what_is_read_from_a_second_copy_stays_in_memory() {
    for replays_beside in [true, false] {
        let mut driver = Driver::with(FaultyStorage::new(), unlimited());
        crate::ahead::create_bus(&mut driver, &bus::orders(), false);
        crate::ahead::send(&mut driver, &bus::orders(), 5000, &["a"]);
        let storage = on_pages(driver, create_named("another"));
        let [newest, _] = pages_of_runs(&storage);
        let options = PartitionOptions {
            replays_beside,
            ..limited(Some(10))
        };
        let driver = Driver::with(storage.kill(), options.clone());
        assert_eq!(records(&driver), 0);
        damage(&storage, &newest, 0..1);
        let driver = Driver::with(storage.kill(), options);
        assert_eq!(records(&driver), 5000);
    }
}
