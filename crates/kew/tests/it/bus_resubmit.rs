//! `kew dlq resubmit` by the public protocols: what a destination drops, refuses or cannot be asked.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::client::{Done, Script, answer, command, finish};
use crate::operate::{json_of, kew, ok, with_server};
use crate::server::Server;

fn kew_at(connection: &str, arguments: &[&str]) -> Done {
    let mut command = command("");
    command.env("KEW_BUS_CONNECTION_STRING", connection);
    command.args(arguments);
    finish(command, b"")
}

/// A connection string for one queue: it reads the queue's settings, and may not use Kew's own interface.
fn rights_of(server: &Server, queue: &str) -> String {
    let sas = json_of(server, &["bus", "sas", queue]);
    let connection = sas["connection_string"].as_str();
    connection.expect("a connection string").to_owned()
}

fn bury(server: &Server, queue: &str, id: &str) {
    ok(server, &["bus", "send", queue, id, "--message-id", id]);
    let settle = ["--settle", "dead-letter", "--reason", "Late"];
    ok(server, &[&["bus", "receive", queue], &settle[..]].concat());
}

fn count(server: &Server, queue: &str) -> usize {
    let peeked = json_of(server, &["bus", "peek", queue]);
    peeked.as_array().expect("an array").len()
}

#[test]
fn a_destination_that_detects_duplicates_loses_no_dead_letter() {
    with_server(|server| {
        ok(server, &["bus", "create", "once", "--detect-duplicates"]);
        ok(server, &["bus", "create", "on", "--forward-to", "target"]);
        for queue in ["once", "orders"] {
            bury(server, queue, "m1");
        }
        let connection = rights_of(server, "once");
        let again = ["dlq", "resubmit", "once"];
        let named = ["detects duplicates", "--new-ids"];
        kew_at(&connection, &again).check_error(1, &named);
        let dry = [&again[..], &["--dry-run"]].concat();
        kew_at(&connection, &dry).check_error(1, &named);
        let dead = "once/$deadletterqueue";
        assert_eq!((count(server, dead), count(server, "once")), (1, 0));
        let fresh = [&again[..], &["--new-ids", "--json"]].concat();
        assert_eq!(kew_at(&connection, &fresh).json()["done"], 1);
        assert_eq!((count(server, dead), count(server, "once")), (0, 1));
        // What nobody says is not taken for granted.
        let connection = rights_of(server, "orders");
        for (to, why) in [("target", "cannot be read"), ("on", "cannot be read")] {
            let to = ["dlq", "resubmit", "orders", "--to", to];
            kew_at(&connection, &to).check_error(1, &[why, "--new-ids"]);
        }
        // This one takes every message: ids stay.
        let done = kew_at(&connection, &["dlq", "resubmit", "orders", "--json"]).json();
        assert_eq!(
            (&done["done"], &done["in_transactions"]),
            (&json!(1), &json!(true))
        );
        let sent = json_of(server, &["bus", "peek", "orders"]);
        assert_eq!(sent[0]["message_id"], "m1");
    });
}

#[test]
fn what_cannot_be_sent_again_is_counted_and_its_lock_given_back() {
    with_server(|server| {
        for id in ["m1", "m2", "m3"] {
            bury(server, "orders", id);
        }
        let connection = rights_of(server, "orders");
        let wrong = ["--set-content-type", "h\u{e4}", "--json"];
        let done = kew_at(
            &connection,
            &[&["dlq", "resubmit", "orders"], &wrong[..]].concat(),
        );
        assert_eq!(done.code, 0, "{done:?}");
        assert!(
            done.err.contains("message 1") && done.err.contains("message 3"),
            "{done:?}"
        );
        assert_eq!(done.json()["skipped"], json!({"unreadable": 3}));
        let received = json_of(
            server,
            &["bus", "receive", "orders", "--dead-letter", "-n", "3"],
        );
        assert_eq!(received.as_array().map(Vec::len), Some(3));
    });
}

#[test]
fn deferred_and_locked_dead_letters_are_told_apart() {
    with_server(|server| {
        for id in ["m1", "m2", "m3"] {
            bury(server, "orders", id);
        }
        let receive = ["bus", "receive", "orders", "--dead-letter"];
        ok(server, &[&receive[..], &["--settle", "defer"]].concat());
        ok(server, &receive);
        let done = kew_at(
            &rights_of(server, "orders"),
            &["dlq", "resubmit", "orders", "--json"],
        );
        assert_eq!(done.code, 0, "{done:?}");
        let done = done.json();
        assert_eq!((&done["matched"], &done["done"]), (&json!(3), &json!(1)));
        assert_eq!(done["skipped"], json!({"deferred": 1, "locked": 1}));
    });
}

#[test]
fn a_busy_server_is_not_taken_for_another_service() {
    let gateway = "<html>502 Bad Gateway</html>";
    let script = Script::start(&[answer("502 Bad Gateway", "", gateway)]);
    let at = |address| {
        format!(
            "Endpoint=sb://{address};SharedAccessKeyName=r;SharedAccessKey=k;UseDevelopmentEmulator=true"
        )
    };
    let again = ["dlq", "resubmit", "q", "--retries", "0", "--json"];
    let done = kew_at(&at(script.address), &again);
    let error: Value = serde_json::from_str(&done.err).expect("one line of JSON");
    assert_eq!((done.code, &error["error"]["status"]), (3, &json!(502)));
    assert_eq!(script.requests().len(), 1);
    // Nobody listens there any more.
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = closed.local_addr().expect("it is bound");
    drop(closed);
    kew_at(&at(address), &again).check_error(3, &["cannot reach"]);
}

#[test]
fn the_same_property_twice_is_refused() {
    with_server(|server| {
        let twice = ["dlq", "resubmit", "orders", "--set", "a=1", "--set", "a=2"];
        kew(server, &twice).check_error(2, &["--set a is given twice"]);
    });
}
