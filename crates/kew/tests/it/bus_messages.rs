//! `kew bus send`, `receive` and the settlement of received messages, against the real server.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bus::metric_becomes;
use crate::client::{Done, command, finish};
use crate::operate::{json_of, kew, ok, start, with_server};
use crate::server::{Server, run};

fn asking(connection: &str) -> Command {
    let mut command = command("");
    command.env("KEW_BUS_CONNECTION_STRING", connection);
    command.arg("bus");
    command
}

fn connection_to(server: &Server) -> &str {
    let connection = server.facts("KEW_BUS_CONNECTION_STRING").first();
    connection.expect("it prints one")
}

fn kew_with(server: &Server, arguments: &[&str], input: &[u8]) -> Done {
    let mut command = asking(connection_to(server));
    command.args(arguments);
    finish(command, input)
}

fn bodies(messages: &Value) -> Vec<&str> {
    let messages = messages.as_array().expect("an array");
    messages
        .iter()
        .map(|it| it["body"].as_str().expect("a text"))
        .collect()
}

fn receive(server: &Server, arguments: &[&str]) -> Value {
    json_of(server, &[&["bus", "receive"], arguments].concat())
}

#[test]
fn a_message_arrives_with_all_its_properties() {
    with_server(|server| {
        let sent = [
            "bus",
            "send",
            "orders",
            "h\u{e4}llo",
            "--message-id",
            "m1",
            "--subject",
            "s",
            "--content-type",
            "text/plain",
            "--correlation-id",
            "c",
            "--to",
            "t",
            "--reply-to",
            "r",
            "--reply-to-session",
            "rs",
            "--partition-key",
            "p",
            "--property",
            "Tries=2",
            "--property",
            "by=me",
            "--property",
            "ok=true",
            "--ttl",
            "1h",
        ];
        assert_eq!(ok(server, &sent), "sent 1 message to orders\n");
        // Names of properties are stored as they were given.
        let mut peeked = json_of(server, &["bus", "peek", "orders"])[0].take();
        assert_eq!(
            peeked["properties"],
            json!({"Tries": 2, "by": "me", "ok": true})
        );
        let mut received = receive(server, &["orders"])[0].take();
        for (name, value) in [
            ("body", json!("h\u{e4}llo")),
            ("message_id", json!("m1")),
            ("subject", json!("s")),
            ("content_type", json!("text/plain")),
            ("correlation_id", json!("c")),
            ("to", json!("t")),
            ("reply_to", json!("r")),
            ("reply_to_session_id", json!("rs")),
            ("partition_key", json!("p")),
            ("state", json!("locked")),
            ("sequence_number", json!(1)),
            ("delivery_count", json!(0)),
            ("size_bytes", json!(6)),
            ("properties", json!({"Tries": 2, "by": "me", "ok": true})),
        ] {
            assert_eq!(received[name], value, "{name} of {received}");
        }
        // Everything else is as a peek shows it.
        for name in ["lock_token", "locked_until"] {
            let under_lock = received.as_object_mut().expect("an object").remove(name);
            assert!(under_lock.is_some_and(|it| it.is_string()), "{name}");
        }
        for message in [&mut peeked, &mut received] {
            message["state"].take();
        }
        assert_eq!(peeked, received);
    });
}

#[test]
fn the_verbs_of_queue_storage_do_the_same() {
    with_server(|server| {
        assert_eq!(
            ok(server, &["bus", "put", "orders", "a", "b"]),
            "sent 2 messages to orders\n"
        );
        for verb in ["stats", "show"] {
            assert_eq!(json_of(server, &["bus", verb, "orders"])["name"], "orders");
        }
        assert_eq!(
            ok(server, &["bus", "get", "orders", "--raw", "--delete"]),
            "a\n"
        );
        assert_eq!(
            ok(server, &["bus", "clear", "orders"]),
            "1 of 1 messages deleted\n"
        );
        let help = ok(server, &["bus", "--help"]);
        for verb in ["put", "get", "clear", "stats"] {
            assert!(help.contains(&format!("[alias: {verb}]")), "{help}");
        }
    });
}

