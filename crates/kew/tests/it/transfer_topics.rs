//! `kew export` and `kew import` of topics: a round trip, repeats after a kill, and what is left out.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kew_client::{
    BusAdmin, BusClient, Changes, CorrelationFilter, EntityStatus, Filter, FilterValue, NewRule,
    QueueRule, QueueSettings, Right, RuleSettings, SessionChoice, Sql, SubscriptionSettings,
    TopicSettings, UnknownElements, Uuid,
};
use serde_json::{Value, json};

use crate::bus_load::Door;
use crate::load::{self, Random};
use crate::server::Server;
use crate::transfer::{
    AT_ONCE, admin, comparables, ended, export, fact, kew, kew_of, line, ok, report, start, write,
};

/// The mark of what an import has not finished.
pub(crate) const UNFINISHED: &str = "kew-import-unfinished";

const TALKS: &str = "news/subscriptions/talks";

fn sql(text: &str, parameters: &[(&str, FilterValue)]) -> Sql {
    let parameters = parameters.iter();
    Sql {
        parameters: parameters
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect(),
        ..Sql::new(text)
    }
}

fn other(kind: &str, text: &str) -> FilterValue {
    FilterValue::Other {
        kind: kind.into(),
        text: text.into(),
    }
}

/// Filters and actions of every kind, with values of many types.
fn rules() -> Vec<(&'static str, Filter, Option<Sql>)> {
    let typed = [
        ("@int", FilterValue::Int(5)),
        ("@long", FilterValue::Long(1 << 60)),
        ("@span", FilterValue::Span(72_000_000_000)),
        ("@text", FilterValue::from("a <b> & \"c\"")),
    ];
    let by_sql = sql(
        "n > @int AND n < @long AND span <> @span AND t = @text",
        &typed,
    );
    let properties = [
        ("flag", FilterValue::Boolean(true)),
        ("id", FilterValue::Uuid(Uuid([7; 16]))),
        ("size", other("unsignedInt", "7")),
        ("share", FilterValue::Double(0.5)),
        ("price", other("decimal", "1.5")),
        ("from", other("dateTime", "2026-01-31T12:00:00.5Z")),
    ];
    let properties = properties
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    let correlation = CorrelationFilter {
        subject: Some("order".into()),
        session_id: Some("s".into()),
        properties: properties.collect(),
        ..CorrelationFilter::default()
    };
    vec![
        ("by-sql", Filter::Sql(by_sql), None),
        (
            "by-properties",
            Filter::Correlation(Box::new(correlation)),
            Some(sql(
                "SET seen = @n; REMOVE color",
                &[("@n", FilterValue::Int(1))],
            )),
        ),
        ("none", Filter::False, None),
        ("$Default", Filter::True, None),
    ]
}

fn settings(filter: Filter, action: Option<Sql>) -> RuleSettings {
    RuleSettings {
        filter,
        action,
        ..RuleSettings::default()
    }
}

/// A topic with every setting, and subscriptions with sessions, several rules, another first rule, and none.
async fn define(admin: &BusAdmin) {
    let queue = QueueSettings::default();
    admin.create_queue("failed", &queue).await.expect("created");
    let rule = QueueRule {
        name: "sender".into(),
        rights: vec![Right::Send],
        primary_key: None,
        secondary_key: None,
        unknown: UnknownElements::default(),
    };
    let topic = TopicSettings {
        default_time_to_live: Some(Duration::from_hours(24)),
        max_size_megabytes: Some(2048),
        requires_duplicate_detection: Some(true),
        duplicate_window: Some(Duration::from_mins(1)),
        user_metadata: Some("of ours".into()),
        authorization_rules: Some(vec![rule]),
        ..TopicSettings::default()
    };
    admin.create_topic("news", &topic).await.expect("created");
    let talks = SubscriptionSettings {
        requires_session: Some(true),
        lock_duration: Some(Duration::from_secs(30)),
        forward_dead_letters_to: None,
        ..SubscriptionSettings::default()
    };
    let ruled = SubscriptionSettings {
        max_delivery_count: Some(3),
        dead_letters_filter_failures: Some(false),
        forward_dead_letters_to: Some("failed".into()),
        ..SubscriptionSettings::default()
    };
    let first = SubscriptionSettings {
        default_rule: Some(NewRule {
            name: "first".into(),
            settings: settings(Filter::Sql(Sql::new("color = 'red'")), None),
        }),
        status: Some(EntityStatus::ReceiveDisabled),
        ..SubscriptionSettings::default()
    };
    let none = SubscriptionSettings::default();
    for (name, settings) in [
        ("talks", &talks),
        ("ruled", &ruled),
        ("first", &first),
        ("none", &none),
    ] {
        let created = admin.create_subscription("news", name, settings).await;
        created.expect("created");
    }
    let removed = admin.delete_rule("news", "none", "$Default").await;
    removed.expect("removed");
    for (name, filter, action) in rules().into_iter().filter(|it| it.0 != "$Default") {
        let rule = settings(filter, action);
        let added = admin.create_rule("news", "ruled", name, &rule).await;
        let created_at = added.expect("added").state.created_at.expect("a time");
        // The next one is created in another millisecond.
        while created_at + Duration::from_millis(1) > SystemTime::now() {
            tokio::task::yield_now().await;
        }
    }
}

