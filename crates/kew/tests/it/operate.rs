//! `kew bus` and `kew dlq` against the real server, its audit log of them, and that a kill during
//! their work loses and duplicates nothing.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kew_bus_api::{WELL_KNOWN_KEY, WELL_KNOWN_RULE, sign_token};
use serde_json::{Value, json};

use crate::client::{Done, command, finish};
use crate::server::{PATIENCE, Server};

const CONFIG: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "orders", "Properties": {"MaxDeliveryCount": 1}},
    {"Name": "target", "Properties": {}}
]}]}}"#;

pub(crate) fn start(data_dir: &Path) -> Server {
    let config = data_dir.with_extension("json");
    std::fs::write(&config, CONFIG).expect("a writable directory");
    Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args([
            "--queue-listen",
            "127.0.0.1:0",
            "--bus-listen",
            "127.0.0.1:0",
            "--metrics-listen",
            "127.0.0.1:0",
        ]);
        command.arg("--import").arg(config);
    })
}

/// Runs `check` with a server with the queues of [`CONFIG`], which then ends cleanly.
pub(crate) fn with_server(check: impl FnOnce(&Server)) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    check(&server);
    server.terminate();
}

pub(crate) fn kew(server: &Server, arguments: &[&str]) -> Done {
    let connection = server.facts("KEW_BUS_CONNECTION_STRING").first();
    let mut command = command("");
    command.env(
        "KEW_BUS_CONNECTION_STRING",
        connection.expect("it prints one"),
    );
    command.args(arguments);
    finish(command, b"")
}

pub(crate) fn ok(server: &Server, arguments: &[&str]) -> String {
    let done = kew(server, arguments);
    assert_eq!(done.code, 0, "{arguments:?}: {done:?}");
    done.text().to_owned()
}

pub(crate) fn json_of(server: &Server, arguments: &[&str]) -> Value {
    let done = kew(server, &[arguments, &["--json"]].concat());
    assert_eq!(done.code, 0, "{arguments:?}: {done:?}");
    done.json()
}

/// The status, the head and the body of the answer to a request.
fn ask(server: &Server, method: &str, path: &str, kind: &str, body: &str) -> (u16, String, String) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let expiry = now.expect("it is after 1970").as_secs() + 60;
    let token = sign_token("sb://localhost/", WELL_KNOWN_RULE, WELL_KNOWN_KEY, expiry);
    let address = server
        .facts("KEW_BUS_LISTEN")
        .first()
        .expect("it is served");
    let mut stream = TcpStream::connect(address).expect("a server");
    write!(
        stream,
        "{method} /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n\
         Authorization: {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (status.expect("a status"), head.to_owned(), body.to_owned())
}

fn send(server: &Server, queue: &str, bodies: impl Iterator<Item = u64>) {
    let batch: Vec<Value> = bodies
        .map(|body| json!({"Body": body.to_string()}))
        .collect();
    let kind = "application/vnd.microsoft.servicebus.json";
    let batch = Value::from(batch).to_string();
    let (status, head, _) = ask(server, "POST", &format!("{queue}/messages"), kind, &batch);
    assert_eq!(status, 201, "{head}");
}

/// Locks the first message and releases it, until it becomes a dead letter.
fn bury_one(server: &Server) {
    let (status, head, _) = ask(server, "POST", "orders/messages/head?timeout=5", "", "");
    assert_eq!(status, 201, "{head}");
    let location = head
        .lines()
        .find_map(|line| line.strip_prefix("location: "));
    let path = location.and_then(|location| location.split_once("localhost/"));
    let (_, path) = path.expect("where it is");
    assert_eq!(ask(server, "PUT", path, "", "").0, 200);
}

