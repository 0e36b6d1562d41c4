//! `kew bus receive` whose output nobody reads.

use serde_json::Value;

use crate::client::command;
use crate::operate::{json_of, ok, with_server};

#[test]
fn what_could_not_be_printed_is_given_back() {
    with_server(|server| {
        ok(server, &["bus", "send", "target", "a", "b", "c"]);
        let connection = server.facts("KEW_BUS_CONNECTION_STRING").first();
        let connection = connection.expect("it prints one");
        for (settle, delivery_count) in [(&[][..], 1), (&["--settle", "complete"], 2)] {
            let mut command = command("");
            command.env("KEW_BUS_CONNECTION_STRING", connection);
            command.args(["bus", "receive", "target", "-n", "3"]);
            let mut child = command.args(settle).spawn().expect("kew was built");
            // As `| head` does when it has enough.
            drop(child.stdout.take());
            assert!(child.wait().expect("our own child").success());
            let left = json_of(server, &["bus", "peek", "target"]);
            let left = left.as_array().expect("an array");
            assert_eq!(left.len(), 3);
            for message in left {
                assert_eq!(message["state"], "active", "{message}");
                assert_eq!(message["delivery_count"], Value::from(delivery_count));
            }
        }
    });
}
