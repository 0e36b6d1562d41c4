//! `kew backup` of a server under load, and `kew restore`, with the real binary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kew_client::{ErrorKind, Message, PutOptions, QueueClient, ReceiverOptions};
use serde_json::Value;

use crate::bus_load::{BusLoad, Door, peek_all};
use crate::load::{self, Ending, Load, Random, Style};
use crate::repair::{block_on, corrupt, files, kew};
use crate::server::{Ended, PATIENCE, Server, run};
use crate::small_disk::SmallDisk;

const KEPT: &str = "kept";
const BUS_KEPT: &str = "bus-kept";

/// The data directory, the backup, and the restored directory of a test.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn backup(&self) -> PathBuf {
        self.0.path().join("backup")
    }

    fn restored(&self) -> PathBuf {
        self.0.path().join("restored")
    }

    fn run_backup(&self, arguments: &[&str]) -> (Ended, String) {
        run(|command| self.arrange(command, arguments))
    }

    fn arrange(&self, command: &mut std::process::Command, arguments: &[&str]) {
        command.arg("backup").arg("--to").arg(self.backup());
        command.arg("--data-dir").arg(self.data()).args(arguments);
    }

    /// Takes a backup, which must succeed. Returns its description.
    fn take(&self) -> Value {
        let (ended, printed) = self.run_backup(&["--rate", "0", "--json"]);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        last_json(&printed)["backup"].clone()
    }

    fn restore(&self, arguments: &[&str]) -> (Ended, String) {
        run(|command| {
            command.arg("restore").arg("--from").arg(self.backup());
            command.args(arguments);
        })
    }

    fn verify(&self) -> (Ended, String) {
        self.restore(&["--verify-only"])
    }

    /// Restores, which must succeed.
    fn restore_whole(&self) {
        let to = self.restored();
        let to = to.to_str().expect("UTF-8");
        let (ended, printed) = self.restore(&["--data-dir", to]);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        assert!(printed.contains("restored the state of"), "{printed}");
    }

    /// The names of the backup's files, those that are not complete included.
    fn stored(&self) -> Vec<PathBuf> {
        files(&self.backup(), "")
    }
}

fn last_json(printed: &str) -> Value {
    let last = printed.lines().last().expect("a line");
    serde_json::from_str(last).expect("JSON")
}

fn waits_for(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "it does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Puts messages of 48 KiB each, and returns their texts by id.
async fn fill(client: &QueueClient, from: usize, count: usize) -> BTreeMap<String, String> {
    let mut known = BTreeMap::new();
    for number in from..from + count {
        let text = format!("{number} {}", "x".repeat(48 << 10));
        let sent = client.put(KEPT, &text, PutOptions::default()).await;
        known.insert(sent.expect("put").id, text);
    }
    known
}

/// A stopped server's directory with so many messages of 48 KiB.
fn filled(data_dir: &Path, count: usize) -> BTreeMap<String, String> {
    let server = Server::start(data_dir);
    let known = block_on(async {
        let client = server.queue_client();
        client.create_queue(KEPT, &[]).await.expect("created");
        fill(&client, 0, count).await
    });
    server.terminate();
    known
}

/// All messages of the queue, by id.
async fn contents(client: &QueueClient) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    loop {
        let messages = client.get(KEPT, 32, Some(3600)).await.expect("received");
        if messages.is_empty() {
            return found;
        }
        found.extend(messages.into_iter().map(|it| (it.id, it.text)));
    }
}

fn check_contents(data_dir: &Path, known: &BTreeMap<String, String>) {
    let server = Server::start(data_dir);
    let found = block_on(async { contents(&server.queue_client()).await });
    assert!(found == *known, "{} of {}", found.len(), known.len());
    server.terminate();
}

#[test]
fn a_backup_under_load_has_everything_before_it_and_nothing_settles_after_it() {
    load::run(under_load(Place::new()));
}

