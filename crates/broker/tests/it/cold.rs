//! Commands that wait until records of messages are read: their order, and what fails.

use std::collections::BTreeSet;

use kew_broker::{Answered, Rejection, Reply, Rotation, Source};
use kew_engine::storage::{Metadata, StorageCommand, StorageOutcome};
use kew_engine::{Command, EntityName, Outcome};
use kew_log::{Fault, FaultyStorage, Job, JobKind, Repeat, read_table};

use crate::partition::Driver;
use crate::support::{delete, moment, next_wake, peek, queue, receive, send};

/// A partition with messages of which none is in memory. Jobs that read wait until they are told to.
pub(crate) struct Waiting {
    pub(crate) driver: Driver,
    commands: Rotation<u32>,
    pub(crate) loads: Vec<Job>,
    pub(crate) answers: Vec<(u32, Reply)>,
    next: u32,
}

fn read_queue() -> Command {
    Command::Storage(StorageCommand::ReadQueue { queue: queue() })
}

pub(crate) fn of_other_queue() -> Command {
    Command::Storage(StorageCommand::CreateQueue {
        queue: EntityName::storage_queue("acct", "other"),
        metadata: Metadata::default(),
    })
}

impl Waiting {
    pub(crate) fn new() -> Self {
        let mut w = Self::with_records();
        w.evict();
        w
    }

    pub(crate) fn with_records() -> Self {
        let mut driver = Driver::new();
        for body in ["a", "b", "c", "d", "e"] {
            driver.ask(send(body)).unwrap();
        }
        Self::of(driver)
    }

    pub(crate) fn of(driver: Driver) -> Self {
        Self {
            driver,
            commands: Rotation::default(),
            loads: Vec::new(),
            answers: Vec::new(),
            next: 0,
        }
    }

    /// Writes a snapshot, and takes what its pages have out of memory.
    pub(crate) fn evict(&mut self) {
        self.driver.partition.snapshot();
        self.driver.jobs(&mut self.answers);
        self.driver.partition.evict_if(|_, may| may);
    }

    /// Submits a command, and decides what can be decided. Returns its ticket.
    pub(crate) fn ask(&mut self, source: u64, command: Command) -> u32 {
        self.next += 1;
        let source = Source::numbered(source);
        self.commands.push(source, self.next, command);
        self.turn();
        self.next
    }

    pub(crate) fn turn(&mut self) {
        let Driver { partition, now, .. } = &mut self.driver;
        partition.turn(moment(*now), &mut self.commands, &mut self.answers);
        while let Some(job) = partition.next_job() {
            if job.kind() == JobKind::Load {
                self.loads.push(job);
            } else {
                let outcome = job.run();
                partition.complete(outcome, &mut self.answers).unwrap();
            }
        }
    }

    /// Carries out the reads, and decides what can be decided then.
    pub(crate) fn read(&mut self) {
        for job in std::mem::take(&mut self.loads) {
            let outcome = job.run();
            let partition = &mut self.driver.partition;
            partition.complete(outcome, &mut self.answers).unwrap();
        }
        self.turn();
    }

    /// Carries out the reads on a disk that fails, and decides what can be decided then.
    pub(crate) fn fail_to_read(&mut self) {
        self.read_with(Fault::Eio);
    }

    /// The same with any failure.
    pub(crate) fn read_with(&mut self, fault: Fault) {
        for job in std::mem::take(&mut self.loads) {
            let storage = &self.driver.storage;
            storage.fail_after(0, fault, Repeat::Sticky);
            let outcome = job.run();
            storage.clear_faults();
            let partition = &mut self.driver.partition;
            partition.complete(outcome, &mut self.answers).unwrap();
        }
        self.turn();
    }

    /// The tickets of the answers since the last call, in order.
    pub(crate) fn answered(&mut self) -> Vec<u32> {
        self.answers.drain(..).map(|(ticket, _)| ticket).collect()
    }
}