#[test]
fn dead_letters_are_looked_at_resubmitted_and_purged() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    send(&server, "orders", 0..3);
    assert_eq!(json_of(&server, &["dlq", "list"]), json!([]));
    (0..3).for_each(|_| bury_one(&server));

    let list = ok(&server, &["dlq", "list"]);
    let rows: Vec<Vec<&str>> = list
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0][..4], ["QUEUE", "ACTIVE", "SCHEDULED", "DEAD"]);
    assert_eq!(
        (rows.len(), &rows[1][..4]),
        (2, &["orders", "0", "0", "3"][..])
    );
    let groups = json_of(&server, &["dlq", "groups", "orders"]);
    assert_eq!(groups[0]["count"], 3);
    assert_eq!(groups[0]["reason"], "MaxDeliveryCountExceeded");
    let text = ok(&server, &["dlq", "groups", "orders"]);
    assert!(text.contains("MaxDeliveryCountExceeded"), "{text}");
    let peeked = json_of(
        &server,
        &["dlq", "peek", "orders", "-n", "2", "--from", "2"],
    );
    assert_eq!(
        (&peeked[0]["body"], &peeked[1]["body"]),
        (&json!("1"), &json!("2"))
    );
    let reason = "MaxDeliveryCountExceeded";
    let peeked = ok(
        &server,
        &["dlq", "peek", "Orders", "--reason", reason, "--until", "1"],
    );
    assert!(
        peeked.contains("body: 0\n") && peeked.contains("dead_letter_reason: "),
        "{peeked}"
    );

    let again = [
        "dlq",
        "resubmit",
        "orders",
        "--until",
        "2",
        "--set",
        "tries=2",
        "--new-ids",
    ];
    let dry = ok(&server, &[&again[..], &["--dry-run"]].concat());
    assert_eq!(dry, "2 of 2 messages would be resubmitted\n");
    assert_eq!(ok(&server, &again), "2 of 2 messages resubmitted\n");
    let sent = json_of(&server, &["bus", "peek", "orders", "--property", "tries=2"]);
    assert_eq!(sent.as_array().map(Vec::len), Some(2));
    assert_eq!(sent[1]["properties"], json!({"tries": 2}));
    let elsewhere = json_of(&server, &["dlq", "resubmit", "orders", "--to", "target"]);
    assert_eq!(
        (&elsewhere["done"], &elsewhere["state"]),
        (&json!(1), &json!("done"))
    );
    let target = json_of(&server, &["bus", "show", "target"]);
    assert_eq!(target["active_messages"], 1);
    let refused = kew(&server, &["dlq", "resubmit", "orders", "--to", "none"]);
    refused.check_error(1, &["'none' could not be found"]);
    (0..2).for_each(|_| bury_one(&server));
    assert_eq!(
        ok(&server, &["dlq", "purge", "orders", "--yes"]),
        "2 of 2 messages deleted\n"
    );
    assert_eq!(json_of(&server, &["dlq", "peek", "orders"]), json!([]));
    assert_eq!(
        json_of(&server, &["bus", "jobs"]).as_array().map(Vec::len),
        Some(4)
    );

    let log = server.log_with(&[
        "audit: resubmit",
        "audit: purge",
        "entity=\"orders/$deadletterqueue\"",
        "by=\"rule RootManageSharedAccessKey\"",
        "peer=\"127.0.0.1:",
        "2 of 2 messages done",
    ]);
    // Neither for reads nor for the dry run.
    let acts = log.lines().filter(|line| line.contains("audit: resubmit"));
    assert_eq!(acts.count(), 3, "{log}");
    let refused = log.lines().find(|line| line.contains("refused="));
    assert!(refused.is_some_and(|line| line.contains("WARN")), "{log}");
}

#[test]
fn one_message_is_received_unlocked_and_deleted() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    send(&server, "target", 0..3);
    let message = |arguments: &[&str]| kew(&server, &[&["bus", "message"], arguments].concat());
    let locked = message(&["get", "target", "2", "--lock", "--json"]).json();
    assert_eq!(
        (&locked["body"], &locked["state"]),
        (&json!("1"), &json!("locked"))
    );
    message(&["delete", "target", "2"]).check_error(1, &["is locked until"]);
    assert_eq!(
        ok(&server, &["bus", "break-lock", "target", "--number", "2"]),
        "the lock is broken\n"
    );
    kew(&server, &["bus", "break-lock", "target", "--number", "2"]).check_error(1, &["no lock"]);
    let dry = message(&["delete", "target", "2", "--dry-run"]);
    assert_eq!(dry.text(), "would delete message 2\n");
    assert_eq!(
        message(&["delete", "target", "2"]).text(),
        "deleted message 2\n"
    );
    message(&["get", "target", "2"]).check_error(1, &["sequence number 2", "NotFound"]);
    assert_eq!(
        message(&["get", "target", "3", "--delete", "--json"]).json()["body"],
        "2"
    );
    assert_eq!(
        ok(&server, &["bus", "purge", "target", "--dry-run"]),
        "1 of 1 messages would be deleted\n"
    );
    assert_eq!(
        ok(&server, &["bus", "purge", "target"]),
        "1 of 1 messages deleted\n"
    );
    let list = json_of(&server, &["bus", "list"]);
    assert_eq!(list[1]["name"], "target");
    assert_eq!(list[1]["active_messages"], 0);
    server.log_with(&[
        "audit: take message",
        "audit: delete message",
        "audit: break lock",
        "audit: purge",
    ]);
}