#[test]
fn many_are_sent_at_once_from_anywhere() {
    with_server(|server| {
        assert_eq!(
            ok(server, &["bus", "send", "orders", "a", "b"]),
            "sent 2 messages to orders\n"
        );
        let lines = kew_with(
            server,
            &["send", "orders", "--lines", "--json"],
            b"c\r\n\nd",
        );
        assert_eq!(lines.json(), json!({"queue": "orders", "sent": 3}));
        let whole = kew_with(server, &["send", "orders"], b"e\nf\n");
        assert_eq!(whole.code, 0, "{whole:?}");
        let all = receive(server, &["orders", "-n", "10", "--delete"]);
        assert_eq!(bodies(&all), ["a", "b", "c", "", "d", "e\nf\n"]);
        // More than one batch, in order.
        let many: String = (0..2500).map(|number| format!("{number}\n")).collect();
        let sent = kew_with(server, &["send", "target", "--lines"], many.as_bytes());
        assert_eq!(sent.text(), "sent 2500 messages to target\n");
        let some = receive(server, &["target", "-n", "3", "--delete"]);
        assert_eq!(bodies(&some), ["0", "1", "2"]);
        let last = json_of(server, &["bus", "peek", "target", "--from", "2500"]);
        assert_eq!(bodies(&last), ["2499"]);
    });
}

#[test]
fn binary_bodies_are_received_unchanged() {
    with_server(|server| {
        let place = tempfile::tempdir().expect("a temporary directory");
        // The second is too large for a request in any other form.
        for size in [1000, 1_000_000] {
            let path = place.path().join("body");
            std::fs::write(&path, vec![0xff; size]).expect("a file");
            let path = path.to_str().expect("UTF-8");
            ok(
                server,
                &[
                    "bus",
                    "send",
                    "orders",
                    "--file",
                    path,
                    "--subject",
                    "\u{e4}",
                ],
            );
            let received = kew(server, &["bus", "receive", "orders", "--raw", "--delete"]);
            assert_eq!(received.code, 0, "{received:?}");
            assert_eq!(received.out.len(), size + 1);
            assert!(received.out[..size].iter().all(|byte| *byte == 0xff));
        }
        ok(server, &["bus", "send", "orders", "--file", "/dev/null"]);
        let received = &receive(server, &["orders"])[0];
        assert_eq!(received["size_bytes"], 0);
        let large = kew_with(server, &["send", "orders"], &vec![b'x'; 2 << 20]);
        assert_eq!(large.code, 1, "{large:?}");
    });
}

#[test]
fn schedules_lives_and_duplicates() {
    with_server(|server| {
        ok(server, &["bus", "create", "once", "--detect-duplicates"]);
        for _ in 0..2 {
            ok(
                server,
                &["bus", "send", "once", "x", "--message-id", "same"],
            );
        }
        assert_eq!(
            json_of(server, &["bus", "show", "once"])["active_messages"],
            1
        );
        let later = json_of(server, &["bus", "send", "orders", "later", "--delay", "1h"]);
        assert!(later["scheduled_for"].is_string(), "{later}");
        let cancelled = json_of(
            server,
            &["bus", "send", "orders", "x", "y", "--delay", "1h"],
        );
        let numbers = cancelled["sequence_numbers"].as_array().expect("numbers");
        let numbers: Vec<String> = numbers.iter().map(Value::to_string).collect();
        let mut cancel = vec!["bus", "message", "cancel-scheduled", "orders"];
        cancel.extend(numbers.iter().map(String::as_str));
        assert_eq!(ok(server, &cancel), "cancelled 2 scheduled messages\n");
        kew(server, &cancel).check_error(1, &["404"]);
        let at = [
            "bus",
            "send",
            "orders",
            "far",
            "--at",
            "2999-01-31T12:00:00Z",
        ];
        assert_eq!(
            json_of(server, &at)["scheduled_for"],
            "2999-01-31T12:00:00Z"
        );
        assert_eq!(
            json_of(server, &["bus", "show", "orders"])["scheduled_messages"],
            2
        );
        let far = &json_of(server, &["bus", "peek", "orders"])[1];
        assert_eq!(far["state"], "scheduled");
        assert_eq!(far["scheduled_for"], "2999-01-31T12:00:00.000Z");
        assert_eq!(far.get("locked_until"), None, "{far}");
        let nothing = kew(server, &["bus", "receive", "orders"]);
        assert_eq!((nothing.code, nothing.text()), (0, ""));
        assert!(nothing.err.contains("no message"), "{nothing:?}");
        assert_eq!(receive(server, &["orders"]), json!([]));
        ok(server, &["bus", "create", "talks", "--sessions"]);
        ok(server, &["bus", "send", "talks", "x", "--session", "s1"]);
        let peeked = json_of(server, &["bus", "peek", "talks"]);
        assert_eq!(peeked[0]["session_id"], "s1");
        kew(server, &["bus", "receive", "talks"]).check_error(1, &["session"]);
        kew(server, &["bus", "send", "talks", "x"]).check_error(1, &["session"]);
    });
}

