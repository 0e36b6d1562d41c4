//! `kew bus message import` at its limits: lines that are too large for a batch, and what an error says was sent.

use std::path::Path;

use serde_json::{Value, json};

use crate::operate::{json_of, kew, with_server};

/// A message as an export writes it.
fn line(id: &str, body: &str) -> Value {
    json!({"version": 1, "service": "service-bus", "message_id": id, "body": {"text": body}})
}

fn write(path: &Path, lines: &[Value]) {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    std::fs::write(path, lines.join("\n")).expect("a writable directory");
}

#[test]
fn a_line_too_large_for_a_batch_is_sent_alone_and_in_its_order() {
    with_server(|server| {
        let place = tempfile::tempdir().expect("a temporary directory");
        let file = place.path().join("messages");
        let import = [
            "bus",
            "message",
            "import",
            "orders",
            "--file",
            file.to_str().expect("UTF-8"),
        ];
        let ids = || {
            let peeked = json_of(server, &["bus", "peek", "orders", "--no-bodies"]);
            let messages = peeked.as_array().expect("an array").clone();
            let id = |message: &Value| message["message_id"].as_str().expect("a text").to_owned();
            messages.iter().map(id).collect::<Vec<_>>()
        };
        // It fits by itself; a batch repeats its long id.
        let id = "b".repeat(100);
        let large = "x".repeat((1 << 20) - 180);
        write(&file, &[line("a", "x"), line(&id, &large), line("c", "x")]);
        let report = json!({"queue": "orders", "sent": 3, "last_line": 3});
        assert_eq!(json_of(server, &import), report);
        assert_eq!(ids(), ["a", &id, "c"]);
        // It is refused, and nothing after it is sent.
        let too_large = "x".repeat(3 << 20);
        write(
            &file,
            &[line("d", "x"), line("e", &too_large), line("f", "x")],
        );
        let named = ["line 2", "1 messages were sent before", "--from-line 2"];
        kew(server, &import).check_error(1, &named);
        assert_eq!(ids(), ["a", &id, "c", "d"]);
    });
}

#[test]
fn schedules_of_the_past_and_of_the_future() {
    with_server(|server| {
        let place = tempfile::tempdir().expect("a temporary directory");
        let file = place.path().join("messages");
        let scheduled = |id: Value, at_ms: i64| {
            let body = json!({"text": "x"});
            json!({
                "version": 1, "service": "service-bus", "message_id": id, "scheduled_at_ms": at_ms, "body": body,
            })
        };
        let far_ms = 32_503_680_000_000;
        let lines = [
            scheduled("a".into(), 1),
            scheduled(json!({"ulong": "5"}), far_ms),
            scheduled("c".into(), far_ms),
            line("d", "x"),
        ];
        write(&file, &lines);
        let file = file.to_str().expect("UTF-8");
        let import = ["bus", "message", "import", "target", "--file", file];
        let report = json!({"queue": "target", "sent": 4, "last_line": 4});
        assert_eq!(json_of(server, &import), report);
        let shown = json_of(server, &["bus", "show", "target"]);
        assert_eq!(
            (&shown["active_messages"], &shown["scheduled_messages"]),
            (&json!(2), &json!(2))
        );
        let nothing = kew(server, &[&import[..], &["--from-line", "9"]].concat());
        assert_eq!(nothing.code, 0, "{nothing:?}");
        assert!(
            nothing.err.contains("there are only 4 lines"),
            "{nothing:?}"
        );
    });
}
