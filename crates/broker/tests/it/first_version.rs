//! A data directory of the first version, which logged no effects, in format 1: a migration makes a log of it that is
//! what it was.
//!
//! `tests/golden/1` was written by that version with [`history`]. Never write it again.

use std::sync::Arc;

use kew_broker::{MigrateError, Migrated, OldPartition, PartitionOptions, Reply};
use kew_engine::storage::{ReceivedMessage, StorageCommand, StorageOutcome};
use kew_engine::{
    BodyEncoding, Command, EntityName, Outcome, RunLength, Timestamp, VisibilityTimeout,
};
use kew_log::{FaultyStorage, LogPosition, verify};

use crate::damaged::{Bench, Sizes};

macro_rules! golden {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_bytes!(concat!("../golden/1/", $name)) as &[u8])),*]
    };
}

const FILES: [(&str, &[u8]); 3] = golden![
    "segment-00000000000000000001",
    "segment-00000000000000000002",
    "snapshot-00000000000000009512",
];

pub(crate) fn options() -> PartitionOptions {
    let sizes = Sizes {
        segment_kib: 32,
        batch_kib: 16,
        turn_kib: 8,
        settlement_kib: 1,
    };
    let options = sizes.options();
    PartitionOptions {
        run_length: RunLength::UNTOLD,
        log: kew_log::LogOptions {
            ballast_size_bytes: 0,
            ..options.log
        },
        ..options
    }
}

const QUEUES: [&str; 3] = ["jobs", "old", "again"];

fn name(queue: &str) -> EntityName {
    EntityName::storage_queue("acct", queue)
}

fn seconds(seconds: u32) -> VisibilityTimeout {
    VisibilityTimeout::from_seconds(seconds).unwrap()
}

/// Commands of one history.
struct Teller {
    bench: Bench,
    sent: u32,
}

impl Teller {
    fn ask(&mut self, command: Command) -> Reply {
        self.bench.ask(command)
    }

    fn create(&mut self, queue: &str) {
        let metadata = [("colour", "green")].into_iter().collect();
        let queue = name(queue);
        self.ask(Command::Storage(StorageCommand::CreateQueue {
            queue,
            metadata,
        }))
        .unwrap();
    }

    /// A send of the next body.
    fn message(&mut self, queue: &str, time_to_live_seconds: Option<u32>, hidden: u32) -> Command {
        self.sent += 1;
        let body = format!("body {}", self.sent);
        Command::Storage(StorageCommand::Send {
            queue: name(queue),
            body: body.into(),
            encoding: BodyEncoding::Text,
            time_to_live_seconds,
            visibility_timeout: seconds(hidden),
        })
    }

    fn send(&mut self, queue: &str, time_to_live_seconds: Option<u32>, hidden: u32) {
        let message = self.message(queue, time_to_live_seconds, hidden);
        self.ask(message).unwrap();
    }

    fn receive(&mut self, queue: &str, count: u32, hidden: u32) -> Vec<ReceivedMessage> {
        let command = Command::Storage(StorageCommand::Receive {
            queue: name(queue),
            count,
            visibility_timeout: seconds(hidden),
        });
        match self.ask(command).unwrap().outcome {
            Outcome::Storage(StorageOutcome::Received(messages)) => messages,
            other => panic!("{other:?}"),
        }
    }

    /// Deletes it, or returns why not.
    fn delete(&mut self, queue: &str, message: &ReceivedMessage) -> String {
        let command = Command::Storage(StorageCommand::Delete {
            queue: name(queue),
            message: message.message,
            receipt: message.receipt,
        });
        self.ask(command)
            .map_or_else(|it| it.to_string(), |_| "deleted".into())
    }

