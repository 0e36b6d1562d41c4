//! A data directory and a backup of format 1, as an older binary has left them: this one serves what they hold, at
//! whichever moment a migration is cut off.
//!
//! `tests/golden/1` was written by the last version that wrote format 1: 40 messages, three of them received. Zeros at
//! the end of the segment are not stored. Never write it again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use kew_client::PutOptions;

use crate::load::Random;
use crate::power_cut::Disk;
use crate::repair::block_on;
use crate::server::{Server, run};

const SEGMENT: &str = "segment-00000000000000000001";
const SEGMENT_SIZE_BYTES: u64 = 1 << 20;
const ID: &str = "c9bc688a3123dcf2d839b912c263985d";

/// A message that was received before, and the receipt.
const RECEIVED: (&str, &str) = (
    "a55c24e0-3149-71c1-6ff4-1c1ab848a6d8",
    "TGiyGNEEBU35Vp/W7ch0xg==",
);

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/1")
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("writable");
    for entry in fs::read_dir(from).expect("it is there") {
        let path = entry.expect("readable").path();
        let to = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy_all(&path, &to),
            false => drop(fs::copy(&path, &to).expect("writable")),
        }
    }
}

/// Makes the data directory of format 1.
fn make_old(data_dir: &Path) {
    let (from, log) = (golden(), data_dir.join("partition-0"));
    copy_all(&from.join("partition-0"), &log);
    fs::copy(from.join("MANIFEST"), data_dir.join("MANIFEST")).expect("writable");
    let segment = File::options().write(true).open(log.join(SEGMENT));
    let resized = segment.and_then(|file| file.set_len(SEGMENT_SIZE_BYTES));
    resized.expect("writable");
}

fn format_of(data_dir: &Path) -> u32 {
    let manifest = fs::read_to_string(data_dir.join("MANIFEST")).expect("a manifest");
    assert!(manifest.contains(ID), "{manifest}");
    let format = manifest
        .lines()
        .find_map(|line| line.strip_prefix("format = "));
    format.expect("a format").parse().expect("a number")
}

/// What any server must find: all messages, and a receipt that ends one of them once.
fn check(server: &Server, receipts: Receipts) {
    block_on(async {
        let client = server.queue_client();
        let queue = client.queue_properties("orders").await.expect("it exists");
        assert_eq!(queue.approximate_message_count, 40);
        let (id, receipt) = RECEIVED;
        let deleted = client.delete_message("orders", id, receipt).await;
        assert_eq!(deleted.is_ok(), receipts == Receipts::Valid, "{deleted:?}");
        let again = client.delete_message("orders", id, receipt).await;
        again.expect_err("it is deleted, or the receipt is invalid");
        let mut texts = Vec::new();
        loop {
            let received = client
                .get("orders", 32, Some(3600))
                .await
                .expect("received");
            if received.is_empty() {
                break;
            }
            texts.extend(received.into_iter().map(|message| message.text));
        }
        // Those that were received are hidden, or were.
        assert!((37..=40).contains(&texts.len()), "{texts:?}");
        assert!(texts.iter().all(|text| text.starts_with("message ")));
        let put = client.put("orders", "a new one", PutOptions::default());
        put.await.expect("put");
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receipts {
    Valid,
    Invalid,
}

#[test]
fn a_start_brings_an_old_directory_to_the_present_format() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    make_old(&data_dir);
    // What only reads changes nothing, and says what to do.
    for command in [
        &["log", "verify"][..],
        &["log", "inspect"],
        &["log", "repair"],
    ] {
        let (ended, _) = run(|it| {
            it.args(command).arg("--data-dir").arg(&data_dir);
        });
        assert!(!ended.status.success());
        let said = "has format 1: start kew serve with it once, which brings it to format 2";
        assert!(ended.log.contains(said), "{}", ended.log);
    }
    assert_eq!(format_of(&data_dir), 1);
    let server = Server::start(&data_dir);
    server.log_with(&[
        "has format 1: making a log of format 2 of it",
        "messages=40 bodies=40",
    ]);
    check(&server, Receipts::Valid);
    server.terminate();
    assert_eq!(format_of(&data_dir), 2);
    assert!(!data_dir.join("migrated-0").exists());
    // A second start finds the new log.
    let server = Server::start(&data_dir);
    block_on(async {
        let client = server.queue_client();
        let queue = client.queue_properties("orders").await.expect("it exists");
        assert_eq!(queue.approximate_message_count, 40);
    });
    let log = server.terminate();
    assert!(!log.contains("format"), "{log}");
    let (ended, _) = run(|it| {
        it.args(["log", "verify", "--data-dir"]).arg(&data_dir);
    });
    assert!(ended.status.success(), "{}", ended.log);
}

#[test]
fn a_damaged_old_directory_stays_as_it_is() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    make_old(&data_dir);
    let segment = data_dir.join("partition-0").join(SEGMENT);
    crate::repair::corrupt(&segment, |content| content[4200] ^= 1);
    let before = fs::read(&segment).expect("readable");
    // A start would begin behind the damage, with the snapshot.
    for snapshot in crate::repair::files(&data_dir, "snapshot-") {
        fs::remove_file(snapshot).expect("writable");
    }
    let server = Server::try_start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(&data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
    });
    let Err(ended) = server else {
        panic!("it starts");
    };
    for said in [
        "nothing in it was changed",
        "is damaged at byte 4152",
        "repair it with the version of Kew that has written it",
    ] {
        assert!(ended.log.contains(said), "{}", ended.log);
    }
    assert_eq!(format_of(&data_dir), 1);
    assert_eq!(fs::read(&segment).expect("readable"), before);
    assert!(!data_dir.join("migrated-0").exists());
}

