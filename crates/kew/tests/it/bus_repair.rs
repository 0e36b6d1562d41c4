//! `kew log repair` of Service Bus queues, with the real binary: everything that is not listed as
//! lost is unchanged, including a dead letter, a deferred message and the state of a session.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use kew_client::{
    BusClient, Message, MessageState, ReceiverOptions, SessionChoice, SessionReceiver,
};
use serde_json::Value as Json;

use crate::bus_load::{Door, peek_all};
use crate::repair::{block_on, corrupt, files, kew, start_is_refused};
use crate::server::Server;

const ORDERS: &str = "orders";
const DEAD_LETTERS: &str = "orders/$deadletterqueue";
const STEPS: &str = "steps";
const SESSION: &str = "one";

const CONFIG: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "orders"}, {"Name": "steps", "Properties": {"RequiresSession": true}}
]}]}}"#;

const MESSAGES: u64 = 40;
/// The message whose bytes are damaged.
const VICTIM: u64 = 25;
/// The place of each message, by its text: its queue, its number and its state.
type Found = BTreeMap<String, (&'static str, i64, MessageState)>;

fn start(data_dir: &Path) -> Server {
    let config = data_dir.with_extension("json");
    std::fs::write(&config, CONFIG).expect("writable");
    Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
        command.args(["--bus-listen", "127.0.0.1:0", "--import"]);
        command.arg(config);
    })
}

fn text(number: u64) -> String {
    format!("order {number} of many, {}", "x".repeat(400))
}

fn state() -> String {
    format!("half way, {}", "y".repeat(400))
}

/// Fills the queues, stops the server, and returns the content.
fn fill(data_dir: &Path) -> Found {
    let server = start(data_dir);
    let found = block_on(async {
        let client = Door::of(&server).client();
        let sender = client.sender(ORDERS).await.expect("attached");
        for number in 0..MESSAGES {
            sender.send(&message(number)).await.expect("sent");
        }
        let options = ReceiverOptions::default();
        let mut receiver = client.receiver(ORDERS, options).await.expect("attached");
        for step in 0..3 {
            let message = receiver.receive().await.expect("a message");
            let settled = match step {
                0 => message.dead_letter("", "", Vec::new()).await,
                1 => message.defer(Vec::new()).await,
                _ => message.complete().await,
            };
            settled.expect("its lock holds");
        }
        let sender = client.sender(STEPS).await.expect("attached");
        let sent = Message {
            session_id: Some(SESSION.to_owned()),
            ..message(MESSAGES)
        };
        sender.send(&sent).await.expect("sent");
        let session = session(&client).await;
        let stored = session.set_state(Some(Bytes::from(state()))).await;
        stored.expect("its lock holds");
        session.close().await.expect("closed");
        everything(&client).await
    });
    server.terminate();
    found
}

fn message(number: u64) -> Message {
    Message {
        id: Some(number.to_string()),
        ..Message::new(text(number))
    }
}

/// Locks the session.
async fn session(client: &BusClient) -> SessionReceiver {
    let choice = SessionChoice::named(SESSION);
    let locked = client.session(STEPS, choice, ReceiverOptions::default());
    locked.await.expect("it is not locked")
}

async fn everything(client: &BusClient) -> Found {
    let mut found = Found::new();
    for place in [ORDERS, DEAD_LETTERS, STEPS] {
        for message in peek_all(client, place).await {
            let body = message.body().to_vec();
            let number = message.sequence_number().expect("a number");
            let is = (place, number, message.state());
            let twice = found.insert(String::from_utf8(body).expect("text"), is);
            assert_eq!(twice, None, "{is:?} is there twice");
        }
    }
    found
}

/// The content of a repaired server, and the state of its session.
fn look(data_dir: &Path) -> (Found, Option<Bytes>) {
    let server = start(data_dir);
    let seen = block_on(async {
        let client = Door::of(&server).client();
        let found = everything(&client).await;
        let session = session(&client).await;
        let state = session.state().await.expect("its lock holds");
        session.close().await.expect("closed");
        (found, state)
    });
    server.terminate();
    seen
}

/// Damages the segment with these bytes.
fn damage(data_dir: &Path, bytes: &[u8]) {
    let mut damaged = 0;
    for segment in files(data_dir, "segment-") {
        corrupt(&segment, |content| {
            let place = content.windows(bytes.len()).position(|it| it == bytes);
            if let Some(at) = place {
                content[at + 3] ^= 1;
                damaged += 1;
            }
        });
    }
    assert_eq!(damaged, 1, "they are in one place");
}

/// Lists the losses, repairs, and checks that the server can start again.
fn repair(data_dir: &Path) -> Json {
    let (ended, listed) = kew(&["log", "repair", "--json"], data_dir);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.log);
    let (ended, repaired) = kew(&["log", "repair", "--accept-loss", "--json"], data_dir);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert_eq!(repaired.lines().next(), Some(listed.trim_end()));
    let (ended, _) = kew(&["log", "verify"], data_dir);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    serde_json::from_str(&listed).expect("one line of JSON")
}

#[test]
fn a_damaged_record_costs_only_its_message_of_a_bus_queue() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    let before = fill(&data_dir);
    assert_eq!(before.len() as u64, MESSAGES, "all but the completed one");
    assert_eq!(before[&text(0)].0, DEAD_LETTERS);
    assert_eq!(before[&text(1)].2, MessageState::Deferred);
    // Without its snapshot, the start needs every record.
    for snapshot in files(&data_dir, "snapshot-") {
        std::fs::remove_file(snapshot).expect("removed");
    }
    damage(&data_dir, text(VICTIM).as_bytes());
    start_is_refused(&data_dir, &["segment-", "byte"]);
    let listing = repair(&data_dir);
    let lost = listing["lost"].as_array().expect("a list");
    assert_eq!(lost.len(), 1, "{listing}");
    assert_eq!(lost[0]["account"], "sbemulatorns");
    assert_eq!(lost[0]["queue"], ORDERS);
    assert_eq!(lost[0]["sequence_number"], before[&text(VICTIM)].1);
    assert_eq!(
        listing["session_states_lost"].as_array().map(Vec::len),
        Some(0)
    );
    let mut expected = before;
    expected.remove(&text(VICTIM));
    assert_eq!(look(&data_dir), (expected, Some(Bytes::from(state()))));
}

#[test]
fn a_damaged_state_costs_a_session_its_state_and_nothing_else() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    let before = fill(&data_dir);
    damage(&data_dir, state().as_bytes());
    let (_, printed) = kew(&["log", "repair"], &data_dir);
    assert!(printed.contains("the state of session"), "{printed}");
    let listing = repair(&data_dir);
    let lost = &listing["session_states_lost"];
    assert_eq!(lost.as_array().map(Vec::len), Some(1), "{listing}");
    assert_eq!(
        (&lost[0]["queue"], &lost[0]["session"]),
        (&STEPS.into(), &SESSION.into())
    );
    assert_eq!(listing["lost"].as_array().map(Vec::len), Some(0));
    assert_eq!(look(&data_dir), (before, None));
}
