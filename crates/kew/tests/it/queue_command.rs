//! `kew queue` against the real server: its output and exit codes.

use std::io::{BufRead as _, BufReader, Read as _};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::client::Shell;
use crate::server::Server;

fn ephemeral() -> (Server, Shell) {
    let server = Server::start_with(|command| {
        command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
    });
    let shell = Shell::of(&server);
    (server, shell)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field]
        .as_str()
        .unwrap_or_else(|| panic!("no {field} in {value}"))
}

#[test]
fn queues_are_created_and_deleted() {
    let (_server, shell) = ephemeral();
    let created = [
        "create",
        "jobs",
        "--meta",
        "Owner=me",
        "--meta",
        "a_b=x = y",
    ];
    assert_eq!(
        shell.json(&created),
        json!({"queue": "jobs", "created": true})
    );
    shell
        .run(&["create", "jobs"])
        .check_error(1, &["kew: ", "QueueAlreadyExists"]);
    // For the service the same metadata again is a success, but it creates nothing.
    shell
        .run(&created)
        .check_error(1, &["jobs", "already exists"]);
    assert_eq!(
        shell.json(&["create", "jobs", "--if-not-exists"]),
        json!({"queue": "jobs", "created": false})
    );
    shell.ok(&["create", "other"]);
    shell.ok(&["send", "other", "x"]);
    assert_eq!(
        shell.json(&["list", "--metadata", "--counts"]),
        json!([
            {"name": "jobs", "approximate_message_count": 0, "metadata": {"a_b": "x = y", "owner": "me"}},
            {"name": "other", "approximate_message_count": 1, "metadata": {}},
        ])
    );
    assert_eq!(
        shell.json(&["list", "--prefix", "o"]),
        json!([{"name": "other"}])
    );
    assert_eq!(
        shell.ok(&["list", "--counts"]),
        "NAME   MESSAGES\njobs          0\nother         1\n"
    );
    assert_eq!(shell.ok(&["delete", "other", "--yes"]), "deleted other\n");
    shell
        .run(&["delete", "other"])
        .check_error(1, &["QueueNotFound"]);
    assert_eq!(
        shell.json(&["delete", "other", "--if-exists"]),
        json!({"queue": "other", "deleted": false})
    );
}

#[test]
fn a_message_is_received_updated_and_completed() {
    let (_server, shell) = ephemeral();
    shell.ok(&["create", "jobs"]);
    let sent = shell.json(&["send", "jobs", "hello", "--ttl", "never"]);
    assert_eq!(text(&sent, "expires"), "9999-12-31T23:59:59Z");
    let peeked = shell.json(&["peek", "jobs"]);
    assert_eq!(text(&peeked[0], "id"), text(&sent, "id"));
    assert_eq!(peeked[0].get("receipt"), None);

    let got = shell.json(&["receive", "jobs", "--visibility", "1h"]);
    assert_eq!(text(&got[0], "text"), "hello");
    assert_eq!(got[0]["dequeue_count"], 1);
    let (id, receipt) = (text(&got[0], "id"), text(&got[0], "receipt"));
    assert_eq!(shell.json(&["receive", "jobs"]), json!([]));

    let update = [
        "update",
        "jobs",
        id,
        receipt,
        "--visibility",
        "0",
        "--text",
        "new",
    ];
    let updated = shell.json(&update);
    assert_eq!(text(&updated, "id"), id);
    shell
        .run(&[&update[..], &["--json"]].concat())
        .check_error(1, &["\"code\":\"MessageNotFound\"", "\"exit_code\":1"]);

    let again = shell.json(&["receive", "jobs"]);
    assert_eq!(text(&again[0], "text"), "new");
    assert_eq!(again[0]["dequeue_count"], 2);
    assert_eq!(
        shell.json(&["complete", "jobs", id, text(&again[0], "receipt")]),
        json!({"id": id, "deleted": true})
    );
    let stats = shell.json(&["show", "jobs"]);
    assert_eq!(stats["approximate_message_count"], 0);
    assert_eq!(stats["next_message"], Value::Null);
}

