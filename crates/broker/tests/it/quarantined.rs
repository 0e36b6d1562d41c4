//! Messages whose records are damaged in both copies of a page are set aside, and all others are served.

pub(crate) mod at_start;
mod special;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kew_broker::{PartitionOptions, QuarantinedRun, Rejection, Repair, Restore};
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueOptions, DeliveredMessage, Disposition, Purge,
};
use kew_engine::storage::StorageCommand;
use kew_engine::{Command, Outcome, PageNumber, Resident, RunLength, SequenceNumber};
use kew_log::{Fault, FaultyStorage, Storage, TablePage};

use crate::bus;
use crate::cold::{named, short};
use crate::damaged::Dice;
use crate::far;
use crate::partition::Driver;
use crate::passed_over::{create_named, damage, on_pages, pages_of_runs, snapshot, unlimited};
use crate::resident::{ask_all, body, fill, limited, received, rest};
use crate::scrub::scrub;
use crate::support::{create, delete, queue, receive, send};
use crate::warming::settle;

const COUNT: u64 = 5000;

/// What the second run has: messages begin at the number 1.
const LOST: std::ops::Range<u64> = 1023..2047;
const LOST_COUNT: u64 = LOST.end - LOST.start;

/// A start that reads no page of a run unless it must.
fn small() -> PartitionOptions {
    limited(Some(1000))
}

/// A queue, of which both copies of the second run's page are damaged.
fn damaged() -> FaultyStorage {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(create()).unwrap();
    fill(&mut driver, COUNT);
    with_damage(driver)
}

fn with_damage(driver: Driver) -> FaultyStorage {
    let storage = on_pages(driver, create_named("another"));
    let [newest, _] = pages_of_runs(&storage);
    damage(&storage, &newest[1..2], 0..2);
    storage
}

/// Takes out all messages that there are.
fn drain(driver: &mut Driver) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    loop {
        let (messages, bodies) = received(driver.ask(receive(32)));
        if messages.is_empty() {
            return all;
        }
        all.extend(bodies);
        let deletes = messages.iter().map(delete);
        assert!(ask_all(driver, deletes).iter().all(Result::is_ok));
    }
}

fn others() -> BTreeSet<String> {
    let others = (0..COUNT).filter(|number| !LOST.contains(number));
    others.map(body).collect()
}

/// How many messages there are, and how many of them are set aside.
fn counts(driver: &Driver) -> (u64, u64) {
    let state = driver.partition.state();
    state.check_live_bytes();
    (state.counts().1, driver.partition.quarantined_count())
}

fn assert_same(one: &Driver, other: &Driver) {
    let (one, other) = (one.partition.state(), other.partition.state());
    assert!(one == other, "the states differ");
}

#[test]
fn all_others_are_served() {
    let mut driver = Driver::with(damaged(), small());
    assert_eq!(counts(&driver), (COUNT, 0));
    assert_eq!(drain(&mut driver), others());
    assert_eq!(counts(&driver), (LOST_COUNT, LOST_COUNT));
    driver.ask(send("later")).unwrap();
    assert_eq!(drain(&mut driver), BTreeSet::from(["later".to_owned()]));
}

/// The event names them, so it means the same over an older snapshot.
#[test]
fn they_stay_aside_after_a_start() {
    let mut driver = Driver::with(damaged(), small());
    driver.ask(send("later")).unwrap();
    for _ in 0..40 {
        driver.ask(receive(32)).unwrap();
    }
    assert_eq!(counts(&driver), (COUNT + 1, LOST_COUNT));
    let replayed = Driver::with(driver.storage.kill(), small());
    assert_same(&replayed, &driver);
    snapshot(&mut driver);
    snapshot(&mut driver);
    for options in [small(), unlimited()] {
        let mut again = Driver::with(driver.storage.kill(), options);
        assert_eq!(counts(&again), (COUNT + 1, LOST_COUNT));
        assert_same(&again, &driver);
        again.now = again.now.plus_seconds(600);
        let mut expected = others();
        expected.insert("later".to_owned());
        assert_eq!(drain(&mut again), expected);
        snapshot(&mut again);
        snapshot(&mut again);
        let last = Driver::with(again.storage.kill(), unlimited());
        assert_eq!(counts(&last), (LOST_COUNT, LOST_COUNT));
        assert_same(&last, &again);
    }
}

