//! `kew bus watch`, `sas`, `message export` and `import`, and commands at namespaces whose own interface they cannot use.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::client::{Done, Script, answer, command, finish};
use crate::operate::{json_of, kew, ok, start, with_server};
use crate::server::{PATIENCE, Server, run};

fn kew_at(connection: &str, arguments: &[&str]) -> Done {
    let mut command = command("");
    command.env("KEW_BUS_CONNECTION_STRING", connection);
    command.args(arguments);
    finish(command, b"")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn counts_are_watched() {
    with_server(|server| {
        ok(server, &["bus", "send", "orders", "a", "b"]);
        ok(server, &["bus", "send", "orders", "later", "--delay", "1h"]);
        let watch = [
            "bus",
            "watch",
            "orders",
            "none",
            "-n",
            "2",
            "--interval",
            "100ms",
            "--json",
        ];
        let looks = ok(server, &watch);
        let looks: Vec<Value> = looks
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let of = |look: usize, queue: usize| &looks[look]["queues"][queue];
        assert_eq!(looks.len(), 2);
        let expected = json!({
            "queue": "orders", "active_messages": 2, "scheduled_messages": 1, "dead_letters": 0,
            "failed_transfers": 0, "growth_per_second": null,
        });
        assert_eq!(of(0, 0), &expected);
        assert_eq!(of(1, 0)["growth_per_second"], 0.0);
        assert_eq!(
            (&of(1, 1)["queue"], &of(1, 1)["active_messages"]),
            (&json!("none"), &json!(null))
        );
        let lines = ok(server, &["bus", "watch", "--prefix", "or", "-n", "1"]);
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.contains("orders  2  1  0  0  -"), "{lines}");
        let fast = kew(server, &["bus", "watch", "--interval", "1ms"]);
        fast.check_error(2, &["100ms"]);
    });
}

#[test]
fn rights_are_given_away_for_a_time() {
    with_server(|server| {
        let sas = json_of(server, &["bus", "sas", "orders", "--expiry", "10m"]);
        let connection = sas["connection_string"].as_str().expect("a text");
        assert!(!connection.contains("SharedAccessKey="), "{connection}");
        let resource = sas["resource"].as_str().expect("a text");
        assert!(resource.ends_with("/orders"), "{resource}");
        assert_eq!(
            ok(server, &["bus", "sas", "orders", "--expiry", "10m"])
                .lines()
                .count(),
            1
        );
        let token = ok(server, &["bus", "sas", "orders", "--token"]);
        assert!(token.starts_with("SharedAccessSignature sr="), "{token}");
        let sent = kew_at(connection, &["bus", "send", "orders", "x"]);
        assert_eq!(sent.code, 0, "{sent:?}");
        let received = kew_at(
            connection,
            &["bus", "receive", "orders", "--raw", "--delete"],
        );
        assert_eq!(received.text(), "x\n");
        let shown = kew_at(connection, &["bus", "show", "orders", "--json"]);
        assert_eq!(shown.json()["name"], "orders");
        kew_at(connection, &["bus", "send", "target", "x"]).check_error(1, &["401"]);
        kew_at(connection, &["bus", "sas"]).check_error(2, &["SharedAccessKey"]);
        kew(server, &["bus", "sas", "--expiry", "0s"]).check_error(2, &["--expiry"]);
    });
}

/// The lines of an export, without what the service said of the messages.
fn records(path: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(path).expect("a file");
    lines
        .lines()
        .map(|line| {
            let mut record: Value = serde_json::from_str(line).expect("JSON");
            let members = record.as_object_mut().expect("an object");
            assert!(members.remove("facts").is_some() && members.remove("queue").is_some());
            record
        })
        .collect()
}

