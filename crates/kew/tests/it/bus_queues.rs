//! `kew bus create`, `update` and `delete` against the real server.

use serde_json::json;

use crate::client::{command, finish};
use crate::operate::{json_of, kew, ok, with_server};

#[test]
fn a_queue_has_every_setting_and_an_update_keeps_the_others() {
    with_server(|server| {
        let every = [
            "bus",
            "create",
            "Every",
            "--lock-duration",
            "2m",
            "--ttl",
            "3d",
            "--max-size",
            "2GiB",
            "--max-message-size",
            "512KiB",
            "--max-delivery-count",
            "3",
            "--detect-duplicates",
            "--duplicate-window",
            "90s",
            "--sessions",
            "--dead-letter-expired",
            "--forward-dead-letters-to",
            "target",
            "--auto-delete-on-idle",
            "1h",
            "--status",
            "send-disabled",
            "--user-metadata",
            "for <me> & you",
        ];
        assert_eq!(ok(server, &every), "created Every\n");
        let mut expected = json!({
            // As it was spelled when it was created.
            "name": "Every",
            "lock_duration_ms": 120_000,
            "default_time_to_live_ms": 259_200_000_u64,
            "size_bytes_max": 2_u64 << 30,
            "message_size_bytes_max": 512 << 10,
            "max_delivery_count": 3,
            "detects_duplicates": true,
            "duplicate_window_ms": 90_000,
            "requires_session": true,
            "dead_letters_expired": true,
            "forward_dead_letters_to": "target",
            "auto_delete_on_idle_ms": 3_600_000,
            "status": "SendDisabled",
            "user_metadata": "for <me> & you",
        });
        let check = |expected: &serde_json::Value| {
            let shown = json_of(server, &["bus", "show", "every"]);
            for (name, value) in expected.as_object().expect("an object") {
                assert_eq!(&shown[name], value, "{name}");
            }
        };
        check(&expected);
        let updated = json_of(server, &["bus", "update", "every", "--lock-duration", "5s"]);
        assert_eq!(updated, json!({"queue": "every", "updated": true}));
        expected["lock_duration_ms"] = json!(5_000);
        check(&expected);
        let back = [
            "bus",
            "update",
            "every",
            "--ttl",
            "never",
            "--dead-letter-expired=false",
            "--forward-dead-letters-to",
            "none",
            "--auto-delete-on-idle",
            "never",
            "--status",
            "active",
            "--user-metadata",
            "",
        ];
        assert_eq!(ok(server, &back), "updated every\n");
        for name in [
            "default_time_to_live_ms",
            "auto_delete_on_idle_ms",
            "forward_dead_letters_to",
        ] {
            expected[name] = json!(null);
        }
        expected["user_metadata"] = json!(null);
        expected["dead_letters_expired"] = json!(false);
        expected["status"] = json!("Active");
        check(&expected);
        let forwards = ["bus", "create", "a/b", "--forward-to", "orders", "--json"];
        assert_eq!(
            kew(server, &forwards).json(),
            json!({"queue": "a/b", "created": true})
        );
        assert_eq!(
            json_of(server, &["bus", "show", "a/b"])["forward_to"],
            "orders"
        );
    });
}

#[test]
fn queues_are_created_and_deleted_once_unless_asked_otherwise() {
    with_server(|server| {
        ok(server, &["bus", "create", "q"]);
        let again = kew(server, &["bus", "create", "q", "--max-delivery-count", "2"]);
        again.check_error(1, &["40900", "409"]);
        let again = ["bus", "create", "q", "--if-not-exists"];
        assert_eq!(ok(server, &again), "already exists: q\n");
        assert_eq!(
            json_of(server, &again),
            json!({"queue": "q", "created": false})
        );
        assert_eq!(ok(server, &["bus", "delete", "Q", "--yes"]), "deleted Q\n");
        let gone = kew(server, &["bus", "delete", "q", "--json"]);
        assert_eq!((gone.code, gone.text()), (1, ""));
        let error: serde_json::Value = serde_json::from_str(&gone.err).expect("JSON");
        assert_eq!(
            (&error["error"]["status"], &error["error"]["exit_code"]),
            (&json!(404), &json!(1))
        );
        assert_ne!(error["error"]["request_id"], json!(null), "{error}");
        let gone = ["bus", "delete", "q", "--if-exists"];
        assert_eq!(
            json_of(server, &gone),
            json!({"queue": "q", "deleted": false})
        );
        kew(server, &["bus", "update", "q", "--ttl", "1h"]).check_error(1, &["'q'", "404"]);
    });
}

#[test]
fn invalid_arguments_are_refused_before_any_request() {
    for (arguments, named) in [
        (
            &["create", "q", "--duplicate-window", "1m"][..],
            "--detect-duplicates",
        ),
        (&["create", "q", "--max-size", "1000"], "MiB"),
        (&["create", "q", "--ttl", "soon"], "a duration is"),
        (&["create", "a//b"], "single slashes"),
        (&["create", "q/$deadletterqueue"], "sub-queues"),
        (&["update", "q"], "--lock-duration"),
        (&["update", "q", "--sessions"], "--sessions"),
        // It would take a message out of q.
        (&["delete", "q/messages/head"], "the path of a message"),
    ] {
        let mut command = command("");
        // An unreachable server.
        let nobody = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=r;SharedAccessKey=k;\
                      UseDevelopmentEmulator=true";
        command.env("KEW_BUS_CONNECTION_STRING", nobody);
        command.arg("bus").args(arguments);
        let done = finish(command, b"");
        assert_eq!(done.code, 2, "{arguments:?}: {done:?}");
        assert!(done.err.contains(named), "{arguments:?}: {done:?}");
    }
}

#[test]
fn the_servers_refusal_is_shown() {
    with_server(|server| {
        for (arguments, named) in [
            (
                &["create", "q", "--lock-duration", "6m"][..],
                "LockDuration",
            ),
            (&["create", "q", "--forward-to", "absent"], "absent"),
            (&["create", "bad name"], "bad name"),
        ] {
            let arguments = [&["bus"], arguments].concat();
            let done = kew(server, &arguments);
            assert_eq!(done.code, 1, "{arguments:?}: {done:?}");
            assert!(done.err.contains(named), "{arguments:?}: {done:?}");
        }
        assert_eq!(
            json_of(server, &["bus", "list"]).as_array().map(Vec::len),
            Some(2)
        );
    });
}
