//! `kew bus topic` and `subscription`, and the commands for messages on subscriptions.

use serde_json::{Value, json};

use crate::client::{Done, command, finish};
use crate::operate::{json_of, kew, ok, with_server};
use crate::server::Server;

pub(crate) const S: &str = "news/subscriptions/s";
const DEAD: &str = "news/subscriptions/s/$deadletterqueue";

pub(crate) fn has(shown: &Value, expected: &Value) {
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&shown[name], value, "{name}: {shown}");
    }
}

/// A topic with a subscription.
pub(crate) fn with_topic(server: &Server) {
    ok(server, &["bus", "topic", "create", "news"]);
    ok(server, &["bus", "subscription", "create", S]);
}

#[test]
fn a_topic_has_settings_and_an_update_keeps_the_others() {
    with_server(|server| {
        let create = [
            "bus",
            "topic",
            "create",
            "News",
            "--ttl",
            "3d",
            "--max-size",
            "2GiB",
            "--max-message-size",
            "512KiB",
            "--user-metadata",
            "for <me> & you",
        ];
        assert_eq!(ok(server, &create), "created News\n");
        let mut expected = json!({
            "name": "News", "default_time_to_live_ms": 259_200_000_u64, "size_bytes_max": 2_u64 << 30,
            "message_size_bytes_max": 512 << 10, "user_metadata": "for <me> & you", "status": "Active",
            "subscriptions": 0, "detects_duplicates": false, "filters_before_publishing": false,
            "lock_duration_ms": null,
        });
        has(
            &json_of(server, &["bus", "topic", "show", "news"]),
            &expected,
        );
        let filters = ["--filter-before-publishing=true"];
        let update = ["bus", "topic", "update", "news", "--ttl", "never"];
        let updated = json_of(server, &[&update[..], &filters].concat());
        assert_eq!(updated, json!({"topic": "news", "updated": true}));
        expected["default_time_to_live_ms"] = json!(null);
        expected["filters_before_publishing"] = json!(true);
        // The other command for one entity shows topics, too.
        has(&json_of(server, &["bus", "show", "news"]), &expected);
        ok(
            server,
            &["bus", "subscription", "create", "news/Subscriptions/S"],
        );
        let listed = ok(server, &["bus", "topic", "list"]);
        let lines: Vec<Vec<&str>> = listed
            .lines()
            .map(|it| it.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[0],
            [
                "TOPIC",
                "SUBSCRIPTIONS",
                "WAITING",
                "SCHEDULED",
                "FAILED",
                "BYTES",
                "STATUS"
            ]
        );
        assert_eq!(lines[1], ["News", "1", "0", "0", "0", "0", "Active"]);
        let listed = json_of(server, &["bus", "topic", "list"]);
        assert_eq!(listed.as_array().map(Vec::len), Some(1));
        has(&listed[0], &json!({"name": "News", "subscriptions": 1}));
    });
}