    fn update(&mut self, queue: &str, message: &mut ReceivedMessage, body: Option<&'static str>) {
        let command = Command::Storage(StorageCommand::Update {
            queue: name(queue),
            message: message.message,
            receipt: message.receipt,
            visibility_timeout: seconds(40),
            body: body.map(|body| (BodyEncoding::Raw, body.into())),
        });
        match self.ask(command).unwrap().outcome {
            Outcome::Storage(StorageOutcome::Updated { receipt, .. }) => message.receipt = receipt,
            other => panic!("{other:?}"),
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.bench.now = self.bench.now.plus_seconds(seconds);
    }
}

/// Every event of Queue Storage's messages, before a snapshot and after it. Returns the receipts that are left.
fn history(teller: &mut Teller) -> Vec<ReceivedMessage> {
    for queue in QUEUES {
        teller.create(queue);
    }
    let many: Vec<_> = (0..140)
        .map(|number| {
            let time_to_live_seconds = (number % 3 == 0).then_some(5);
            teller.message("jobs", time_to_live_seconds, u32::from(number == 7))
        })
        .collect();
    assert!(teller.bench.ask_all(many).iter().all(Result::is_ok));
    teller.send("old", None, 0);
    let mut held = teller.receive("jobs", 5, 30);
    teller.update("jobs", &mut held[1], Some("another body"));
    teller.update("jobs", &mut held[2], None);
    assert_eq!(teller.delete("jobs", &held[4]), "deleted");
    teller.bench.snapshot();

    teller.update("jobs", &mut held[1], None);
    assert_eq!(teller.delete("jobs", &held[0]), "deleted");
    teller.receive("old", 1, 10);
    teller
        .ask(Command::Storage(StorageCommand::Clear {
            queue: name("old"),
        }))
        .unwrap();
    teller.send("old", Some(3), 1);
    // What expires is removed by the tick before the next command.
    teller.wait(6);
    teller.send("old", None, 0);
    let queue = name("again");
    teller.send("again", None, 0);
    teller
        .ask(Command::Storage(StorageCommand::DeleteQueue { queue }))
        .unwrap();
    teller.create("again");
    teller.send("again", None, 5);
    held.extend(teller.receive("jobs", 3, 20));
    let body = Some("the last body, which is longer than the one before it");
    teller.update("jobs", &mut held[5], body);
    teller.bench.mark();
    held
}

/// All that clients can see, and what becomes of the receipts.
fn examine(teller: &mut Teller, held: &[ReceivedMessage]) -> Vec<String> {
    teller.wait(1);
    let mut seen = Vec::new();
    for queue in QUEUES {
        let view = teller.ask(Command::Storage(StorageCommand::ReadQueue {
            queue: name(queue),
        }));
        seen.push(format!("{:?}", view.unwrap().outcome));
        for message in held {
            seen.push(teller.delete(queue, message));
        }
    }
    // Then all leases and delays have ended.
    teller.wait(60);
    for queue in QUEUES {
        for _ in 0..10 {
            let answer = teller.ask(Command::Storage(StorageCommand::Receive {
                queue: name(queue),
                count: 32,
                visibility_timeout: seconds(600),
            }));
            let answer = answer.unwrap();
            let Outcome::Storage(StorageOutcome::Received(messages)) = &answer.outcome else {
                panic!("{answer:?}");
            };
            for (message, body) in messages.iter().zip(answer.bodies.read()) {
                let body = body.unwrap();
                seen.push(format!(
                    "{:?} {:?} {} {} {} {:?} {body:?}",
                    message.message,
                    message.receipt,
                    message.inserted_at,
                    message.expires_at,
                    message.delivery_count,
                    message.encoding,
                ));
            }
        }
    }
    let overview = teller.bench.partition.state().counts();
    seen.push(format!("{overview:?}"));
    seen.push(format!(
        "{:?}",
        teller.bench.partition.state().usage_of("acct")
    ));
    seen
}

fn on(storage: FaultyStorage, now: Timestamp) -> Teller {
    let mut bench = Bench::on(storage, options());
    bench.now = now;
    Teller { bench, sent: 1000 }
}

/// The files, with the snapshot or without it.
pub(crate) fn golden(is_whole_log: bool) -> FaultyStorage {
    let storage = FaultyStorage::new();
    for (name, content) in FILES {
        if !(is_whole_log && name.starts_with("snapshot")) {
            storage.put(name, content);
        }
    }
    storage
}

fn migrate(old: &FaultyStorage, new: &FaultyStorage) -> Result<Migrated, MigrateError> {
    OldPartition::read(old, &options())?.write_to(Arc::new(new.clone()), &options(), 11)
}

/// Opens what was made of the directory, with its snapshot or from its first event on.
fn check(is_whole_log: bool) {
    let mut told = on(FaultyStorage::new(), Timestamp::from_ms(1_000_000));
    let held = history(&mut told);
    let now = told.bench.now;

    let old = golden(is_whole_log);
    let storage = FaultyStorage::new();
    let before = old.fingerprint();
    let migrated = migrate(&old, &storage).unwrap();
    assert_eq!(before, old.fingerprint(), "the old log is as it was");
    assert!(
        migrated.bodies > 50 && migrated.damaged == 0,
        "{migrated:?}"
    );
    verify(&storage).unwrap();
    let mut opened = on(storage, now);
    let seen = examine(&mut opened, &held);
    assert_eq!(seen, examine(&mut told, &held));
    let deleted = seen.iter().filter(|it| *it == "deleted");
    assert!(deleted.count() > 3, "{seen:#?}");

    // And once more: with what this version wrote behind it.
    let mut again = on(opened.bench.storage.kill(), opened.bench.now);
    for teller in [&mut again, &mut opened] {
        teller.wait(600);
    }
    assert_eq!(examine(&mut again, &held), examine(&mut opened, &held));
}

#[test]
fn a_directory_of_the_first_version_is_what_it_was() {
    check(false);
}

#[test]
fn every_event_of_the_first_version_means_what_it_meant() {
    check(true);
}

/// What a checker can see of a directory without changing it.
fn contents(storage: &FaultyStorage) -> Vec<String> {
    let teller = on(storage.kill(), Timestamp::from_ms(2_000_000));
    let state = teller.bench.partition.state();
    let messages = state.messages().map(|message| {
        let body = teller.bench.partition.log().body(kew_log::BodyLocation {
            record: LogPosition::new(message.body.record),
            offset: message.body.offset(),
            length: message.body.length,
        });
        format!(
            "{:?} {:?} {:?}",
            message.queue_name,
            message.sequence_number,
            body.unwrap().read()
        )
    });
    messages.collect()
}

#[test]
fn a_migration_that_fails_says_why_and_changes_nothing() {
    let old = golden(false);
    let before = old.fingerprint();
    let full = FaultyStorage::new();
    full.set_capacity_bytes(Some(20 << 10));
    let error = migrate(&old, &full).unwrap_err();
    assert!(matches!(error, MigrateError::NoSpace { .. }), "{error}");
    assert!(full.files().is_empty());
    assert_eq!(before, old.fingerprint());
    // Damage to what was durable.
    old.flip(FILES[0].0, 9512 + 60, 1);
    let error = migrate(&old, &FaultyStorage::new()).unwrap_err();
    assert!(error.to_string().contains("is damaged at byte"), "{error}");
}

#[test]
fn a_damaged_body_is_copied_with_its_damage() {
    let old = golden(false);
    // A body that the replay does not read, because the snapshot has its message.
    let content = old.content(FILES[0].0).unwrap();
    let at = content
        .windows(9)
        .position(|it| it == b"body 1020")
        .unwrap();
    old.flip(FILES[0].0, at as u64, 1);
    let new = FaultyStorage::new();
    let migrated = migrate(&old, &new).unwrap();
    assert_eq!(migrated.damaged, 1);
    let seen = contents(&new);
    let damaged = seen.iter().filter(|it| it.contains("Damaged"));
    assert_eq!(damaged.count(), 1, "{seen:#?}");
}

/// Clocks go on where the old log has come to, whatever the machine says.
#[test]
fn time_goes_on_behind_a_migration_and_behind_every_open() {
    let new = FaultyStorage::new();
    migrate(&golden(false), &new).unwrap();
    let opened = on(new, Timestamp::ZERO);
    let recorded_at = opened.bench.partition.recorded_at();
    assert!(recorded_at > Timestamp::from_ms(1_000_000));
    let again = on(opened.bench.storage.kill(), Timestamp::ZERO);
    assert_eq!(again.bench.partition.recorded_at(), recorded_at);
}