#[test]
fn received_messages_are_settled_by_their_lock() {
    with_server(|server| {
        ok(
            server,
            &["bus", "create", "work", "--max-delivery-count", "2"],
        );
        ok(server, &["bus", "send", "work", "a"]);
        let locked = receive(server, &["work"])[0].clone();
        let lock = locked["lock_token"].as_str().expect("a lock");
        assert_eq!(receive(server, &["work"]), json!([]));
        let settle = |what| ["bus", "message", what, "work", "1", lock];
        assert_eq!(ok(server, &settle("renew")), "renewed 1\n");
        assert_eq!(
            json_of(server, &settle("abandon")),
            json!({"message": "1", "abandoned": true})
        );
        kew(server, &settle("complete")).check_error(1, &["410"]);
        let again = receive(server, &["work"])[0].clone();
        assert_eq!(again["delivery_count"], 1);
        let lock = again["lock_token"].as_str().expect("a lock");
        kew(server, &["bus", "message", "complete", "work", "7", lock]).check_error(1, &["404"]);
        kew(server, &["bus", "message", "complete", "work", "1", "x"])
            .check_error(1, &["lock token"]);
        assert_eq!(
            ok(server, &["bus", "message", "complete", "work", "1", lock]),
            "completed 1\n"
        );
        assert_eq!(
            json_of(server, &["bus", "show", "work"])["active_messages"],
            0
        );
    });
}

#[test]
fn a_receive_settles_printed_messages() {
    with_server(|server| {
        ok(
            server,
            &["bus", "create", "work", "--max-delivery-count", "2"],
        );
        ok(server, &["bus", "send", "work", "a", "b"]);
        // Each arrives once, although it is available again at the end.
        let given_back = receive(server, &["work", "-n", "9", "--settle", "abandon"]);
        assert_eq!(bodies(&given_back), ["a", "b"]);
        let text = ok(server, &["bus", "receive", "work", "--settle", "complete"]);
        assert!(
            text.contains("delivery_count: 1\n") && text.contains("body: a\n"),
            "{text}"
        );
        receive(server, &["work", "--settle", "abandon"]);
        assert_eq!(receive(server, &["work"]), json!([]));
        let dead = receive(server, &["work", "--dead-letter", "--delete"]);
        assert_eq!(bodies(&dead), ["b"]);
        assert_eq!(dead[0]["dead_letter_reason"], "MaxDeliveryCountExceeded");
        assert!(dead[0]["dead_letter_description"].is_string(), "{dead}");
        assert_eq!(dead[0]["properties"], json!({}));
        let shown = json_of(server, &["bus", "show", "work"]);
        assert_eq!(
            (&shown["active_messages"], &shown["dead_letters"]),
            (&json!(0), &json!(0))
        );
    });
}

#[test]
fn a_receive_defers_and_dead_letters_with_properties() {
    with_server(|server| {
        ok(server, &["bus", "send", "orders", "a", "b", "c"]);
        let deferred = receive(server, &["orders", "--settle", "defer", "--set", "Step=2"]);
        assert_eq!(bodies(&deferred), ["a"]);
        let why = ["--reason", "Bad", "--description", "no price"];
        let dead = [
            &["orders", "--settle", "dead-letter", "--set", "by=me"],
            &why[..],
        ]
        .concat();
        assert_eq!(bodies(&receive(server, &dead)), ["b"]);
        let peeked = json_of(server, &["bus", "peek", "orders", "--state", "deferred"]);
        assert_eq!(
            (&peeked[0]["body"], &peeked[0]["properties"]),
            (&json!("a"), &json!({"Step": 2}))
        );
        // It is received by its number only.
        assert_eq!(
            bodies(&receive(
                server,
                &["orders", "-n", "9", "--settle", "complete"]
            )),
            ["c"]
        );
        let number = peeked[0]["sequence_number"].to_string();
        let again = receive(
            server,
            &["orders", "--number", &number, "--settle", "complete"],
        );
        assert_eq!(bodies(&again), ["a"]);
        kew(server, &["bus", "receive", "orders", "--number", &number]).check_error(1, &["404"]);
        let dead = receive(server, &["orders", "--dead-letter", "--delete"]);
        assert_eq!(dead[0]["dead_letter_reason"], "Bad");
        assert_eq!(dead[0]["dead_letter_description"], "no price");
        assert_eq!(dead[0]["properties"], json!({"by": "me"}));
        for (arguments, named) in [
            (&["--reason", "x"][..], "--settle dead-letter"),
            (
                &["--set", "a=b", "--settle", "complete"],
                "--settle abandon",
            ),
            (&["--number", "1", "--delete"], "deferred"),
        ] {
            let arguments = [&["bus", "receive", "orders"], arguments].concat();
            let refused = kew(server, &arguments);
            refused.check_error(2, &[named]);
        }
    });
}