#[test]
fn bodies_arrive_as_they_were() {
    let (_server, shell) = ephemeral();
    shell.ok(&["create", "jobs"]);
    let large = "<&漢".repeat(13_000);
    for body in [
        "",
        " \t\n ",
        "a\r\nb\r",
        "<&>\"' 😀 ]]>",
        "\u{1b}[31m?",
        &large,
    ] {
        let is_text = !body.contains('\u{1b}');
        let base64: &[&str] = if is_text { &[] } else { &["--base64"] };
        let put = shell.run_with(&[&["send", "jobs"], base64].concat(), body.as_bytes());
        assert_eq!(put.code, 0, "{body:.20?}: {put:?}");
        let got = shell.run(&[&["receive", "jobs", "--delete", "--raw"], base64].concat());
        assert_eq!(got.text(), format!("{body}\n"), "{body:.20?}");
    }
    let bytes = b"\x00\xff\n\x80";
    assert_eq!(shell.run_with(&["send", "jobs", "--base64"], bytes).code, 0);
    let peeked = shell.json(&["peek", "jobs", "--base64"]);
    assert_eq!(text(&peeked[0], "base64"), "AP8KgA==");
    let got = shell.run(&["receive", "jobs", "--base64", "--raw", "--delete"]);
    assert_eq!(got.out, b"\x00\xff\n\x80\n");
    assert_eq!(shell.json(&["peek", "jobs"]), json!([]));
}

#[test]
fn invalid_messages_are_refused_before_they_are_sent() {
    let (_server, shell) = ephemeral();
    shell.ok(&["create", "jobs"]);
    let put = |input: &[u8]| shell.run_with(&["send", "jobs"], input);
    put(b"ab\xff").check_error(2, &["not UTF-8 at byte 2", "--base64"]);
    put(b"a\x1bb").check_error(2, &["U+001B", "--base64"]);
    put(&[b'a'; 65_537]).check_error(1, &["RequestBodyTooLarge", "65536"]);
    shell
        .run(&["send", "jobs", "--file", "/no/such/file"])
        .check_error(2, &["/no/such/file"]);
    let done = shell.run_with(
        &["send", "jobs", "--lines", "--parallel", "1"],
        b"a\nb\n\x07\nc\n",
    );
    done.check_error(2, &["line 3", "U+0007", "2 messages were put"]);
    assert_eq!(
        shell.json(&["show", "jobs"])["approximate_message_count"],
        2
    );
}

#[test]
fn ten_thousand_lines_make_the_round() {
    let (_server, shell) = ephemeral();
    shell.ok(&["create", "jobs"]);
    let lines: Vec<String> = (0..10_000).map(|n| format!("line {n}")).collect();
    let input = lines.join("\n");
    let arguments = ["send", "jobs", "--lines", "--parallel", "16", "--json"];
    let put = shell.run_with(&arguments, input.as_bytes());
    assert_eq!(
        (put.code, &put.json()["put"]),
        (0, &json!(10_000)),
        "{put:?}"
    );
    assert_eq!(put.err, "", "no progress without a terminal");
    let got = shell.ok(&["receive", "jobs", "-n", "20000", "--raw", "--delete"]);
    let mut got: Vec<&str> = got.lines().collect();
    got.sort_unstable();
    let mut sent: Vec<&str> = lines.iter().map(String::as_str).collect();
    sent.sort_unstable();
    assert!(got == sent, "{} lines came back", got.len());
    assert_eq!(
        shell.json(&["show", "jobs"])["approximate_message_count"],
        0
    );
}