#[test]
fn a_subscription_has_every_setting_and_an_update_keeps_the_others() {
    with_server(|server| {
        ok(server, &["bus", "topic", "create", "news"]);
        let create = [
            "bus",
            "subscription",
            "create",
            "news/Subscriptions/Mine",
            "--lock-duration",
            "2m",
            "--ttl",
            "3d",
            "--max-delivery-count",
            "3",
            "--sessions",
            "--dead-letter-expired",
            "--dead-letter-filter-failures=false",
            "--forward-dead-letters-to",
            "target",
            "--auto-delete-on-idle",
            "1h",
            "--status",
            "receive-disabled",
            "--user-metadata",
            "me",
        ];
        assert_eq!(ok(server, &create), "created news/subscriptions/Mine\n");
        let mut expected = json!({
            "name": "news/subscriptions/mine", "lock_duration_ms": 120_000,
            "default_time_to_live_ms": 259_200_000_u64, "max_delivery_count": 3,
            "requires_session": true, "dead_letters_expired": true,
            "dead_letters_filter_failures": false, "forward_dead_letters_to": "target",
            "auto_delete_on_idle_ms": 3_600_000, "status": "ReceiveDisabled", "user_metadata": "me",
            "size_bytes_max": null, "active_messages": 0, "dead_letters": 0,
        });
        let name = "news/subscriptions/mine";
        has(
            &json_of(server, &["bus", "subscription", "show", name]),
            &expected,
        );
        let update = [
            "bus",
            "subscription",
            "update",
            name,
            "--lock-duration",
            "5s",
        ];
        let updated = json_of(server, &update);
        assert_eq!(updated, json!({"subscription": name, "updated": true}));
        expected["lock_duration_ms"] = json!(5_000);
        has(&json_of(server, &["bus", "show", name]), &expected);
        let back = [
            "bus",
            "subscription",
            "update",
            name,
            "--forward-dead-letters-to",
            "none",
            "--status",
            "active",
            "--forward-to",
            "orders",
            "--dead-letter-filter-failures",
        ];
        assert_eq!(ok(server, &back), format!("updated {name}\n"));
        expected["forward_dead_letters_to"] = json!(null);
        expected["forward_to"] = json!("orders");
        expected["status"] = json!("Active");
        expected["dead_letters_filter_failures"] = json!(true);
        let listed = json_of(server, &["bus", "subscription", "list", "news"]);
        assert_eq!(listed.as_array().map(Vec::len), Some(1));
        expected["name"] = json!("news/subscriptions/Mine");
        has(&listed[0], &expected);
        let listed = ok(server, &["bus", "subscription", "list", "news"]);
        assert!(listed.starts_with("SUBSCRIPTION "), "{listed}");
        assert!(listed.contains("\nnews/subscriptions/Mine "), "{listed}");
    });
}

#[test]
fn entities_are_created_and_deleted_once_unless_asked_otherwise() {
    with_server(|server| {
        with_topic(server);
        for (kind, name) in [("topic", "news"), ("subscription", S)] {
            let again = ["bus", kind, "create", name];
            kew(server, &again).check_error(1, &["40900", "409"]);
            let again = [&again[..], &["--if-not-exists"]].concat();
            assert_eq!(ok(server, &again), format!("already exists: {name}\n"));
            let done = json_of(server, &again);
            assert_eq!(done, json!({kind: name, "created": false}));
        }
        // A command for another kind changes nothing.
        let other = ["bus", "delete", "news", "--yes"];
        kew(server, &other).check_error(1, &["'news' is a topic", "kew bus topic"]);
        let other = ["bus", "delete", S, "--yes", "--if-exists"];
        kew(server, &other).check_error(1, &["is a subscription", "kew bus subscription"]);
        let other = ["bus", "topic", "delete", "orders", "--yes"];
        kew(server, &other).check_error(1, &["'orders' is a queue, and no topic: use kew bus"]);
        for command in [
            &["bus", "topic", "show", "orders"][..],
            &["bus", "topic", "update", "orders", "--ttl", "1h"],
        ] {
            kew(server, command)
                .check_error(1, &["'orders' is a queue, and no topic: use kew bus"]);
        }
        let other = ["bus", "update", "news", "--ttl", "1h"];
        kew(server, &other).check_error(1, &["'news' is a topic, and no queue: use kew bus topic"]);
        kew(server, &["bus", "topic", "update", "none", "--ttl", "1h"]).check_error(1, &["404"]);
        let orphan = ["bus", "subscription", "create", "none/subscriptions/s"];
        kew(server, &orphan).check_error(1, &["404"]);
        kew(server, &["bus", "subscription", "list", "none"]).check_error(1, &["404"]);

        let delete = ["bus", "subscription", "delete", S, "--yes"];
        assert_eq!(ok(server, &delete), format!("deleted {S}\n"));
        kew(server, &delete).check_error(1, &["404"]);
        let gone = ["bus", "subscription", "delete", S, "--if-exists"];
        assert_eq!(ok(server, &gone), format!("did not exist: {S}\n"));
        let deleted = json_of(server, &["bus", "topic", "delete", "news"]);
        assert_eq!(deleted, json!({"topic": "news", "deleted": true}));
        let gone = ["bus", "topic", "delete", "news", "--if-exists"];
        assert_eq!(
            json_of(server, &gone),
            json!({"topic": "news", "deleted": false})
        );
    });
}

