//! The scrub of a running server: it lists a damaged message, and all others are served.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use kew_client::{PutOptions, QueueClient};
use serde_json::Value;

use crate::repair::{block_on, corrupt, files, kew};
use crate::server::{PATIENCE, Server};

const QUEUE: &str = "scrubbed";
const COUNT: u64 = 60;

fn text(number: u64) -> String {
    format!("number {number} {}", "x".repeat(48 << 10))
}

async fn fill(client: &QueueClient) {
    client.create_queue(QUEUE, &[]).await.expect("created");
    for number in 0..COUNT {
        let sent = client
            .put(QUEUE, &text(number), PutOptions::default())
            .await;
        sent.expect("put");
    }
}

/// The numbers of the messages that are served.
async fn served(client: &QueueClient) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    // Damaged messages are left out of an answer, so one may be empty before the last.
    for _ in 0..COUNT {
        let messages = client.get(QUEUE, 32, Some(3600)).await.expect("received");
        for message in messages {
            let number = message.text.split(' ').nth(1).expect("a number");
            let number = number.parse().expect("a number");
            assert!(message.text == text(number), "message {number} has changed");
            found.insert(number);
        }
    }
    found
}

/// Flips a bit of a message in its segment.
fn damage(data_dir: &Path, number: u64) {
    let mark = format!("number {number} xxxx");
    let position = |content: &[u8]| {
        let mut windows = content.windows(mark.len());
        windows.position(|window| window == mark.as_bytes())
    };
    let segments = files(data_dir, "segment-").into_iter();
    let mut with_it = segments.filter(|segment| {
        let content = std::fs::read(segment).expect("readable");
        position(&content).is_some()
    });
    let segment = with_it.next().expect("the message is in the log");
    corrupt(&segment, |content| {
        let at = position(content).expect("it is there");
        content[at + 1000] ^= 0x20;
    });
}

pub(crate) fn listed(data_dir: &Path) -> (Option<i32>, Value) {
    let (ended, printed) = kew(&["log", "damage", "--json"], data_dir);
    let line = printed
        .lines()
        .last()
        .unwrap_or_else(|| panic!("{}", ended.log));
    let damage = serde_json::from_str(line).expect("JSON");
    (ended.status.code(), damage)
}

/// The list once a count in it is not zero any more. The server is a process of its own, with a clock of its own.
fn listed_with(data_dir: &Path, count: &str) -> (Option<i32>, Value) {
    let begun = Instant::now();
    loop {
        let (code, damage) = listed(data_dir);
        if damage[count].as_u64() > Some(0) {
            return (code, damage);
        }
        assert!(begun.elapsed() < PATIENCE, "{count} stays 0: {damage}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_flipped_bit_is_listed_and_the_other_messages_are_served() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    let server = Server::start(&data_dir);
    block_on(fill_with(&server));
    server.terminate();
    damage(&data_dir, 3);

    let mut server = Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(&data_dir);
        command.args(["--queue-listen", "127.0.0.1:0", "--scrub-rate", "1000"]);
    });
    server.expect_error("the scrub found damage: segment-");
    server.expect_error("the scrub found message 4 of queue \"scrubbed\" damaged, in segment-");
    server.expect_error("a message body is damaged: the message is left out of the answer");
    let (code, damage) = listed_with(&data_dir, "messages_count");
    assert_eq!(code, Some(1));
    assert_eq!(damage["messages_count"], 1, "{damage}");
    assert_eq!(damage["places_count"], 1, "{damage}");
    let message = &damage["messages"][0];
    assert_eq!(message["service"], "queue-storage");
    assert_eq!(message["queue"], QUEUE);
    assert_eq!(message["sequence_number"], 4);
    let client = server.queue_client();
    let found = block_on(served(&client));
    let expected: BTreeSet<u64> = (0..COUNT).filter(|number| *number != 3).collect();
    assert_eq!(found, expected);
    assert_eq!(damage["scrub"], true);
    // Once the message is gone, nothing is listed but the place.
    block_on(async { client.clear(QUEUE).await.expect("cleared") });
    let (_, damage) = listed(&data_dir);
    assert_eq!(damage["messages_count"], 0, "{damage}");
    server.terminate();
}

async fn fill_with(server: &Server) {
    fill(&server.queue_client()).await;
}

/// An empty list says nothing if nobody looks.
#[test]
fn a_server_without_a_scrub_says_so() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    let server = Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(&data_dir);
        command.args(["--queue-listen", "127.0.0.1:0", "--scrub-rate", "0"]);
    });
    let (code, damage) = listed(&data_dir);
    assert_eq!((code, &damage["scrub"]), (Some(1), &Value::Bool(false)));
    assert_eq!(damage["read_bytes"], 0);
    assert_eq!(damage["passes"], 0);
    let (ended, printed) = kew(&["log", "damage"], &data_dir);
    assert_eq!((ended.status.code(), printed.as_str()), (Some(1), ""));
    assert!(ended.log.contains("--scrub-rate 0"), "{}", ended.log);
    server.terminate();
    let (ended, _) = kew(&["log", "damage"], &data_dir);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.log.contains("no server answers"), "{}", ended.log);
}

#[test]
fn a_whole_log_has_no_damage() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    let server = Server::start(&data_dir);
    let (code, damage) = listed_with(&data_dir, "passes");
    assert_eq!((code, &damage["scrub"]), (Some(0), &Value::Bool(true)));
    server.terminate();
}
