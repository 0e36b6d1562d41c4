//! `kew export` and `kew import`: a round trip over both services, repeats after a kill, and what errors say.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use kew_client::{
    AccessPolicy, AdminOptions, BusAdmin, BusClient, Changes, EntityStatus, PutOptions, QueueRule,
    QueueSettings, ReceiverOptions, Right, SessionChoice, UnknownElements,
};
use serde_json::{Value, json};

use crate::bus_load::Door;
use crate::client::{Done, command, finish};
use crate::load::{self, Random};
use crate::server::Server;

pub(crate) const AT_ONCE: ReceiverOptions = ReceiverOptions { prefetch: 0 };

pub(crate) fn start(data_dir: &Path) -> Server {
    Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
        command.args(["--bus-listen", "127.0.0.1:0"]);
    })
}

pub(crate) fn fact<'a>(server: &'a Server, name: &str) -> &'a str {
    let facts = server.facts(name);
    facts.first().expect("it prints one").trim_matches('\'')
}

/// A command for both services of a server.
pub(crate) fn kew_of(server: &Server, arguments: &[&str]) -> Command {
    let mut command = command(fact(server, "KEW_QUEUE_CONNECTION_STRING"));
    command.env(
        "KEW_BUS_CONNECTION_STRING",
        fact(server, "KEW_BUS_CONNECTION_STRING"),
    );
    command.args(arguments);
    command
}

pub(crate) fn kew(server: &Server, arguments: &[&str]) -> Done {
    finish(kew_of(server, arguments), b"")
}

pub(crate) fn ok(server: &Server, arguments: &[&str]) -> Done {
    let done = kew(server, arguments);
    assert_eq!(done.code, 0, "{arguments:?}: {done:?}");
    done
}

pub(crate) fn report(server: &Server, file: &Path, more: &[&str]) -> Value {
    let file = file.to_str().expect("UTF-8");
    ok(
        server,
        &[&["import", "--json", "--file", file], more].concat(),
    )
    .json()
}