#[test]
fn messages_are_exported_and_imported_with_all_properties() {
    with_server(|server| {
        let place = tempfile::tempdir().expect("a temporary directory");
        let binary = place.path().join("binary");
        std::fs::write(&binary, b"\xff\x00").expect("a file");
        let properties = [
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
            "--session",
            "s1",
            "--property",
            "Tries=2",
            "--property",
            "ok=true",
            "--property",
            "share=0.1",
            "--property",
            "big=18446744073709551615",
            "--property",
            "by=m\u{e4}",
            "--ttl",
            "1h",
        ];
        ok(
            server,
            &[&["bus", "send", "orders", "h\u{e4}llo"], &properties[..]].concat(),
        );
        ok(server, &["bus", "send", "orders", "--file", text(&binary)]);
        ok(
            server,
            &[
                "bus",
                "send",
                "orders",
                "far",
                "--at",
                "2999-01-31T12:00:00Z",
            ],
        );
        let file = place.path().join("messages");
        let export = [
            "bus",
            "message",
            "export",
            "orders",
            "--output",
            text(&file),
        ];
        assert_eq!(
            json_of(server, &export),
            json!({"queue": "orders", "exported": 3})
        );
        // It overwrites nothing.
        kew(server, &export).check_error(2, &["messages"]);
        let first = &records(&file)[0];
        assert_eq!(
            (&first["version"], &first["service"]),
            (&json!(1), &json!("service-bus"))
        );
        assert_eq!(
            first["properties"]["big"],
            json!({"ulong": "18446744073709551615"})
        );
        assert_eq!(first["properties"]["Tries"], json!({"int": 2}));
        assert_eq!(first["body"], json!({"text": "h\u{e4}llo"}));
        assert_eq!(records(&file)[1]["body"], json!({"base64": "/wA="}));
        // A dry run sends nothing, and an import sends everything as it was.
        let import = ["bus", "message", "import", "target", "--file", text(&file)];
        assert_eq!(
            ok(server, &[&import[..], &["--dry-run"]].concat()),
            "would send 3 messages\n"
        );
        assert_eq!(json_of(server, &["bus", "peek", "target"]), json!([]));
        assert_eq!(
            json_of(server, &import),
            json!({"queue": "target", "sent": 3, "last_line": 3})
        );
        let again = place.path().join("again");
        ok(
            server,
            &[
                "bus",
                "message",
                "export",
                "target",
                "--output",
                text(&again),
            ],
        );
        assert_eq!(records(&again), records(&file));
        let shown = json_of(server, &["bus", "show", "target"]);
        assert_eq!(
            (&shown["active_messages"], &shown["scheduled_messages"]),
            (&json!(2), &json!(1))
        );
        // To standard output, filtered and bounded.
        let some = ok(
            server,
            &["bus", "message", "export", "target", "--subject", "s"],
        );
        assert_eq!(some.lines().count(), 1);
        let some = ok(server, &["bus", "message", "export", "target", "-n", "2"]);
        assert_eq!(some.lines().count(), 2);
        // With other ids and no schedules.
        let fresh = [&import[..], &["--new-ids", "--now"]].concat();
        ok(server, &fresh);
        let shown = json_of(server, &["bus", "show", "target"]);
        assert_eq!(shown["active_messages"], 5);
        let all = json_of(server, &["bus", "peek", "target", "--message-id", "m1"]);
        assert_eq!(all.as_array().map(Vec::len), Some(1));
    });
}