#[test]
fn an_old_backup_is_restored_in_the_present_format() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (backup, data_dir) = (place.path().join("backup"), place.path().join("data"));
    copy_all(&golden().join("backup"), &backup);
    let (ended, printed) = run(|command| {
        command
            .args(["restore", "--verify-only", "--from"])
            .arg(&backup);
    });
    assert!(ended.status.success(), "{}", ended.log);
    assert!(printed.contains("1 queues, 40 messages"), "{printed}");
    let (ended, printed) = run(|command| {
        command.args(["restore", "--from"]).arg(&backup);
        command.arg("--data-dir").arg(&data_dir);
    });
    assert!(ended.status.success(), "{}", ended.log);
    assert!(printed.contains("1 queues, 40 messages"), "{printed}");
    let server = Server::start(&data_dir);
    check(&server, Receipts::Invalid);
    let log = server.terminate();
    assert!(!log.contains("format 1"), "{log}");
}

/// The process is killed, and what it had not synced is lost, after each call that changes the directory.
#[test]
fn a_migration_that_is_cut_off_anywhere_goes_on() {
    let Some(mut disk) = Disk::new() else {
        return;
    };
    let mut random = Random::new(crate::load::seed());
    let data_dir = disk.data_dir();
    let (mut before, mut after) = (0, 0);
    for calls in 0.. {
        make_old(&data_dir);
        let seed = random.next();
        // A command on the directory itself does what a start does, and then ends.
        let command = Server::spawn(|command| {
            command
                .args(["account", "list", "--data-dir"])
                .arg(&data_dir);
            disk.put_under(command, seed);
            command.env("UNSYNCED_CALLS", calls.to_string());
        });
        let is_killed = command.ends_killed();
        if is_killed {
            disk.lose_names(&mut random);
        }
        match format_of(&data_dir) {
            1 => before += 1,
            _ => after += 1,
        }
        let server = Server::start(&data_dir);
        check(&server, Receipts::Valid);
        server.terminate();
        assert_eq!(format_of(&data_dir), 2);
        fs::remove_dir_all(&data_dir).expect("writable");
        if !is_killed {
            break;
        }
    }
    crate::server::show(&format!("cut_off before={before} after={after} the switch"));
    assert!(before > 20 && after > 5, "{before} {after}");
}