#[test]
fn invalid_arguments_are_refused_before_any_request() {
    for (arguments, named) in [
        (&["topic", "create", S][..], "its topic is news"),
        (&["topic", "create", "t/$deadletterqueue"], "sub-queues"),
        (
            &["topic", "delete", "t/subscriptions/s/rules/r"],
            "kew bus rule",
        ),
        (&["delete", "t/subscriptions/s/rules/r"], "kew bus rule"),
        (
            &["rule", "add", S, "r", "--true", "--parameter", "@p=1"],
            "--parameter has no effect",
        ),
        (
            &["topic", "create", "t", "--duplicate-window", "1m"],
            "--detect-duplicates",
        ),
        (
            &["topic", "create", "t", "--lock-duration", "1m"],
            "--lock-duration",
        ),
        (&["topic", "create", "t", "--max-size", "1000"], "MiB"),
        (&["topic", "update", "t"], "--filter-before-publishing"),
        (
            &["subscription", "create", "news"],
            "TOPIC/subscriptions/NAME",
        ),
        (
            &["subscription", "create", "news/subscriptions/a/b"],
            "TOPIC/subscriptions/NAME",
        ),
        (
            &["subscription", "create", S, "--max-size", "1GiB"],
            "--max-size",
        ),
        (
            &["subscription", "create", S, "--action", "SET a = 1"],
            "--sql",
        ),
        (&["subscription", "create", S, "--rule-name", "r"], "--sql"),
        (
            &["subscription", "create", S, "--correlation", "sys.x=1"],
            "expected an application property",
        ),
        (&["subscription", "update", S], "--lock-duration"),
        (&["subscription", "update", S, "--sessions"], "--sessions"),
        (&["rule", "add", S, "r"], "--sql"),
        (&["rule", "add", S, "r", "--sql", "a", "--true"], "--true"),
        (
            &["rule", "add", "news", "r", "--true"],
            "TOPIC/subscriptions/NAME",
        ),
        (&["rule", "add", S, "a/b", "--true"], "none of / \\ ? # @ *"),
        (&["rule", "add", S, "a*b", "--true"], "none of / \\ ? # @ *"),
        (
            &[
                "rule",
                "add",
                S,
                "r",
                "--correlation",
                "sys.to=a",
                "--correlation",
                "sys.To=b",
            ],
            "given twice",
        ),
        (
            &[
                "rule",
                "add",
                S,
                "r",
                "--sql",
                "a = @x",
                "--parameter",
                "@x={\"odd\":1}",
            ],
            "--parameter @x",
        ),
        (
            &[
                "rule",
                "add",
                S,
                "r",
                "--sql",
                "a = @xy",
                "--parameter",
                "x=1",
            ],
            "neither --sql nor --action names @x",
        ),
        (&["rule", "set", S, "r"], "--sql"),
        (
            &["rule", "test", "--subscription", S, "--sql", "a"],
            "--subscription",
        ),
    ] {
        let mut command = command("");
        // Nothing answers there: a request would end with another code.
        command.env("KEW_BUS_CONNECTION_STRING", "Endpoint=sb://127.0.0.1:9;SharedAccessKeyName=r;SharedAccessKey=k;UseDevelopmentEmulator=true");
        command.arg("bus").args(arguments);
        let done = finish(command, b"");
        assert_eq!(done.code, 2, "{arguments:?}: {done:?}");
        assert!(done.err.contains(named), "{arguments:?}: {done:?}");
    }
}