/// Messages in both states, a dead letter and a state of a session.
async fn publish(bus: &BusClient) {
    let sender = bus.sender("news").await.expect("a sender");
    for id in ["1", "2", "dead"] {
        let message = kew_client::Message {
            id: Some(id.into()),
            session_id: Some("s1".into()),
            ..kew_client::Message::new(id)
        };
        sender.send(&message).await.expect("sent");
    }
    let session = bus.session(TALKS, SessionChoice::named("s1"), AT_ONCE);
    let mut session = session.await.expect("locked");
    let mut count = 0;
    while count < 3 {
        let messages = session.receive_batch(3, Duration::ZERO).await;
        for message in messages.expect("received") {
            count += 1;
            if message.id().as_deref() == Some("dead") {
                let done = message.dead_letter("Late", "it came late", Changes::new());
                done.await.expect("dead-lettered");
            }
        }
    }
    let set = session.set_state(Some(Bytes::from_static(b"half done")));
    set.await.expect("set");
    session.close().await.expect("closed");
}

fn fill(server: &Server) {
    load::run(async {
        define(&admin(server)).await;
        publish(&Door::of(server).client()).await;
    });
}

/// The lines that are no messages. Rules that were created in the same millisecond have no order.
fn without_messages(lines: &[Value]) -> Vec<Value> {
    let is_kept = |line: &&Value| line.get("body").is_none() && line.get("end").is_none();
    let mut kept: Vec<Value> = lines.iter().filter(is_kept).cloned().collect();
    let key = |line: &Value| ["topic", "subscription", "rule"].map(|it| line[it].to_string());
    kept.sort_by_key(key);
    kept
}

/// The messages, as far as an import restores them.
fn messages(lines: &[Value]) -> Vec<Value> {
    let messages = lines.iter().filter(|line| line.get("body").is_some());
    let restored = messages.map(|line| {
        let mut line = line.clone();
        line["facts"] = json!({"state": line["facts"]["state"]});
        line
    });
    restored.collect()
}

pub(crate) fn names(lines: &[Value], member: &str) -> Vec<String> {
    let names = lines.iter().filter_map(|line| line[member].as_str());
    names.map(str::to_owned).collect()
}

