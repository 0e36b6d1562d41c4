//! `kew backup` of a server under load, and `kew restore`, with the real binary.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kew_client::{ErrorKind, Message, PutOptions, QueueClient, ReceiverOptions};
use serde_json::Value;

use crate::bus_load::{BusLoad, Door, peek_all};
use crate::load::{self, Ending, Load, Style};
use crate::repair::{block_on, corrupt, files, kew};
use crate::server::{Ended, PATIENCE, Server, run};
use crate::small_disk::SmallDisk;

const KEPT: &str = "kept";
const BUS_KEPT: &str = "bus-kept";

/// A complete file of a backup. One that was copied again has another inode.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finished {
    name: String,
    size_bytes: u64,
    inode: u64,
}

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

    /// The backup's files that are complete and checked.
    fn finished(&self) -> BTreeSet<Finished> {
        let Ok(entries) = std::fs::read_dir(self.backup().join("partition-0")) else {
            return BTreeSet::new();
        };
        let mut finished = BTreeSet::new();
        for entry in entries {
            let entry = entry.expect("readable");
            let name = entry.file_name().into_string().expect("UTF-8");
            // An unfinished file may be renamed meanwhile.
            if let (false, Ok(found)) = (name.starts_with("prepare-"), entry.metadata()) {
                finished.insert(Finished {
                    name,
                    size_bytes: found.len(),
                    inode: found.ino(),
                });
            }
        }
        finished
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
    let receipts = put_and_lease(&client).await;
    assert_eq!(receipts.len(), 50);
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
    // The same happens again: if numbers continued where the backup ends, every old receipt would fit.
    let new_receipts = put_and_lease(&client).await;
    for (id, receipt) in &receipts {
        let error = client.delete_message(KEPT, id, receipt).await;
        let error = error.expect_err("a receipt from after the backup settles something");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
    let new_ids: BTreeSet<_> = new_receipts.iter().map(|(id, _)| id).collect();
    assert!(known.keys().all(|id| new_ids.contains(id)));
    assert_eq!(new_ids.len(), 50);
    for (id, receipt) in &new_receipts {
        let deleted = client.delete_message(KEPT, id, receipt).await;
        deleted.expect("a new receipt settles its message");
    }
    let bus_client = Door::of(&server).client();
    let sender = bus_client.sender(BUS_KEPT).await.expect("attached");
    for number in 30..40 {
        sender.send(&message(number)).await.expect("sent");
    }
    // Locked as often as on the old server.
    let options = ReceiverOptions { prefetch: 30 };
    let mut receiver = bus_client
        .receiver(BUS_KEPT, options)
        .await
        .expect("attached");
    let mut new_locks = Vec::new();
    for _ in 0..30 {
        new_locks.push(receiver.receive().await.expect("a message"));
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
    for lock in new_locks {
        let settled = lock.complete().await;
        settled.expect("a new lock settles its message");
    }
    assert!(peek_all(&bus_client, BUS_KEPT).await.is_empty());
    let (shown, _) = kew(&["account", "show", "team"], &place.restored());
    assert!(shown.status.success(), "{}", shown.log);
    server.terminate();
}

/// Puts ten messages, and leases all fifty of the queue. Returns ids with receipts.
async fn put_and_lease(client: &QueueClient) -> Vec<(String, String)> {
    for _ in 0..10 {
        let sent = client.put(KEPT, "late", PutOptions::default()).await;
        sent.expect("put");
    }
    let mut receipts = Vec::new();
    loop {
        let leased = client.get(KEPT, 32, Some(3600)).await.expect("received");
        if leased.is_empty() {
            return receipts;
        }
        for message in leased {
            receipts.push((message.id, message.receipt.expect("a lease").value));
        }
    }
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
    let mut finished = BTreeSet::new();
    for files in 1..=2 {
        let command = Server::spawn(|command| place.arrange(command, &["--rate", "4"]));
        waits_for(|| place.finished().len() >= files);
        command.kill();
        let (ended, _) = place.verify();
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.log.contains("no whole backup"), "{}", ended.log);
        let now = place.finished();
        assert!(now.is_superset(&finished), "{finished:?} {now:?}");
        finished = now;
    }
    let first = place.take();
    let number = |field: &str| first[field].as_u64().expect("a number");
    assert!(number("size_bytes") > 4 << 20, "{first}");
    assert_eq!(
        number("copied_bytes") + number("reused_bytes"),
        number("size_bytes")
    );
    // What the killed runs had finished was not copied again: the files are the same ones.
    let finished_bytes: u64 = finished.iter().map(|file| file.size_bytes).sum();
    assert!(number("reused_bytes") >= finished_bytes, "{first}");
    assert!(finished_bytes > 0 && number("copied_bytes") > 0);
    let now = place.finished();
    assert!(now.is_superset(&finished), "{finished:?} {now:?}");

    known.extend(block_on(async {
        fill(&server.queue_client(), 90, 5).await
    }));
    let second = place.take();
    assert!(second["position"].as_u64() > first["position"].as_u64());
    assert!(second["copied_bytes"].as_u64() < Some(2 << 20), "{second}");
    // Two segments of 1 and 2 MiB, without what is not used at their ends.
    assert!(second["reused_bytes"].as_u64() > Some(5 << 19), "{second}");
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
    // The newest one: in an older one a checksum may end with a 2, before the text of number 5.
    let segment = files(&place.data(), "segment-")
        .into_iter()
        .rfind(|segment| {
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
fn a_damaged_copy_of_a_page_is_told_and_the_backup_has_both_whole() {
    let place = Place::new();
    let known = filled(&place.data(), 12);
    let storage = kew_log::FileStorage::read_only(kew_log::DataDir::log_path(&place.data()));
    let plan = kew_log::plan_backup(&storage.expect("readable")).expect("a whole log");
    let pages = plan.pages[0];
    let name = pages.name();
    let file = files(&place.data(), &name).remove(0);
    let end = usize::try_from(pages.copied_bytes).expect("a small file");
    // The last byte of a page, and the header.
    for at in [end - 1, 45] {
        corrupt(&file, |content| content[at] ^= 1);
        let (ended, printed) = place.run_backup(&["--rate", "0", "--json"]);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        let told = format!(
            "the new backup is whole, but the data directory is not: {name} is damaged at byte"
        );
        assert!(ended.log.contains(&told), "{}", ended.log);
        let damage = last_json(&printed)["backup"]["source_damage"].clone();
        assert_eq!(damage[0]["file"], name, "{damage}");
        assert_eq!(damage[0]["places"], 1, "{damage}");
        corrupt(&file, |content| content[at] ^= 1);
        std::fs::remove_dir_all(place.backup().join("partition-0")).expect("removed");
    }
    place.take();
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
    for (kind, at) in [("segment-", 9000), ("pages-", 4200), ("snapshot-", 50)] {
        let is_kind = |file: &&PathBuf| {
            let name = file.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(kind))
        };
        let file = stored.iter().find(is_kind).expect("one of each kind");
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
fn a_killed_restore_cannot_be_served_and_goes_on() {
    let place = Place::new();
    let known = filled(&place.data(), 60);
    place.take();
    let to = place.restored();
    let to = to.to_str().expect("UTF-8");
    let log = place.restored().join("partition-0");
    let count = || std::fs::read_dir(&log).map_or(0, Iterator::count);
    let mut unfinished = 0;
    for files in 0..6 {
        let command = Server::spawn(|command| {
            command.arg("restore").arg("--from").arg(place.backup());
            command.args(["--data-dir", to]);
        });
        waits_for(|| {
            place.restored().join("RESTORING").exists() && count() >= files
                || place.restored().join("MANIFEST").exists()
        });
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
    // As if the last one had been killed before its last step.
    std::fs::remove_file(place.restored().join("MANIFEST")).expect("it was restored");
    std::fs::write(place.restored().join("RESTORING"), "").expect("a writable directory");
    let (ended, printed) = place.restore(&["--data-dir", to, "--json"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let reused = last_json(&printed)["restored"]["reused_bytes"].as_u64();
    assert!(reused > Some(0), "{printed}");
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
        ended
            .log
            .contains("has less than 10 % and less than 4 GiB free"),
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