#[test]
fn errors_have_their_exit_codes() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    kew(&server, &["bus", "show", "none"])
        .check_error(1, &["'none' could not be found", "NotFound"]);
    kew(&server, &["bus", "peek", "target", "--after", "soon"])
        .check_error(1, &["expected a time"]);
    let told = kew(&server, &["dlq", "peek", "none", "--json"]);
    let report: Value = serde_json::from_str(&told.err).expect("JSON");
    assert_eq!((told.code, &report["error"]["status"]), (1, &json!(404)));
    let wrong = [
        "bus",
        "list",
        "--connection-string",
        "Endpoint=sb://h/;Key=secret",
    ];
    let told = kew(&server, &wrong);
    told.check_error(2, &["the connection string has"]);
    assert!(!told.err.contains("secret"), "{told:?}");
    let text = "Endpoint=sb://localhost:1;SharedAccessKeyName=r;SharedAccessKey=k;UseDevelopmentEmulator=true";
    let nobody = ["bus", "list", "--retries", "0", "--connection-string", text];
    kew(&server, &nobody).check_error(3, &["cannot reach http://localhost:1"]);
    let address = server
        .facts("KEW_BUS_LISTEN")
        .first()
        .expect("it is served");
    let stranger = format!("Endpoint=http://{address};SharedAccessKeyName=r;SharedAccessKey=k");
    kew(&server, &["bus", "list", "--connection-string", &stranger]).check_error(1, &["401"]);
}

const MESSAGES: u64 = 4000;
const ROUNDS: u32 = 12;

/// The bodies of the messages of a queue.
fn bodies(server: &Server, queue: &str) -> Vec<u64> {
    let count = MESSAGES.to_string();
    let peeked = json_of(server, &["bus", "peek", queue, "-n", &count]);
    let bodies = peeked.as_array().expect("an array").iter();
    let body = |message: &Value| message["body"].as_str().and_then(|body| body.parse().ok());
    bodies
        .map(|message| body(message).expect("a number"))
        .collect()
}

/// Waits until a job has moved something.
fn wait_for_progress(server: &Server, job: &str) {
    let job: Value = serde_json::from_str(job).expect("JSON");
    let path = format!("$kew/v1/jobs/{}", job["id"].as_str().expect("an id"));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (_, _, job) = ask(server, "GET", &path, "", "");
        let job: Value = serde_json::from_str(&job).expect("JSON");
        if job["done"] != 0 || job["state"] != "running" {
            return;
        }
        assert!(Instant::now() < deadline, "no progress: {job}");
    }
}

#[test]
fn a_kill_in_the_middle_of_a_resubmission_loses_and_doubles_nothing() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    let mut server = start(&data_dir);
    for first in (0..MESSAGES).step_by(1000) {
        send(&server, "orders", first..first + 1000);
    }
    let mut was_cut = false;
    for round in 0..ROUNDS {
        let (status, _, job) = ask(
            &server,
            "POST",
            "$kew/v1/resubmit/orders",
            "",
            r#"{"to": "target"}"#,
        );
        assert_eq!(status, 202, "{job}");
        wait_for_progress(&server, &job);
        // This is not a wait: the moment of the kill is what varies.
        std::thread::sleep(Duration::from_millis(u64::from(round)));
        server.kill();
        server = start(&data_dir);
        let (left, moved) = (bodies(&server, "orders"), bodies(&server, "target"));
        assert_eq!(
            (left.len() + moved.len()) as u64,
            MESSAGES,
            "{} moved",
            moved.len()
        );
        let all: BTreeSet<u64> = left.iter().chain(&moved).copied().collect();
        assert_eq!(all.len() as u64, MESSAGES);
        was_cut |= !left.is_empty() && !moved.is_empty();
        if left.is_empty() {
            break;
        }
    }
    assert!(was_cut, "no kill fell into the work");
    let done = json_of(&server, &["bus", "purge", "target"]);
    assert_eq!(done["state"], "done");
}