#[test]
fn settings_that_the_server_refuses_are_named() {
    with_server(|server| {
        with_topic(server);
        for (arguments, named) in [
            (
                &["topic", "update", "news", "--status", "receive-disabled"][..],
                "Status of a topic",
            ),
            (
                &["topic", "create", "t", "--auto-delete-on-idle", "1s"],
                "400",
            ),
            (
                &["subscription", "update", S, "--status", "send-disabled"],
                "Status of a subscription",
            ),
            (
                &[
                    "subscription",
                    "create",
                    "news/subscriptions/x",
                    "--lock-duration",
                    "1h",
                ],
                "400",
            ),
            (
                &["subscription", "create", "news/subscriptions/-x"],
                "must be TOPIC/Subscriptions/NAME",
            ),
        ] {
            let arguments = [&["bus"], arguments].concat();
            kew(server, &arguments).check_error(1, &[named]);
        }
    });
}

#[test]
fn lists_of_queues_say_how_many_topics_there_are() {
    with_server(|server| {
        let listed = kew(server, &["bus", "list"]);
        assert_eq!((listed.code, &*listed.err), (0, ""));
        with_topic(server);
        let listed = kew(server, &["bus", "list"]);
        assert!(!listed.text().contains("news"), "{listed:?}");
        assert!(
            listed.err.contains("there is 1 topic: kew bus topic list"),
            "{listed:?}"
        );
        ok(server, &["bus", "topic", "create", "more"]);
        let listed = kew(server, &["bus", "list", "--json"]);
        assert_eq!(listed.json().as_array().map(Vec::len), Some(2));
        assert!(listed.err.contains("there are 2 topics"), "{listed:?}");
    });
}

#[test]
fn messages_of_subscriptions_are_used_as_those_of_queues() {
    with_server(|server| {
        with_topic(server);
        ok(server, &["bus", "send", "news", "one", "two", "three"]);
        let peeked = json_of(server, &["bus", "peek", "News/Subscriptions/S"]);
        assert_eq!(peeked.as_array().map(Vec::len), Some(3));
        assert_eq!(peeked[0]["body"], "one");
        let got = json_of(server, &["bus", "message", "get", S, "2"]);
        assert_eq!(got["body"], "two");
        let received = json_of(server, &["bus", "receive", S]);
        let number = received[0]["sequence_number"].to_string();
        let lock = received[0]["lock_token"].as_str().expect("a token");
        ok(server, &["bus", "message", "complete", S, &number, lock]);
        ok(
            server,
            &[
                "bus",
                "receive",
                S,
                "--settle",
                "dead-letter",
                "--reason",
                "Late",
            ],
        );
        let dead = json_of(server, &["bus", "receive", S, "--dead-letter", "--delete"]);
        assert_eq!(
            (&dead[0]["body"], &dead[0]["dead_letter_reason"]),
            (&json!("two"), &json!("Late"))
        );
        ok(server, &["bus", "message", "delete", S, "3", "--yes"]);
        let shown = json_of(server, &["bus", "show", S]);
        has(&shown, &json!({"active_messages": 0, "dead_letters": 0}));
        let watched = json_of(server, &["bus", "watch", S, "news", "-n", "1"]);
        assert_eq!(watched["queues"][0]["queue"], S);
        assert_eq!(watched["queues"][0]["active_messages"], 0);
        assert_eq!(watched["queues"][1]["queue"], "news");
        // The other direction of each is refused.
        kew(server, &["bus", "send", S, "x"]).check_error(1, &["amqp:not-allowed"]);
        kew(server, &["bus", "receive", "news"]).check_error(1, &["amqp:not-allowed"]);
        kew(server, &["bus", "receive", "news/subscriptions/none"]).check_error(1, &["404"]);
        kew(server, &["bus", "receive", "news/subscriptions/s/$dead"])
            .check_error(1, &["neither $DeadLetterQueue nor"]);
    });
}