#[test]
fn topics_come_back_in_a_fresh_server() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let from = start(&place.path().join("from"));
    fill(&from);
    let first = export(&from, &["--with-keys"]);
    let end = first.last().expect("an end")["end"].clone();
    // A queue, a topic, four subscriptions, and their rules: 1 + 4 + 1 + 0. Two of them got all messages.
    assert_eq!(
        end,
        json!({"definitions": 12, "session_states": 1, "messages": 6})
    );
    // Copies come in the order in which rules were created. So do the lines.
    assert_eq!(
        names(&first, "rule"),
        [
            "first",
            "$Default",
            "by-sql",
            "by-properties",
            "none",
            "$Default"
        ],
        "{first:?}"
    );
    let by_sql = first.iter().find(|it| it["rule"] == "by-sql");
    let parameters = &by_sql.expect("it is there")["filter"]["sql"]["parameters"];
    assert_eq!(
        parameters,
        &json!({"@int": {"int": 5}, "@long": {"long": "1152921504606846976"},
            "@span": {"timespan_ticks": 72_000_000_000_i64}, "@text": "a <b> & \"c\""})
    );
    let dead = format!("{TALKS}/$deadletterqueue");
    assert!(names(&first, "queue").contains(&dead), "{first:?}");

    let file = write(place.path(), &first);
    let to = start(&place.path().join("to"));
    let dry = report(&to, &file, &["--dry-run"]);
    assert_eq!(dry["would_import"], end);
    let imported = report(&to, &file, &[]);
    for (name, expected) in [
        ("queues_created", 1),
        ("topics_created", 1),
        ("subscriptions_created", 4),
        ("rules_created", 6),
        ("rules_already_there", 0),
        ("session_states", 1),
        ("messages_sent", 6),
        ("dead_letters", 1),
    ] {
        assert_eq!(imported[name], expected, "{name}: {imported}");
    }
    let counted = &imported["not_restored"];
    assert_eq!(counted["sequence_number"], 6, "{imported}");
    assert_eq!(counted["subscription_message"], json!(null), "{imported}");
    let second = export(&to, &["--with-keys"]);
    assert_eq!(without_messages(&second), without_messages(&first));
    // Each message is in its subscription, and in no other one.
    assert_eq!(messages(&second), messages(&first));
    check_rules(&to);

    // A repeat finds all of it and changes nothing.
    let again = report(&to, &file, &[]);
    for (name, expected) in [
        ("messages_already_there", 6),
        ("messages_sent", 0),
        ("topics_created", 0),
        ("topics_already_there", 1),
        ("subscriptions_created", 0),
        ("subscriptions_already_there", 4),
        ("rules_created", 0),
        ("rules_already_there", 6),
    ] {
        assert_eq!(again[name], expected, "{name}: {again}");
    }
    let repeated = ok(&to, &["import", "--file", file.to_str().expect("UTF-8")]);
    assert!(!repeated.err.contains("keeps its own"), "{repeated:?}");
    assert_eq!(
        without_messages(&export(&to, &["--with-keys"])),
        without_messages(&first)
    );
    assert_eq!(
        comparables(&export(&from, &["--with-keys"])),
        comparables(&first)
    );
    from.terminate();
    to.terminate();
}

/// What the service has, apart from any form of lines.
fn check_rules(server: &Server) {
    load::run(async {
        let admin = admin(server);
        let page = admin.rules("news", "ruled", 0).await.expect("read");
        assert_eq!(page.items.len(), rules().len());
        for (name, filter, action) in rules() {
            let found = admin.rule("news", "ruled", name).await.expect(name);
            let found = found.settings;
            match (&found.filter, &filter) {
                (Filter::True, Filter::True) | (Filter::False, Filter::False) => {}
                (Filter::Sql(found), Filter::Sql(wanted)) => {
                    assert_eq!(
                        (&found.text, &found.parameters),
                        (&wanted.text, &wanted.parameters)
                    );
                }
                (Filter::Correlation(found), Filter::Correlation(wanted)) => {
                    let sorted = |filter: &CorrelationFilter| {
                        let mut filter = filter.clone();
                        filter.properties.sort_by(|a, b| a.0.cmp(&b.0));
                        // The client reads a time as one, however it is written.
                        for (_, value) in filter.properties.iter_mut().filter(|it| it.0 == "from") {
                            let time = UNIX_EPOCH + Duration::from_millis(1_769_860_800_500);
                            let text = other("dateTime", "2026-01-31T12:00:00.5Z");
                            assert!(
                                [&text, &FilterValue::Time(time)].contains(&&*value),
                                "{value:?}"
                            );
                            *value = text;
                        }
                        filter
                    };
                    assert_eq!(sorted(found), sorted(wanted));
                }
                (found, wanted) => panic!("{found:?} is not {wanted:?}"),
            }
            let parts = |it: &Option<Sql>| {
                let parts = it.as_ref();
                parts.map(|it| (it.text.clone(), it.parameters.clone()))
            };
            assert_eq!(parts(&found.action), parts(&action), "{name}");
        }
        let none = admin.rules("news", "none", 0).await.expect("read");
        assert!(none.items.is_empty(), "{none:?}");
    });
}

