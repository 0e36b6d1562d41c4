//! `kew log repair` of Service Bus queues, with the real binary: everything that is not listed as
//! lost is unchanged, including a dead letter, a deferred message and the state of a session.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use kew_amqp::codec::{Map, Value};
use kew_amqp::message::Message;
use kew_amqp::performative::{DeliveryState, Modified, Outcome, Rejected};
use kew_bus_client::{Client, body_of, message, sequence_number};
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
/// The state of a deferred message.
const DEFERRED: i64 = 1;

/// The place of each message, by its text: its queue, its number and its state.
type Found = BTreeMap<String, (&'static str, i64, i64)>;

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
        let mut client = Door::of(&server).connect().await.expect("it serves");
        let sender = client.sender(ORDERS).await.expect("attached");
        for number in 0..MESSAGES {
            let sent = message(text(number).as_bytes(), number, None);
            client.send(sender, sent).await.expect("sent");
        }
        let receiver = client.receiver(ORDERS).await.expect("attached");
        client.connection.grant(receiver, 3);
        let deferred = Modified {
            delivery_failed: None,
            undeliverable_here: Some(true),
            message_annotations: None,
        };
        let rejected = Rejected { error: None };
        for state in [
            Outcome::Rejected(rejected).into(),
            Outcome::Modified(deferred).into(),
            DeliveryState::ACCEPTED,
        ] {
            let delivery = client.delivery(receiver).await.expect("a delivery");
            let settled = client.settle(delivery.delivery, state).await;
            settled.expect("its lock holds");
        }
        let sender = client.sender(STEPS).await.expect("attached");
        let sent = message(text(MESSAGES).as_bytes(), MESSAGES, Some(SESSION));
        client.send(sender, sent).await.expect("sent");
        let state = Some(Bytes::from(state()));
        of_session(&mut client, "com.microsoft:set-session-state", state).await;
        everything(&mut client).await
    });
    server.terminate();
    found
}

/// Asks something about the session, under its lock.
async fn of_session(client: &mut Client, operation: &str, state: Option<Bytes>) -> Message {
    let (link, _) = client
        .session_receiver(STEPS, Some(SESSION))
        .await
        .expect("it is not locked");
    let body = Map::build(|map| {
        map.entry("session-id", SESSION);
        if let Some(state) = state {
            map.entry("session-state", &Value::Binary(state));
        }
    });
    let answer = client.ask(STEPS, operation, &body).await;
    client.detach(link).await.expect("detached");
    answer.expect("its lock holds")
}

async fn everything(client: &mut Client) -> Found {
    let mut found = Found::new();
    for place in [ORDERS, DEAD_LETTERS, STEPS] {
        for message in peek_all(client, place).await {
            let body = body_of(&message).expect("bytes").to_vec();
            let annotations = message.message_annotations();
            let state = annotations.get("x-opt-message-state");
            let state = state.and_then(|raw| raw.value().as_integer());
            let is = (
                place,
                sequence_number(&message).expect("a number"),
                state.expect("a state"),
            );
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
        let mut client = Door::of(&server).connect().await.expect("it serves");
        let found = everything(&mut client).await;
        let answer = of_session(&mut client, "com.microsoft:get-session-state", None).await;
        let body = answer.body_values().next().map(|raw| raw.value());
        let Some(Value::Map(body)) = body else {
            panic!("{body:?}");
        };
        match body.get("session-state").map(|raw| raw.value()) {
            Some(Value::Binary(state)) => (found, Some(state)),
            _ => (found, None),
        }
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
    assert_eq!(before[&text(1)].2, DEFERRED);
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