#[test]
fn they_end_with_what_their_queue_had() {
    let mut driver = Driver::with(damaged(), small());
    drain(&mut driver);
    assert_eq!(counts(&driver), (LOST_COUNT, LOST_COUNT));
    let clear = Command::Storage(StorageCommand::Clear { queue: queue() });
    driver.ask(clear).unwrap();
    assert_eq!(counts(&driver), (0, 0));
    assert_eq!(driver.partition.state().resident(), Resident::default());
    assert_eq!(driver.partition.state().live_bytes(), 0);
}

#[test]
fn they_end_with_their_queue() {
    let mut driver = Driver::with(damaged(), small());
    drain(&mut driver);
    let delete = StorageCommand::DeleteQueue { queue: queue() };
    driver.ask(Command::Storage(delete)).unwrap();
    assert_eq!(counts(&driver), (0, 0));
    assert_eq!(driver.partition.state().live_bytes(), 0);
}

/// Nothing says when a single one that is lost would have ended.
#[test]
fn they_end_when_all_of_their_run_have_expired() {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(create()).unwrap();
    for _ in 0..COUNT / 100 {
        let sends = (0..100).map(|_| short(queue(), 3600));
        assert!(ask_all(&mut driver, sends).iter().all(Result::is_ok));
    }
    let mut driver = Driver::with(with_damage(driver), small());
    drain(&mut driver);
    driver.now = driver.now.plus_seconds(3500);
    rest(&mut driver);
    assert_eq!(counts(&driver), (LOST_COUNT, LOST_COUNT));
    driver.now = driver.now.plus_seconds(200);
    rest(&mut driver);
    assert_eq!(counts(&driver), (0, 0));
    let again = Driver::with(driver.storage.kill(), small());
    assert_same(&again, &driver);
}

/// A file that is missing may come back.
#[test]
fn what_is_on_a_missing_file_is_not_lost() {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(create()).unwrap();
    fill(&mut driver, COUNT);
    let storage = on_pages(driver, create_named("another"));
    let mut driver = Driver::with(storage.clone(), small());
    let [newest, _] = pages_of_runs(&storage);
    let first = 2 * u64::from(newest[1].place.pair);
    for file in [first, first + 1] {
        storage.lose_file(&format!("pages-{file:020}"));
    }
    let refused = driver.ask(receive(1));
    assert!(matches!(refused, Err(Rejection::ReadFailed)), "{refused:?}");
    assert_eq!(counts(&driver), (COUNT, 0));
}

/// A queue of Service Bus with so many messages that live for a minute, of which both copies of the first run's page are
/// damaged.
fn damaged_orders(count: u64, time_to_live_ms: Option<u64>) -> Driver {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(bus::create()).unwrap();
    fill_orders(&mut driver, count, time_to_live_ms);
    let storage = on_pages(driver, create_bus_queue("another"));
    let [newest, _] = pages_of_runs(&storage);
    let mut driver = Driver::with(storage.clone(), small());
    // Their locks are known, and their records are not in memory.
    let locked = locked(&mut driver, 10);
    assert_eq!(locked.len(), 10);
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    driver.partition.evict_if(|_, may| may);
    assert_eq!(driver.partition.state().resident().records, 10);
    damage(&driver.storage, &newest[..1], 0..2);
    driver
}

fn create_bus_queue(name: &str) -> Command {
    Command::Bus(BusCommand::CreateQueue {
        queue: bus::named(name),
        options: BusQueueOptions::default(),
    })
}

fn fill_orders(driver: &mut Driver, count: u64, time_to_live_ms: Option<u64>) {
    let numbers: Vec<u64> = (0..count).collect();
    for numbers in numbers.chunks(100) {
        let messages = numbers.iter().map(|number| BusMessage {
            body: body(*number).into(),
            message_id: None,
            session: None,
            time_to_live_ms,
            scheduled_at: None,
        });
        let (queue, messages) = (bus::orders(), messages.collect());
        let send = Command::Bus(BusCommand::Send { queue, messages });
        driver.ask(send).unwrap();
    }
}