fn lines_of(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

pub(crate) fn export(server: &Server, more: &[&str]) -> Vec<Value> {
    lines_of(ok(server, &[&["export"], more].concat()).text())
}

/// A line without what an import cannot restore.
fn comparable(line: &Value) -> Value {
    let mut line = line.clone();
    if let Some(facts) = line["facts"].as_object_mut() {
        facts.retain(|name, _| name == "state");
    }
    line
}

pub(crate) fn comparables(lines: &[Value]) -> Vec<Value> {
    lines.iter().map(comparable).collect()
}

pub(crate) fn write(directory: &Path, lines: &[Value]) -> PathBuf {
    let path = directory.join("lines");
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    std::fs::write(&path, lines.join("\n")).expect("a writable directory");
    path
}

/// Lines with the one that ends an export.
pub(crate) fn ended(lines: &[Value]) -> Vec<Value> {
    let count = |member: &str| lines.iter().filter(|it| it.get(member).is_some()).count();
    let end = json!({
        "definitions": count("definition") + count("rule"), "session_states": count("session_state"),
        "messages": count("body"),
    });
    let end = json!({"version": 1, "end": end});
    lines.iter().cloned().chain([end]).collect()
}

/// A message of a queue of Service Bus, as a line.
pub(crate) fn line(queue: &str, id: &str, others: &Value) -> Value {
    let mut line = json!({
        "version": 1, "service": "service-bus", "queue": queue, "message_id": id, "durable": true,
        "body": {"text": id},
    });
    let others = others.as_object().expect("members").clone();
    line.as_object_mut().expect("an object").extend(others);
    line
}

pub(crate) fn defined(queue: &str, definition: &Value) -> Value {
    json!({"version": 1, "service": "service-bus", "queue": queue, "definition": definition})
}

/// Messages with values of every type of AMQP, and with bodies of every kind.
fn rich_lines() -> Vec<Value> {
    let far_ms = 32_503_680_000_000_i64;
    let others = [
        json!({"properties": {
            "null": null, "boolean": true, "text": "ä\u{1f600}", "ubyte": {"ubyte": 255}, "ushort": {"ushort": 65535},
            "uint": {"uint": 7}, "ulong": {"ulong": "18446744073709551615"}, "byte": {"byte": -1},
            "short": {"short": -2}, "int": {"int": -3}, "long": {"long": "-9223372036854775808"},
            "float": {"float": 0.5}, "double": {"double": "0x7ff0000000000000"}, "char": {"char": "x"},
            "time": {"timestamp_ms": 1}, "uuid": {"uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f"},
            "binary": {"binary": "AP8="}, "symbol": {"symbol": "s"}, "decimal32": {"decimal32": "AQIDBA=="},
            "decimal64": {"decimal64": "AQEBAQEBAQE="}, "decimal128": {"decimal128": "/////////////////////w=="},
        }}),
        json!({"subject": "s", "content_type": "text/plain", "content_encoding": "gzip", "to": "t", "reply_to": "r",
            "reply_to_session_id": "rs", "correlation_id": {"ulong": 9}, "user_id": "/w==", "group_sequence": 3,
            "created_at_ms": 9, "partition_key": "p", "priority": 7, "time_to_live_ms": 3_600_000,
            "annotations": {"x-opt-mine": {"int": 1}}, "footer": {"f": true}}),
        json!({"message_id": {"uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f"}, "body": {"base64": "/wA="}}),
        json!({"body": {"sections": [{"text": "a"}, {"base64": "/w=="}]}}),
        json!({"body": {"value": {"list": [{"long": 1}, null]}}}),
        json!({"body": {"sequences": [[{"int": 1}, "a"], []]}}),
        json!({"body": {"text": "x".repeat(900 << 10)}}),
        json!({"scheduled_at_ms": far_ms, "time_to_live_ms": 3_600_000}),
    ];
    let lines = others.iter().enumerate();
    lines
        .map(|(number, it)| line("orders", &format!("rich-{number}"), it))
        .collect()
}

pub(crate) fn admin(server: &Server) -> BusAdmin {
    let namespace = Door::of(server).namespace().clone();
    BusAdmin::new(namespace, AdminOptions::default()).expect("no TLS is needed")
}

/// Queues with every setting, and messages in every state.
async fn fill_bus(server: &Server) {
    let admin = admin(server);
    let rule = QueueRule {
        name: "sender".into(),
        rights: vec![Right::Send],
        primary_key: None,
        secondary_key: None,
        unknown: UnknownElements::default(),
    };
    let orders = QueueSettings {
        max_delivery_count: Some(3),
        lock_duration: Some(Duration::from_secs(30)),
        user_metadata: Some("of ours".into()),
        authorization_rules: Some(vec![rule]),
        ..QueueSettings::default()
    };
    let talks = QueueSettings {
        requires_session: Some(true),
        requires_duplicate_detection: Some(true),
        duplicate_window: Some(Duration::from_mins(1)),
        default_time_to_live: Some(Duration::from_hours(24)),
        dead_letters_expired: Some(true),
        ..QueueSettings::default()
    };
    let closed = QueueSettings {
        status: Some(EntityStatus::ReceiveDisabled),
        forward_dead_letters_to: Some("orders".into()),
        ..QueueSettings::default()
    };
    let forwards = QueueSettings {
        forward_to: Some("orders".into()),
        ..QueueSettings::default()
    };
    for (name, settings) in [
        ("orders", &orders),
        ("talks", &talks),
        ("closed", &closed),
        ("a/forwards", &forwards),
    ] {
        admin.create_queue(name, settings).await.expect("created");
    }
    let bus = Door::of(server).client();
    settle_some(&bus).await;
    hold_talks(&bus).await;
}

/// Dead letters, deferred messages and failed deliveries.
async fn settle_some(bus: &BusClient) {
    let sender = bus.sender("orders").await.expect("a sender");
    for id in ["dead-1", "dead-2", "late", "again"] {
        let message = kew_client::Message {
            id: Some(id.into()),
            time_to_live: (id == "dead-2").then_some(Duration::from_secs(50)),
            ..kew_client::Message::new(id)
        };
        sender.send(&message).await.expect("sent");
    }
    let receiver = bus.receiver("orders", AT_ONCE).await;
    let mut receiver = receiver.expect("a receiver");
    let mut messages = Vec::new();
    while messages.len() < 4 {
        let more = receiver.receive_batch(4, Duration::ZERO).await;
        messages.extend(more.expect("received"));
    }
    let changes: Changes = vec![("tries".into(), kew_client::Value::Int(3))];
    let done = messages[0].dead_letter("Late", "it came late", changes);
    done.await.expect("dead-lettered");
    let done = messages[1].dead_letter("Bad", "", Changes::new());
    done.await.expect("dead-lettered");
    messages[2].defer(Changes::new()).await.expect("deferred");
    messages[3]
        .abandon(Changes::new())
        .await
        .expect("abandoned");
    receiver.close().await.expect("closed");
}

/// Sessions with messages, states, and both.
async fn hold_talks(bus: &BusClient) {
    let sender = bus.sender("talks").await.expect("a sender");
    for (session, id) in [
        ("s1", "1"),
        ("s2", "2"),
        ("s1", "3"),
        ("s3", "dead"),
        ("s1", "aside"),
    ] {
        let message = kew_client::Message {
            id: Some(id.into()),
            session_id: Some(session.into()),
            ..kew_client::Message::new(id)
        };
        sender.send(&message).await.expect("sent");
    }
    for (id, state) in [("s1", &b"text"[..]), ("s4", &b"\xff\x00"[..])] {
        let session = bus
            .session("talks", SessionChoice::named(id), AT_ONCE)
            .await;
        let session = session.expect("locked");
        let set = session.set_state(Some(Bytes::copy_from_slice(state)));
        set.await.expect("set");
        session.close().await.expect("closed");
    }
    let session = bus
        .session("talks", SessionChoice::named("s3"), AT_ONCE)
        .await;
    let mut session = session.expect("locked");
    let message = session.receive().await.expect("received");
    let done = message.dead_letter("Rude", "of a session", Changes::new());
    done.await.expect("dead-lettered");
    session.close().await.expect("closed");
    let session = bus
        .session("talks", SessionChoice::named("s1"), AT_ONCE)
        .await;
    let mut session = session.expect("locked");
    let mut count = 0;
    while count < 3 {
        for message in session
            .receive_batch(3, Duration::ZERO)
            .await
            .expect("received")
        {
            count += 1;
            if message.id().as_deref() == Some("aside") {
                message.defer(Changes::new()).await.expect("deferred");
            }
        }
    }
    session.close().await.expect("closed");
}

async fn fill_storage(server: &Server) {
    let client = server.queue_client();
    let metadata = [("purpose".to_owned(), "of ours".to_owned())];
    client
        .create_queue("jobs", &metadata)
        .await
        .expect("created");
    client.create_queue("empty", &[]).await.expect("created");
    let policy = AccessPolicy {
        id: "readers".into(),
        start: None,
        expiry: None,
        permissions: Some("r".into()),
    };
    let policies = [policy];
    let set = client.set_access_policies("jobs", &policies);
    set.await.expect("set");
    let forever = PutOptions {
        time_to_live: Some(-1),
        ..PutOptions::default()
    };
    for (text, options) in [
        ("one", PutOptions::default()),
        ("<ä & \u{1f600}>\n", forever),
        ("", PutOptions::default()),
        (&"x".repeat(60 << 10), PutOptions::default()),
    ] {
        client.put("jobs", text, options).await.expect("put");
    }
}

#[test]
fn everything_comes_back_in_a_fresh_server() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let from = start(&place.path().join("from"));
    load::run(async {
        fill_bus(&from).await;
        fill_storage(&from).await;
    });
    let rich = write(place.path(), &rich_lines());
    let import = ["bus", "message", "import", "orders", "--file"];
    ok(
        &from,
        &[&import[..], &[rich.to_str().expect("UTF-8")]].concat(),
    );

    let first = export(&from, &["--with-keys"]);
    let end = first.last().expect("an end")["end"].clone();
    assert_eq!(
        end,
        json!({"definitions": 6, "session_states": 2, "messages": 21})
    );
    let file = write(place.path(), &first);
    let to = start(&place.path().join("to"));
    let dry = report(&to, &file, &["--dry-run"]);
    assert_eq!(dry["would_import"], end);
    let imported = report(&to, &file, &[]);
    for (name, expected) in [
        ("queues_created", 6),
        ("session_states", 2),
        ("messages_sent", 21),
        ("dead_letters", 3),
        ("deferred", 2),
        ("scheduled", 1),
        ("messages_already_there", 0),
        ("messages_missing", 0),
    ] {
        assert_eq!(imported[name], expected, "{name}: {imported}");
    }
    let lost = &imported["not_restored"];
    for (name, expected) in [
        ("sequence_number", 17),
        ("delivery_count", 1),
        ("time_to_live", 1),
        ("message_id", 4),
    ] {
        assert_eq!(lost[name], expected, "{name}: {imported}");
    }
    let mut expected = comparables(&first);
    let dead = expected
        .iter_mut()
        .find(|line| line["message_id"] == "dead-2");
    let dead = dead.expect("it is there").as_object_mut();
    dead.expect("an object").remove("time_to_live_ms");
    let second = comparables(&export(&to, &["--with-keys"]));
    for (line, expected) in second.iter().zip(&expected) {
        assert_eq!(line, expected);
    }
    assert_eq!(second.len(), expected.len());

    // The messages are where they were, and a repeat sends nothing.
    assert_eq!(
        comparables(&export(&from, &["--with-keys"])),
        comparables(&first)
    );
    let again = report(&to, &file, &[]);
    assert_eq!(
        (&again["messages_sent"], &again["messages_already_there"]),
        (&json!(0), &json!(21)),
        "{again}"
    );
    assert_eq!(comparables(&export(&to, &["--with-keys"])), second);
    // Without keys, those of the rules are made anew.
    let plain = export(
        &from,
        &[
            "--queue",
            "orders",
            "--definitions-only",
            "--connection-string",
            fact(&from, "KEW_BUS_CONNECTION_STRING"),
        ],
    );
    assert_eq!(
        plain[0]["definition"]["authorization_rules"],
        json!([{"name": "sender", "rights": ["Send"]}])
    );
    from.terminate();
    to.terminate();
}