async fn under_load(place: Place) {
    let config = config(place.0.path());
    let start = |data_dir: PathBuf| {
        Server::start_with(|command| {
            command.arg("serve").arg("--data-dir").arg(data_dir);
            command.args(["--queue-listen", "127.0.0.1:0"]);
            command.args(BusLoad::arguments(&config));
        })
    };
    let server = start(place.data());
    let client = server.queue_client();
    client.create_queue(KEPT, &[]).await.expect("created");
    let (added, _) = kew(&["account", "add", "team"], &place.data());
    assert!(added.status.success(), "{}", added.log);
    let mut load = Load::new(load::seed(), &Style::default());
    let mut bus = BusLoad::new(7);
    load.create_queues(&server).await;
    load.begin(&server.account(), Ending::Unanswered);
    bus.begin(&server);
    load.acknowledged(200).await;

    // Acknowledged before the backup begins.
    let known = fill(&client, 0, 40).await;
    let bus_client = Door::of(&server).client();
    let sender = bus_client.sender(BUS_KEPT).await.expect("attached");
    for number in 0..20 {
        sender.send(&message(number)).await.expect("sent");
    }
    let taken = tokio::task::block_in_place(|| place.take());
    assert!(taken["position"].as_u64().expect("a number") > 4096);
    server.log_with(&[
        "audit: begin a backup, up to log position",
        "audit: end a backup:",
    ]);

    // What clients hold from after the backup: receipts and locks of old and of new messages.
    let mut receipts = Vec::new();
    for message in client.get(KEPT, 10, Some(3600)).await.expect("received") {
        receipts.push((message.id, message.receipt.expect("a lease").value));
    }
    for number in 0..10 {
        let sent = client.put(KEPT, "late", PutOptions::default()).await;
        let sent = sent.unwrap_or_else(|error| panic!("{number}: {error}"));
        receipts.push((sent.id, sent.receipt.value));
    }
    for number in 20..30 {
        sender.send(&message(number)).await.expect("sent");
    }
    let options = ReceiverOptions { prefetch: 30 };
    let mut receiver = bus_client
        .receiver(BUS_KEPT, options)
        .await
        .expect("attached");
    let mut locks = Vec::new();
    let mut highest = None;
    for _ in 0..30 {
        let locked = receiver.receive().await.expect("a message");
        highest = highest.max(locked.sequence_number());
        locks.push(locked.lock_token());
    }
    server.kill();
    load.server_is_gone().await;
    bus.server_is_gone().await;

    place.restore_whole();
    let server = start(place.restored());
    let client = server.queue_client();
    // As many new messages as the old server had after the backup.
    for _ in 0..20 {
        client
            .put("load-a", "new", PutOptions::default())
            .await
            .expect("put");
    }
    for (id, receipt) in &receipts {
        let error = client.delete_message(KEPT, id, receipt).await;
        let error = error.expect_err("a receipt from after the backup settles something");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
    assert!(contents(&client).await == known);
    let bus_client = Door::of(&server).client();
    let sender = bus_client.sender(BUS_KEPT).await.expect("attached");
    for number in 30..40 {
        sender.send(&message(number)).await.expect("sent");
    }
    for lock in locks {
        let settled = bus_client.held(BUS_KEPT, lock).complete().await;
        let error = settled.expect_err("a lock from after the backup settles something");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
    let found = peek_all(&bus_client, BUS_KEPT).await;
    let numbers: Vec<_> = found.iter().map(|it| it.sequence_number()).collect();
    assert_eq!(found.len(), 30, "{numbers:?}");
    assert!(
        numbers[20..]
            .iter()
            .all(|number| *number > highest && highest.is_some())
    );
    let (shown, _) = kew(&["account", "show", "team"], &place.restored());
    assert!(shown.status.success(), "{}", shown.log);
    server.terminate();
}

/// The queues of the load, and one more.
fn config(place: &Path) -> PathBuf {
    let path = BusLoad::write_config(place);
    let text = std::fs::read_to_string(&path).expect("readable");
    let first = r#"{"Name": "bus-plain""#;
    let more = r#"{"Name": "bus-kept", "Properties": {"LockDuration": "PT5M"}}, "#;
    assert!(text.contains(first));
    let text = text.replacen(first, &format!("{more}{first}"), 1);
    std::fs::write(&path, text).expect("writable");
    path
}

fn message(number: u64) -> Message {
    Message::new(format!("kept {number}"))
}

#[test]
fn a_killed_backup_continues_and_a_later_one_copies_little() {
    let place = Place::new();
    let mut known = filled(&place.data(), 90);
    let server = Server::start(&place.data());
    let mut random = Random::new(load::seed());
    for _ in 0..3 {
        let command = Server::spawn(|command| place.arrange(command, &["--rate", "1"]));
        waits_for(|| place.backup().join("partition-0").exists());
        // This is not a wait: the moment of the kill is what varies.
        std::thread::sleep(Duration::from_millis(random.below(300)));
        command.kill();
        let (ended, _) = place.verify();
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.log.contains("no whole backup"), "{}", ended.log);
    }
    let first = place.take();
    let (size, copied) = (&first["size_bytes"], &first["copied_bytes"]);
    assert!(size.as_u64() > Some(4 << 20), "{first}");
    assert!(copied.as_u64() <= size.as_u64());

    known.extend(block_on(async {
        fill(&server.queue_client(), 90, 5).await
    }));
    let second = place.take();
    assert!(second["position"].as_u64() > first["position"].as_u64());
    assert!(second["copied_bytes"].as_u64() < Some(2 << 20), "{second}");
    assert!(second["reused_bytes"].as_u64() > Some(3 << 20), "{second}");
    // Nothing of the first one is left that the second one does not have.
    assert_eq!(
        place.stored().len() as u64,
        second["files"].as_u64().expect("a number")
    );
    let (ended, printed) = place.verify();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(printed.contains("sound: the state of"), "{printed}");
    server.kill();
    place.restore_whole();
    check_contents(&place.restored(), &known);
}

#[test]
fn a_killed_server_ends_the_backup_which_continues_without_it() {
    let place = Place::new();
    let known = filled(&place.data(), 80);
    let server = Server::start(&place.data());
    let (ended, _) = std::thread::scope(|scope| {
        let command = scope.spawn(|| place.run_backup(&["--rate", "1"]));
        waits_for(|| place.backup().join("partition-0").exists());
        // There is one at a time.
        let (busy, _) = run(|command| {
            command
                .arg("backup")
                .arg("--to")
                .arg(place.0.path().join("other"));
            command.arg("--data-dir").arg(place.data());
        });
        assert!(
            busy.log.contains("another backup of this server"),
            "{}",
            busy.log
        );
        server.kill();
        command.join().expect("no panic")
    });
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended.log.contains("run kew backup again to continue"),
        "{}",
        ended.log
    );
    let taken = place.take();
    assert!(taken["size_bytes"].as_u64() > Some(3 << 20), "{taken}");
    place.restore_whole();
    check_contents(&place.restored(), &known);
    // And once more: the restored directory is another history.
    let (ended, _) = run(|command| {
        command.arg("backup").arg("--to").arg(place.backup());
        command.arg("--data-dir").arg(place.restored());
    });
    assert!(
        ended.log.contains("a backup of the data directory with id"),
        "{}",
        ended.log
    );
}

