//! Records leave memory while they take too much of it.

use std::collections::{BTreeSet, VecDeque};

use kew_broker::{Answered, PartitionOptions, Reply, ResidentLimit, TurnEnd};
use kew_engine::storage::{ReceivedMessage, StorageOutcome};
use kew_engine::{Command, Outcome, Resident, RunLength};
use kew_log::{FaultyStorage, JobKind, LogOptions};

use crate::cold::damage_all_pages;
use crate::partition::{Driver, options};
use crate::support::{create, delete, moment, receive, send};

/// What so many records take.
fn size_bytes(records: u64) -> u64 {
    Resident::of_records(records).size_bytes()
}

pub(crate) fn limited(records_max: Option<u64>) -> PartitionOptions {
    PartitionOptions {
        log: LogOptions {
            segment_size_first_bytes: 1 << 20,
            segment_size_max_bytes: 1 << 20,
            batch_size_max_bytes: 256 << 10,
            ..options().log
        },
        run_length: RunLength::DEFAULT,
        snapshot_after_bytes: 256 << 10,
        gather_steps: 1000,
        resident_limit: ResidentLimit::of(records_max.map(size_bytes)),
        scrub_bytes_per_second: 0,
        ..options()
    }
}

/// Commands that are decided in one turn, if it has room for all.
pub(crate) fn ask_all(
    driver: &mut Driver,
    commands: impl IntoIterator<Item = Command>,
) -> Vec<Reply> {
    let mut commands: VecDeque<(u32, Command)> = (0..).zip(commands).collect();
    let mut replies = Vec::new();
    loop {
        let now = moment(driver.now);
        let end = driver.partition.turn(now, &mut commands, &mut replies);
        driver.jobs(&mut replies);
        driver.partition.check_cold_pages();
        if end == TurnEnd::Done && driver.partition.waiting().next().is_none() {
            break;
        }
    }
    replies.sort_by_key(|(ticket, _)| *ticket);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

pub(crate) fn body(number: u64) -> String {
    format!("message {number:06}")
}

pub(crate) fn fill(driver: &mut Driver, count: u64) {
    let numbers: Vec<u64> = (0..count).collect();
    for numbers in numbers.chunks(100) {
        let sends = numbers.iter().map(|number| send(body(*number)));
        assert!(ask_all(driver, sends).iter().all(Result::is_ok));
    }
}

pub(crate) fn received(reply: Reply) -> (Vec<ReceivedMessage>, Vec<String>) {
    let Ok(Answered {
        outcome, bodies, ..
    }) = reply
    else {
        panic!("messages can be received");
    };
    let Outcome::Storage(StorageOutcome::Received(messages)) = outcome else {
        panic!("{outcome:?}");
    };
    let bodies = bodies.read().into_iter();
    let bodies = bodies.map(|body| String::from_utf8(body.unwrap().to_vec()).unwrap());
    (messages, bodies.collect())
}

pub(crate) fn records(driver: &Driver) -> u64 {
    driver.partition.state().resident().records
}

/// More turns without commands than an eviction takes.
pub(crate) fn rest(driver: &mut Driver) {
    for _ in 0..20 {
        driver.rest();
    }
}

/// While a snapshot is under way, nothing becomes cold. It begins once the hand has come round, also if no command comes.
#[test]
fn a_snapshot_waits_until_the_hand_has_come_round() {
    let options = PartitionOptions {
        run_length: RunLength::TINY,
        snapshot_after_bytes: 1 << 20,
        ..limited(Some(0))
    };
    let mut driver = Driver::with(FaultyStorage::new(), options);
    driver.ask(create()).unwrap();
    // In few turns: the hand has not come round when all of it is there.
    let sends = (0..12_000).map(|number| send(body(number)));
    assert!(ask_all(&mut driver, sends).iter().all(Result::is_ok));
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    let before = driver.partition.log().snapshots().last;
    // More than four intervals.
    let sends = (0..100).map(|_| send("x".repeat(48 << 10)));
    assert!(ask_all(&mut driver, sends).iter().all(Result::is_ok));
    assert!(driver.partition.log().snapshots().bytes_since > 4 << 20);
    let is_same = |driver: &Driver| {
        let log = driver.partition.log();
        log.snapshots().last == before && !log.snapshots().is_under_way
    };
    assert!(is_same(&driver), "a snapshot was due, and began");
    let resident = records(&driver);
    assert!(resident > 1000, "{resident}: the hand has come round");
    for _ in 0..200 {
        driver.rest();
    }
    assert!(!is_same(&driver), "no snapshot has begun");
    assert!(records(&driver) < 10, "{}", records(&driver));
}

#[test]
fn a_backlog_of_ten_times_the_limit_is_drained_within_it() {
    const COUNT: u64 = 100_000;
    const RECORDS_MAX: u64 = 10_000;
    let mut driver = Driver::with(FaultyStorage::new(), limited(Some(RECORDS_MAX)));
    driver.ask(create()).unwrap();
    fill(&mut driver, COUNT);
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    rest(&mut driver);
    assert!(records(&driver) <= RECORDS_MAX, "{}", records(&driver));
    assert_eq!(driver.partition.state().counts().1, COUNT);
    let (mut next, mut most) = (0, 0);
    while next < COUNT {
        let reply = driver.ask(receive(32));
        let (messages, bodies) = received(reply);
        let expected = (next..).take(messages.len()).map(body);
        assert!(!messages.is_empty() && bodies.into_iter().eq(expected));
        next += messages.len() as u64;
        most = most.max(records(&driver));
        let deletes = messages.iter().map(delete);
        assert!(ask_all(&mut driver, deletes).iter().all(Result::is_ok));
    }
    assert!(most <= RECORDS_MAX, "{most} records were in memory");
    assert_eq!(driver.partition.state().counts().1, 0);
    assert_eq!(driver.partition.state().resident(), Resident::default());
    driver.partition.state().check_live_bytes();
}

/// Commands change messages of all runs, and the process is killed again and again: nothing is lost or comes twice.
#[test]
fn kills_lose_nothing_that_is_on_pages_alone() {
    const COUNT: u64 = 6000;
    let options = limited(Some(0));
    let mut driver = Driver::with(FaultyStorage::new(), options.clone());
    driver.ask(create()).unwrap();
    fill(&mut driver, COUNT);
    let mut left: BTreeSet<String> = (0..COUNT).map(body).collect();
    let (mut round, mut was_cold) = (0_u64, 0);
    while !left.is_empty() {
        round += 1;
        driver.partition.snapshot();
        driver.jobs(&mut Vec::new());
        rest(&mut driver);
        was_cold = was_cold.max(driver.partition.state().resident().cold_runs);
        // The leases of the last round have ended.
        driver.now = driver.now.plus_seconds(600);
        let (messages, bodies) = received(driver.ask(receive(32)));
        assert!(!messages.is_empty(), "round {round}");
        // Some are deleted, and the rest come again.
        let deleted = messages.len() - messages.len() / 4 * usize::from(round.is_multiple_of(3));
        let deletes = messages.iter().take(deleted).map(delete);
        assert!(ask_all(&mut driver, deletes).iter().all(Result::is_ok));
        for body in bodies.iter().take(deleted) {
            assert!(left.remove(body), "{body} comes after it was deleted");
        }
        if round.is_multiple_of(5) {
            let storage = driver.storage.kill();
            let now = driver.now;
            driver = Driver::with(storage, options.clone());
            driver.now = now;
            assert_eq!(driver.partition.state().counts().1, left.len() as u64);
        }
    }
    assert!(was_cold > 3, "{was_cold}");
}

/// Without a snapshot there is no page, and without a limit nothing is evicted.
#[test]
fn only_what_a_snapshot_has_leaves_memory_and_only_above_the_limit() {
    // So few that memory makes no snapshot due.
    const COUNT: u64 = 1050;
    for (limit, is_evicted) in [(None, false), (Some(2000), false), (Some(500), true)] {
        let options = PartitionOptions {
            snapshot_after_bytes: u64::MAX / 8,
            ..limited(limit)
        };
        let mut driver = Driver::with(FaultyStorage::new(), options);
        driver.ask(create()).unwrap();
        fill(&mut driver, COUNT);
        rest(&mut driver);
        assert_eq!(records(&driver), COUNT, "no page has them");
        driver.partition.snapshot();
        rest(&mut driver);
        assert_eq!(records(&driver) < COUNT, is_evicted);
        let cold_runs = driver.partition.state().resident().cold_runs;
        assert_eq!(cold_runs > 0, is_evicted);
        assert_eq!(driver.partition.state().counts().1, COUNT);
    }
}

/// What came since the last snapshot cannot leave memory. So memory alone makes the next one due.
#[test]
fn memory_makes_snapshots_due() {
    const COUNT: u64 = 40_000;
    let options = PartitionOptions {
        snapshot_after_bytes: u64::MAX / 8,
        snapshot_after_effects: u64::MAX / 64,
        ..limited(Some(4000))
    };
    let mut driver = Driver::with(FaultyStorage::new(), options);
    driver.ask(create()).unwrap();
    let (mut most, mut snapshots, mut last) = (0, 0, None);
    let mut look = |driver: &Driver| {
        most = most.max(records(driver));
        let newest = driver.partition.log().snapshots().last;
        snapshots += u64::from(newest != last);
        last = newest;
        (most, snapshots)
    };
    for numbers in (0..COUNT).collect::<Vec<_>>().chunks(100) {
        let sends = numbers.iter().map(|number| send(body(*number)));
        assert!(ask_all(&mut driver, sends).iter().all(Result::is_ok));
        look(&driver);
    }
    let (most, written) = look(&driver);
    assert!(most < 5500, "{most} records were in memory");
    assert!((5..40).contains(&written), "{written} snapshots");
}

/// A disk that writes no snapshot for long: commands wait while records take twice the limit.
#[test]
fn commands_wait_for_a_snapshot_while_memory_is_twice_the_limit() {
    const LIMIT: u64 = 20_000;
    let mut driver = Driver::with(FaultyStorage::new(), limited(Some(LIMIT)));
    driver.ask(create()).unwrap();
    let sends = (0..4 * LIMIT).map(|number| (0, send(body(number))));
    let mut sends: VecDeque<_> = sends.collect();
    let (mut replies, mut held) = (Vec::new(), Vec::new());
    let mut waited = 0;
    while waited < 10 {
        let end = driver
            .partition
            .turn(moment(driver.now), &mut sends, &mut replies);
        waited += u32::from(end == TurnEnd::WaitForMemory && !held.is_empty());
        while let Some(job) = driver.partition.next_job() {
            match job.kind() {
                JobKind::Snapshot => held.push(job),
                _ => driver.partition.complete(job.run(), &mut replies).unwrap(),
            }
        }
        assert!(!sends.is_empty(), "nothing has waited");
    }
    let most = records(&driver);
    // Turns go on until the snapshot is gathered.
    assert!((2 * LIMIT..2 * LIMIT + 5000).contains(&most), "{most}");
    // It is written at last.
    for job in held {
        driver.partition.complete(job.run(), &mut replies).unwrap();
    }
    while !sends.is_empty() {
        driver
            .partition
            .turn(moment(driver.now), &mut sends, &mut replies);
        driver.jobs(&mut replies);
    }
    assert_eq!(replies.len() as u64, 4 * LIMIT);
    assert!(replies.iter().all(|(_, reply)| reply.is_ok()));
    rest(&mut driver);
    assert!(records(&driver) <= LIMIT, "{}", records(&driver));
}

/// While a snapshot is written, a run may get another page: nothing becomes cold before that has ended.
#[test]
fn nothing_leaves_memory_while_a_snapshot_is_written() {
    let mut driver = Driver::with(FaultyStorage::new(), limited(Some(20_000)));
    driver.ask(create()).unwrap();
    fill(&mut driver, 10_000);
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    driver.ask(send("one more")).unwrap();
    driver.partition.snapshot();
    let mut held = Vec::new();
    let mut sends: VecDeque<_> = (0..8_000)
        .map(|number| (number, send(body(u64::from(number)))))
        .collect();
    let mut replies = Vec::new();
    while replies.len() < 8_000 {
        driver
            .partition
            .turn(moment(driver.now), &mut sends, &mut replies);
        while let Some(job) = driver.partition.next_job() {
            if job.kind() == JobKind::Snapshot {
                held.push(job);
                continue;
            }
            let outcome = job.run();
            driver.partition.complete(outcome, &mut replies).unwrap();
        }
    }
    assert_eq!(held.len(), 1);
    assert_eq!(
        records(&driver),
        18_001,
        "more than three quarters of the limit"
    );
    for job in held {
        let outcome = job.run();
        driver.partition.complete(outcome, &mut replies).unwrap();
    }
    rest(&mut driver);
    assert!(records(&driver) <= 15_000, "{}", records(&driver));
    driver.partition.check_cold_pages();
}

/// A scrub finds that both copies of pages are damaged: memory is the last place of their messages, and stays until a
/// snapshot has them elsewhere.
#[test]
fn nothing_leaves_memory_whose_page_is_known_to_be_damaged() {
    // More than two runs, as the first and the last one are spared at first. So few that memory makes no snapshot due.
    const COUNT: u64 = 1000;
    let options = PartitionOptions {
        run_length: RunLength::TINY,
        snapshot_after_bytes: u64::MAX / 8,
        scrub_bytes_per_second: 1,
        ..limited(Some(0))
    };
    let mut driver = Driver::with(FaultyStorage::new(), options.clone());
    driver.ask(create()).unwrap();
    fill(&mut driver, COUNT);
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    damage_all_pages(&driver.storage);
    while let Some(job) = driver.partition.next_scrub() {
        let outcome = job.run();
        driver.partition.scrubbed(outcome);
    }
    // The snapshot is at the log's end, so the turn begins no other one.
    let now = moment(driver.now);
    let mut replies = Vec::new();
    driver
        .partition
        .turn(now, &mut VecDeque::new(), &mut replies);
    assert_eq!(records(&driver), COUNT, "they are nowhere else");
    driver.jobs(&mut replies);
    rest(&mut driver);
    assert_eq!(records(&driver), 0, "other pages have them");
    assert_eq!(driver.partition.scrub_report().unreadable_pages, 0);
    let mut driver = Driver::with(driver.storage.kill(), options);
    let mut left = COUNT;
    while left > 0 {
        let (messages, _) = received(driver.ask(receive(32)));
        assert!(!messages.is_empty(), "{left} are left");
        left -= messages.len() as u64;
    }
}

/// A full disk with a backlog of which next to nothing is in memory can be drained to the last message, and takes messages
/// again.
#[test]
fn a_full_disk_is_drained_while_records_are_on_pages_alone() {
    let storage = FaultyStorage::new();
    storage.set_capacity_bytes(Some(24 << 20));
    let mut driver = Driver::with(storage, limited(Some(1000)));
    driver.ask(create()).unwrap();
    let mut left = BTreeSet::new();
    let mut number = 0;
    while driver.ask(send(body(number))).is_ok() {
        left.insert(body(number));
        number += 1;
    }
    assert!(driver.partition.is_out_of_space());
    let cold_runs = driver.partition.state().resident().cold_runs;
    assert!(
        cold_runs > 10 && records(&driver) < 20_000,
        "{cold_runs} of {number} messages"
    );
    while !left.is_empty() {
        let (messages, bodies) = received(driver.ask(receive(32)));
        assert!(!messages.is_empty(), "{} are left", left.len());
        let deletes = messages.iter().map(delete);
        assert!(ask_all(&mut driver, deletes).iter().all(Result::is_ok));
        assert!(bodies.iter().all(|body| left.remove(body)));
    }
    for _ in 0..20 {
        driver.now = driver.now.plus_seconds(1);
        if driver.ask(send(body(0))).is_ok() {
            return;
        }
    }
    panic!("a drained disk takes no messages");
}
