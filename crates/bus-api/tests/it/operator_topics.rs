//! Topics, subscriptions and rules in the operator's interface.

use bytes::BytesMut;
use kew_amqp::message::write_batch;
use kew_bus_api::{AuthorizationRule, Right, Rights};
use kew_engine::bus::{BusCommand, BusQueueOptions, NewRule};
use kew_filter::{Definition, Equality, FilterDefinition, OwnedValue, SqlDefinition};
use serde_json::{Value as Json, json};

use crate::audit::{listen, record_with};
use crate::client::{Server, message, queue_named, token_by};
use crate::operator::{get, refused};
use crate::rest::{ask_as, ask_bytes};

#[tokio::test]
async fn a_topic_is_shown_with_its_subscriptions_and_their_rules() {
    let server = Server::with_topic(&["all", "red"]).await;
    let filter = FilterDefinition::Correlation(vec![Equality::User {
        name: "color".into(),
        value: OwnedValue::Text("red".into()),
    }]);
    for (name, filter, action) in [
        ("color", filter, None),
        ("none", FilterDefinition::False, Some("SET a = 1")),
    ] {
        let action = action.map(|text| SqlDefinition {
            text: text.into(),
            ..SqlDefinition::default()
        });
        server
            .order(BusCommand::AddRule {
                topic: queue_named("events"),
                subscription: queue_named("events/subscriptions/red"),
                rule: Box::new(NewRule {
                    name: name.into(),
                    definition: Definition::new(filter, action).unwrap(),
                }),
            })
            .await;
    }
    let mut client = server.trusted().await;
    client.send_one("events", "one").await;
    let listed = get(&server, "GET", "topics", &Json::Null).await;
    assert_eq!(listed["topics"][0]["name"], "events");
    assert_eq!(listed["topics"][0]["subscriptions"], 2);
    assert_eq!(listed["next"], Json::Null);
    let shown = get(&server, "GET", "topics/Events", &Json::Null).await;
    assert_eq!(shown["topic"]["active_messages"], 0);
    let of = |index: usize| {
        let subscription = &shown["subscriptions"][index];
        let count = subscription["active_messages"].as_u64();
        (subscription["name"].as_str().unwrap().to_owned(), count)
    };
    assert_eq!(of(0), ("events/subscriptions/all".to_owned(), Some(1)));
    assert_eq!(of(1), ("events/subscriptions/red".to_owned(), Some(1)));
    let page = get(&server, "GET", "topics/events?limit=1&skip=1", &Json::Null).await;
    assert_eq!(page["subscriptions"].as_array().unwrap().len(), 1);
    assert_eq!(page["subscriptions"][0]["name"], "events/subscriptions/red");
    assert_eq!(page["next"], 2);
    let rules = get(
        &server,
        "GET",
        "rules/events/subscriptions/red?limit=2",
        &Json::Null,
    )
    .await;
    let names: Vec<_> = (0..2)
        .map(|it| rules["rules"][it]["name"].clone())
        .collect();
    assert_eq!(names, ["$Default", "color"]);
    assert_eq!(rules["next"], 2);
    assert_eq!(
        rules["rules"][1]["definition"],
        json!({"FilterType": "Correlation", "CorrelationFilter": {"Properties": {"color": "red"}}})
    );
    let rest = get(
        &server,
        "GET",
        "rules/events/subscriptions/red?skip=2",
        &Json::Null,
    )
    .await;
    let action = &rest["rules"][0]["definition"]["Action"];
    assert_eq!(action, &json!({"SqlExpression": "SET a = 1"}));
    for path in [
        "topics/jobs",
        "topics/absent",
        "rules/events",
        "rules/absent",
    ] {
        assert_eq!(
            refused(&server, "GET", path, "").await.status,
            404,
            "{path}"
        );
    }
    assert_eq!(refused(&server, "POST", "topics", "").await.status, 405);
}

/// Nobody can send there.
#[tokio::test]
async fn messages_are_put_into_one_subscription() {
    let server = Server::with_topic(&["a", "b"]).await;
    let mut batch = BytesMut::new();
    write_batch(&mut batch, &[message("one"), message("two")]);
    let path = "$kew/v1/deposit/Events/Subscriptions/A";
    let put = ask_bytes(&server, "POST", path, &batch).await;
    assert_eq!(put.status, 200, "{put:?}");
    assert_eq!(put.json(), json!({"deposited": 2, "without_number": 0}));
    let count = async |name: &str| {
        let view = server.view(&format!("events/subscriptions/{name}")).await;
        view.counts.active
    };
    assert_eq!((count("a").await, count("b").await), (2, 0));
    let listed = get(
        &server,
        "GET",
        "messages/events/subscriptions/a",
        &Json::Null,
    )
    .await;
    assert_eq!(listed["messages"][1]["body"], "two");
    // A queue and a topic get what is sent.
    for entity in ["jobs", "events"] {
        let put = ask_bytes(
            &server,
            "POST",
            &format!("$kew/v1/deposit/{entity}"),
            &batch,
        )
        .await;
        assert_eq!(put.status, 200, "{put:?}");
    }
    assert_eq!((count("a").await, count("b").await), (4, 2));
    assert_eq!(server.view("jobs").await.counts.active, 2);
    for (path, body, status, says) in [
        ("deposit/events/subscriptions/a", &b""[..], 400, "batch"),
        ("deposit/events/subscriptions/a", b"x", 400, "batch"),
        ("deposit/events/subscriptions/none", &batch, 404, "none"),
        (
            "deposit/events/subscriptions/a/$deadletterqueue",
            &batch,
            400,
            "sub-queue",
        ),
    ] {
        let refused = ask_bytes(&server, "POST", &format!("$kew/v1/{path}"), body).await;
        assert_eq!(refused.status, status, "{path}: {refused:?}");
        assert!(refused.body.contains(says), "{refused:?}");
    }
    assert_eq!(
        refused(&server, "GET", "deposit/jobs", "").await.status,
        405
    );
}

/// One who may send to a topic may not choose who gets it.
#[tokio::test]
async fn who_may_send_cannot_deposit() {
    listen();
    let server = Server::with_topic(&["a"]).await;
    let path = "$kew/v1/deposit/events/subscriptions/a";
    for (name, rights) in [
        ("sender", &[Right::Send][..]),
        ("both", &[Right::Send, Right::Listen]),
    ] {
        let rights: Rights = rights.iter().copied().collect();
        let rule = AuthorizationRule::generate(name, rights, 1).unwrap();
        server.add_rule(None, rule.clone()).await.unwrap();
        let token = token_by(name, "sb://localhost/", &rule.primary_key, 9_000_000_000);
        let authorization = [("Authorization", token.as_str())];
        let answer = ask_as(&server, "POST", path, &authorization, "").await;
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    // This much is read of a request that may do it.
    assert_eq!(ask_bytes(&server, "POST", path, b"").await.status, 400);
    assert_eq!(server.view("events/subscriptions/a").await.counts.active, 0);
}

#[tokio::test]
async fn the_audit_log_says_how_many_messages_were_deposited() {
    listen();
    let server = Server::start().await;
    let queue = queue_named("audited-deposits");
    server
        .order(BusCommand::CreateQueue {
            queue,
            options: BusQueueOptions::default(),
        })
        .await;
    let mut batch = BytesMut::new();
    write_batch(&mut batch, &[message("one"), message("two")]);
    let path = "$kew/v1/deposit/audited-deposits";
    assert_eq!(ask_bytes(&server, "POST", path, &batch).await.status, 200);
    let record = record_with("entity=\"audited-deposits\"").await;
    assert!(record.contains("2 messages"), "{record}");
}