/// Lines of messages of a queue or subscription: so many dead letters, deferred and other messages, perhaps in sessions.
pub(crate) fn messages_of(
    entity: &str,
    [dead, deferred, others]: [u64; 3],
    has_sessions: bool,
) -> Vec<Value> {
    let reason = json!({"DeadLetterReason": "R", "DeadLetterErrorDescription": "D"});
    let dead_letters = format!("{entity}/$deadletterqueue");
    let parts = [
        ("dead", dead, &*dead_letters, "active"),
        ("deferred", deferred, entity, "deferred"),
        ("other", others, entity, "active"),
    ];
    let mut lines = Vec::new();
    for (kind, count, place, state) in parts {
        for number in 0..count {
            let mut members = json!({"facts": {"state": state}});
            if kind == "dead" {
                members["properties"] = reason.clone();
            }
            if has_sessions {
                members["session_id"] = json!(format!("s{}", number / 40 % 3));
            }
            lines.push(line(place, &format!("{kind}-{number}"), &members));
        }
    }
    lines
}

/// Lines of a queue with so many dead letters, deferred and other messages.
fn many_lines(dead: u64, deferred: u64, others: u64) -> Vec<Value> {
    let mut lines = vec![defined(
        "many",
        &json!({"lock_duration_ms": 300_000, "user_metadata": "m"}),
    )];
    lines.extend(messages_of("many", [dead, deferred, others], false));
    lines
        .push(json!({"version": 1, "service": "queue-storage", "queue": "jobs", "definition": {}}));
    for number in 0..30 {
        let text = json!({"text": format!("job {number}")});
        lines
            .push(json!({"version": 1, "service": "queue-storage", "queue": "jobs", "body": text}));
    }
    ended(&lines)
}

