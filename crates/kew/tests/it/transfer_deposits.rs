//! `kew export` and `kew import` of messages in subscriptions: kills, limits, rights, and schedules that end meanwhile.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kew_client::{
    BusAdmin, Message, QueueRule, Right, Secret, SubscriptionSettings, TopicSettings,
    UnknownElements,
};
use serde_json::{Value, json};

use crate::bus_load::Door;
use crate::client::{command, finish};
use crate::load;
use crate::transfer::{
    admin, ended, export, fact, import_with_kills, kew_of, line, messages_of, ok, places_and_ids,
    report, start, write,
};

const PLAIN: &str = "news/subscriptions/plain";
const TALKS: &str = "news/subscriptions/talks";

async fn subscribe(admin: &BusAdmin, topic: &str, name: &str) {
    let settings = SubscriptionSettings::default();
    let created = admin.create_subscription(topic, name, &settings).await;
    created.expect("created");
}

/// A topic with these subscriptions, as lines.
fn definitions(topic: &Value, subscriptions: &[(&str, Value)]) -> Vec<Value> {
    let topic =
        json!({"version": 1, "service": "service-bus", "topic": "news", "definition": topic});
    let mut lines = vec![topic];
    for (name, definition) in subscriptions {
        let names =
            json!({"version": 1, "service": "service-bus", "topic": "news", "subscription": name});
        for (member, value) in [("definition", definition), ("rule", &json!("all"))] {
            let mut line = names.clone();
            line[member] = value.clone();
            if member == "rule" {
                line["filter"] = json!("true");
            }
            lines.push(line);
        }
    }
    lines
}

#[test]
fn a_killed_import_puts_nothing_twice_into_subscriptions() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    let mut lines = definitions(
        &json!({}),
        &[
            ("plain", json!({})),
            ("talks", json!({"requires_session": true})),
        ],
    );
    lines.extend(messages_of(PLAIN, [120, 120, 1_500], false));
    lines.extend(messages_of(TALKS, [120, 120, 600], true));
    let lines = ended(&lines);
    let exported = import_with_kills(&server, place.path(), &lines);
    assert!(
        exported == places_and_ids(&lines),
        "a message is at another place"
    );
    // A repeat finds all of it.
    let again = report(&server, &place.path().join("lines"), &[]);
    assert_eq!(again["messages_sent"], 0, "{again}");
    server.terminate();
}

/// All copies of a publish count once. The same messages, put into each subscription, do not.
#[test]
fn copies_of_a_full_topic_come_back() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let from = start(&place.path().join("from"));
    load::run(async {
        let admin = admin(&from);
        let topic = TopicSettings {
            max_size_megabytes: Some(1),
            ..TopicSettings::default()
        };
        admin.create_topic("news", &topic).await.expect("created");
        for name in ["a", "b", "c"] {
            subscribe(&admin, "news", name).await;
        }
        let sender = Door::of(&from).client().sender("news").await;
        let sender = sender.expect("a sender");
        for _ in 0..8 {
            let message = Message::new(Bytes::from(vec![b'x'; 100_000]));
            sender.send(&message).await.expect("sent");
        }
    });
    let lines = export(&from, &[]);
    let file = write(place.path(), &lines);
    let to = start(&place.path().join("to"));
    let file = file.to_str().expect("UTF-8");
    let imported = ok(&to, &["import", "--json", "--file", file]);
    assert_eq!(imported.json()["messages_sent"], 24, "{imported:?}");
    let refuses =
        "and at most 1048576 are allowed: imported copies share no bodies. It refuses sends";
    assert!(imported.err.contains(refuses), "{imported:?}");
    assert_eq!(places_and_ids(&export(&to, &[])), places_and_ids(&lines));
    let size = load::run(async {
        let topic = admin(&to).topic("news").await.expect("read");
        topic.settings.max_size_megabytes
    });
    assert_eq!(size, Some(1));
    from.terminate();
    to.terminate();
}

/// Who may manage the topic alone learns that, and nothing is left out in silence.
#[test]
fn messages_of_subscriptions_need_manage_of_the_namespace() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    let key = "bWFuYWdlcyB0aGlzIHRvcGljIG9ubHkgYW5kIG5vIG90aGVyIQ==";
    load::run(async {
        let rule = QueueRule {
            name: "owner".into(),
            rights: vec![Right::Manage, Right::Send, Right::Listen],
            primary_key: Some(Secret::new(key)),
            secondary_key: Some(Secret::new(key)),
            unknown: UnknownElements::default(),
        };
        let topic = TopicSettings {
            authorization_rules: Some(vec![rule]),
            ..TopicSettings::default()
        };
        let admin = admin(&server);
        admin.create_topic("news", &topic).await.expect("created");
        subscribe(&admin, "news", "plain").await;
    });
    let lines = ended(&[line(PLAIN, "1", &json!({"facts": {"state": "active"}}))]);
    let file = write(place.path(), &lines);
    let file = file.to_str().expect("UTF-8");
    let parts = fact(&server, "KEW_BUS_CONNECTION_STRING").split(';');
    let kept = parts.filter(|it| !it.is_empty() && !it.starts_with("SharedAccessKey"));
    let kept = kept.collect::<Vec<_>>().join(";");
    let owner = format!("{kept};SharedAccessKeyName=owner;SharedAccessKey={key};EntityPath=news");
    let mut import = command("");
    import.args(["import", "--file", file, "--connection-string", &owner]);
    let refused = finish(import, b"");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused
            .err
            .contains("Kew allows that with Manage of the whole namespace"),
        "{refused:?}"
    );
    let imported = report(&server, file.as_ref(), &[]);
    assert_eq!(imported["messages_sent"], 1, "{imported}");
    server.terminate();
}

/// Its copies are in subscriptions that were read before they came.
#[test]
fn a_message_whose_time_comes_during_an_export_is_told() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    load::run(async {
        let admin = admin(&server);
        for topic in ["news", "old"] {
            let settings = TopicSettings::default();
            admin.create_topic(topic, &settings).await.expect("created");
            subscribe(&admin, topic, "plain").await;
        }
        let sender = Door::of(&server).client().sender("old").await;
        let sender = sender.expect("a sender");
        for _ in 0..20 {
            let message = Message::new(Bytes::from(vec![b'x'; 100_000]));
            sender.send(&message).await.expect("sent");
        }
    });
    ok(&server, &["bus", "send", "news", "later", "--delay", "8s"]);
    let begun = Instant::now();
    // It waits for someone who reads what it has of the other topic. So it has read the first subscription.
    let child = kew_of(&server, &["export"]).spawn();
    let child = child.expect("kew was built with this test");
    let passed = Duration::from_secs(10).saturating_sub(begun.elapsed());
    std::thread::sleep(passed);
    let output = child.wait_with_output().expect("our own child");
    let (text, told) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(!text.contains("later"), "it was exported");
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("1 messages that were scheduled in the topic news left it during the export"),
        "{told}"
    );
    assert!(!text.contains("\"end\""), "the file looks whole");
    let again = export(&server, &[]);
    assert_eq!(places_and_ids(&again).len(), 21);
    server.terminate();
}
