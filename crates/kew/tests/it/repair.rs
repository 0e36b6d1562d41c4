//! `kew log repair`, with the real binary: the losses of a damaged server are listed, it is
//! repaired, and starts again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kew_client::PutOptions;
use serde_json::Value;

use crate::server::{Ended, Server, run};

const QUEUES: [&str; 3] = ["apples", "pears", "plums"];

/// Acknowledged messages by id, with queue and text.
type Known = BTreeMap<String, (String, String)>;

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// Fills a server and stops it.
fn fill(data_dir: &Path) -> Known {
    let server = Server::start(data_dir);
    let mut known = Known::new();
    block_on(async {
        let client = server.queue_client();
        for queue in QUEUES {
            client.create_queue(queue, &[]).await.expect("created");
        }
        for number in 0..150 {
            let queue = QUEUES[number % QUEUES.len()];
            let text = format!("{queue} {number} {}", "x".repeat(number * 91 % 3000));
            let sent = client.put(queue, &text, PutOptions::default()).await;
            known.insert(sent.expect("put").id, (queue.to_owned(), text));
        }
    });
    server.terminate();
    known
}

/// The whole content of a server.
fn everything(data_dir: &Path) -> Known {
    let server = Server::start(data_dir);
    let mut found = Known::new();
    block_on(async {
        let client = server.queue_client();
        for queue in QUEUES {
            loop {
                let messages = client.get(queue, 32, Some(3600)).await.expect("received");
                if messages.is_empty() {
                    break;
                }
                for message in messages {
                    found.insert(message.id, (queue.to_owned(), message.text));
                }
            }
        }
    });
    server.terminate();
    found
}

pub(crate) fn files(data_dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data_dir.join("partition-0")).expect("readable");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            name.starts_with(prefix)
        })
        .collect();
    files.sort();
    files
}

pub(crate) fn corrupt(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut content = std::fs::read(path).expect("readable");
    change(&mut content);
    std::fs::write(path, content).expect("writable");
}

pub(crate) fn kew(arguments: &[&str], data_dir: &Path) -> (Ended, String) {
    run(|command| {
        command.args(arguments).arg("--data-dir").arg(data_dir);
    })
}

pub(crate) fn start_is_refused(data_dir: &Path, named: &[&str]) {
    let started = Server::try_start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
    });
    let Err(ended) = started else {
        panic!("a damaged server starts");
    };
    assert!(!ended.status.success());
    for part in named {
        assert!(ended.log.contains(part), "{part}: {}", ended.log);
    }
}

/// Lists, repairs, and checks that everything is there except the listed losses; returns the
/// listing.
fn repair(data_dir: &Path, known: &Known) -> Value {
    let before = contents(data_dir);
    let (ended, printed) = kew(&["log", "repair"], data_dir);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.log);
    assert!(ended.log.contains("--accept-loss"), "{}", ended.log);
    assert_eq!(contents(data_dir), before, "a listing changes nothing");

    let (ended, listed) = kew(&["log", "repair", "--json"], data_dir);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.log);
    let listing: Value = serde_json::from_str(&listed).expect("one line of JSON");
    let lost = listing["lost"].as_array().expect("a list");
    for message in lost {
        let id = message["id"].as_str().expect("an id");
        assert!(printed.contains(id), "{id} is not in\n{printed}");
    }

    let (ended, repaired) = kew(&["log", "repair", "--accept-loss", "--json"], data_dir);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let mut lines = repaired.lines();
    assert_eq!(
        lines.next(),
        Some(listed.trim_end()),
        "it lists the same first"
    );
    assert!(lines.next().expect("a second line").contains("repaired"));

    let (ended, _) = kew(&["log", "verify"], data_dir);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let (ended, printed) = kew(&["log", "repair", "--accept-loss"], data_dir);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(printed.contains("nothing to repair"), "{printed}");

    let lost: BTreeSet<&str> = lost.iter().filter_map(|m| m["id"].as_str()).collect();
    let found = everything(data_dir);
    for (id, message) in &found {
        assert_eq!(known.get(id), Some(message), "{id} was altered");
    }
    for (id, message) in known {
        let is_there = found.contains_key(id);
        assert!(is_there != lost.contains(&**id), "{message:?}: {listing}");
    }
    listing
}