#[test]
fn writers_of_a_queue_wait_behind_one_that_waits_and_readers_pass() {
    let mut w = Waiting::new();
    let first = w.ask(1, receive(1));
    assert_eq!(w.loads.len(), 1);
    let second = w.ask(2, send("f"));
    assert_eq!(w.answered(), []);
    let reader = w.ask(2, read_queue());
    assert_eq!(w.answered(), [], "it comes after what its own source asked");
    let other = w.ask(3, read_queue());
    assert_eq!(w.answered(), [other]);
    let elsewhere = w.ask(1, of_other_queue());
    assert_eq!(w.answered(), [elsewhere]);
    assert_eq!(w.driver.partition.waiting().count(), 3);
    w.read();
    assert_eq!(w.answered(), [first, second, reader]);
    assert_eq!(w.driver.partition.waiting().count(), 0);
}

#[test]
fn a_reader_that_waits_holds_back_its_own_source_alone() {
    let mut w = Waiting::new();
    let reader = w.ask(1, peek());
    let other = w.ask(2, send("f"));
    assert_eq!(w.answered(), [other]);
    let own = w.ask(1, send("g"));
    // A writer that waits for its own source alone holds nobody back.
    let passing = w.ask(2, send("h"));
    assert_eq!(w.answered(), [passing]);
    w.read();
    // What was read is enough: the messages of the other source are in memory.
    assert_eq!(w.answered(), [reader, own]);
}

#[test]
fn what_several_commands_miss_is_read_once() {
    let mut w = Waiting::new();
    let first = w.ask(1, receive(1));
    let second = w.ask(2, receive(1));
    let third = w.ask(3, peek());
    // The peek needs the second run too.
    assert_eq!(w.loads.len(), 2);
    w.read();
    assert_eq!(w.answered(), [first, second, third]);
    assert_eq!(w.loads.len(), 0);
}