fn locked(driver: &mut Driver, count: u32) -> Vec<DeliveredMessage> {
    bus::received(driver.ask(bus::receive(count)).unwrap()).0
}

/// Completes all messages that can be received. Each comes once.
fn drain_orders(driver: &mut Driver) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    loop {
        let (messages, bodies) = bus::received(driver.ask(bus::receive(100)).unwrap());
        if messages.is_empty() {
            return all;
        }
        for body in bodies {
            let is_new = all.insert(String::from_utf8(body.to_vec()).unwrap());
            assert!(is_new, "{body:?} comes twice");
        }
        driver
            .ask(bus::settle(&messages, &Disposition::Complete))
            .unwrap();
    }
}

fn purge() -> Command {
    purge_from(SequenceNumber::default(), u32::MAX)
}

fn purge_from(from: SequenceNumber, count: u32) -> Command {
    Command::Bus(BusCommand::Purge {
        queue: bus::orders(),
        purge: Purge {
            from,
            until: None,
            before: None,
            count,
            with_locked: true,
            is_dry_run: false,
        },
    })
}

#[test]
fn a_bus_queue_serves_all_others() {
    let mut driver = damaged_orders(3000, None);
    let served = drain_orders(&mut driver);
    // The ten that are locked have changed, so their records are in memory.
    assert_eq!(served.len(), 3000 - 1023);
    let lost = 1023 - 10;
    assert_eq!(counts(&driver), (lost + 10, lost));
    let again = Driver::with(driver.storage.kill(), small());
    assert_same(&again, &driver);
    snapshot(&mut driver);
    snapshot(&mut driver);
    let mut driver = Driver::with(driver.storage.kill(), unlimited());
    assert_eq!(counts(&driver), (lost + 10, lost));
    let purged = driver.ask(purge()).unwrap().outcome;
    assert!(
        matches!(&purged, Outcome::Bus(BusOutcome::Purged(it)) if it.count == 10),
        "{purged:?}"
    );
    assert_eq!(counts(&driver), (0, 0));
    assert_eq!(driver.partition.state().resident(), Resident::default());
    let again = Driver::with(driver.storage.kill(), unlimited());
    assert_same(&again, &driver);
}

/// What the page has of schedules is lost, but the directory says that they were scheduled. The others become due.
#[test]
fn lost_schedules_hold_back_no_others() {
    let storage = far::scheduled();
    let [newest, _] = pages_of_runs(&storage);
    damage(&storage, &newest[..1], 0..2);
    let mut driver = Driver::with(storage, far::few_records());
    assert_eq!(far::counts(&mut driver), (0, far::COUNT));
    driver.now = driver.now.plus_seconds(500_000 + far::COUNT);
    far::settle(&mut driver);
    // Those of the first run count as messages that can be received, until they end with it.
    assert_eq!(far::counts(&mut driver), (far::COUNT, 0));
    let served = drain_orders(&mut driver);
    assert_eq!(served.len() as u64, far::COUNT - 1023);
    assert_eq!(counts(&driver), (1023, 1023));
    let again = Driver::with(driver.storage.kill(), far::few_records());
    assert_same(&again, &driver);
}

/// A purge of an operator comes in parts.
#[test]
fn a_purge_in_parts_ends_them() {
    let mut driver = damaged_orders(5000, None);
    locked(&mut driver, 1);
    assert_eq!(counts(&driver), (5000, 1013));
    let mut from = Some(SequenceNumber::default());
    for _ in 0..20 {
        let Some(first) = from else {
            break;
        };
        let purged = driver.ask(purge_from(first, 300)).unwrap().outcome;
        let Outcome::Bus(BusOutcome::Purged(purged)) = purged else {
            panic!("{purged:?}");
        };
        from = purged.next;
    }
    assert_eq!(counts(&driver), (0, 0));
    assert_eq!(driver.partition.state().live_bytes(), 0);
}

