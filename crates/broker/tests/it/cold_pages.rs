//! Pages of records that are on the disk alone: damage, failing reads, and how many are read at a time.

use std::sync::Arc;

use kew_broker::{Answered, Partition, Rejection};
use kew_engine::storage::{Metadata, StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome, Timestamp};
use kew_log::{Fault, FaultyStorage, LogPosition};

use crate::cold::{Waiting, damage_pages, lose_second_copies, named, short};
use crate::partition::options;
use crate::quarantined::at_start::damage_beginning;
use crate::support::{delete, next_wake, receive, send};

/// The first copy of the first pair.
const COPY: &str = "pages-00000000000000000000";

/// Damages a copy of every page.
fn damage_copy(w: &Waiting) {
    let storage = &w.driver.storage;
    let size_bytes = storage.files().into_iter().find(|(name, _)| name == COPY);
    let (_, size_bytes) = size_bytes.unwrap();
    (4096..size_bytes)
        .step_by(16)
        .for_each(|at| storage.flip(COPY, at, 1));
}

fn create_other(name: &str) -> Command {
    Command::Storage(StorageCommand::CreateQueue {
        queue: named(name),
        metadata: Metadata::default(),
    })
}

/// Turns without commands, until the partition wants none for a second.
fn settle(w: &mut Waiting) {
    for _ in 0..200 {
        let until = w.driver.now.plus_seconds(1);
        let wake = next_wake(&w.driver.partition).filter(|at| *at <= until);
        let Some(at) = wake else {
            return;
        };
        w.driver.now = at.max(w.driver.now.plus_ms(1));
        w.turn();
    }
    panic!("it always wants a turn");
}

/// Carries out the reads, and decides nothing.
fn take_loads(w: &mut Waiting) {
    for job in std::mem::take(&mut w.loads) {
        let outcome = job.run();
        let partition = &mut w.driver.partition;
        partition.complete(outcome, &mut w.answers).unwrap();
    }
}

fn last_snapshot(w: &Waiting) -> Option<LogPosition> {
    w.driver.partition.log().snapshots().last
}

fn starts(storage: &FaultyStorage) -> bool {
    let now = Timestamp::from_ms(1_000_000);
    Partition::<u32>::open(Arc::new(storage.clone()), options(), 1, [1; 16], now).is_ok()
}

/// The other copy is the only one. So the pages lie elsewhere soon, also if nobody asks for anything.
#[test]
fn a_damaged_copy_that_a_load_finds_is_replaced_at_once() {
    let mut w = Waiting::new();
    damage_copy(&w);
    w.ask(1, receive(1));
    take_loads(&mut w);
    let places = w.driver.partition.scrub_report().places;
    assert!(places.iter().all(|it| it.file == COPY) && !places.is_empty());
    w.turn();
    assert!(matches!(w.answers.as_slice(), [(_, Ok(_))]));
    settle(&mut w);
    let partition = &w.driver.partition;
    assert!(
        !partition.log().files().unwrap().has_file(COPY),
        "the pair is gone"
    );
    assert_eq!(partition.scrub_report().places, []);
    assert_eq!(partition.scrub_report().unreadable_pages, 0);
    assert_eq!(partition.state().resident().cold_runs, 2);
    partition.check_cold_pages();
    assert!(starts(&w.driver.storage.kill()));
}

/// A file is missing, so nothing can mend it, and a start that needs it is refused. Clients that ask again and again cause no
/// snapshots.
#[test]
fn a_page_that_is_damaged_in_both_copies_is_reported_once() {
    let mut w = Waiting::new();
    damage_pages(&w);
    lose_second_copies(&w.driver.storage);
    let fails = |w: &mut Waiting| {
        w.ask(1, receive(1));
        w.read();
        let answers: Vec<_> = w.answers.drain(..).collect();
        assert!(matches!(answers[..], [(_, Err(Rejection::ReadFailed))]));
    };
    fails(&mut w);
    settle(&mut w);
    w.driver.partition.check_cold_pages();
    let report = w.driver.partition.scrub_report();
    assert_eq!(report.unreadable_pages, 2);
    assert!(!report.places.is_empty());
    let snapshot = last_snapshot(&w);
    for _ in 0..3 {
        w.driver.now = w.driver.now.plus_seconds(2);
        w.turn();
        fails(&mut w);
        settle(&mut w);
    }
    assert_eq!(last_snapshot(&w), snapshot);
    let disk = w.driver.storage.kill();
    assert!(starts(&disk), "the log has all of it yet");
    damage_beginning(&disk);
    assert!(!starts(&disk));
}

