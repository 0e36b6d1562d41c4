//! `kew bus rule test`: a rule on messages of a file, of standard input and of a queue.

use serde_json::{Value, json};

use crate::client::{Done, command, finish};
use crate::operate::{kew, ok, with_server};

/// Runs it on these lines of standard input. There is no server.
fn test(arguments: &[&str], lines: &[Value]) -> Done {
    let mut command = command("");
    command.args(["bus", "rule", "test"]).args(arguments);
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    finish(command, lines.join("\n").as_bytes())
}

fn message(properties: Value) -> Value {
    json!({"version": 1, "service": "service-bus", "subject": "abc", "properties": properties})
}

fn objects(done: &Done) -> Vec<Value> {
    assert_eq!(done.code, 0, "{done:?}");
    let lines = done.text().lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn a_filter_is_tested_on_lines() {
    let lines = [
        message(json!({"color": "red", "size": {"int": 11}})),
        message(json!({"color": "blue", "size": {"int": 11}})),
        message(json!({"color": "red", "size": {"int": 0}})),
    ];
    let sql = "color = 'red' AND 22 / size > 1 AND sys.Label LIKE 'a%'";
    let done = test(&["--sql", sql], &lines);
    assert_eq!(done.code, 0, "{done:?}");
    let expected = "line 1: matched\n\
                    line 2: not matched\n\
                    line 3: the filter failed: column 22: division by zero\n\
                    3 messages: 1 matched, 1 not matched, 1 failed\n";
    assert_eq!(done.text(), expected);
    let objects = objects(&test(&["--sql", sql, "--json"], &lines));
    let error = "the filter failed: column 22: division by zero";
    let expected = [
        json!({"line": 1, "outcome": "matched"}),
        json!({"line": 2, "outcome": "not_matched"}),
        json!({"line": 3, "outcome": "failed", "error": error}),
        json!({"messages": 3, "matched": 1, "not_matched": 1, "failed": 1}),
    ];
    assert_eq!(objects, expected);
}

#[test]
fn an_action_shows_what_it_changes() {
    let lines = [
        message(json!({"Color": "red", "size": {"int": 10}, "old": true})),
        message(json!({"Color": "red"})),
    ];
    let action = "SET color = @new; SET size = size / 2; REMOVE old; SET sys.To = 'x'";
    let rule = [
        "--sql",
        "color = 'red'",
        "--action",
        action,
        "--parameter",
        "@new=blue",
    ];
    let done = test(&rule, &lines);
    let expected = "line 1: matched\n  \
                    Color: \"red\" becomes \"blue\"\n  \
                    size: {\"int\":10} becomes {\"int\":5}\n  \
                    old: removed, was true\n  \
                    sys.To: set to \"x\"\n\
                    line 2: matched\n  \
                    Color: \"red\" becomes \"blue\"\n  \
                    old: removed, was not set\n  \
                    sys.To: set to \"x\"\n\
                    2 messages: 2 matched, 0 not matched, 0 failed\n";
    assert_eq!((done.code, done.text()), (0, expected), "{done:?}");
    let objects = objects(&test(&[&rule[..], &["--json", "-n", "1"]].concat(), &lines));
    let changes = json!([
        {"property": "Color", "from": "red", "to": "blue"},
        {"property": "size", "from": {"int": 10}, "to": {"int": 5}},
        {"property": "old", "from": true},
        {"property": "sys.To", "to": "x"},
    ]);
    let first = json!({"line": 1, "outcome": "matched", "changes": changes});
    assert_eq!(objects[0], first);
    assert_eq!(objects[1]["messages"], 1);

    let fails = ["--sql", "1 = 1", "--action", "SET a = 1 / size"];
    let zero = [message(json!({"size": {"long": 0}}))];
    let done = test(&fails, &zero);
    let expected = "line 1: it matched, and the action failed: column 11: division by zero\n\
                    1 message: 0 matched, 0 not matched, 1 failed\n";
    assert_eq!((done.code, done.text()), (0, expected));
}

#[test]
fn correlation_conditions_have_types() {
    let lines = [
        message(json!({"customer": {"long": 7}})),
        message(json!({"customer": "7"})),
        message(json!({"customer": {"timestamp_ms": 7}})),
    ];
    let matched = |condition: &str| {
        let rule = [
            "--correlation",
            condition,
            "--correlation",
            "sys.subject=abc",
            "--json",
        ];
        let objects = objects(&test(&rule, &lines));
        let all = objects.into_iter().filter(|it| it["outcome"] == "matched");
        all.map(|it| it["line"].as_i64().expect("a number"))
            .collect::<Vec<_>>()
    };
    assert_eq!(matched("customer=7"), [1]);
    assert_eq!(matched("Customer=\"7\""), [2]);
    assert_eq!(matched("customer={\"timestamp_ms\":7}"), [3]);
    assert_eq!(matched("customer=8"), [0; 0]);
}

#[test]
fn a_rule_that_is_not_valid_is_refused_with_the_place() {
    let done = test(&["--sql", "color = 'red' AND AND size > 1"], &[]);
    assert_eq!((done.code, done.text()), (2, ""), "{done:?}");
    let lines: Vec<&str> = done.err.lines().collect();
    assert_eq!(lines[0], "kew: color = 'red' AND AND size > 1");
    assert_eq!(lines[1], "kew:                   ^");
    let error = "kew: the filter is not valid: column 19: found \"AND\", expected ";
    assert!(lines[2].starts_with(error), "{done:?}");
    assert_eq!(lines.len(), 3);

    for (arguments, named) in [
        (
            &["--sql", "a = 1", "--action", "SET sys.Size = 1"][..],
            "the action is not valid: column 5: the system property Size",
        ),
        (&["--sql", "a = @none"], "the parameter @none has no value"),
        (
            &["--sql", "a = @xy", "--parameter", "x=1"],
            "neither --sql nor --action names @x",
        ),
        (
            &["--correlation", "a=1", "--parameter", "x=1"],
            "--parameter has no effect without --sql or --action",
        ),
        (
            &[
                "--sql",
                "a = @x",
                "--parameter",
                "x=1",
                "--parameter",
                "@X=2",
            ],
            "the parameter \"@X\" is given twice",
        ),
        (
            &["--correlation", "sys.Size=1"],
            "sys.Size: expected an application property",
        ),
        (
            &["--correlation", "a={\"nothing\":1}"],
            "--correlation a: \"nothing\" is not a type of AMQP",
        ),
        (
            &["--sql", "a = 1", "--subject", "x"],
            "the options that choose messages need a queue",
        ),
    ] {
        let done = test(&[arguments, &["--json"]].concat(), &[]);
        done.check_error(2, &[]);
        let report: Value = serde_json::from_str(&done.err).expect("JSON");
        let message = report["error"]["message"].as_str().expect("a text");
        assert!(message.contains(named), "{message}");
    }
    test(&[], &[]).check_usage();
    test(&["--sql", "a = 1", "--correlation", "a=1"], &[]).check_usage();
}

impl Done {
    /// The arguments were refused.
    fn check_usage(&self) {
        assert_eq!(self.code, 2, "{self:?}");
        assert!(self.err.contains("--sql"), "{self:?}");
    }
}

#[test]
fn a_line_that_is_not_a_message_stops_the_test() {
    let lines = [message(json!({})), json!({"version": 1})];
    let done = test(&["--sql", "1 = 1"], &lines);
    assert_eq!(done.text(), "line 1: matched\n");
    done.check_error(2, &["standard input, line 2"]);
}

/// It reads no data directory.
#[test]
fn options_of_other_commands_are_refused() {
    for option in ["--data-dir", "--admin-socket", "--entity"] {
        let done = test(&["--sql", "TRUE", option, "x"], &[]);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.err.contains(option), "{done:?}");
    }
}