#[test]
fn damage_at_the_source_is_named_and_the_earlier_backup_stays() {
    let place = Place::new();
    let known = filled(&place.data(), 24);
    place.take();
    // Opening it writes another segment; the old ones do not change.
    let server = Server::start(&place.data());
    block_on(async { fill(&server.queue_client(), 24, 8).await });
    server.terminate();
    let segment = files(&place.data(), "segment-")
        .into_iter()
        .find(|segment| {
            let content = std::fs::read(segment).expect("readable");
            content.windows(7).any(|window| window == b"25 xxxx")
        });
    let segment = segment.expect("the message is in the log");
    corrupt(&segment, |content| {
        let mut windows = content.windows(7);
        let at = windows.position(|window| window == b"25 xxxx");
        content[at.expect("it is there") + 4] ^= 1;
    });
    let (ended, _) = place.run_backup(&[]);
    assert_eq!(ended.status.code(), Some(1));
    for part in [
        segment.to_str().expect("UTF-8"),
        "is damaged at byte",
        "an earlier one there is unchanged",
    ] {
        assert!(ended.log.contains(part), "{part}: {}", ended.log);
    }
    place.restore_whole();
    check_contents(&place.restored(), &known);
}

#[test]
fn a_damaged_backup_restores_nothing() {
    let place = Place::new();
    filled(&place.data(), 12);
    place.take();
    let to = place.restored();
    let to = to.to_str().expect("UTF-8");
    let stored = place.stored();
    for (file, at) in [(&stored[0], 9000), (&stored[stored.len() - 1], 50)] {
        corrupt(file, |content| content[at] ^= 1);
        let (ended, printed) = place.restore(&["--data-dir", to]);
        assert_eq!(ended.status.code(), Some(1));
        let damaged = format!("DAMAGED {} at byte", file.display());
        assert!(printed.contains(&damaged), "{printed}");
        assert!(ended.log.contains("nothing was restored"), "{}", ended.log);
        assert!(!place.restored().exists());
        corrupt(file, |content| content[at] ^= 1);
    }
    let (ended, _) = place.verify();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let manifest = place.backup().join("BACKUP");
    corrupt(&manifest, |content| content.truncate(content.len() / 2));
    let (ended, _) = place.verify();
    assert!(ended.log.contains("the manifest"), "{}", ended.log);
}