#[test]
fn a_killed_import_is_repeated_and_sends_nothing_twice() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    let lines = many_lines(300, 250, 3_000);
    let mut exported = import_with_kills(&server, place.path(), &lines);
    // Queue Storage comes first in an export.
    exported.rotate_left(30);
    assert!(
        exported == places_and_ids(&lines),
        "a message is at another place"
    );
    server.terminate();
}

/// Imports these lines, and is killed twelve times before that. Returns what an export has then.
pub(crate) fn import_with_kills(
    server: &Server,
    directory: &Path,
    lines: &[Value],
) -> Vec<[Value; 3]> {
    let mut random = Random::new(load::seed());
    let file = write(directory, lines);
    let import = ["import", "--json", "--file", file.to_str().expect("UTF-8")];
    let mut kills = 0;
    let report = loop {
        let mut child = kew_of(server, &import)
            .spawn()
            .expect("kew was built with this test");
        drop(child.stdin.take());
        // The first ones reach the dead letters and the deferred ones, and the later ones all others.
        let after = 5 + random.below(40 + 30 * kills);
        std::thread::sleep(Duration::from_millis(after));
        if kills >= 12 {
            let output = child.wait_with_output().expect("our own child");
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{text}");
            break serde_json::from_slice::<Value>(&output.stdout).expect("JSON");
        }
        child.kill().expect("our own child");
        let output = child.wait_with_output().expect("our own child");
        // It may have ended before, but not with an error.
        if let Some(code) = output.status.code() {
            assert_eq!(code, 0, "{}", String::from_utf8_lossy(&output.stderr));
        }
        kills += 1;
    };
    let counts = ["messages_sent", "messages_already_there"].iter();
    let count: u64 = counts.filter_map(|it| report[it].as_u64()).sum();
    let wanted = places_and_ids(lines).len() as u64;
    assert_eq!(count, wanted, "{report}");
    assert_eq!(report["messages_missing"], 0, "{report}");
    let exported = places_and_ids(&export(server, &[]));
    assert_eq!(exported.len() as u64, wanted);
    exported
}