/// To have no descriptor says nothing of the page.
#[test]
fn a_load_without_a_file_descriptor_is_tried_again() {
    let mut w = Waiting::new();
    let first = w.ask(1, receive(1));
    w.read_with(Fault::Emfile);
    assert_eq!(w.answered(), []);
    assert_eq!(w.loads.len(), 0, "not at once");
    let began = w.driver.now;
    while w.loads.is_empty() {
        let wake = next_wake(&w.driver.partition).unwrap();
        w.driver.now = wake.max(w.driver.now.plus_ms(1));
        assert!(w.driver.now <= began.plus_ms(100));
        w.turn();
    }
    assert_eq!(w.driver.now, began.plus_ms(100));
    w.read();
    assert_eq!(w.answered(), [first]);
}

/// More would fill memory, and let others wait.
#[test]
fn two_jobs_read_at_a_time() {
    const QUEUES: u64 = 20;
    let mut w = Waiting::with_records();
    for queue in 0..QUEUES {
        let name = format!("queue-{queue}");
        w.ask(1, create_other(&name));
        // Three runs and half of one.
        for _ in 0..15 {
            w.ask(1, short(named(&name), 1_000_000));
        }
    }
    w.evict();
    w.answers.clear();
    for number in 0..QUEUES {
        let queue = named(&format!("queue-{number}"));
        let peek = StorageCommand::Peek { queue, count: 32 };
        w.ask(1, Command::Storage(peek));
    }
    assert_eq!(w.answered(), []);
    let groups = |w: &Waiting| w.driver.partition.loaded_count();
    assert_eq!(w.loads.len(), 2);
    take_loads(&mut w);
    assert_eq!(groups(&w), 2 * 8, "what the first two have asked for");
    w.turn();
    assert_eq!(w.loads.len(), 2);
    w.read();
    assert_eq!(groups(&w), 2 * 8 + 2 * 64);
    w.read();
    assert_eq!(groups(&w), QUEUES * 8);
    assert_eq!(w.answered().len() as u64, QUEUES);
}

/// A segment with messages that cannot be read is left for longer each time, and is emptied once they can.
#[test]
fn an_evacuation_that_cannot_read_rests_for_longer_each_time() {
    let mut w = Waiting::with_records();
    w.ask(1, create_other("kept"));
    for number in 0..1000 {
        w.driver.ask(send("x".repeat(1000))).unwrap();
        let Ok(Answered { outcome, .. }) = w.driver.ask(receive(1)) else {
            panic!("a message can be received");
        };
        let Outcome::Storage(StorageOutcome::Received(messages)) = outcome else {
            panic!("{outcome:?}");
        };
        w.driver.ask(delete(&messages[0])).unwrap();
        if number % 40 == 0 {
            w.driver.ask(short(named("kept"), 1_000_000)).unwrap();
        }
    }
    w.evict();
    w.answers.clear();
    let loads_until = |w: &mut Waiting, seconds: u64| {
        let until = w.driver.now.plus_seconds(seconds);
        let mut loads = 0;
        while let Some(at) = next_wake(&w.driver.partition).filter(|at| *at < until) {
            w.driver.now = at.max(w.driver.now.plus_ms(1));
            w.turn();
            loads += w.loads.len();
            w.fail_to_read();
        }
        w.driver.now = until;
        loads
    };
    let first = loads_until(&mut w, 60);
    assert!(first > 4, "it is tried again: {first}");
    let later = loads_until(&mut w, 1200);
    assert!(
        later < 4 * first,
        "{later} reads in 20 minutes, after {first} in one"
    );
    assert_eq!(w.driver.partition.moved_count(), 0);
    for _ in 0..2000 {
        let Some(at) = next_wake(&w.driver.partition) else {
            break;
        };
        w.driver.now = at.max(w.driver.now.plus_ms(1));
        w.turn();
        w.read();
    }
    assert!(
        w.driver.partition.moved_count() > 0,
        "it is emptied in the end"
    );
}