/// The last message beside them was locked when its own time, and theirs, had passed.
#[test]
fn they_expire_although_the_last_one_was_locked() {
    let mut driver = damaged_orders(1500, Some(600_000));
    locked(&mut driver, 1);
    assert_eq!(counts(&driver), (1500, 1013));
    driver.now = driver.now.plus_seconds(580);
    let last = locked(&mut driver, 1);
    driver.now = driver.now.plus_seconds(40);
    for _ in 0..20 {
        rest(&mut driver);
        driver.ask(bus::read()).unwrap();
    }
    assert_eq!(counts(&driver).1, 1013);
    driver
        .ask(bus::settle(&last, &Disposition::Complete))
        .unwrap();
    for _ in 0..20 {
        rest(&mut driver);
        driver.ask(bus::read()).unwrap();
    }
    assert_eq!(counts(&driver).1, 0);
}

/// More groups than a turn sets aside: the command that needs them waits.
#[test]
fn many_groups_are_set_aside_for_one_command() {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(bus::create()).unwrap();
    fill_orders(&mut driver, COUNT, None);
    let storage = on_pages(driver, create_bus_queue("another"));
    let [newest, _] = pages_of_runs(&storage);
    damage(&storage, &newest, 0..2);
    let mut driver = Driver::with(storage, small());
    let numbers = (1..=COUNT).step_by(100).map(SequenceNumber::named);
    let cancel = Command::Bus(BusCommand::CancelScheduled {
        queue: bus::orders(),
        numbers: numbers.collect(),
    });
    let refused = driver.ask(cancel);
    assert!(
        matches!(refused, Err(Rejection::Refused(_))),
        "none of them is scheduled, and it was decided: {refused:?}"
    );
    assert!(counts(&driver).1 > 30 * 128, "{:?}", counts(&driver));
}

#[test]
fn lost_messages_of_a_bus_queue_expire_with_their_run() {
    let mut driver = damaged_orders(1500, Some(600_000));
    locked(&mut driver, 1);
    let (count, lost) = counts(&driver);
    assert_eq!((count, lost), (1500, 1013));
    driver.now = driver.now.plus_seconds(1000);
    for _ in 0..20 {
        rest(&mut driver);
        driver.ask(bus::read()).unwrap();
    }
    assert_eq!(counts(&driver).1, 0);
    let again = Driver::with(driver.storage.kill(), small());
    assert_same(&again, &driver);
}

#[test]
fn they_are_listed_by_queue_and_number() {
    let mut driver = Driver::with(damaged(), small());
    driver.ask(create_named("other")).unwrap();
    drain(&mut driver);
    driver.ask(short(named("other"), 60)).unwrap();
    let run = QuarantinedRun {
        queue: queue(),
        first: SequenceNumber::named(1024),
        count: LOST_COUNT,
    };
    assert_eq!(driver.partition.quarantined_runs(), [run]);
    assert_eq!(
        driver.partition.scrub_report().quarantined_count,
        LOST_COUNT
    );
}

/// Damages both copies of the last group of a page.
fn damage_last_group(storage: &FaultyStorage, page: TablePage) {
    for copy in 0..2 {
        let name = format!("pages-{:020}", 2 * u64::from(page.place.pair) + copy);
        let last = page.place.offset + page.place.size_bytes - 8;
        storage.flip(&name, u64::from(last), 1);
    }
}

/// Peeks at so many messages from a number on.
fn peek(from: u64, count: u32) -> Command {
    Command::Bus(BusCommand::Peek {
        queue: bus::orders(),
        from: SequenceNumber::named(from),
        count,
        session: None,
    })
}

/// The page with the damage goes once all that is left of its run was read back, so a backup can be made again. Nobody has
/// changed the run: only the damage makes it worth that.
#[test]
fn what_is_left_of_their_run_gets_another_page() {
    let storage = bus_with_damaged_group();
    let [newest, _] = pages_of_runs(&storage);
    let damaged = newest[1];
    // There is room for a run beside what is read.
    let mut driver = Driver::with(storage, limited(Some(5000)));
    driver.ask(peek(LOST.end - 100, 200)).unwrap();
    let (_, lost) = counts(&driver);
    assert!(lost > 0 && lost <= 128, "{lost}");
    for name in ["later", "still-later"] {
        driver.ask(create_bus_queue(name)).unwrap();
        driver.partition.snapshot();
        settle(&mut driver);
    }
    let [newest, before] = pages_of_runs(&driver.storage);
    let names = |pages: &[TablePage]| pages.iter().any(|it| it.number == damaged.number);
    assert!(!names(&newest) && !names(&before), "{newest:?}");
    assert_eq!(driver.partition.scrub_report().unreadable_pages, 0);
    assert_eq!(counts(&driver), (COUNT, lost));
    let again = Driver::with(driver.storage.kill(), unlimited());
    assert_same(&again, &driver);
    // A restore changes each record, so it reads all pages. One of a restored log finds positions counted as it does itself.
    for _ in 0..2 {
        let storage = driver.storage.kill();
        let disk: Arc<dyn Storage> = Arc::new(storage.clone());
        let restore = Restore::read(&*disk).unwrap();
        restore.carry_out(disk, unlimited(), 3, [7; 16]).unwrap();
        driver = Driver::with(storage, unlimited());
        assert_eq!(counts(&driver), (COUNT, lost));
    }
}