#[test]
fn sessions_of_subscriptions_are_used_as_those_of_queues() {
    with_server(|server| {
        ok(server, &["bus", "topic", "create", "news"]);
        ok(server, &["bus", "subscription", "create", S, "--sessions"]);
        ok(server, &["bus", "send", "news", "hi", "--session", "s1"]);
        let listed = json_of(server, &["bus", "session", "list", S]);
        assert!(listed.to_string().contains("\"s1\""), "{listed}");
        ok(server, &["bus", "session", "set-state", S, "s1", "there"]);
        let state = ok(server, &["bus", "session", "state", S, "s1"]);
        assert!(state.contains("there"), "{state}");
        let settle = [
            "bus",
            "receive",
            S,
            "--session",
            "s1",
            "--settle",
            "complete",
        ];
        let received = json_of(server, &settle);
        assert_eq!(received[0]["body"], "hi");
    });
}

/// Nobody receives from a topic, but messages can be in it, and messages of every entity can fail to go on.
#[test]
fn messages_that_are_in_a_topic_or_could_not_go_on_are_listed() {
    with_server(|server| {
        with_topic(server);
        ok(server, &["bus", "send", "news", "later", "--delay", "1h"]);
        let forwards = [
            "bus",
            "create",
            "away",
            "--forward-dead-letters-to",
            "target",
        ];
        ok(server, &forwards);
        ok(server, &["bus", "delete", "target", "--yes"]);
        ok(server, &["bus", "send", "away", "lost"]);
        ok(
            server,
            &["bus", "receive", "away", "--settle", "dead-letter"],
        );
        let until = std::time::Instant::now() + crate::server::PATIENCE;
        while json_of(server, &["bus", "show", "away"])["failed_transfers"] != 1 {
            assert!(std::time::Instant::now() < until, "it was not moved");
        }
        let listed = json_of(server, &["dlq", "list"]);
        assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
        has(
            &listed[0],
            &json!({"name": "away", "dead_letters": 0, "failed_transfers": 1}),
        );
        let text = kew(server, &["dlq", "list"]);
        assert!(text.text().contains("FAILED"), "{text:?}");
        let place = "away/$transfer/$deadletterqueue";
        assert!(text.err.contains(place), "{text:?}");
        assert_eq!(json_of(server, &["dlq", "peek", place])[0]["body"], "lost");

        let watched = json_of(server, &["bus", "watch", "-n", "1"]);
        let of = |name: &str| {
            let all = watched["queues"].as_array().expect("an array");
            let found = all.iter().find(|it| it["queue"] == name);
            found.unwrap_or_else(|| panic!("no {name}: {watched}"))
        };
        has(of("away"), &json!({"failed_transfers": 1}));
        has(
            of("news"),
            &json!({"active_messages": 0, "scheduled_messages": 1, "failed_transfers": 0}),
        );
        assert_eq!(of(S)["active_messages"], 0);
        let topics = json_of(server, &["bus", "topic", "list"]);
        let counts = json!({"active_messages": 0, "scheduled_messages": 1, "failed_transfers": 0});
        has(&topics[0], &counts);
    });
}

/// One long name or filter does not widen each line. JSON has the whole text.
#[test]
fn long_texts_of_lists_are_shortened() {
    with_server(|server| {
        with_topic(server);
        let name = "n".repeat(240);
        ok(server, &["bus", "topic", "create", &name]);
        let listed = ok(server, &["bus", "topic", "list"]);
        assert!(listed.lines().all(|line| line.len() < 170), "{listed}");
        assert!(listed.contains(&format!("{}…", "n".repeat(79))), "{listed}");
        let listed = json_of(server, &["bus", "topic", "list"]);
        assert_eq!(listed[1]["name"], name);
        let filter = format!("color = '{}'", "x".repeat(900));
        ok(server, &["bus", "rule", "add", S, "long", "--sql", &filter]);
        let listed = ok(server, &["bus", "rule", "list", S]);
        assert!(listed.lines().all(|line| line.len() < 170), "{listed}");
        let listed = json_of(server, &["bus", "rule", "list", S]);
        assert_eq!(listed[1]["sql"], filter);
    });
}