#[test]
fn a_read_that_fails_refuses_those_that_need_it_and_the_next_one_tries_again() {
    let mut w = Waiting::new();
    let first = w.ask(1, receive(1));
    let second = w.ask(2, send("f"));
    w.fail_to_read();
    let answers: Vec<_> = w.answers.drain(..).collect();
    let [(ticket, Err(Rejection::ReadFailed)), (sent, Ok(_))] = answers.as_slice() else {
        panic!("{answers:?}");
    };
    assert_eq!((*ticket, *sent), (first, second));
    // Not in the same moment: the disk is left in peace.
    let soon = w.ask(1, receive(1));
    assert_eq!(w.answered(), [soon]);
    assert_eq!(w.loads.len(), 0);
    w.driver.now = w.driver.now.plus_ms(1000);
    let again = w.ask(1, receive(1));
    w.read();
    let answers: Vec<_> = w.answers.drain(..).collect();
    let [(ticket, Ok(Answered { outcome, .. }))] = answers.as_slice() else {
        panic!("{answers:?}");
    };
    assert_eq!(*ticket, again);
    let Outcome::Storage(StorageOutcome::Received(messages)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(messages.len(), 1);
    let (message, before) = (&messages[0], w.driver.partition.state().counts().1);
    w.ask(1, delete(message));
    assert_eq!(w.driver.partition.state().counts().1, before - 1);
}

#[test]
fn a_stop_rejects_what_waits() {
    let mut w = Waiting::new();
    let first = w.ask(1, receive(1));
    let second = w.ask(2, send("f"));
    w.driver.partition.reject_waiting(&mut w.answers);
    assert_eq!(w.answered(), [first, second]);
    assert_eq!(w.driver.partition.state().counts().1, 5);
    // What is read later finds nobody.
    w.read();
    assert_eq!(w.answered(), []);
}

/// What is due waits for its read, and the partition does not ask for turns meanwhile.
#[test]
fn due_work_waits_for_its_read() {
    let mut w = Waiting::with_records();
    let short = Command::Storage(StorageCommand::Send {
        queue: queue(),
        body: "short".into(),
        encoding: kew_engine::BodyEncoding::Text,
        time_to_live_seconds: Some(5),
        visibility_timeout: kew_engine::VisibilityTimeout::ZERO,
    });
    w.ask(1, short);
    w.evict();
    w.driver.now = w.driver.now.plus_seconds(1000);
    w.turn();
    w.turn();
    assert_eq!(w.loads.len(), 1);
    assert_eq!(w.driver.partition.state().counts().1, 6);
    let wake = next_wake(&w.driver.partition);
    assert!(
        wake.is_none_or(|at| !at.has_passed(w.driver.now)),
        "{wake:?}"
    );
    w.read();
    assert_eq!(w.driver.partition.state().counts().1, 5);
}

pub(crate) fn named(name: &str) -> EntityName {
    EntityName::storage_queue("acct", name)
}

/// Sends a message that lives for so long.
pub(crate) fn short(queue: EntityName, seconds: u32) -> Command {
    Command::Storage(StorageCommand::Send {
        queue,
        body: "short".into(),
        encoding: kew_engine::BodyEncoding::Text,
        time_to_live_seconds: Some(seconds),
        visibility_timeout: kew_engine::VisibilityTimeout::ZERO,
    })
}

/// An entity whose due work waits for a read lets the deadlines of others be.
#[test]
fn due_work_of_others_does_not_wait_with_one_that_waits_for_a_read() {
    let mut w = Waiting::with_records();
    w.ask(1, short(queue(), 5));
    w.evict();
    w.ask(1, of_other_queue());
    w.ask(1, short(named("other"), 20));
    w.driver.now = w.driver.now.plus_seconds(10);
    w.turn();
    assert_eq!(w.loads.len(), 1, "the read is under way");
    assert_eq!(w.driver.partition.state().counts().1, 7);
    let wake = next_wake(&w.driver.partition).unwrap();
    assert!(wake <= w.driver.now.plus_seconds(10), "{wake}");
    w.driver.now = wake;
    w.turn();
    w.driver.now = w.driver.now.plus_seconds(10);
    w.turn();
    assert_eq!(w.driver.partition.state().counts().1, 6);
    w.read();
    assert_eq!(w.driver.partition.state().counts().1, 5);
}

/// Due work whose read has failed is tried again by itself, after a pause.
#[test]
fn due_work_tries_a_read_again_that_has_failed() {
    let mut w = Waiting::with_records();
    w.ask(1, short(queue(), 5));
    w.evict();
    w.driver.now = w.driver.now.plus_seconds(1000);
    w.turn();
    w.fail_to_read();
    w.turn();
    assert_eq!(w.loads.len(), 0, "not at once");
    assert_eq!(w.driver.partition.state().counts().1, 6);
    let retry_at = w.driver.now.plus_ms(1000);
    while w.driver.now < retry_at {
        assert_eq!(w.loads.len(), 0, "not before its time");
        // Maintenance looks at the segments meanwhile.
        let wake = next_wake(&w.driver.partition).unwrap();
        assert!(wake <= retry_at, "{wake} is after {retry_at}");
        w.driver.now = wake.max(w.driver.now.plus_ms(1));
        w.turn();
    }
    assert_eq!(w.loads.len(), 1);
    w.read();
    assert_eq!(w.driver.partition.state().counts().1, 5);
}

/// What a command of no numbered source has read is not taken out of memory before it was decided.
#[test]
fn what_a_reader_without_lanes_needs_stays_in_memory() {
    let mut w = Waiting::new();
    let reader = w.ask(0, peek());
    assert_eq!(w.answered(), []);
    for job in std::mem::take(&mut w.loads) {
        let outcome = job.run();
        let partition = &mut w.driver.partition;
        partition.complete(outcome, &mut w.answers).unwrap();
    }
    w.driver.partition.evict_if(|_, may| may);
    w.turn();
    assert_eq!(w.answered(), [reader]);
    assert_eq!(w.loads.len(), 0);
}

/// Damages everything in the files of pages but their headers.
pub(crate) fn damage_pages(w: &Waiting) {
    damage_all_pages(&w.driver.storage);
}

pub(crate) fn damage_all_pages(storage: &FaultyStorage) {
    for (name, size_bytes) in storage.files() {
        if name.starts_with("pages-") {
            (4096..size_bytes)
                .step_by(16)
                .for_each(|at| storage.flip(&name, at, 1));
        }
    }
}

/// Nothing is set aside while a file is missing, which may come back.
/// Every file of pages goes.
pub(crate) fn lose_all_pages(storage: &FaultyStorage) {
    for (name, _) in storage.files() {
        if name.starts_with("pages-") {
            storage.lose_file(&name);
        }
    }
}

pub(crate) fn lose_second_copies(storage: &FaultyStorage) {
    for (name, _) in storage.files() {
        let number = name.strip_prefix("pages-");
        let number: Option<u64> = number.and_then(|number| number.parse().ok());
        if number.is_some_and(|number| number % 2 == 1) {
            storage.lose_file(&name);
        }
    }
}

/// Both copies of a page are damaged, and one is missing: the command fails, tries again after a pause, and holds nobody back.
#[test]
fn a_damaged_page_fails_those_that_need_it_and_no_others() {
    let mut w = Waiting::new();
    damage_pages(&w);
    lose_second_copies(&w.driver.storage);
    for _ in 0..3 {
        w.ask(1, receive(1));
        assert_eq!(w.loads.len(), 1);
        w.read();
        let answers: Vec<_> = w.answers.drain(..).collect();
        let [(_, Err(Rejection::ReadFailed))] = answers.as_slice() else {
            panic!("{answers:?}");
        };
        let other = w.ask(2, send("f"));
        assert_eq!(w.answered(), [other]);
        w.driver.now = w.driver.now.plus_ms(1000);
    }
    // A snapshot names the page where it lies.
    w.driver.partition.snapshot();
    w.turn();
    let log = w.driver.partition.log();
    assert!(log.snapshots().failed.is_none() && !log.snapshots().is_under_way);
}

fn receive_from(queue: EntityName) -> Command {
    Command::Storage(StorageCommand::Receive {
        queue,
        count: 32,
        visibility_timeout: kew_engine::VisibilityTimeout::from_seconds(30).unwrap(),
    })
}

/// On a full disk, pages are copied into files of their own, also of runs that are on pages alone, and older files go.
#[test]
fn what_is_on_pages_alone_stays_on_a_full_disk() {
    let mut driver = Driver::new();
    driver.ask(of_other_queue()).unwrap();
    for _ in 0..9 {
        driver.ask(short(named("other"), 1_000_000)).unwrap();
    }
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    driver.partition.evict_if(|_, may| may);
    let cold_runs = |driver: &Driver| driver.partition.state().resident().cold_runs;
    assert_eq!(cold_runs(&driver), 3);
    let page_files = |driver: &Driver| {
        let files = driver.storage.files().into_iter();
        let names = files.map(|(name, _)| name);
        let names = names.filter(|name| name.starts_with("pages-"));
        names.collect::<BTreeSet<String>>()
    };
    let files_before = page_files(&driver);
    let used_bytes = driver.storage.used_bytes();
    driver
        .storage
        .set_capacity_bytes(Some(used_bytes + 512 * 1024));
    let body = "x".repeat(3000);
    while driver.ask(send(body.clone())).is_ok() {}
    assert!(driver.partition.log().limits().full.is_some());
    let mut snapshots = 0;
    for _ in 0..20 {
        let Ok(Answered { outcome, .. }) = driver.ask(receive(4)) else {
            panic!("messages can be received");
        };
        let Outcome::Storage(StorageOutcome::Received(messages)) = outcome else {
            panic!("{outcome:?}");
        };
        for message in messages {
            driver.ask(delete(&message)).unwrap();
        }
        let before = driver.partition.log().snapshots().last;
        let was_draining = driver.partition.log().limits().full.is_some();
        driver.partition.snapshot();
        driver.jobs(&mut Vec::new());
        let log = driver.partition.log();
        let newest = log.snapshots().last.unwrap();
        let table = read_table(&driver.storage, newest).unwrap().table;
        assert!(!table.pages().is_empty(), "it has pages");
        snapshots += u32::from(was_draining && log.snapshots().last > before);
    }
    assert!(snapshots > 3, "{snapshots}");
    assert!(page_files(&driver).is_disjoint(&files_before));
    assert_eq!(cold_runs(&driver), 3);
    let Ok(Answered { outcome, .. }) = driver.ask(receive_from(named("other"))) else {
        panic!("they are there");
    };
    assert_eq!(outcome.bodies().len(), 9);
}