#[test]
fn messages_under_lock_are_deferred_and_dead_lettered_by_token() {
    with_server(|server| {
        ok(server, &["bus", "send", "orders", "a", "b"]);
        let locked = receive(server, &["orders", "-n", "2"]);
        let lock = |index: usize| locked[index]["lock_token"].as_str().expect("a lock");
        let defer = [
            "bus",
            "message",
            "defer",
            "orders",
            "1",
            lock(0),
            "--set",
            "Step=2",
        ];
        assert_eq!(ok(server, &defer), "deferred 1\n");
        let dead = [
            "bus",
            "message",
            "dead-letter",
            "orders",
            "2",
            lock(1),
            "--reason",
            "Bad",
        ];
        assert_eq!(
            json_of(server, &dead),
            json!({"message": "2", "dead_lettered": true})
        );
        let seen = json_of(server, &["bus", "peek", "orders"]);
        assert_eq!(
            (&seen[0]["state"], &seen[0]["properties"]),
            (&json!("deferred"), &json!({"Step": 2}))
        );
        let dead = json_of(server, &["dlq", "peek", "orders"]);
        assert_eq!(dead[0]["dead_letter_reason"], "Bad");
    });
}

#[test]
fn messages_of_sessions_are_received_with_their_states() {
    with_server(|server| {
        ok(server, &["bus", "create", "talks", "--sessions"]);
        ok(
            server,
            &["bus", "send", "talks", "a", "b", "--session", "s1"],
        );
        ok(server, &["bus", "send", "talks", "c", "--session", "s2"]);
        let session = |arguments: &[&str]| ok(server, &[&["bus", "session"], arguments].concat());
        assert_eq!(session(&["list", "talks"]), "s1\ns2\n");
        let of_s1 = receive(
            server,
            &[
                "talks",
                "--session",
                "s1",
                "-n",
                "9",
                "--settle",
                "complete",
            ],
        );
        assert_eq!(bodies(&of_s1), ["a", "b"]);
        let next = receive(server, &["talks", "--next-session", "--delete"]);
        assert_eq!(
            (&next[0]["body"], &next[0]["session_id"]),
            (&json!("c"), &json!("s2"))
        );
        assert_eq!(receive(server, &["talks", "--next-session"]), json!([]));
        assert_eq!(
            session(&["state", "talks", "s1"]),
            "the session has no state\n"
        );
        assert_eq!(
            session(&["set-state", "talks", "s1", "half"]),
            "set the state of session s1\n"
        );
        assert_eq!(session(&["state", "talks", "s1"]), "half\n");
        let state = json_of(server, &["bus", "session", "state", "talks", "s1"]);
        assert_eq!(
            (&state["state"], &state["size_bytes"]),
            (&json!("half"), &json!(4))
        );
        assert_eq!(
            session(&["set-state", "talks", "s1", "--clear"]),
            "cleared the state of session s1\n"
        );
        let state = json_of(server, &["bus", "session", "state", "talks", "s1"]);
        assert_eq!(state["has_state"], false);
    });
}

#[test]
fn a_receive_waits_for_the_first() {
    with_server(|server| {
        let mut waits = asking(connection_to(server));
        waits.args(["receive", "orders", "--wait", "30s", "-n", "5", "--json"]);
        let waiting = std::thread::spawn(move || finish(waits, b""));
        // Its link is there, and nothing came over it.
        metric_becomes(server, "kew_amqp_links", &[("kind", "receiver")], |links| {
            links > 0.5
        });
        let empty = json_of(server, &["bus", "show", "orders"]);
        assert_eq!(empty["active_messages"], 0);
        assert!(!waiting.is_finished());
        ok(server, &["bus", "send", "orders", "at last"]);
        let began = Instant::now();
        let received = waiting.join().expect("it does not panic");
        assert_eq!(bodies(&received.json()), ["at last"]);
        // The second is not waited for.
        assert!(began.elapsed() < Duration::from_secs(20));
        let began = Instant::now();
        assert_eq!(receive(server, &["orders", "--wait", "1s"]), json!([]));
        assert!(began.elapsed() >= Duration::from_secs(1));
    });
}