#[test]
fn dead_letters_of_subscriptions_are_seen_exported_resubmitted_and_purged() {
    with_server(|server| {
        with_topic(server);
        ok(server, &["bus", "send", "news", "a", "b", "c"]);
        let settle = ["--settle", "dead-letter", "--reason", "Late"];
        ok(
            server,
            &[&["bus", "receive", S, "-n", "3"], &settle[..]].concat(),
        );
        let listed = json_of(server, &["dlq", "list"]);
        assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
        has(&listed[0], &json!({"name": S, "dead_letters": 3}));
        let peeked = json_of(server, &["dlq", "peek", S]);
        assert_eq!(peeked[2]["body"], "c");
        let groups = json_of(server, &["dlq", "groups", S]);
        assert_eq!(
            (&groups[0]["count"], &groups[0]["reason"]),
            (&json!(3), &json!("Late"))
        );
        let shown = json_of(server, &["bus", "show", DEAD]);
        assert!(shown.to_string().contains(DEAD), "{shown}");
        let exported = ok(
            server,
            &["bus", "message", "export", S, "--dead-letter", "-n", "1"],
        );
        let line: Value = serde_json::from_str(&exported).expect("JSON");
        assert_eq!(line["queue"], DEAD);
        kew(server, &["dlq", "resubmit", S, "--to", "nosuch", "--yes"])
            .check_error(1, &["the destination 'nosuch' could not be found"]);
        for act in ["groups", "purge", "resubmit"] {
            let done = match act {
                "groups" => kew(server, &["dlq", act, "news"]),
                _ => kew(server, &["dlq", act, "news", "--yes"]),
            };
            done.check_error(1, &["'news' is a topic", "news/$transfer/$deadletterqueue"]);
        }
        // Back into the subscription alone, and a dead letter again.
        let back = ["dlq", "resubmit", S, "--until", "1", "--yes"];
        assert_eq!(json_of(server, &back)["done"], 1);
        assert_eq!(json_of(server, &["bus", "peek", S])[0]["body"], "a");
        ok(server, &[&["bus", "receive", S], &settle[..]].concat());
        // To a topic: it leaves what no rule selects.
        ok(
            server,
            &["bus", "rule", "set", S, "$Default", "--sql", "again = 1"],
        );
        let to_topic = ["dlq", "resubmit", S, "--to", "news", "--yes"];
        let left = json_of(server, &[&to_topic[..], &["--until", "3"]].concat());
        has(&left, &json!({"done": 0, "skipped": {"unselected": 2}}));
        let set = ["--until", "2", "--set", "again=1"];
        assert_eq!(json_of(server, &[&to_topic[..], &set].concat())["done"], 1);
        let settled = json_of(server, &["bus", "receive", S, "--settle", "complete"]);
        assert_eq!(settled[0]["body"], "b");
        ok(server, &["bus", "rule", "set", S, "$Default", "--true"]);
        let to = ["dlq", "resubmit", S, "--to", "orders", "--until", "3"];
        assert_eq!(json_of(server, &[&to[..], &["--yes"]].concat())["done"], 1);
        assert_eq!(json_of(server, &["bus", "peek", "orders"])[0]["body"], "c");
        // A rule of one entity has no right to Kew's own interface: the public protocols do it.
        let sas = json_of(server, &["bus", "sas", "news"]);
        let connection = sas["connection_string"].as_str().expect("a text");
        kew_at(connection, &["dlq", "resubmit", S, "--yes"]).check_error(2, &["--to"]);
        // Its rules might select none of them.
        let to_topic = ["dlq", "resubmit", S, "--to", "news", "--new-ids", "--yes"];
        kew_at(connection, &to_topic).check_error(1, &["is a topic", "no rule selects"]);
        let purged = json_of(server, &["dlq", "purge", S, "--yes"]);
        assert_eq!(purged["done"], 1);
        assert_eq!(json_of(server, &["dlq", "list"]), json!([]));
    });
}

pub(crate) fn kew_at(connection: &str, arguments: &[&str]) -> Done {
    let mut command = command("");
    command.env("KEW_BUS_CONNECTION_STRING", connection);
    command.args(arguments);
    finish(command, b"")
}