#[test]
fn parts_of_a_namespace_are_selected() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let from = start(&place.path().join("from"));
    fill(&from);
    let bus = fact(&from, "KEW_BUS_CONNECTION_STRING").to_owned();
    let only = ["--connection-string", bus.as_str()];
    let select = |more: &[&str]| export(&from, &[&only[..], more].concat());
    // The definition of a topic comes with its subscription, and keys only if they are wanted.
    let one = select(&["--queue", TALKS]);
    assert_eq!(names(&one, "topic"), ["news"; 3], "{one:?}");
    assert_eq!(names(&one, "rule"), ["$Default"]);
    assert_eq!(names(&one, "queue").len(), 4, "{one:?}");
    assert_eq!(
        one[0]["definition"]["authorization_rules"],
        json!([{"name": "sender", "rights": ["Send"]}])
    );
    let all = select(&["--queue", TALKS, "--queue", "NEWS", "--definitions-only"]);
    let end = json!({"definitions": 11, "session_states": 0, "messages": 0});
    assert_eq!(all.last().expect("an end")["end"], end, "{all:?}");
    let missing = [&["export", "--queue", "news/subscriptions/no"][..], &only].concat();
    kew(&from, &missing).check_error(1, &["news/subscriptions/no"]);

    // An import selects in the same way.
    let file = write(place.path(), &export(&from, &[]));
    let to = start(&place.path().join("to"));
    // Its dead letters go to the queue.
    let both = ["--queue", "news/Subscriptions/RULED", "--queue", "failed"];
    let imported = report(&to, &file, &both);
    let expected = json!([1, 1, 1, 4, 0]);
    let found = [
        "queues_created",
        "topics_created",
        "subscriptions_created",
        "rules_created",
        "session_states",
    ];
    assert_eq!(json!(found.map(|it| &imported[it])), expected);
    assert_eq!(imported["messages_sent"], 3, "{imported}");
    assert_eq!(imported["not_restored"]["key"], 1, "{imported}");
    from.terminate();
    to.terminate();
}

/// A subscription with so many rules, all after one topic.
pub(crate) fn many_rules(count: u64) -> Vec<Value> {
    let names = json!({"version": 1, "service": "service-bus", "topic": "news"});
    let with = |members: Value| {
        let mut line = names.clone();
        let members = members.as_object().expect("members").clone();
        line.as_object_mut().expect("an object").extend(members);
        line
    };
    let mut lines = vec![with(json!({"definition": {"status": "SendDisabled"}}))];
    for subscription in ["a", "b", "c"] {
        lines.push(with(
            json!({"subscription": subscription, "definition": {"status": "Disabled"}}),
        ));
        for number in 0..count {
            let filter = json!({"correlation": {"properties": {"n": {"long": number}}}});
            let rule = format!("rule-{number}");
            lines.push(with(
                json!({"subscription": subscription, "rule": rule, "filter": filter}),
            ));
        }
    }
    lines
}

/// How many rules there are, and whether a subscription has the mark of an import.
async fn progress(admin: &BusAdmin) -> (usize, bool) {
    let (mut count, mut is_marked) = (0, false);
    for name in ["a", "b", "c"] {
        if let Ok(found) = admin.subscription("news", name).await {
            is_marked |= found.settings.user_metadata.as_deref() == Some(UNFINISHED);
            let page = admin.rules("news", name, 0).await.expect("read");
            count += page.items.len();
        }
    }
    (count, is_marked)
}

#[test]
fn a_killed_import_has_exactly_the_rules_of_its_lines_when_it_is_repeated() {
    let mut random = Random::new(load::seed());
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    let lines = many_rules(60);
    let file = write(place.path(), &ended(&lines));
    let import = ["import", "--json", "--file", file.to_str().expect("UTF-8")];
    let admin = admin(&server);
    let mut interrupted = 0;
    for least in [1, 20, 55, 70, 110, 140, 170] {
        let least = least + usize::try_from(random.below(12)).expect("it is small");
        let mut child = kew_of(&server, &import)
            .spawn()
            .expect("kew was built with this test");
        drop(child.stdin.take());
        while child.try_wait().expect("our own child").is_none()
            && load::run(progress(&admin)).0 < least
        {}
        child.kill().expect("our own child");
        let output = child.wait_with_output().expect("our own child");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), None | Some(0)), "{text}");
        assert!(!text.contains("keeps its own"), "{text}");
        let (count, is_marked) = load::run(progress(&admin));
        let is_between = output.status.code().is_none() && is_marked && count > 0;
        interrupted += usize::from(is_between);
    }
    assert!(interrupted > 0, "no import was killed between two rules");
    let done = report(&server, &file, &[]);
    let rules = ["rules_created", "rules_already_there"];
    let rules = rules.iter().filter_map(|it| done[it].as_u64());
    assert_eq!(rules.sum::<u64>(), 180, "{done}");
    let exported = export(&server, &["--definitions-only"]);
    let sorted = |lines: &[Value]| {
        let mut names: Vec<String> = lines
            .iter()
            .filter(|it| it.get("rule").is_some())
            .map(Value::to_string)
            .collect();
        names.sort();
        names
    };
    assert_eq!(sorted(&exported), sorted(&lines));
    let status = |line: &&Value| line.get("definition").is_some();
    let status = exported.iter().filter(status);
    let status: Vec<&Value> = status.map(|it| &it["definition"]["status"]).collect();
    assert_eq!(status, ["SendDisabled", "Disabled", "Disabled", "Disabled"]);
    server.terminate();
}