#[test]
fn invalid_properties_are_refused_before_anything_is_sent() {
    with_server(|server| {
        ok(server, &["bus", "create", "q"]);
        for (arguments, named) in [
            (&["send", "q", "m", "--delay", "99999999d"][..], "9999"),
            (&["send", "q", "m", "--at", "1969-01-01T00:00:00Z"], "1970"),
            (
                &["send", "q", "m", "--property", "n=99999999999999999999"],
                "64 bits",
            ),
            (
                &["send", "q", "m", "--property", "n=1", "--property", "n=2"],
                "twice",
            ),
            (
                &["message", "complete", "q", "a/b", "lock"],
                "sequence number",
            ),
            (&["update", "q", "--user-metadata", "a\u{1}b"], "0x1"),
            (
                &["update", "q", "--max-delivery-count", "3000000000"],
                "2147483647",
            ),
        ] {
            let done = kew(server, &[&["bus"], arguments].concat());
            assert_eq!(done.code, 2, "{arguments:?}: {done:?}");
            assert!(done.err.contains(named), "{arguments:?}: {done:?}");
        }
        assert_eq!(receive(server, &["q"]), json!([]));
    });
}

#[test]
fn messages_are_released_before_their_lock_ends() {
    with_server(|server| {
        ok(server, &["bus", "create", "q"]);
        ok(server, &["bus", "send", "q", "a", "b"]);
        // This command has locked both when it looks for a third, and it saw none twice.
        let seen = receive(server, &["q", "-n", "3", "--settle", "abandon"]);
        assert_eq!(bodies(&seen), ["a", "b"]);
        let again = receive(server, &["q", "-n", "3", "--settle", "complete"]);
        assert_eq!(bodies(&again), ["a", "b"]);
        assert_eq!(again[0]["delivery_count"], 1);
    });
}

#[test]
fn a_rule_of_a_queue_is_enough_for_that_queue() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    let server = start(&data_dir);
    let (ended, rule) = run(|command| {
        let arguments = [
            "bus",
            "authorization-rule",
            "add",
            "in",
            "--rights",
            "send",
            "--entity",
            "orders",
        ];
        command
            .args(arguments)
            .arg("--json")
            .arg("--data-dir")
            .arg(&data_dir);
    });
    assert!(ended.status.success(), "{}", ended.log);
    let rule: Value = serde_json::from_str(&rule).expect("JSON");
    let connection = rule["keys"][0]["connection_string"]
        .as_str()
        .expect("a connection string");
    let with = |arguments: &[&str]| {
        let mut command = command("");
        // With a queue in the string, given or not in the arguments.
        let named = format!("{};EntityPath=orders", connection.trim_end_matches(';'));
        command.env("SERVICEBUS_CONNECTION_STRING", named);
        command.arg("bus").args(arguments);
        finish(command, b"")
    };
    let sent = with(&["send", "orders", "x"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    with(&["send", "target", "x"]).check_error(1, &["401"]);
    with(&["receive", "orders"]).check_error(1, &["401"]);
    with(&["delete", "orders"]).check_error(1, &["401"]);
    server.terminate();
}

#[test]
fn tls_to_a_plain_server_is_explained() {
    with_server(|server| {
        let connection = connection_to(server).replace("UseDevelopmentEmulator=true;", "");
        let mut command = asking(&connection);
        command.args(["list", "--retries", "0"]);
        finish(command, b"").check_error(3, &["no TLS", "UseDevelopmentEmulator=true"]);
    });
}

#[test]
fn an_unreachable_server_has_its_own_exit_code() {
    let nobody = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=r;SharedAccessKey=secret;\
                  UseDevelopmentEmulator=true";
    for arguments in [
        &["send", "q", "x"][..],
        &["receive", "q"],
        &["create", "q"],
        &[
            "message",
            "complete",
            "q",
            "1",
            "00000000-0000-0000-0000-000000000000",
        ],
    ] {
        let mut command = command("");
        command.arg("bus").args(arguments);
        command.args(["--connection-string", nobody]);
        let done = finish(command, b"");
        done.check_error(3, &["127.0.0.1:1"]);
        assert!(!done.err.contains("secret"), "{done:?}");
    }
}