/// The queue, id and body of each message.
pub(crate) fn places_and_ids(lines: &[Value]) -> Vec<[Value; 3]> {
    let messages = lines.iter().filter(|line| line.get("body").is_some());
    let parts = |line: &Value| ["queue", "message_id", "body"].map(|name| line[name].clone());
    messages.map(parts).collect()
}

#[test]
fn a_damaged_line_is_named_and_the_repaired_file_continues() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    let mut lines = many_lines(2, 2, 4);
    let right = lines[6].clone();
    lines[6]["message_id"] = json!({"color": "red"});
    let file = write(place.path(), &lines);
    let file = file.to_str().expect("UTF-8");
    let dry = kew(&server, &["import", "--dry-run", "--file", file]);
    assert_eq!(dry.code, 2, "{dry:?}");
    assert!(
        dry.err
            .contains("line 7: message_id: \"color\" is not a type of AMQP"),
        "{dry:?}"
    );
    assert!(dry.err.contains("1 lines are wrong"), "{dry:?}");
    let refused = kew(&server, &["import", "--file", file]);
    refused.check_error(2, &["line 7", "\"color\"", "repeat the same command"]);
    let cut = format!("{}\n{{\"version\": 1, \"serv", lines[0]);
    std::fs::write(file, cut).expect("writable");
    let cut = kew(&server, &["import", "--file", file]);
    cut.check_error(2, &["line 2: EOF", "0 messages were sent before"]);
    lines[6] = right;
    let file = write(place.path(), &lines);
    let imported = report(&server, &file, &[]);
    let sum = |names: [&str; 2]| {
        names
            .iter()
            .filter_map(|it| imported[it].as_u64())
            .sum::<u64>()
    };
    assert_eq!(
        sum(["messages_sent", "messages_already_there"]),
        38,
        "{imported}"
    );
    assert_eq!(imported["queues_already_there"], 1, "{imported}");
    // A line that is missing is noticed by the last one.
    lines.remove(5);
    let file = write(place.path(), &lines);
    let short = kew(
        &server,
        &[
            "import",
            "--dry-run",
            "--file",
            file.to_str().expect("UTF-8"),
        ],
    );
    assert!(
        short.err.contains("lines are missing or come twice"),
        "{short:?}"
    );
    server.terminate();
}

#[test]
fn a_queue_with_other_messages_is_refused_unless_they_are_added() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    ok(&server, &["bus", "create", "many"]);
    ok(&server, &["bus", "send", "many", "other"]);
    ok(&server, &["queue", "create", "jobs"]);
    ok(&server, &["queue", "send", "jobs", "other"]);
    let file = write(place.path(), &many_lines(0, 0, 3));
    let import = ["import", "--file", file.to_str().expect("UTF-8")];
    let refused = kew(&server, &import);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused
            .err
            .contains("keeps its own settings: lock_duration_ms, user_metadata"),
        "{refused:?}"
    );
    assert!(
        refused
            .err
            .contains("message 1 of many is not the one of this line"),
        "{refused:?}"
    );
    let jobs = [&import[..], &["--queue", "jobs"]].concat();
    let refused = kew(&server, &jobs);
    assert!(
        refused.err.contains("the queue jobs has other messages"),
        "{refused:?}"
    );
    let added = report(&server, &file, &["--append"]);
    assert_eq!(added["messages_sent"], 33, "{added}");
    let bus = fact(&server, "KEW_BUS_CONNECTION_STRING");
    let twice = [
        "export",
        "--connection-string",
        bus,
        "--connection-string",
        bus,
    ];
    kew(&server, &twice).check_error(2, &["two connection strings name the same service"]);
    let one = [&import[..], &["--append", "--connection-string", bus]].concat();
    let refused = kew(&server, &one);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.err.contains("it is a line of Queue Storage"),
        "{refused:?}"
    );
    server.terminate();
}
