//! `kew queue export` and `import`, and messages that go from one service to the other.

use std::path::Path;

use serde_json::{Value, json};

use crate::client::Shell;
use crate::operate::{json_of, kew, ok, with_server};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn records(path: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(path).expect("a file");
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn texts(messages: &Value) -> Vec<&str> {
    let messages = messages.as_array().expect("an array");
    messages
        .iter()
        .map(|it| it["text"].as_str().expect("a text"))
        .collect()
}

#[test]
fn messages_are_exported_and_imported() {
    with_server(|server| {
        let shell = Shell::of(server);
        let place = tempfile::tempdir().expect("a temporary directory");
        shell.ok(&["create", "jobs"]);
        shell.ok(&["create", "again"]);
        let lines: String = (0..40).map(|number| format!("{number}\n")).collect();
        let sent = shell.run_with(
            &["send", "jobs", "--lines", "--parallel", "1"],
            lines.as_bytes(),
        );
        assert_eq!(sent.code, 0, "{sent:?}");
        shell.ok(&["send", "jobs", "forever", "--ttl", "never"]);
        let file = place.path().join("messages");
        let exported = shell.json(&["export", "jobs", "--output", text(&file)]);
        assert_eq!(exported, json!({"queue": "jobs", "exported": 41}));
        let all = records(&file);
        assert_eq!(
            (&all[0]["service"], &all[0]["body"]),
            (&json!("queue-storage"), &json!({"text": "0"}))
        );
        assert_eq!(all[0]["time_to_live_ms"], 7 * 86_400_000);
        assert_eq!(all[0]["facts"]["dequeue_count"], 0);
        assert_eq!(all[40].get("time_to_live_ms"), None);
        // All are visible again.
        let seen = shell.json(&["receive", "jobs", "-n", "100", "--delete"]);
        assert_eq!(texts(&seen).len(), 41);
        let import = ["import", "again", "--file", text(&file)];
        assert_eq!(
            shell.ok(&[&import[..], &["--dry-run"]].concat()),
            "would send 41 messages\n"
        );
        let imported = shell.json(&import);
        assert_eq!(
            imported,
            json!({"queue": "again", "sent": 41, "last_line": 41})
        );
        let copy = place.path().join("copy");
        shell.ok(&["export", "again", "--delete", "--output", text(&copy)]);
        let body = |record: &Value| (record["body"].clone(), record["time_to_live_ms"].clone());
        let (copied, all): (Vec<_>, Vec<_>) = (
            records(&copy).iter().map(body).collect(),
            all.iter().map(body).collect(),
        );
        assert_eq!(copied, all);
        assert_eq!(shell.json(&["receive", "again"]), json!([]));
    });
}

#[test]
fn messages_go_from_one_service_to_the_other() {
    with_server(|server| {
        let shell = Shell::of(server);
        let place = tempfile::tempdir().expect("a temporary directory");
        shell.ok(&["create", "jobs"]);
        shell.ok(&["send", "jobs", "h\u{e4}llo"]);
        let file = place.path().join("messages");
        shell.ok(&["export", "jobs", "--output", text(&file)]);
        ok(
            server,
            &["bus", "message", "import", "orders", "--file", text(&file)],
        );
        assert_eq!(
            json_of(server, &["bus", "peek", "orders"])[0]["body"],
            "h\u{e4}llo"
        );
        // Back again, but not with properties that a queue of texts cannot hold.
        let file = place.path().join("back");
        ok(
            server,
            &[
                "bus",
                "send",
                "orders",
                "rich",
                "--subject",
                "s",
                "--property",
                "a=1",
            ],
        );
        ok(
            server,
            &[
                "bus",
                "message",
                "export",
                "orders",
                "--output",
                text(&file),
            ],
        );
        let refused = shell.run(&["import", "jobs", "--file", text(&file)]);
        let named = [
            "line 2",
            "properties, subject",
            "1 messages were sent",
            "--from-line 2",
        ];
        refused.check_error(2, &named);
        let seen = shell.json(&["receive", "jobs", "-n", "9"]);
        assert_eq!(texts(&seen), ["h\u{e4}llo", "h\u{e4}llo"]);
        let none = kew(server, &["queue", "import", "jobs", "--file", "/nowhere"]);
        none.check_error(2, &["/nowhere"]);
    });
}