#[test]
fn a_killed_restore_cannot_be_served_and_begins_anew() {
    let place = Place::new();
    let known = filled(&place.data(), 60);
    place.take();
    let to = place.restored();
    let to = to.to_str().expect("UTF-8");
    let mut random = Random::new(load::seed());
    let mut unfinished = 0;
    for _ in 0..6 {
        let command = Server::spawn(|command| {
            command.arg("restore").arg("--from").arg(place.backup());
            command.args(["--data-dir", to]);
        });
        waits_for(|| {
            place.restored().join("RESTORING").exists()
                || place.restored().join("MANIFEST").exists()
        });
        std::thread::sleep(Duration::from_millis(random.below(20)));
        command.kill_if_it_runs();
        if place.restored().join("MANIFEST").exists() {
            break;
        }
        unfinished += 1;
        let started = Server::try_start_with(|command| {
            command.args(["serve", "--data-dir", to, "--queue-listen", "127.0.0.1:0"]);
        });
        let Err(refused) = started else {
            panic!("half a restore is served");
        };
        assert!(
            refused
                .log
                .contains("has not finished: run kew restore again"),
            "{}",
            refused.log
        );
    }
    crate::server::show(&format!("restores_killed={unfinished}"));
    if !place.restored().join("MANIFEST").exists() {
        place.restore_whole();
    }
    check_contents(&place.restored(), &known);
    // What is there is not overwritten.
    let (ended, _) = place.restore(&["--data-dir", to]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.log.contains("is not empty"), "{}", ended.log);
}

#[test]
fn a_full_destination_is_reported_and_the_backup_continues_with_more_space() {
    let place = Place::new();
    filled(&place.data(), 60);
    let mount_point = place.0.path().join("disk");
    let Some(disk) = SmallDisk::new(&mount_point, 6, 4) else {
        return;
    };
    let take = || {
        disk.run(|command| {
            command
                .arg("backup")
                .arg("--to")
                .arg(mount_point.join("backup"));
            command.arg("--data-dir").arg(place.data());
        })
    };
    let (ended, _) = take();
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended.log.contains("the disk of the backup is full"),
        "{}",
        ended.log
    );
    disk.free_what_was_taken();
    let (ended, _) = take();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

#[test]
fn a_full_disk_of_the_server_ends_the_backup() {
    let place = Place::new();
    let mount_point = place.0.path().join("disk");
    let Some(disk) = SmallDisk::new(&mount_point, 40, 1) else {
        return;
    };
    let mut server = disk.start();
    server.expect_error("the disk is full: messages can be received");
    block_on(async {
        let client = server.queue_client();
        client.create_queue(KEPT, &[]).await.expect("created");
        fill(&client, 0, 160).await;
    });
    let (ended, _) = std::thread::scope(|scope| {
        let command = scope.spawn(|| {
            disk.run(|command| {
                command.arg("backup").arg("--to").arg(place.backup());
                command.arg("--data-dir").arg(mount_point.join("data"));
                command.args(["--rate", "1"]);
            })
        });
        waits_for(|| place.backup().join("partition-0").exists());
        load::run(put_until_full(&server));
        command.join().expect("no panic")
    });
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended.log.contains("has less than 10 % free"),
        "{}",
        ended.log
    );
    server.kill();
}

async fn put_until_full(server: &Server) {
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let client = server.queue_client();
        writers.spawn(async move {
            let text = "x".repeat(48 << 10);
            // Far more than the disk has room for.
            for _ in 0..10_000 {
                match client.put(KEPT, &text, PutOptions::default()).await {
                    Err(error) if error.to_string().contains("disk of the server is full") => {
                        return;
                    }
                    // Too many at once.
                    Ok(_) | Err(_) => {}
                }
            }
        });
    }
    writers.join_all().await;
}