/// What a killed import leaves, at any moment.
#[test]
fn an_unfinished_subscription_is_completed_and_not_exported() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    ok(&server, &["bus", "topic", "create", "news"]);
    let name = "news/subscriptions/a";
    let create = ["bus", "subscription", "create", name, "--false"];
    let mark = ["--rule-name", UNFINISHED, "--user-metadata", UNFINISHED];
    ok(&server, &[&create[..], &mark].concat());
    let rule = ["bus", "rule", "add", name, "rule-0", "--correlation"];
    ok(&server, &[&rule[..], &[r#"n={"long":0}"#]].concat());
    let refused = kew(&server, &["export", "--definitions-only"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused
            .err
            .contains("the subscription news/subscriptions/a was not exported as it will be: an import has not"),
        "{refused:?}"
    );
    assert!(!refused.text().contains("\"end\""), "{refused:?}");
    assert!(!refused.text().contains("\"rule\""), "{refused:?}");
    // The lines had another rule, and another content of one, when they were imported before.
    let other = ["bus", "rule", "add", name];
    ok(
        &server,
        &[&other[..], &["Rule-1", "--correlation", "n=8"]].concat(),
    );
    ok(&server, &[&other[..], &["rule-9", "--true"]].concat());
    let file = write(place.path(), &ended(&many_rules(3)[..5]));
    let imported = report(&server, &file, &[]);
    assert_eq!(
        (&imported["rules_created"], &imported["rules_already_there"]),
        (&json!(1), &json!(2)),
        "{imported}"
    );
    let exported = export(&server, &["--definitions-only"]);
    assert_eq!(names(&exported, "rule"), ["rule-0", "rule-1", "rule-2"]);
    let second = exported.iter().find(|it| it["rule"] == "rule-1");
    let filter = &second.expect("it is there")["filter"];
    assert_eq!(
        filter,
        &json!({"correlation": {"properties": {"n": {"long": 1}}}})
    );
    server.terminate();
}

#[test]
fn messages_of_a_topic_are_published_when_their_time_has_passed() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    let mut lines = many_rules(0);
    lines[0]["definition"] = json!({});
    lines[1]["definition"] = json!({});
    let rule = json!({"rule": "all", "filter": "true"});
    let mut all = lines[1].clone();
    let all_members = all.as_object_mut().expect("an object");
    all_members.remove("definition");
    all_members.extend(rule.as_object().expect("members").clone());
    lines.insert(2, all);
    let passed = json!({"scheduled_at_ms": 1, "facts": {"state": "scheduled"}});
    lines.push(line(
        "news/$transfer/$deadletterqueue",
        "failed",
        &json!({}),
    ));
    lines.push(line("news", "passed", &passed));
    let file = write(place.path(), &ended(&lines));
    let imported = report(&server, &file, &[]);
    assert_eq!(imported["messages_sent"], 1, "{imported}");
    assert_eq!(
        imported["not_restored"],
        json!({"scheduled_at": 1, "topic_dead_letter": 1})
    );
    let peek = ["bus", "peek", "news/subscriptions/a", "--json"];
    let peeked = ok(&server, &peek).json();
    assert_eq!(peeked[0]["message_id"], "passed", "{peeked}");
    // Nothing tells whether it was published before, and a note says so.
    let again = ok(
        &server,
        &["import", "--file", file.to_str().expect("UTF-8")],
    );
    let told =
        "the topic news was there before, and 1 messages whose time has passed were published";
    assert!(again.err.contains(told), "{again:?}");
    server.terminate();
}

#[test]
fn what_is_there_otherwise_stays_and_is_told() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    ok(&server, &["bus", "topic", "create", "news", "--ttl", "1h"]);
    let create = ["bus", "subscription", "create", "news/subscriptions/a"];
    ok(&server, &[&create[..], &["--lock-duration", "5s"]].concat());
    let rule = ["bus", "rule", "add", "news/subscriptions/a", "rule-0"];
    ok(&server, &[&rule[..], &["--correlation", "n=7"]].concat());
    let mut lines = many_rules(2);
    lines[0]["definition"]["default_time_to_live_ms"] = json!(1000);
    lines[1]["definition"]["lock_duration_ms"] = json!(9000);
    let file = write(place.path(), &ended(&lines));
    let imported = ok(
        &server,
        &["import", "--file", file.to_str().expect("UTF-8")],
    );
    for told in [
        "the topic news exists, and keeps its own settings: default_time_to_live_ms, status",
        "the subscription news/subscriptions/a exists, and keeps its own settings: lock_duration_ms, status",
        "the subscription news/subscriptions/a exists, and keeps its own rules, which differ: rule-0, rule-1, $Default",
    ] {
        assert!(imported.err.contains(told), "{told}: {imported:?}");
    }
    for text in [
        "topics: 0 created, 1 already there",
        "subscriptions: 2 created, 1 already there",
        "rules: 4 created, 1 already there",
    ] {
        assert!(imported.text().contains(text), "{text}: {imported:?}");
    }
    let rules = ok(&server, &["bus", "rule", "list", "news/subscriptions/a"]);
    assert!(rules.text().contains("$Default"), "{rules:?}");
    assert!(!rules.text().contains("rule-1"), "{rules:?}");
    load::run(async {
        let admin = admin(&server);
        let topic = admin.topic("news").await.expect("read").settings;
        let subscription = admin.subscription("news", "a").await;
        let status = subscription.expect("read").settings.status;
        assert_eq!(topic.status, Some(EntityStatus::Active));
        assert_eq!(status, Some(EntityStatus::Active));
    });

    // Wrong lines are named before anything is sent.
    lines[3]["filter"] = json!({"sql": {"text": "a = @b", "parameters": {"@b": 7}}});
    lines.push(line("news/subscriptions/no", "1", &json!({})));
    let file = write(place.path(), &lines);
    let file = file.to_str().expect("UTF-8");
    let dry = kew(&server, &["import", "--dry-run", "--file", file]);
    assert_eq!(dry.code, 2, "{dry:?}");
    let wrong = "line 4: filter: parameter @b: the number 7 has no type";
    assert!(dry.err.contains(wrong), "{dry:?}");
    lines[3] = lines[2].clone();
    std::fs::write(file, lines.last().expect("a line").to_string()).expect("writable");
    let missing = kew(&server, &["import", "--file", file]);
    missing.check_error(1, &["news/subscriptions/no does not exist"]);
    server.terminate();
}

#[test]
fn watch_shows_topics_and_subscriptions() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    ok(&server, &["bus", "create", "newspaper"]);
    for topic in ["news", "old"] {
        ok(&server, &["bus", "topic", "create", topic]);
        let name = format!("{topic}/subscriptions/a");
        ok(&server, &["bus", "subscription", "create", &name]);
    }
    ok(&server, &["bus", "send", "news", "x"]);
    let watched = |more: &[&str]| {
        let watch = ["bus", "watch", "-n", "1", "--json"];
        let done = ok(&server, &[&watch[..], more].concat());
        let queues = done.json()["queues"].as_array().expect("an array").clone();
        let rows = queues.iter();
        rows.map(|it| {
            format!(
                "{} {}",
                it["queue"].as_str().unwrap_or(""),
                it["active_messages"]
            )
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(
        watched(&[]),
        [
            "newspaper 0",
            "news 0",
            "news/subscriptions/a 1",
            "old 0",
            "old/subscriptions/a 0"
        ]
    );
    let prefixed = watched(&["--prefix", "news"]);
    assert_eq!(
        prefixed,
        ["newspaper 0", "news 0", "news/subscriptions/a 1"]
    );
    let prefixed = watched(&["--prefix", "news/"]);
    assert_eq!(prefixed, ["news/subscriptions/a 1"]);
    server.terminate();
}