fn contents(data_dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = files(data_dir, "").into_iter();
    files
        .map(|path| {
            let content = std::fs::read(&path).expect("readable");
            (path, content)
        })
        .collect()
}

#[test]
fn nothing_to_repair_is_a_success_and_no_server_may_be_running() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(place.path());
    let (ended, _) = kew(&["log", "repair"], place.path());
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.log.contains("in use"), "{}", ended.log);
    server.terminate();
    for arguments in [&["log", "repair"][..], &["log", "repair", "--accept-loss"]] {
        let (ended, printed) = kew(arguments, place.path());
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        assert!(printed.contains("nothing to repair"), "{printed}");
    }
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let (ended, _) = kew(&["log", "repair"], elsewhere.path());
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.log.contains("MANIFEST"), "{}", ended.log);
    assert_eq!(files_of(elsewhere.path()), 0);
}

fn files_of(directory: &Path) -> usize {
    std::fs::read_dir(directory).expect("readable").count()
}

#[test]
fn a_damaged_record_costs_its_message() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let known = fill(place.path());
    // Without its snapshot, the start needs every record.
    for snapshot in files(place.path(), "snapshot-") {
        std::fs::remove_file(snapshot).expect("removed");
    }
    let segment = files(place.path(), "segment-").remove(0);
    // Not the last one of its queue: then nothing would say that there was another.
    let mut texts = known.values().map(|(_, text)| text);
    let text = texts.find(|text| text.starts_with("pears 70 "));
    let text = text.expect("150 messages");
    corrupt(&segment, |content| {
        let mut windows = content.windows(text.len());
        let at = windows.position(|window| window == text.as_bytes());
        content[at.expect("it is in the log") + 3] ^= 1;
    });
    start_is_refused(place.path(), &["segment-00000000000000000001", "byte"]);
    let listing = repair(place.path(), &known);
    let lost = listing["lost"].as_array().expect("a list");
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0]["account"], "devstoreaccount1");
    assert_eq!(listing["unreadable"].as_array().expect("a list").len(), 1);
}

#[test]
fn a_damaged_header_costs_nothing() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let known = fill(place.path());
    let segment = files(place.path(), "segment-").remove(0);
    corrupt(&segment, |content| content[..512].fill(0));
    start_is_refused(place.path(), &["segment-00000000000000000001", "byte 0"]);
    let listing = repair(place.path(), &known);
    assert_eq!(listing["lost"].as_array().map(Vec::len), Some(0));
    assert!(!files(place.path(), "damaged-1-segment-").is_empty());
}

#[test]
fn a_damaged_body_costs_its_message_although_the_server_starts() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let known = fill(place.path());
    let (id, (_, text)) = known.iter().nth(40).expect("150 messages");
    for segment in files(place.path(), "segment-") {
        corrupt(&segment, |content| {
            let mut windows = content.windows(text.len());
            if let Some(at) = windows.position(|window| window == text.as_bytes()) {
                content[at] ^= 0x20;
            }
        });
    }
    let listing = repair(place.path(), &known);
    let lost = listing["lost"].as_array().expect("a list");
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0]["id"], id.as_str());
    assert_eq!(lost[0]["size_bytes"], text.len());
    assert!(lost[0]["why"].as_str().expect("text").contains("checksum"));
}

#[test]
fn a_log_that_a_server_writes_to_is_not_judged() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    let server = Server::start(&data_dir);
    for look in ["verify", "inspect"] {
        let (ended, _) = kew(&["log", look], &data_dir);
        assert!(!ended.status.success());
        assert!(
            ended.log.contains("is in use: stop the server"),
            "{}",
            ended.log
        );
    }
    server.terminate();
    for look in ["verify", "inspect"] {
        let (ended, _) = kew(&["log", look], &data_dir);
        assert!(ended.status.success(), "{}", ended.log);
    }
}