#[test]
fn messages_of_a_queue_are_tested_and_stay() {
    with_server(|server| {
        let send = [
            "bus",
            "send",
            "orders",
            "x",
            "--property",
            "size=20",
            "--subject",
        ];
        ok(server, &[&send[..], &["a"]].concat());
        ok(server, &[&send[..], &["b"]].concat());
        let scheduled = ["bus", "send", "orders", "later", "--delay", "1h"];
        ok(server, &scheduled);
        // A topic's rules see no number, and each message as one that is active.
        let sql = "size > 10 AND sys.Label = 'a' AND sys.State = 0 \
                   OR sys.ScheduledEnqueueTimeUtc > sys.EnqueuedTimeUtc AND sys.SequenceNumber IS NULL";
        let rule = ["bus", "rule", "test", "orders", "--sql", sql, "--json"];
        let done = objects(&kew(server, &rule));
        let outcomes: Vec<_> = done
            .iter()
            .filter_map(|it| it["outcome"].as_str())
            .collect();
        assert_eq!(outcomes, ["matched", "not_matched", "matched"]);
        assert_eq!(done[0]["sequence_number"], 1);
        assert_eq!(done[3]["messages"], 3);
        let chosen = objects(&kew(server, &[&rule[..], &["--subject", "b"]].concat()));
        assert_eq!(chosen[0]["sequence_number"], 2);
        assert_eq!(chosen[1]["messages"], 1);
        let peeked = ok(server, &["bus", "peek", "orders", "--json"]);
        let peeked: Value = serde_json::from_str(&peeked).expect("JSON");
        assert_eq!(peeked.as_array().map(Vec::len), Some(3));

        // The form of an export, from a file.
        let place = tempfile::tempdir().expect("a temporary directory");
        let file = place.path().join("messages");
        let file = file.to_str().expect("UTF-8");
        ok(
            server,
            &["bus", "message", "export", "orders", "--output", file],
        );
        let from_file = ["bus", "rule", "test", "--file", file, "--sql", sql];
        let expected = "line 1: matched\nline 2: not matched\nline 3: matched\n\
                        3 messages: 2 matched, 1 not matched, 0 failed\n";
        assert_eq!(ok(server, &from_file), expected);
    });
}
