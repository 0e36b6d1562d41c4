//! The end of `kew import`: what it leaves alone, what it finishes, and what it does with a part of a file.

use kew_client::{BusAdmin, EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings};
use serde_json::{Value, json};

use crate::load;
use crate::server::Server;
use crate::transfer::{admin, defined, ended, export, kew, line, ok, report, start, write};
use crate::transfer_topics::{UNFINISHED, many_rules, names};

fn subscription(name: &str, definition: &Value) -> Value {
    json!({"version": 1, "service": "service-bus", "topic": "news", "subscription": name, "definition": definition})
}

fn topic(definition: &Value) -> Value {
    json!({"version": 1, "service": "service-bus", "topic": "news", "definition": definition})
}

/// Status, target and metadata of a queue, `news` or a subscription of it.
type Late = (Option<EntityStatus>, Option<String>, Option<String>);

async fn late(admin: &BusAdmin, name: &str) -> Late {
    let text = |it: Option<String>| it.filter(|it| !it.is_empty());
    if name == "news" {
        let it = admin.topic(name).await.expect("read").settings;
        return (it.status, None, text(it.user_metadata));
    }
    match name.strip_prefix("news/subscriptions/") {
        Some(name) => {
            let it = admin.subscription("news", name).await;
            let it = it.expect("read").settings;
            (it.status, text(it.forward_to), text(it.user_metadata))
        }
        None => {
            let it = admin.queue(name).await.expect("read").settings;
            (it.status, text(it.forward_to), text(it.user_metadata))
        }
    }
}

fn check(server: &Server, name: &str, expected: (EntityStatus, Option<&str>, Option<&str>)) {
    let found = load::run(async { late(&admin(server), name).await });
    let text = |it: Option<&str>| it.map(str::to_owned);
    let expected = (Some(expected.0), text(expected.1), text(expected.2));
    assert_eq!(found, expected, "{name}");
}

#[test]
fn what_was_there_keeps_its_status_and_its_targets() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    load::run(async {
        let admin = admin(&server);
        let forwards = || Some("audit".to_owned());
        let audit = QueueSettings::default();
        let old = QueueSettings {
            forward_to: forwards(),
            ..QueueSettings::default()
        };
        let a = SubscriptionSettings {
            forward_to: forwards(),
            ..SubscriptionSettings::default()
        };
        let off = SubscriptionSettings {
            status: Some(EntityStatus::Disabled),
            ..SubscriptionSettings::default()
        };
        admin.create_queue("audit", &audit).await.expect("created");
        admin.create_queue("old", &old).await.expect("created");
        let topic = TopicSettings::default();
        admin.create_topic("news", &topic).await.expect("created");
        for (name, settings) in [("a", &a), ("off", &off)] {
            let created = admin.create_subscription("news", name, settings).await;
            created.expect("created");
        }
    });
    let rule = |name: &str| {
        json!({"version": 1, "service": "service-bus", "topic": "news", "subscription": name, "rule": "$Default",
            "filter": "true"})
    };
    let lines = [
        defined(
            "old",
            &json!({"status": "SendDisabled", "lock_duration_ms": 9_000}),
        ),
        topic(&json!({"status": "Disabled"})),
        subscription("a", &json!({"status": "ReceiveDisabled"})),
        rule("a"),
        subscription("off", &json!({"forward_to": "old"})),
        rule("off"),
    ];
    let file = write(place.path(), &ended(&lines));
    let imported = ok(
        &server,
        &["import", "--file", file.to_str().expect("UTF-8")],
    );
    for told in [
        "the queue old exists, and keeps its own settings: lock_duration_ms, status, forward_to",
        "the topic news exists, and keeps its own settings: status",
        "the subscription news/subscriptions/a exists, and keeps its own settings: status, forward_to",
        "the subscription news/subscriptions/off exists, and keeps its own settings: forward_to",
    ] {
        assert!(imported.err.contains(told), "{told}: {imported:?}");
    }
    let active = EntityStatus::Active;
    check(&server, "old", (active.clone(), Some("audit"), None));
    check(&server, "news", (active.clone(), None, None));
    check(
        &server,
        "news/subscriptions/a",
        (active, Some("audit"), None),
    );
    let off = (EntityStatus::Disabled, None, None);
    check(&server, "news/subscriptions/off", off);
    server.terminate();
}