/// Nobody has to ask for them: once the scrub has met the damage, a snapshot finds that both copies are damaged, and then the
/// page is read.
#[test]
fn a_scrub_sets_them_aside() {
    for (storage, lost) in [(damaged(), LOST_COUNT), (bus_with_damaged_group(), 128)] {
        let [pages, _] = pages_of_runs(&storage);
        let damaged = pages[1].number;
        let options = PartitionOptions {
            scrub_bytes_per_second: 1,
            ..limited(Some(5000))
        };
        let mut driver = Driver::with(storage, options);
        assert_eq!(driver.partition.quarantined_count(), 0);
        let whole = driver.partition.state().counts().1;
        scrub(&mut driver);
        settle(&mut driver);
        assert_eq!(counts(&driver), (whole, lost));
        assert_eq!(driver.partition.scrub_report().unreadable_pages, 0);
        for named in pages_of_runs(&driver.storage) {
            assert!(named.iter().all(|page| page.number != damaged), "{named:?}");
        }
        let again = Driver::with(driver.storage.kill(), limited(Some(5000)));
        assert_eq!(counts(&again), (whole, lost));
        assert_same(&again, &driver);
    }
}

/// Nothing but time passes, and the page is read once there is a file descriptor for that.
#[test]
fn a_page_that_is_passed_over_is_found_again() {
    let options = PartitionOptions {
        scrub_bytes_per_second: 1,
        ..limited(Some(5000))
    };
    let mut driver = Driver::with(damaged(), options);
    driver.fault_of_loads = Some(Fault::Emfile);
    scrub(&mut driver);
    // Every snapshot that is due because of the damage is written meanwhile.
    let until = driver.now.plus_seconds(60);
    while driver.now < until {
        driver.now = driver.now.plus_ms(100);
        driver.rest();
    }
    assert!(driver.loads > 1, "it was tried more than once");
    assert_eq!(driver.partition.quarantined_count(), 0);
    driver.fault_of_loads = None;
    settle(&mut driver);
    assert_eq!(driver.partition.quarantined_count(), LOST_COUNT);
}

/// A queue of Service Bus, of which both copies of the last group of the second run's page are damaged.
fn bus_with_damaged_group() -> FaultyStorage {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(bus::create()).unwrap();
    fill_orders(&mut driver, COUNT, None);
    let storage = on_pages(driver, create_bus_queue("another"));
    let [newest, _] = pages_of_runs(&storage);
    damage_last_group(&storage, newest[1]);
    storage
}

fn tiny(records_max: Option<u64>) -> PartitionOptions {
    PartitionOptions {
        run_length: RunLength::TINY,
        snapshot_after_bytes: u64::MAX / 8,
        ..limited(records_max)
    }
}

/// A bit of both copies of a page: the pair of files, the byte, and the bit.
type Flip = (u32, u64, u8);

/// Flips bits of both copies of pages with messages, in some places.
fn damage_anywhere(storage: &FaultyStorage, dice: &mut Dice) -> Vec<Flip> {
    let whole = Driver::with(storage.kill(), tiny(Some(0)));
    let of_runs: BTreeSet<u64> = whole
        .partition
        .state()
        .cold_pages()
        .map(PageNumber::as_u64)
        .collect();
    let [mut pages, _] = pages_of_runs(storage);
    pages.retain(|page| of_runs.contains(&page.number.as_u64()));
    // Sometimes everywhere.
    let places = match dice.below(10) {
        0 => 2 * pages.len() as u64,
        _ => 1 + dice.below(6),
    };
    let flips: Vec<Flip> = (0..places)
        .map(|_| {
            let nth = dice.below(pages.len() as u64);
            let place = pages[usize::try_from(nth).unwrap()].place;
            let at = u64::from(place.offset) + dice.below(place.size_bytes.into());
            (place.pair, at, 1 << dice.below(8))
        })
        .collect();
    flip(storage, &flips);
    flips
}