#[test]
fn an_import_names_the_wrong_line_and_goes_on_after_it() {
    with_server(|server| {
        let place = tempfile::tempdir().expect("a temporary directory");
        let file = place.path().join("messages");
        let line = |body: &str| {
            json!({"version": 1, "service": "service-bus", "body": {"text": body}}).to_string()
        };
        let lines = [
            line("a"),
            String::new(),
            line("b"),
            r#"{"version": 1, "service": "service-bus", "properties": {"n": 7}}"#.to_owned(),
            line("c"),
        ];
        std::fs::write(&file, lines.join("\n")).expect("a file");
        let import = ["bus", "message", "import", "orders", "--file", text(&file)];
        let checked = kew(server, &[&import[..], &["--dry-run"]].concat());
        assert_eq!(checked.code, 2, "{checked:?}");
        assert!(
            checked.err.contains("line 4: properties, \"n\""),
            "{checked:?}"
        );
        assert!(
            checked.err.contains("1 lines are wrong and 3 are right"),
            "{checked:?}"
        );
        let stopped = kew(server, &import);
        let named = ["line 4", "2 messages were sent before", "--from-line 4"];
        stopped.check_error(2, &named);
        let bodies = |count: usize| {
            let peeked = json_of(server, &["bus", "peek", "orders"]);
            assert_eq!(peeked.as_array().map(Vec::len), Some(count), "{peeked}");
        };
        bodies(2);
        let rest = [&import[..], &["--from-line", "5"]].concat();
        assert_eq!(ok(server, &rest), "sent 1 message to orders\n");
        bodies(3);
        // What the service refuses is named too.
        ok(server, &["bus", "create", "talks", "--sessions"]);
        std::fs::write(&file, [line("a"), line("b")].join("\n")).expect("a file");
        let refused = kew(
            server,
            &["bus", "message", "import", "talks", "--file", text(&file)],
        );
        refused.check_error(
            1,
            &["session", "lines 1 to 2", "0 messages", "--from-line 1"],
        );
        std::fs::write(&file, r#"{"version": 2}"#).expect("a file");
        kew(server, &import).check_error(2, &["line 1", "version 2"]);
    });
}

#[test]
fn an_interrupted_import_says_what_was_sent() {
    with_server(|server| {
        let connection = server.facts("KEW_BUS_CONNECTION_STRING").first();
        let mut command = command("");
        command.env(
            "KEW_BUS_CONNECTION_STRING",
            connection.expect("it prints one"),
        );
        command.args(["bus", "message", "import", "orders"]);
        let mut child = command.spawn().expect("kew was built with this test");
        let mut input = child.stdin.take().expect("stdin is piped");
        // The second belongs to another session, so the first is sent.
        for session in ["s1", "s2"] {
            let body = json!({"text": "x"});
            let line = json!({"version": 1, "service": "service-bus", "session_id": session, "body": body});
            writeln!(input, "{line}").expect("it is read");
        }
        let deadline = Instant::now() + PATIENCE;
        while json_of(server, &["bus", "show", "orders"])["active_messages"] != 1 {
            assert!(Instant::now() < deadline, "nothing is sent");
        }
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
        let output = child.wait_with_output().expect("our own child");
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{error}");
        for named in ["interrupted", "1 messages were sent", "--from-line 2"] {
            assert!(error.contains(named), "no {named}: {error}");
        }
        drop(input);
    });
}

/// A connection string of a rule that may not use Kew's own interface.
fn rule_without_manage(data_dir: &Path) -> String {
    let (ended, rule) = run(|command| {
        command.args([
            "bus",
            "auth-rule",
            "add",
            "worker",
            "--rights",
            "send,listen",
            "--json",
            "--data-dir",
        ]);
        command.arg(data_dir);
    });
    assert!(ended.status.success(), "{}", ended.log);
    let rule: Value = serde_json::from_str(&rule).expect("JSON");
    let connection = rule["keys"][0]["connection_string"].as_str();
    connection.expect("a connection string").to_owned()
}

/// Three dead letters of orders: `a` and `c` with the reason Late, `b` with Bad.
fn bury_three(server: &Server) {
    for (body, reason) in [("a", "Late"), ("b", "Bad"), ("c", "Late")] {
        ok(
            server,
            &["bus", "send", "orders", body, "--property", "Tries=1"],
        );
        let settle = ["--settle", "dead-letter", "--reason", reason];
        ok(
            server,
            &[&["bus", "receive", "orders"], &settle[..]].concat(),
        );
    }
}

#[test]
fn dead_letters_are_sent_again_by_the_public_protocols() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    let server = start(&data_dir);
    let connection = rule_without_manage(&data_dir);
    let at = |arguments: &[&str]| {
        let done = kew_at(&connection, &[arguments, &["--json"]].concat());
        assert_eq!(done.code, 0, "{arguments:?}: {done:?}");
        done.json()
    };
    bury_three(&server);
    // It is grouped and filtered as Kew does it.
    assert_eq!(
        at(&["dlq", "groups", "orders"]),
        json_of(&server, &["dlq", "groups", "orders"])
    );
    let late = ["dlq", "peek", "orders", "--reason", "Late"];
    assert_eq!(at(&late), json_of(&server, &late));
    let one = ["bus", "message", "get", "orders/$deadletterqueue", "2"];
    assert_eq!(at(&one), json_of(&server, &one));
    let again = [
        "dlq",
        "resubmit",
        "orders",
        "--reason",
        "Late",
        "--set",
        "Tries=2",
        "--new-ids",
    ];
    let dry = at(&[&again[..], &["--dry-run"]].concat());
    assert_eq!((&dry["matched"], &dry["done"]), (&json!(2), &json!(2)));
    let done = at(&again);
    let expected = json!({
        "act": "resubmit", "entity": "orders/$deadletterqueue", "dry_run": false, "matched": 2, "done": 2,
        "skipped": {}, "in_transactions": true,
    });
    assert_eq!(done, expected);
    let sent = json_of(&server, &["bus", "peek", "orders"]);
    let sent = sent.as_array().expect("an array");
    assert_eq!(sent.len(), 2);
    for (message, body) in sent.iter().zip(["a", "c"]) {
        assert_eq!(
            (&message["body"], &message["properties"]),
            (&json!(body), &json!({"Tries": 2}))
        );
        assert_eq!(message.get("dead_letter_reason"), None, "{message}");
    }
    let left = json_of(&server, &["dlq", "peek", "orders"]);
    assert_eq!(
        (&left[0]["body"], left.as_array().map(Vec::len)),
        (&json!("b"), Some(1))
    );
    // So does one that another receiver has locked.
    let dead = ["bus", "receive", "orders", "--dead-letter"];
    let lock = json_of(&server, &dead)[0]["lock_token"].take();
    let locked = at(&["dlq", "resubmit", "orders", "--new-ids"]);
    assert_eq!(locked["skipped"], json!({"locked": 1}));
    let lock = lock.as_str().expect("a lock");
    let dead = "orders/$deadletterqueue";
    ok(&server, &["bus", "message", "abandon", dead, "2", lock]);
    // What the destination refuses stays, and the command says why. It would be refused without a transaction too.
    ok(&server, &["bus", "create", "talks", "--sessions"]);
    let to_talks = ["dlq", "resubmit", "orders", "--to", "talks", "--new-ids"];
    let refused = at(&to_talks);
    assert_eq!(
        (&refused["done"], &refused["in_transactions"]),
        (&json!(0), &json!(true))
    );
    assert_eq!(refused["skipped"], json!({"amqp:not-allowed": 1}));
    let moved = at(&[&to_talks[..], &["--set-session", "s"]].concat());
    assert_eq!(moved["done"], 1);
    let none = kew_at(&connection, &["dlq", "resubmit", "orders", "--to", "none"]);
    assert_eq!(
        (none.code, none.text()),
        (0, "0 of 0 messages resubmitted\n")
    );
    kew_at(&connection, &["dlq", "purge", "orders"]).check_error(1, &["401"]);
    kew_at(&connection, &["bus", "peek", "orders", "--state", "locked"]).check_error(1, &["Kew"]);
    server.terminate();
}

#[test]
fn commands_that_need_kew_say_so_elsewhere() {
    let body = "<Error><Code>404</Code><Detail>No such entity. TrackingId:1</Detail></Error>";
    for arguments in [
        &["bus", "purge", "q"][..],
        &["bus", "jobs"],
        &["bus", "break-lock", "q", "--number", "1"],
        &["bus", "message", "delete", "q", "1"],
        &["bus", "message", "get", "q", "1", "--lock"],
    ] {
        let script = Script::start(&[answer("404 Not Found", "", body)]);
        let connection = format!(
            "Endpoint=sb://{};SharedAccessKeyName=r;SharedAccessKey=k;UseDevelopmentEmulator=true",
            script.address
        );
        let done = kew_at(&connection, &[arguments, &["--json"]].concat());
        let error: Value = serde_json::from_str(&done.err).expect("JSON");
        assert_eq!(
            (done.code, &error["error"]["code"]),
            (1, &json!("NotKew")),
            "{arguments:?}"
        );
        let asked = script.requests();
        assert!(asked[0].contains("/$kew/v1/"), "{asked:?}");
    }
}