#[test]
fn a_file_that_ends_early_finishes_nothing() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    let mut lines = vec![defined("work", &json!({"status": "SendDisabled"}))];
    lines.extend(many_rules(6));
    let whole = ended(&lines);
    // In the rules of the second subscription.
    let file = write(place.path(), &whole[..13]);
    let path = file.to_str().expect("UTF-8");
    let cut = kew(&server, &["import", "--file", path]);
    assert_eq!(cut.code, 1, "{cut:?}");
    for told in [
        "has not finished what it created: work, news, news/subscriptions/a, news/subscriptions/b;",
        "import the whole file, or add --allow-partial",
    ] {
        assert!(cut.err.contains(told), "{told}: {cut:?}");
    }
    let open = (EntityStatus::Active, None, Some(UNFINISHED));
    for name in [
        "work",
        "news",
        "news/subscriptions/a",
        "news/subscriptions/b",
    ] {
        check(&server, name, open.clone());
    }
    // Its rules would look like all of them.
    let exported = kew(&server, &["export", "--definitions-only"]);
    assert_eq!(exported.code, 1, "{exported:?}");
    for told in [
        "queue work",
        "topic news",
        "subscription news/subscriptions/b",
    ] {
        let told = format!("the {told} was not exported as it will be");
        assert!(exported.err.contains(&told), "{told}: {exported:?}");
    }
    for absent in ["\"end\"", "\"rule\"", UNFINISHED] {
        assert!(!exported.text().contains(absent), "{absent}: {exported:?}");
    }

    let imported = report(&server, &write(place.path(), &whole), &[]);
    assert_eq!(
        (&imported["rules_created"], &imported["rules_already_there"]),
        (&json!(9), &json!(9)),
        "{imported}"
    );
    let exported = export(&server, &["--definitions-only"]);
    assert_eq!(names(&exported, "rule").len(), 18, "{exported:?}");
    let closed = (EntityStatus::SendDisabled, None, None);
    check(&server, "work", closed.clone());
    check(&server, "news", closed);
    check(
        &server,
        "news/subscriptions/b",
        (EntityStatus::Disabled, None, None),
    );
    server.terminate();

    // A part of a file is an import of its own, if that is wanted.
    let server = start(&place.path().join("other"));
    let file = write(place.path(), &whole[..13]);
    let imported = report(&server, &file, &["--allow-partial"]);
    assert_eq!(imported["rules_created"], 9, "{imported}");
    check(
        &server,
        "news/subscriptions/b",
        (EntityStatus::Disabled, None, None),
    );
    let exported = export(&server, &["--definitions-only"]);
    assert_eq!(names(&exported, "rule").len(), 9, "{exported:?}");
    server.terminate();
}

/// A refused entity stays open, the others are finished, and a repeat continues with it.
#[test]
fn an_entity_that_is_refused_does_not_hold_up_the_others() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    let state = json!({"version": 1, "service": "service-bus", "queue": "news/subscriptions/Talks", "session_id": "s",
        "session_state": {"text": "half done"}});
    let lines = [
        defined("in", &json!({"forward_to": "missing"})),
        defined(
            "work",
            &json!({"status": "SendDisabled", "user_metadata": "of ours"}),
        ),
        topic(&json!({"status": "SendDisabled"})),
        subscription("b", &json!({"forward_to": "missing"})),
        subscription(
            "talks",
            &json!({"requires_session": true, "status": "ReceiveDisabled"}),
        ),
        state,
    ];
    let file = write(place.path(), &ended(&lines));
    let import = ["import", "--file", file.to_str().expect("UTF-8")];
    let refused = kew(&server, &import);
    assert_eq!(refused.code, 1, "{refused:?}");
    for told in [
        "the queue in is not finished: ",
        "(it did not get forward_to)",
        "the subscription news/subscriptions/b is not finished: ",
        "the topic news is not finished: a subscription of it is not finished",
        "3 entities did not get their last settings",
    ] {
        assert!(refused.err.contains(told), "{told}: {refused:?}");
    }
    let work = (EntityStatus::SendDisabled, None, Some("of ours"));
    let talks = (EntityStatus::ReceiveDisabled, None, None);
    check(&server, "work", work.clone());
    check(&server, "news/subscriptions/talks", talks.clone());
    let open = (EntityStatus::Active, None, Some(UNFINISHED));
    for name in ["in", "news", "news/subscriptions/b"] {
        check(&server, name, open.clone());
    }

    // The state of a session of the closed subscription was set before.
    ok(&server, &["bus", "create", "missing"]);
    for _ in 0..2 {
        let again = report(&server, &file, &[]);
        let states = ["session_states", "session_states_already_there"];
        assert_eq!(
            states.map(|it| &again[it]),
            [&json!(0), &json!(1)],
            "{again}"
        );
        check(&server, "work", work.clone());
        check(&server, "in", (EntityStatus::Active, Some("missing"), None));
        check(&server, "news", (EntityStatus::SendDisabled, None, None));
        let b = (EntityStatus::Active, Some("missing"), None);
        check(&server, "news/subscriptions/b", b);
        check(&server, "news/subscriptions/talks", talks.clone());
    }
    let repeated = ok(&server, &import);
    assert!(!repeated.err.contains("keeps its own"), "{repeated:?}");
    server.terminate();
}

/// What is sent to a topic again if its status lets it through no more.
#[test]
fn a_closed_topic_has_all_its_messages() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    let members = json!({"scheduled_at_ms": 1, "facts": {"state": "scheduled"}});
    let passed = line("news", "passed", &members);
    let rule = json!({"version": 1, "service": "service-bus", "topic": "news", "subscription": "a", "rule": "all",
        "filter": "true"});
    let lines = [
        topic(&json!({"status": "SendDisabled"})),
        subscription("a", &json!({})),
        rule,
        passed,
    ];
    let file = write(place.path(), &ended(&lines));
    for (sent, there) in [(1, 0), (0, 1)] {
        let imported = report(&server, &file, &[]);
        let found = ["messages_sent", "messages_already_there"].map(|it| &imported[it]);
        assert_eq!(found, [&json!(sent), &json!(there)], "{imported}");
    }
    let peek = ["bus", "peek", "news/subscriptions/a", "--json"];
    let peeked = ok(&server, &peek).json();
    assert_eq!(peeked.as_array().map(Vec::len), Some(1), "{peeked}");
    server.terminate();
}