/// Twice, and all is as it was. A file may be gone.
fn flip(storage: &FaultyStorage, flips: &[Flip]) {
    let files: BTreeSet<String> = storage.files().into_iter().map(|(name, _)| name).collect();
    for (pair, at, bit) in flips {
        for copy in 0..2 {
            let name = format!("pages-{:020}", 2 * u64::from(*pair) + copy);
            if files.contains(&name) {
                storage.flip(&name, *at, *bit);
            }
        }
    }
}

/// How many messages are missing, by the first one of each run of four.
fn missing(count: u64, served: &BTreeSet<String>) -> BTreeMap<u64, (u64, u64)> {
    let numbers = (1..=count).filter(|number| !served.contains(&body(number - 1)));
    let mut runs: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for number in numbers {
        runs.entry(number / 4).or_insert((number, 0)).1 += 1;
    }
    runs
}

/// What has the messages.
#[derive(Clone, Copy)]
enum Kind {
    Stored,
    Orders,
    Sessions,
}

/// Pages with runs of four messages are damaged anywhere in both copies. What is set aside is what is missing, and no more
/// than lies there; a start sees the same.
fn damage_costs_what_lies_there(kind: Kind) {
    let mut lost_in_all = 0;
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut driver = Driver::with(FaultyStorage::new(), tiny(None));
        let count = 40 + dice.below(200);
        match kind {
            Kind::Stored => {
                driver.ask(create()).unwrap();
                fill(&mut driver, count);
            }
            Kind::Orders => {
                driver.ask(bus::create()).unwrap();
                fill_orders(&mut driver, count, None);
            }
            Kind::Sessions => special::fill_sessions(&mut driver, count, &mut dice),
        }
        let storage = on_pages(driver, create_bus_queue("another"));
        // A start may have to read what is damaged: without a limit all of it, and with one the pages of runs with sessions.
        let limit = (seed % 2 == 0).then_some(0);
        let is_damaged_before = seed % 3 > 0;
        let before = (!is_damaged_before).then(|| Driver::with(storage.clone(), tiny(limit)));
        let places = damage_anywhere(&storage, &mut dice).len() as u64;
        at_start::damage_beginning(&storage);
        let mut driver = before.unwrap_or_else(|| Driver::with(storage, tiny(limit)));
        let served = match kind {
            Kind::Stored => drain(&mut driver),
            Kind::Orders => drain_orders(&mut driver),
            Kind::Sessions => special::drain_sessions(&mut driver),
        };
        let missing = missing(count, &served);
        let listed = driver.partition.quarantined_runs().into_iter();
        let listed: Vec<_> = listed.map(|run| (run.first.as_u64(), run.count)).collect();
        let missing: Vec<_> = missing.into_values().collect();
        assert_eq!(listed, missing, "seed {seed}");
        let lost: u64 = missing.iter().map(|(_, count)| count).sum();
        assert_eq!(counts(&driver), (lost, lost), "seed {seed}");
        assert!(lost <= 4 * places, "seed {seed}: {lost} by {places}");
        lost_in_all += lost;
        for options in [tiny(Some(0)), tiny(None)] {
            let mut again = Driver::with(driver.storage.kill(), options);
            at_start::set_aside(&mut again);
            assert_same(&again, &driver);
        }
    }
    assert!(lost_in_all > 100, "{lost_in_all} are lost in all");
}

#[test]
fn damage_anywhere_costs_what_lies_there() {
    damage_costs_what_lies_there(Kind::Stored);
}

#[test]
fn damage_anywhere_costs_a_bus_queue_what_lies_there() {
    damage_costs_what_lies_there(Kind::Orders);
}

#[test]
fn damage_anywhere_costs_sessions_what_lies_there() {
    damage_costs_what_lies_there(Kind::Sessions);
}