#[test]
fn one_at_a_time_keeps_the_order_and_shows_progress() {
    let (_server, shell) = ephemeral();
    shell.ok(&["create", "jobs"]);
    let lines: String = (0..2_000).map(|n| format!("{n}\r\n")).collect();
    let arguments = [
        "send",
        "jobs",
        "--lines",
        "--parallel",
        "1",
        "--progress",
        "always",
    ];
    let put = shell.run_with(&arguments, lines.as_bytes());
    assert_eq!(put.code, 0, "{put:?}");
    assert!(put.err.contains("2000 put, "), "{put:?}");
    let got = shell.ok(&["receive", "jobs", "-n", "2000", "--raw"]);
    assert!(got == lines.replace('\r', ""), "another order");
}

#[test]
fn clearing_keeps_the_queue() {
    let (_server, shell) = ephemeral();
    shell.ok(&["create", "jobs"]);
    shell.run_with(&["send", "jobs", "--lines"], b"a\nb\nc");
    assert_eq!(
        shell.json(&["purge", "jobs"]),
        json!({"queue": "jobs", "cleared": true, "messages_before": 3})
    );
    assert_eq!(shell.json(&["show"])["approximate_message_count"], 0);
    assert_eq!(shell.json(&["show"])["queues"], 1);
    shell
        .run(&["purge", "absent"])
        .check_error(1, &["QueueNotFound"]);
}

#[test]
fn the_older_verbs_do_the_same() {
    let (_server, shell) = ephemeral();
    shell.ok(&["create", "jobs"]);
    shell.ok(&["put", "jobs", "one"]);
    shell.ok(&["send", "jobs", "two"]);
    for verb in ["stats", "show"] {
        let shown = shell.json(&[verb, "jobs"]);
        assert_eq!(shown["approximate_message_count"], 2, "{verb}");
    }
    assert_eq!(shell.ok(&["get", "jobs", "--raw", "--delete"]), "one\n");
    assert_eq!(shell.ok(&["receive", "jobs", "--raw", "--delete"]), "two\n");
    for verb in ["clear", "purge"] {
        shell.ok(&["put", "jobs", "x"]);
        assert_eq!(shell.json(&[verb, "jobs"])["messages_before"], 1, "{verb}");
    }
    let help = shell.ok(&["--help"]);
    for verb in ["put", "get", "clear", "stats"] {
        assert!(help.contains(&format!("[alias: {verb}]")), "{help}");
    }
}

#[test]
fn a_message_is_waited_for() {
    let (_server, shell) = ephemeral();
    shell.ok(&["create", "jobs"]);
    let mut command = shell.command(&["receive", "jobs", "--wait", "30s", "--raw"]);
    let child = command.spawn().expect("kew was built with this test");
    shell.ok(&["send", "jobs", "at last"]);
    let output = child.wait_with_output().expect("our own child");
    assert_eq!(output.stdout, b"at last\n");
    let none = shell.run(&["receive", "jobs", "--wait", "1ms"]);
    assert_eq!((none.code, none.text()), (0, ""), "{none:?}");
    assert!(none.err.contains("no visible message"), "{none:?}");
}

#[test]
fn watching_shows_growth_and_ends_with_a_signal() {
    let (_server, shell) = ephemeral();
    shell.ok(&["create", "jobs"]);
    let mut command = shell.command(&["watch", "jobs", "absent", "--interval", "100ms", "--json"]);
    let mut child = command.spawn().expect("kew was built with this test");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("it goes on").expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let first = next();
    assert_eq!(
        first["queues"][0],
        json!({"queue": "jobs", "approximate_message_count": 0, "growth_per_second": null})
    );
    assert_eq!(first["queues"][1]["approximate_message_count"], Value::Null);
    shell.ok(&["send", "jobs", "x"]);
    let grown = (0..300).map(|_| next()).find(|look| {
        let growth = look["queues"][0]["growth_per_second"].as_f64();
        growth.is_some_and(|growth| growth > 0.0)
    });
    let grown = grown.expect("it grew");
    assert_eq!(grown["queues"][0]["approximate_message_count"], 1);
    kill_process(Pid::from_child(&child), Signal::INT).expect("our own child");
    let status = child.wait().expect("our own child");
    assert_eq!(status.code(), Some(0));

    let plain = shell.ok(&["watch", "--count", "1"]);
    assert!(plain.ends_with("  jobs  1  -\n"), "{plain}");
}

#[test]
fn a_closed_output_is_no_failure() {
    let (_server, shell) = ephemeral();
    shell.ok(&["create", "jobs"]);
    shell.run_with(
        &["send", "jobs", "--lines"],
        &b"a line of text\n".repeat(1_000),
    );
    for arguments in [
        &["receive", "jobs", "-n", "1000", "--raw", "--delete"][..],
        &["watch", "--interval", "100ms"],
    ] {
        let mut child = shell.command(arguments).spawn().expect("built");
        drop(child.stdout.take());
        let mut err = String::new();
        let mut stderr = child.stderr.take().expect("piped");
        stderr.read_to_string(&mut err).expect("UTF-8");
        let status = child.wait().expect("our own child");
        assert_eq!(
            (status.code(), err.as_str()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
    // Messages that could not be printed were not deleted.
    assert_eq!(
        shell.json(&["show", "jobs"])["approximate_message_count"],
        1_000
    );
}

#[test]
fn control_characters_are_escaped_in_json_too() {
    let (_server, shell) = ephemeral();
    shell.ok(&["create", "jobs"]);
    let sent = "a\u{7f}\u{85}\u{9b}31m\u{61c}\u{202e}\u{2066}b";
    shell.ok(&["send", "jobs", sent]);
    let printed = shell.ok(&["peek", "jobs", "--json"]);
    let escaped = r"a\u007f\u0085\u009b31m\u061c\u202e\u2066b";
    assert!(printed.contains(escaped), "{printed}");
    let messages: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(text(&messages[0], "text"), sent);
}

#[test]
fn a_signature_grants_exactly_its_permissions() {
    let (_server, shell) = ephemeral();
    let line = |arguments: &[&str]| shell.ok(arguments).trim_end().to_owned();
    let service = line(&["sas"]);
    let with = |url: &str, arguments: &[&str]| {
        let mut command = crate::client::command(url);
        command.arg("queue").args(arguments);
        crate::client::finish(command, b"")
    };
    // The service's signature creates a queue, which is used with the queue's signature.
    assert_eq!(with(&service, &["create", "jobs"]).code, 0);
    assert_eq!(with(&service, &["send", "jobs", "x"]).code, 0);

    let reader = line(&["sas", "--permissions", "rl"]);
    assert_eq!(with(&reader, &["list"]).text(), "NAME\njobs\n");
    with(&reader, &["create", "other"]).check_error(1, &["AuthorizationPermissionMismatch"]);

    let report = shell.json(&["sas", "jobs", "--permissions", "pr", "--expiry", "2h"]);
    let url = text(&report, "url");
    assert!(url.contains("/jobs?") && url.contains("sp=rp"), "{url}");
    assert!(text(&report, "expires").ends_with('Z'), "{report}");
    let endpoint = service.split_once('?').expect("a URL").0;
    let signature = url.split_once('?').expect("a query").1;
    let queue = format!("QueueEndpoint={endpoint};SharedAccessSignature={signature}");
    assert_eq!(with(&queue, &["peek", "jobs", "--raw"]).text(), "x\n");
    with(&queue, &["send", "jobs", "y"]).check_error(1, &["AuthorizationPermissionMismatch"]);

    let https = line(&["sas", "--https-only"]);
    with(&https, &["list"]).check_error(1, &["AuthorizationProtocolMismatch"]);
    shell
        .run(&["sas", "--permissions", "rx"])
        .check_error(2, &["rwdlacup", "rx"]);
    shell
        .run(&["sas", "--expiry", "0"])
        .check_error(2, &["--expiry"]);
    with(&service, &["sas"]).check_error(2, &["account key"]);
}
